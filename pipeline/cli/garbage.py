"""Spares a command the search for garbage among what libraries make when they are imported.

Tens of thousands of objects stay until the end, and then Python goes through all of them several
times: that takes a tenth of a second. What is frozen is still freed by its last reference.
"""

from __future__ import annotations

import atexit
import gc
import sys

_LATE = "duckdb"


def spare_imported() -> None:
    """Has no garbage searched for among all that is there before DuckDB, or else at the end.

    DuckDB complains at the end where not all that is its own was found.
    """
    # Nor while they are imported: nothing is garbage then, and it takes a fifth of the time.
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    if not any(isinstance(finder, _BeforeDuckDB) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeDuckDB())
        atexit.register(_freeze_at_end)


class _BeforeDuckDB:
    """Finds no module, but learns of each when it is first imported."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        del path, target
        if fullname == _LATE:
            gc.freeze()


def _freeze_at_end() -> None:
    if _LATE not in sys.modules:
        gc.freeze()
