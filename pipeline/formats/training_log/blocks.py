"""Read trainers that print a block of lines per record: Composer (LLM Foundry), OLMo and OLMo-core.

Composer prints the hours that it has trained, so the time of a step is the mean since a record that
is long enough ago. OLMo-core prints the steps per second of the step itself. OLMo prints neither:
the dates of its records tell the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from tracelake.formats.readers import number, rounded_ns, whole
from tracelake.formats.training_log.elapsed import SECOND_NS, UNITS, Elapsed
from tracelake.formats.training_log.values import WAITED, StepLines, StepValues, logged_at

_STEP = r"\[step=(\d{1,9})/(\d{1,9}|\?\?\?)(?:,epoch=\d+)?(?:,eta=[^\[\]]*)?\]\s*"
_BATCH = r"(\[epoch=\d+\])?\[batch=(\d{1,9})(?:/(\d{1,9}))?\]:?\s*"
# Keys of a block: their columns, or what else they are.
_BEHIND, _HOURS, _RATE = "steps before", "time since the start", "steps per s"
_KEYS = {
    "Train time/batch": _BEHIND,
    "Train loss/train/total": "loss",
    "Train throughput/device/tokens_per_sec": "tokens_per_s",
    "Train time/train": _HOURS,
    "train/CrossEntropyLoss": "loss",
    "train/CE loss": "loss",
    "optim/total_grad_norm": "grad_norm",
    "optim/total grad norm": "grad_norm",
    "throughput/device/tokens_per_second": "tokens_per_s",
    "throughput/device/TPS": "tokens_per_s",
    "throughput/device/BPS": _RATE,
    "throughput/device/data loading (s)": WAITED,
}
# The last one of each record. OLMo-core sorts its keys.
_LAST = {"Train time/train", "train/CE loss", "throughput/device/tokens_per_second"}
_VALUE = rf"\s*({'|'.join(map(re.escape, _KEYS))})(?:: |=)(\S+)\s*"
_STEP_LINE = re.compile(f".*{_STEP}", re.ASCII)
_BATCH_LINE = re.compile(_BATCH, re.ASCII)
_VALUE_LINE = re.compile(_VALUE, re.ASCII)
_UNIT_LINE = re.compile(r"\s*time_unit: (second|minute|hour|day)s\s*", re.ASCII)
_TICKS = 10_000  # of a printed time: it has four digits behind the point


class Blocks(StepLines):
    """Reads the blocks of one file, in order."""

    LINES = rf"{_BATCH}|.*{_STEP}|{_VALUE}|\s*time_unit: \w+\s*"
    HEADS = (
        (b"Train time/batch: ", rb"\]:\s*\n[^\n]*\bTrain time/[a-z_]+: [0-9]"),
        (b"[step=", _STEP.encode() + rb"\n[^\n/]*\b(?:train|optim|throughput|System|system)/"),
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._unit = UNITS["hour"]
        self._elapsed = Elapsed(self._unit * SECOND_NS // _TICKS)

    def read(self, text: str) -> Iterator[StepValues]:
        """Yield what a line says of steps."""
        if found := _VALUE_LINE.fullmatch(text):
            yield from self._value(found[1], found[2].replace(",", ""))
        elif "[step=" in text and (found := _STEP_LINE.fullmatch(text)):
            # The first record of a job of OLMo has no speed, the last value of the others.
            if self.done is not None and "loss" in self._values:
                yield self.done, None, self._values
            self.done = int(found[1])
            self.total = 0 if found[2] == "???" else int(found[2])
            self._values = {"logged_at": logged_at(text)[0]}
        elif text.startswith("[") and (found := _BATCH_LINE.fullmatch(text)):
            self.total = 0 if found[1] else int(found[3] or 0)
            self._values = {}
        elif "time_unit" in text and (found := _UNIT_LINE.fullmatch(text)):
            self._unit = UNITS[found[1]]
            self._elapsed = Elapsed(self._unit * SECOND_NS // _TICKS)

    def _value(self, name: str, text: str) -> Iterator[StepValues]:
        """Yield what a value of a block says: with the last one of a record, all of it."""
        key = _KEYS[name]
        if key == _BEHIND:
            self.done = whole(text, 31) + 1
        elif self.done is None:
            return
        elif key == WAITED:  # by the slowest rank
            yield self.done, 1, {"timers": [(WAITED, "max", rounded_ns(text, 9))]}
        elif key == _RATE:
            if 0 < (rate := number(text)) < math.inf:
                self._values["step_time_ns"] = rounded_ns(repr(1 / rate), 9)
        elif key != _HOURS:
            self._values[key] = number(text)
        if name in _LAST:
            values, self._values = self._values, {}
            yield self.done, 1 if "step_time_ns" in values else None, values
        if key == _HOURS:
            yield from self._elapsed.take(self.done, rounded_ns(text, 9) * self._unit)
