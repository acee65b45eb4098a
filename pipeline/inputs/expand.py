"""Read how far an input may expand, so that a compression bomb has a bounded cost."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracelake.base.errors import UsageError
from tracelake.base.memory_limit import parse_size

# Every input may expand to this, whatever the factor: a log of one repeated line is not a bomb.
ALWAYS_BYTES = 10**9

_FACTOR = re.compile(r"(\d{1,9})x", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DecompressionLimit:
    """The limit of `--max-expand`: a multiple of the size on disk, or a number of bytes."""

    factor: int | None = 1000
    size: int | None = None

    @classmethod
    def parse(cls, text: str) -> DecompressionLimit:
        """Read 1000x or 50GB.

        Raises:
            UsageError: It is neither.
        """
        if found := _FACTOR.fullmatch(text.strip()):
            return cls(factor=int(found[1]))
        try:
            return cls(factor=None, size=parse_size(text))
        except UsageError:
            raise UsageError(
                f"--max-expand {text!r} is not a limit",
                hint="give a multiple, 1000x, or a size, 50GB",
            ) from None

    def bytes_of(self, stored: int) -> int:
        """Return how many bytes a file of this size may expand to."""
        if self.size is not None:
            return self.size
        return max(ALWAYS_BYTES, (self.factor or 0) * stored)


DEFAULT_EXPANSION = DecompressionLimit()
