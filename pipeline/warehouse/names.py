"""Resolve a run's name: its id, its label, its hash, a unique part of one, or `latest`."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import duckdb

from tracelake.base.errors import UsageError
from tracelake.base.figures import count
from tracelake.models.base import engine_errors

LATEST = "latest"
# Relation with the names of all runs; `named_runs` takes its rows.
NAMES_SQL = "SELECT run_id, label, run_date FROM runs ORDER BY run_date DESC NULLS LAST, run_id"
_SHOWN = 8
_HASHED = re.compile(r".*-([0-9a-f]{8})", re.DOTALL)


class NamedRun(NamedTuple):
    """A run with what it can be called by; runs of earlier versions have no label."""

    run_id: str
    label: str | None
    date: datetime | None

    @property
    def short(self) -> str:
        """The hash that ends the id, or the whole id."""
        found = _HASHED.fullmatch(self.run_id)
        return found[1] if found else self.run_id

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the run, in lower case."""
        return tuple(name.lower() for name in (self.run_id, self.short, self.label) if name)

    def __str__(self) -> str:
        """Return the name that a hint shows: one that finds this run and says which it is."""
        return self.run_id if self.label is None else f"{self.short} ({self.label})"


def resolve_run(con: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the id of the run that `text` names, in a connection of `open_warehouse`.

    Raises:
        UsageError: See `meant_run`.
        LakeError: The runs cannot be read.
    """
    with engine_errors("the runs of the lake"):
        rows = con.execute(NAMES_SQL).fetchall()
    return meant_run(text, [NamedRun(*row) for row in rows])


def meant_run(text: str, runs: Iterable[NamedRun]) -> str:
    """Return the id that `text` names among these runs.

    A full id takes precedence. `latest` is the run with the newest date. Other text is a label or
    the hash of an id; else it begins an id or a label; else it is a part of one. It must do so for
    one run only; upper and lower case are the same.

    Raises:
        UsageError: It names no run or several; the hint lists similar names.
    """
    known = list(runs)
    if any(text == run.run_id for run in known):
        return text
    if text == LATEST:
        newest = max((run.date for run in known if run.date is not None), default=None)
        if newest is None:
            raise UsageError(
                "no run of the lake has a date, so there is no latest run", hint="tracelake runs"
            )
        return _only(text, [run for run in known if run.date == newest], known)
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
            hint=f"did you mean {_listed(similar, known)}?"
            if near
            else "list them with: tracelake runs",
        )
    return _only(text, meant, known)


def _only(text: str, meant: Sequence[NamedRun], known: Iterable[NamedRun]) -> str:
    if len(meant) > 1:
        raise UsageError(
            f"{text!r} matches {count(len(meant))} runs", hint=f"use one of {_listed(meant, known)}"
        )
    return meant[0].run_id


def _listed(runs: Sequence[NamedRun], known: Iterable[NamedRun]) -> str:
    more = f" and {count(len(runs) - _SHOWN)} more" if len(runs) > _SHOWN else ""
    named = Counter(name for run in known for name in set(run.names))
    shown = [str(run) if named[run.short.lower()] == 1 else run.run_id for run in runs[:_SHOWN]]
    return ", ".join(shown) + more
