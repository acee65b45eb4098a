"""Open DuckDB's own shell on a lake's warehouse."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NoReturn

from tracelake.base.errors import UsageError
from tracelake.lake.store import Lake
from tracelake.models.base import point_views
from tracelake.models.state import recorded
from tracelake.warehouse.warehouse import open_warehouse

_PROGRAM = "duckdb"
_INSTEAD = "or use: tracelake query"


def open_shell(lake: Lake, *, ui: bool = False) -> NoReturn:
    """Replace this process with DuckDB's shell on the warehouse, read-only.

    Args:
        ui: Also open DuckDB's page in a browser.

    Raises:
        UsageError: No `duckdb` program is on the PATH, or it cannot read the warehouse.
        LakeError: See `open_warehouse`.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise UsageError(
            "there is no duckdb program on the PATH",
            hint=f"install it with: pip install duckdb-cli; {_INSTEAD}",
        )
    open_warehouse(lake).close()
    built = recorded(lake.warehouse).state
    moved = built is None or built.root != lake.part_files.base
    opened = [program, "-readonly", str(lake.warehouse)]
    tried = subprocess.run(
        [*opened, "-c", "SELECT 1"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if tried.returncode:
        lines = tried.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(
            f"this duckdb cannot open the warehouse: {lines[0] if lines else 'no message'}",
            path=program,
            hint=f"install a newer one: pip install --upgrade duckdb-cli; {_INSTEAD}",
        )
    place = ["-cmd", point_views(lake.part_files.base)] if moved else []
    os.execv(program, [*opened, *place, *(["-ui"] if ui else [])])
