"""Read the progress bars of NeMo, which Lightning and tqdm print.

tqdm rounds a number to three digits where that is shorter: step 1000.0 is `1e+3`, 1006.0 stays. The
count of the bar says which step it is. Lightning draws the bar twice per step, first with the
values of the step before.
"""

from __future__ import annotations

import re
from typing import Any

from tracelake.formats.readers import whole
from tracelake.formats.training_log.values import value_of

_BAR = re.compile(
    r".*, global_step=(\d+\.?\d*(?:e\+\d+)?),.*\btrain_step_timing in s=[0-9.]+[],].*", re.ASCII
)
_COUNT = re.compile(r"\b(\d{1,9})(?:/(?:\d+|\?)|it) \[", re.ASCII)
_KEYS = re.compile(r"(\w[\w ]*?)=([0-9.eE+-]+|-?(?:nan|inf)[.0]*)(?=[],])", re.ASCII)
_WHOLE = re.compile(r"(\d+|-?nan|-?inf)\.0*", re.ASCII)  # Lightning fills with zeros


class Bars:
    """The progress bars of one file, in order."""

    def __init__(self) -> None:
        self._values: list[tuple[str, str]] = []
        self._done = 0  # count of the latest bar
        self._before = 0  # steps before the first that its count counts

    def read(self, text: str) -> tuple[int, dict[str, Any]] | None:
        """Return step and values of a bar; nothing of one that says nothing new.

        Raises:
            BadValueError: A column cannot hold a value.
        """
        found = _BAR.fullmatch(text) if "train_step_timing in s=" in text else None
        if found is None or (values := _KEYS.findall(text)) == self._values:
            return None
        self._values = values
        counted = _COUNT.search(text)
        step = self._step(found[1], int(counted[1]) if counted else None)
        if step is None:
            return None
        columns: dict[str, Any] = {}
        for key, said in values:
            exact = _WHOLE.fullmatch(said)
            if "e+" not in said:
                columns |= value_of(key.strip(), exact[1] if exact else said)
        return step, columns

    def _step(self, said: str, count: int | None) -> int | None:
        """Return the step, which the bar counts from 0; nothing if only its rounding is known."""
        exact = _WHOLE.fullmatch(said)
        if count is None:
            return whole(exact[1], 31) + 1 if exact else None
        # A count that begins anew is that of another epoch.
        before = self._before + (self._done if count < self._done else 0)
        step = whole(exact[1], 31) + 1 if exact else count + before
        if not exact and f"{step - 1:.2e}" != f"{float(said):.2e}":
            return None
        self._done, self._before = count, step - count
        return step
