"""Turn raw logs of distributed training into Parquet, and compute where the time went.

Rooms; imports go only to the left of this line::

    base → schema → kernels → formats → storage → inputs → lake → execution
    → models → ingest → warehouse → output → nightly → synth → cli
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Return the version, read on first access: reading it takes longer than `--help`."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            return version("tracelake")
        except PackageNotFoundError:  # run from a tree that was never installed
            return "0+unknown"
