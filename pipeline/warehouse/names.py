"""Resolve a run's name: its id, a unique part of one, or `latest`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime

import duckdb

from tracelake.base.errors import UsageError
from tracelake.models.base import engine_errors

LATEST = "latest"
_SHOWN = 8


def resolve_run(con: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the id of the run that `text` names, in a connection of `open_warehouse`.

    Raises:
        UsageError: See `meant_run`.
        LakeError: The runs cannot be read.
    """
    with engine_errors("the runs of the lake"):
        dates = dict(
            con.execute(
                "SELECT run_id, run_date FROM runs ORDER BY run_date DESC NULLS LAST, run_id"
            ).fetchall()
        )
    return meant_run(text, dates)


def meant_run(text: str, dates: Mapping[str, datetime | None]) -> str:
    """Return the id that `text` names among these runs, given with their dates.

    A full id takes precedence. `latest` is the run with the newest date. Other text must be the
    beginning of one id only or, if it begins none, a part of one only.

    Raises:
        UsageError: It names no run or several; the hint lists similar ids.
    """
    if text in dates:
        return text
    if text == LATEST:
        newest = max((date for date in dates.values() if date is not None), default=None)
        if newest is None:
            raise UsageError(
                "no run of the lake has a date, so there is no latest run", hint="tracelake runs"
            )
        return _only(text, [run_id for run_id, date in dates.items() if date == newest])
    begun = [run_id for run_id in dates if run_id.startswith(text)]
    meant = begun or [run_id for run_id in dates if text in run_id]
    if not meant:
        near = difflib.get_close_matches(text, dates, n=_SHOWN, cutoff=0.5)
        raise UsageError(
            f"no run {text!r} in the lake",
            hint=f"did you mean {_listed(near)}?" if near else "list them with: tracelake runs",
        )
    return _only(text, meant)


def _only(text: str, meant: Sequence[str]) -> str:
    if len(meant) > 1:
        raise UsageError(
            f"{text!r} matches {len(meant):,} runs", hint=f"use one of {_listed(meant)}"
        )
    return meant[0]


def _listed(run_ids: Sequence[str]) -> str:
    more = f" and {len(run_ids) - _SHOWN:,} more" if len(run_ids) > _SHOWN else ""
    return ", ".join(run_ids[:_SHOWN]) + more
