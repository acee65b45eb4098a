"""Read `trainer_log.jsonl` of LLaMA-Factory: a JSON object per record of the Trainer.

It prints the time since the start in whole seconds, so the time of a step is a mean over as many
steps as take half a minute. Records of an evaluation have no loss; those of a prediction have no
epoch, and are of no step.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tracelake.formats.readers import BadValueError, whole
from tracelake.formats.training_log.elapsed import SECOND_NS, Elapsed, clock_ns
from tracelake.formats.training_log.values import StepLines, StepValues, gib, value_of

_BEGIN = '{"current_steps": '
# A time since the start, as Python prints it.
_CLOCK = re.compile(r"(?:(\d{1,4}) days?, )?(\d{1,2}):(\d\d):(\d\d)", re.ASCII)


class History(StepLines):
    """Reads the records of one file, in order."""

    LINES = r'\{"current_steps": \d+, "total_steps": \d+, .*\}'
    HEADS = (
        (
            b'{"current_steps"',
            rb'\{"current_steps": [0-9]+, "total_steps": [0-9]+, [^{}]*"epoch": [0-9]',
        ),
    )

    def __init__(self) -> None:
        self._elapsed = Elapsed(SECOND_NS)
        self._logged = (-1, 0)  # step and time of the latest loss

    def read(self, text: str) -> list[StepValues]:
        """Return what a record says of steps; `BadValueError` also where it is no JSON."""
        if not text.startswith(_BEGIN):
            return []
        try:
            record = json.loads(text, parse_float=str, parse_int=str, parse_constant=_not_finite)
        except (ValueError, RecursionError) as error:
            raise BadValueError(text) from error
        if "epoch" not in record:
            return []
        values: dict[str, Any] = {}
        for key in ("loss", "lr", "learning_rate"):
            if isinstance(value := record.get(key), str):
                values |= value_of(key, value)
        if "vram_allocated" in record:
            values["memory_bytes"] = gib(str(record["vram_allocated"]))
        done, self.total = (
            whole(str(record.get(key)), 31) for key in ("current_steps", "total_steps")
        )
        self.done = done
        records: list[StepValues] = []
        clock = _CLOCK.fullmatch(str(record.get("elapsed_time")))
        if clock is None:
            raise BadValueError(text)
        at_ns = clock_ns(*clock.groups())
        if "loss" in values:
            records.append((done, None, values))
            step, before_ns = self._logged
            # Where hosts write to one file, the others repeat a step, by clocks of their own.
            if step == done and at_ns >= before_ns:
                return records
            self._logged = done, at_ns
        return records + self._elapsed.take(done, at_ns)


def _not_finite(text: str) -> str:
    """Return NaN or Infinity, which are no JSON, as other trainers print them."""
    return text.replace("Infinity", "inf")
