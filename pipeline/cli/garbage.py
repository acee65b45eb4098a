"""Reduce the cost of Python's garbage collector for imported libraries.

Libraries create tens of thousands of objects that live until the end. Python would search them
several times, which takes a tenth of a second. Frozen objects are still freed with their last
reference.
"""

from __future__ import annotations

import atexit
import gc
import sys

_LATE = "duckdb"


def spare_imported() -> None:
    """Exclude all objects from garbage collection when DuckDB is imported, or else at the end.

    DuckDB complains at the end if its own objects were not collected.
    """
    # Not during imports either: nothing is garbage then, and collection takes a fifth of the time.
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    if not any(isinstance(finder, _BeforeDuckDB) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeDuckDB())
        atexit.register(_freeze_at_end)


class _BeforeDuckDB:
    """Finds no module, but sees the name of each when it is first imported."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        del path, target
        if fullname == _LATE:
            gc.freeze()


def _freeze_at_end() -> None:
    if _LATE not in sys.modules:
        gc.freeze()
