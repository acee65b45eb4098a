"""Turn raw logs of distributed training into Parquet, and compute where the time went.

From Python::

    import tracelake

    summary = tracelake.run(["/logs"], "lake")
    lake = tracelake.open("lake")
    lake.sql("FROM straggler_ranks").pl()

Rooms; imports go only to the left of this line::

    base → schema → kernels → formats → storage → inputs → lake → execution
    → models → ingest → warehouse → output → nightly → synth → cli → api
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["OpenLake", "TracelakeError", "__version__", "open", "run"]

if TYPE_CHECKING:
    from tracelake.api.job import run
    from tracelake.api.reader import OpenLake
    from tracelake.api.reader import open_lake as open  # noqa: A004 - tracelake.open, as in sqlite or gzip
    from tracelake.base.errors import TracelakeError

    __version__: str
else:
    # Public name -> module and name; imported on first access, so that `--help` stays quick.
    _EXPORTED = {
        "open": ("tracelake.api.reader", "open_lake"),
        "run": ("tracelake.api.job", "run"),
        "OpenLake": ("tracelake.api.reader", "OpenLake"),
        "TracelakeError": ("tracelake.base.errors", "TracelakeError"),
    }

    def __getattr__(name: str) -> object:
        """Return an exported name, or the version, which takes longer to read than `--help`."""
        if name in _EXPORTED:
            import importlib  # noqa: PLC0415

            module, found = _EXPORTED[name]
            return getattr(importlib.import_module(module), found)
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            return version("tracelake")
        except PackageNotFoundError:  # run from a tree that was never installed
            return "0+unknown"

    def __dir__() -> list[str]:
        return sorted(__all__)
