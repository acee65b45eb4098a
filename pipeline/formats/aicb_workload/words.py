"""Intern the words of a workload plan, and map communication words to collectives."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tracelake.formats.aicb_workload.rows import Records
from tracelake.kernels.arrow import is_utf8, text_of
from tracelake.kernels.tokens import Tokens, TokenTable

PASSES = ("forward", "input_grad", "weight_grad")

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
GROUPS = ("tp", "dp", "expert", "dp_ep")

_WORDS = ("ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL")
_SUFFIXES = ("", "_EP", "_DP_EP")
_DEFAULT_GROUPS = ("tp", "tp", "dp")

COMM_WORDS = [word + suffix for word in _WORDS for suffix in _SUFFIXES]
"""Every word that moves data."""

MEANING = np.array(
    [
        [
            (collective, GROUPS.index(group))
            for collective in range(len(COLLECTIVES))
            for group in (default, "expert", "dp_ep")
        ]
        for default in _DEFAULT_GROUPS
    ],
    np.int32,
)
"""By pass and word: indices into COLLECTIVES and GROUPS."""

FIRST_LAYER = len(COMM_WORDS)
"""Token of the layer that begins a micro-batch."""

_FIXED = [word.encode() for word in (*COMM_WORDS, "embedding_layer")]
_KEPT = 1 << 14

fields_of = re.compile(r"[^ \t\n\v\f\r]+").findall
"""Splits a line as the simulator does: at ASCII blanks only."""


class Words:
    """Words of the rows by token; those that move data come first, in order."""

    def __init__(self) -> None:
        self._table = TokenTable(_FIXED)
        self._texts: list[str] = []
        self._foreign: list[int] = []

    @property
    def tokens(self) -> Tokens:
        """The token table for kernels."""
        return self._table.tokens

    def reserve(self, length: int) -> None:
        """Make space for the words of a line."""
        self._table.reserve(length)

    def crowded(self) -> bool:
        """Return whether to start a new table, so that memory is bounded if every word is new."""
        return len(self._table) > _KEPT

    def texts(self) -> Sequence[str]:
        """Return every word so far."""
        for token in range(len(self._texts), len(self._table)):
            raw = self._table.raw(token)
            self._texts.append(text_of(raw))
            if not is_utf8(raw):
                self._foreign.append(token)
        return self._texts

    def not_utf8(self, rows: Records) -> Records:
        """Return rows with a word that is not UTF-8."""
        self.texts()
        if not self._foreign:
            return rows[:0]
        return rows[np.isin(rows["words"], self._foreign).any(axis=1)]
