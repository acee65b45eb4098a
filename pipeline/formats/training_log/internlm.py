"""Read InternLM and InternEvo: a record of each step, whose dates give its time.

Pairs are separated by commas, and later by blanks. Steps are counted from 0.
"""

from __future__ import annotations

import re

from tracelake.formats.readers import rounded_ns
from tracelake.formats.training_log.values import PRINTED, StepLines, StepValues, numbers_of

_RECORD = r"\btflops=[^ ,]+[, ]step=[0-9]{1,9}[, ]loss=.*\btgs \(tokens/gpu/second\)=[0-9]"
_BEGIN = re.compile(_RECORD, re.ASCII)
_PAIR = re.compile(rf"\b(\w[\w/]*(?: \([^()=]*\))?)=({PRINTED})(?=[, ]|$)", re.ASCII)
# Since 2024 the norm is one of each group of parameters, and left out.
_COLUMNS = {
    "tflops": "tflops_per_gpu",
    "loss": "loss",
    "tgs (tokens/gpu/second)": "tokens_per_s",
    "lr": "lr",
    "loss_scale": "loss_scale",
    "grad_norm": "grad_norm",
}


class Batches(StepLines):
    """Reads the records of one file, in order."""

    LINES = rf".*{_RECORD}.*"
    HEADS = ((b"tgs (tokens/gpu/second)=", _RECORD.encode()),)

    def read(self, text: str) -> list[StepValues]:
        """Return the record of a line, and how long its passes took."""
        found = _BEGIN.search(text) if "tgs (tokens/gpu/second)=" in text else None
        if found is None:
            return []
        pairs = dict(_PAIR.findall(text, found.start()))
        self.done = int(pairs["step"]) + 1
        values = numbers_of(pairs, _COLUMNS)
        if "fwd_bwd_time" in pairs:
            values["timers"] = [("fwd_bwd", "own", rounded_ns(pairs["fwd_bwd_time"], 9))]
        return [(self.done, None, values)]
