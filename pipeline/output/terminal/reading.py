"""Resolve the name of a run."""

from __future__ import annotations

import re

import duckdb

from tracelake.base.errors import UsageError
from tracelake.warehouse.names import resolve_run

_EARLIER = re.compile(r"(?P<run>.*)~(?P<steps>\d{1,6})", re.DOTALL)
_HINT = "list the runs with: tracelake runs"
# Earlier runs of a run's configuration, the latest first.
_BEFORE = """
    SELECT b.run_id
    FROM runs AS a
    JOIN runs AS b ON b.config = a.config
        AND (coalesce(b.run_date, '-infinity'), b.run_id)
            < (coalesce(a.run_date, '-infinity'), a.run_id)
    WHERE a.run_id = $1
    ORDER BY b.run_date DESC NULLS LAST, b.run_id DESC
"""


def named_run(con: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the run that a word of the command line names.

    Args:
        text: A name for `resolve_run`, optionally with `~N`: the Nth run before that one with the
            same configuration.

    Raises:
        UsageError: It matches no run, or more than one.
    """
    earlier = _EARLIER.fullmatch(text)
    if earlier is None:
        return resolve_run(con, text)
    run_id, steps = resolve_run(con, earlier["run"]), int(earlier["steps"])
    return run_id if not steps else run_before(con, run_id, steps)


def run_before(
    con: duckdb.DuckDBPyConnection, run_id: str, steps: int = 1, hint: str = _HINT
) -> str:
    """Return the run of the same configuration that is `steps` runs earlier.

    Args:
        hint: What to do where there is none.

    Raises:
        UsageError: There are not enough earlier runs.
    """
    found = con.execute(f"{_BEFORE} LIMIT {steps}", [run_id]).fetchall()
    if len(found) < steps:
        raise UsageError(
            f"{run_id} has {len(found) or 'no'} earlier {'run' if len(found) == 1 else 'runs'}"
            " of its configuration",
            hint=hint,
        )
    return str(found[-1][0])
