"""Tell by the first bytes of a file whether it has a line of a trainer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from tracelake.formats import Claim

Heads = tuple[tuple[bytes, bytes], ...]
"""Words of four bytes or more, and expressions of the lines that have them."""

_MIXER = np.uint32(0x9E3779B1)
_DIGITS = np.uint32(13)  # of a hash: a table of so many fits the fastest cache
_SHIFT = np.uint32(32) - _DIGITS
# Most logs have such a line within so many bytes: to look there takes a tenth of the time.
_FIRST_BYTES = 4096


class KnownLines:
    """Looks for lines of many kinds.

    Every input is asked for them that no format knows by its first line. So words come before
    expressions, and before words one pass over all places in a text where one may begin, which
    takes a quarter of the time of a search per word; there are fifty.

    Example:
        >>> known = KnownLines({Claim.YES: [(b"step:", rb"step: [0-9]+")]})
        >>> known.claim(b"step: 1"), known.claim(b"step: one")
        (<Claim.YES: 3>, <Claim.NO: 0>)
    """

    def __init__(self, heads: Mapping[Claim, Iterable[tuple[bytes, bytes]]]) -> None:
        """Prepare for kinds of lines by what each says of a file that has one."""
        found = defaultdict[int, list[tuple[Claim, bytes, bytes]]](list)
        for claim, kinds in heads.items():
            for word, line in kinds:
                beginning = int(np.frombuffer(word, "<u4", 1)[0])
                found[beginning].append((claim, word, line))
        self._kinds = dict(found)
        self._may_begin = np.zeros(1 << _DIGITS, np.bool_)
        self._may_begin[_hashes(np.array([*found], np.uint32))] = True

    def claim(self, text: bytes) -> Claim:
        """Return the strongest claim of a line of the text."""
        first = text[: text.rfind(b"\n", 0, _FIRST_BYTES) + 1]
        return Claim.YES if self._claim(first) is Claim.YES else self._claim(text)

    def _claim(self, text: bytes) -> Claim:
        beginnings = set[int]()
        for first in range(min(4, len(text) - 3)):
            places = np.frombuffer(text, "<u4", (len(text) - first) // 4, first)
            kept = self._may_begin.take(_hashes(places), mode="wrap")  # without a check of bounds
            beginnings.update(places[kept].tolist())
        best = Claim.NO
        for beginning in beginnings & self._kinds.keys():
            for claim, word, line in self._kinds[beginning]:
                if claim > best and word in text and re.search(line, text):
                    best = claim
        return best


def _hashes(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return (numbers * _MIXER) >> _SHIFT
