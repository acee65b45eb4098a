"""Resolve a run's name: its id, label or hash, a unique part of one, `latest`, or `RUN~1`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import duckdb

from tracelake.base.errors import UsageError
from tracelake.base.figures import count, minute
from tracelake.base.text import some
from tracelake.models.base import engine_errors
from tracelake.models.catalog import catalog

LATEST = "latest"
_SHOWN = 8
_EARLIER = re.compile(r"(?P<run>.*)~(?P<steps>\d{1,6})", re.DOTALL)
# Earlier runs of a run's configuration, the latest first.
_BEFORE = """
    SELECT b.run_id
    FROM run_history AS a
    JOIN run_history AS b ON b.config = a.config
        AND (coalesce(b.run_date, '-infinity'), b.run_id)
            < (coalesce(a.run_date, '-infinity'), a.run_id)
    WHERE a.run_id = $1
    ORDER BY b.run_date DESC NULLS LAST, b.run_id DESC
"""


class NamedRun(NamedTuple):
    """A run with what it can be called by, as lists show it."""

    run_id: str
    label: str
    hash: str
    date: datetime | None

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names of the run, in lower case."""
        return tuple(name.lower() for name in (self.run_id, self.hash, self.label))

    def __str__(self) -> str:
        """Return what a hint shows: a name that finds this run, and what says which it is."""
        label = "" if self.hash == self.label else self.label
        said = ", ".join(filter(None, [label, minute(self.date)]))
        return f"{self.hash} ({said})" if said else self.hash


def resolve_run(con: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the id of the run that `text` names, in a connection of `open_warehouse`.

    Args:
        text: A name for `meant_run`, perhaps with `~N`: the Nth run before that one with the same
            configuration.

    Raises:
        UsageError: It names no run, or several.
        LakeError: The runs cannot be read.
    """
    earlier = _EARLIER.fullmatch(text)
    steps = int(earlier["steps"]) if earlier else 0
    with engine_errors("the runs of the lake"):
        run_id = meant_run(earlier["run"] if earlier else text, named_runs(con))
        return run_before(con, run_id, steps) if steps else run_id


def run_before(
    con: duckdb.DuckDBPyConnection,
    run_id: str,
    steps: int = 1,
    hint: str = "list the runs with: tracelake runs",
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


def named_runs(con: duckdb.DuckDBPyConnection) -> list[NamedRun]:
    """Return the runs of the warehouse, the newest first."""
    names = catalog().models["_run_names"].sql
    rows = con.execute(
        f"SELECT run_id, n.label, n.hash, r.run_date FROM ({names}) AS n"
        " JOIN runs AS r USING (run_id) ORDER BY r.run_date DESC NULLS LAST, run_id"
    ).fetchall()
    return [NamedRun(*row) for row in rows]


def meant_run(text: str, runs: Iterable[NamedRun]) -> str:
    """Return the id that `text` names among these runs.

    A full id takes precedence. `latest` is the run with the newest date, or the only one. Other
    text is a label or the hash of an id; else it begins an id or a label; else it is a part of one.
    It must do so for one run only; upper and lower case are the same.

    Raises:
        UsageError: It names no run or several; the hint lists similar names.
    """
    known = list(runs)
    if any(text == run.run_id for run in known):
        return text
    if text == LATEST:
        if not known:
            raise UsageError("the lake has no runs", hint="add some with: tracelake run INPUT")
        newest = max((run.date for run in known if run.date is not None), default=None)
        if newest is None and len(known) != 1:
            raise UsageError(
                "no run of the lake has a date, so there is no latest run",
                hint=f"use one of {some(known, _SHOWN)}",
            )
        return _only(text, [run for run in known if run.date == newest])
    wanted = text.lower()
    equal = [run for run in known if wanted in run.names]
    begun = equal or [run for run in known if any(n.startswith(wanted) for n in run.names)]
    meant = begun or [run for run in known if any(wanted in n for n in run.names)]
    if not meant:
        names = {name: run for run in reversed(known) for name in run.names}
        near = difflib.get_close_matches(wanted, names, n=_SHOWN, cutoff=0.5)
        similar = list(dict.fromkeys(names[name] for name in near))
        raise UsageError(
            f"no run {text!r} in the lake",
            hint=f"did you mean {some(similar, _SHOWN)}?"
            if near
            else "list them with: tracelake runs",
        )
    return _only(text, meant)


def _only(text: str, meant: Sequence[NamedRun]) -> str:
    if len(meant) > 1:
        raise UsageError(
            f"{text!r} matches {count(len(meant))} runs", hint=f"use one of {some(meant, _SHOWN)}"
        )
    return meant[0].run_id
