"""Read MindSpore Transformers (MindFormers): a record has the mean time of the latest steps.

It says the step within the epoch, or of the job where it trains no epochs.
"""

from __future__ import annotations

import re

from tracelake.formats.readers import number, rounded_ns
from tracelake.formats.training_log.values import (
    PRINTED,
    StepLines,
    StepValues,
    logged_at,
    numbers_in,
)

_LINE = re.compile(
    r".*\{ (?:Epoch:\[ *(\d{1,6})/ *(\d{1,6})\], )?step:\[ *(\d{1,9})/ *(\d{1,9})\],"
    rf" loss: +({PRINTED}), per_step_time: +(\d{{1,12}})ms,.*",
    re.ASCII,
)
_VALUES = (
    ("lr", re.compile(rf", lr: +({PRINTED})(?=,| |$)", re.ASCII)),
    ("loss_scale", re.compile(rf", loss_scale: +({PRINTED})(?=,| |$)", re.ASCII)),
    (
        "grad_norm",
        re.compile(rf", (?:grad_norm: +|global_norm: \[ *)({PRINTED})(?=[\],])", re.ASCII),
    ),
    ("tflops_per_gpu", re.compile(r"throughput(?:_per_npu)?: +([0-9.]+)T\b", re.ASCII)),
)


class Losses(StepLines):
    """Reads the records of one file, in order."""

    LINES = r".*, per_step_time: +\d+ms,.*"
    HEADS = (
        (
            b", per_step_time: ",
            rb"\bstep:\[ *[0-9]+/ *[0-9]+\], loss: +[0-9na.-]+, per_step_time: +[0-9]+ms,",
        ),
    )

    def read(self, text: str) -> list[StepValues]:
        """Return the record of a line."""
        found = _LINE.fullmatch(text) if ", per_step_time: " in text else None
        if found is None:
            return []
        epoch, epochs, step, steps = (int(digits or 1) for digits in found.groups()[:4])
        self.done, self.total = (epoch - 1) * steps + step, epochs * steps
        values = numbers_in(text, _VALUES)
        values |= {"loss": number(found[5]), "step_time_ns": rounded_ns(found[6], 6)}
        return [(self.done, None, {"logged_at": logged_at(text)[0], **values})]
