"""Read fairseq: its progress records as JSON, and as `key=value` behind the place in the epoch.

They print the time since the start in whole seconds, so the time of a step is a mean over as many
updates as take half a minute. Their rates are rounded too much to give it.
"""

from __future__ import annotations

import re

from tracelake.formats.readers import rounded_ns, whole
from tracelake.formats.training_log.elapsed import SECOND_NS, Elapsed
from tracelake.formats.training_log.values import (
    PRINTED,
    StepLines,
    StepValues,
    logged_at,
    numbers_of,
)

# Summaries of an epoch have none of these beginnings.
_RECORD = (
    r'(?:(?:\| train_inner \| |\[train_inner\]\[INFO\] - )\{"epoch": \d|\| epoch \d+: +\d+ / \d+ )'
)
_BEGIN = re.compile(_RECORD, re.ASCII)
_PAIR = re.compile(rf'(?<!\w)(\w+)(?:=|": "?)({PRINTED})(?=[",}}]|\s*$)', re.ASCII)
_COLUMNS = {
    "loss": "loss",
    "gnorm": "grad_norm",
    "lr": "lr",
    "loss_scale": "loss_scale",
    "wps": "tokens_per_s",
}


class Updates(StepLines):
    """Reads the records of one file, in order."""

    LINES = rf".*{_RECORD}.*\bnum_updates.*"
    HEADS = ((b"num_updates", _RECORD.replace(r"\d", "[0-9]").encode()),)

    def __init__(self) -> None:
        self._elapsed = Elapsed(SECOND_NS)

    def read(self, text: str) -> list[StepValues]:
        """Return loss and time of the updates that a record ends."""
        if "num_updates" not in text or not (found := _BEGIN.search(text)):
            return []
        pairs = dict(_PAIR.findall(text, found.start()))
        if "num_updates" not in pairs or "wall" not in pairs:
            return []
        self.done = whole(pairs["num_updates"], 31)
        values = numbers_of(pairs, _COLUMNS)
        # The first record has no interval: it prints 0. Until 2019 it is a mean over the epoch.
        if not values.get("tokens_per_s") or "train_inner" not in text:
            values.pop("tokens_per_s", None)
        times = self._elapsed.take(self.done, rounded_ns(pairs["wall"], 9))
        return [(self.done, None, {"logged_at": logged_at(text)[0], **values}), *times]
