"""Files are known by lines anywhere in their first bytes."""

from __future__ import annotations

import pytest

from tracelake.formats import Claim, format_named

RECORD = b"iteration        7/     500 | elapsed time per iteration (ms): 1.0 |"
LAUNCHED = b"[Primus:pretrain] python train.py"


@pytest.mark.parametrize("before", [b"", *(b"\n" * length for length in (1, 2, 3, 4, 997))])
@pytest.mark.parametrize("behind", [b"", b"\n", b"\nnothing else"])
def test_a_line_is_found_wherever_it_is(before: bytes, behind: bytes) -> None:
    sniff = format_named("training_log").sniff
    assert sniff(before + RECORD + behind) is Claim.YES
    assert sniff(before + LAUNCHED + behind) is Claim.MAYBE
    both = [LAUNCHED + b"\n" + RECORD, RECORD + b"\n" + LAUNCHED]
    assert [sniff(before + lines + behind) for lines in both] == [Claim.YES] * 2


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"a",
        b"ite",
        b"iter",
        b"iteration",
        b"iteration one of 500 |",
        RECORD.replace(b"|", b""),
    ],
)
def test_words_alone_are_no_line(text: bytes) -> None:
    assert format_named("training_log").sniff(text) is Claim.NO
