"""Tell why a file of no format is none: files that jobs often leave, and that say too little."""

from __future__ import annotations

import re

from tracelake.formats import first_text

# What a file begins with, by the reason for which it is skipped.
_UNREAD = {
    "utf_16": re.compile(rb"\xff\xfe|\xfe\xff"),
    "other_trace": re.compile(
        rb'\{[\s\S]*"traceEvents"\s*:\s*\[|\[\s*\{[\s\S]{0,2000}?"ph"\s*:\s*"[A-Za-z]"', re.ASCII
    ),
    # trainer_state.json of Hugging Face, metrics.csv of Lightning without a column of times, and
    # the log of torchtune.
    "no_times": re.compile(
        rb'\{[\s\S]*"log_history"\s*:\s*\[|(?=(?:\S*,)?epoch[,\s])(?=(?:\S*,)?step[,\s])'
        rb"(?![^\n]*time)[\w/.-]+(?:,[\w/.-]+)+\r?\n"
        rb"|Step \d+ \| (?:[\w/]+:[\d.e+-]+ )+\r?\n",
        re.ASCII,
    ),
}


def reason_of(head: bytes) -> str:
    r"""Return the reason for which a file that no format claims is skipped.

    Args:
        head: Its first bytes.

    Returns:
        A key of `skip_reasons`.

    Example:
        >>> reason_of(b"epoch,step,train_loss\n0,9,2.5\n")
        'no_times'
    """
    text = first_text(head)
    return next((reason for reason, begin in _UNREAD.items() if begin.match(text)), "no_format")
