"""Answer what a run would have taken, by a replay of its steps with other lengths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from tracelake.base.errors import UsageError
from tracelake.lake.store import Lake
from tracelake.models.base import engine_errors, own, select_parts
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect
from tracelake.models.memory import MemoryLimit
from tracelake.schema.tables import reasons, tables
from tracelake.warehouse.names import resolve_run
from tracelake.warehouse.values import read_rows
from tracelake.warehouse.warehouse import ask, spill_folder

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelake.models.replay import Runs, Steps

_SUBJECTS = ("rank", "stage", "kind")
_FACTOR = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")
_SHORT = {"forward": "forward_step", "backward": "backward_step"}
_RUN = """
    SELECT run_id, t_ms, peer_ms, balanced_ms, s_peer, s_balance, cause, gpu_hours_lost, w.steps,
        reason, balance_reason, world_size
    FROM runs LEFT JOIN whatif_runs AS w USING (run_id)
    WHERE run_id = $1
"""
_WORDS = {
    "rank": "rank {} as fast as its peers",
    "stage": "stage {} with equal peers",
    "kind": "{} as fast as among peers",
}


@dataclass(frozen=True)
class Change:
    """One change of a question: `rank=7`, `split=even`, or a factor for a kind.

    Attributes:
        factor: Of the lengths; None to use those of peers.
    """

    subject: str
    value: str
    factor: float | None = None

    def words(self) -> str:
        """Return it in words."""
        if self.subject == "micro-batches":
            return f"{self.value} micro-{'batch' if self.value == '1' else 'batches'}"
        if self.factor is not None:
            return f"{self.value} taking {self.factor:g} times as long"
        return _WORDS.get(self.subject, "stages that compute equally long").format(self.value)


@dataclass(frozen=True)
class Replayed:
    """A step as it was and as it would have been."""

    step: Steps
    kinds: Sequence[str]
    before: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]


def read_fix(text: str) -> Change:
    """Return the change that `--fix` asks for.

    Raises:
        UsageError: It is none.
    """
    subject, _, value = text.partition("=")
    hint = "use rank=N, stage=N, kind=NAME (see whatif_kinds), split=even or micro-batches=N"
    if subject == "split" and value != "even":
        hint = "a trace has no times of single layers: use split=even, or see stage_rebalance"
    elif subject == "link":
        hint = "a replay knows no single links: use kind=send_recv:forward, or see link_health"
    elif subject == "micro-batches":
        if re.fullmatch("[1-9][0-9]{0,5}", value):
            return Change(subject, value)
        hint = "use micro-batches=N with a whole number from 1 to 999999"
    known = subject in _SUBJECTS and value and (subject == "kind" or value.isdecimal())
    if not known and text != "split=even":
        raise UsageError(f"--fix {text} is no change of a replay", hint=hint)
    return Change(subject, _SHORT.get(value, value))


def read_scale(text: str) -> Change:
    """Return the change that `--scale` asks for.

    Raises:
        UsageError: It is none.
    """
    kind, _, factor = text.rpartition("=")
    if not kind or not _FACTOR.fullmatch(factor):
        raise UsageError(
            f"--scale {text} is not a kind of operation and a factor",
            hint="use KIND=FACTOR with a factor below 10000 and at most 6 decimals, such as"
            " forward=0.9",
        )
    return Change("kind", _SHORT.get(kind, kind), float(factor))


def answer(
    lake: Lake, run: str, changes: Sequence[Change]
) -> tuple[dict[str, Any], Replayed | None]:
    """Return what is known of a run, and what the changes would make of it.

    What speeds up the same twice does so once.

    Returns:
        A document, and the step that is nearest to the mean, if there are changes.

    Raises:
        UsageError: There is no such run, rank, stage or kind, or the run cannot be replayed.
        LakeError: See `open_warehouse`.
    """
    document = ask(lake, "the run", lambda con: _known(con, resolve_run(con, run)))
    run_id = document["run_id"]
    if not changes:
        return document, None
    if document["t_ms"] is None:
        reason = document["reason"]
        meaning = reasons().get(reason, "").rstrip(".")
        raise UsageError(
            f"{run_id} cannot be replayed: "
            + (f"{reason}. {meaning}" if reason else "it has no operations"),
            hint="runs that can: tracelake query 'FROM whatif_runs WHERE t_ms IS NOT NULL'",
        )
    if document["balanced_ms"] is None and any(change.subject == "split" for change in changes):
        raise UsageError(
            f"--fix split=even: no even split of {run_id} can be replayed, because its stages do"
            " not have the same pieces",
            hint="tracelake describe stage_rebalance shows a split by layers",
        )
    changes = [c for k, c in enumerate(changes) if c.factor is not None or c not in changes[:k]]
    rows, shown, there = [], None, 0
    batches = _micro_batches(changes)
    with _steps(lake, run_id) as steps:
        for step in steps:
            own = step.length_ns
            changed = _changed(step, steps.kinds, changes)
            before = _time_of(step, own)
            after, changed = _with_batches(step, changed, batches)
            there += len(_batches_of(step))
            rows.append({"step": step.number, "t_ms": before / 1e6, "changed_ms": after / 1e6})
            off = abs(before / 1e6 - document["t_ms"])
            if shown is None or off < shown[0]:
                shown = off, Replayed(step, steps.kinds, own, changed)
    assert shown is not None
    after_ms = sum(row["changed_ms"] for row in rows) / len(rows)
    saved = round(document["t_ms"] - after_ms, 6)  # lengths are whole nanoseconds
    # For the same samples, where a step has more or fewer of them.
    as_many = 1.0 if batches is None else there / len(rows) / batches
    saved_alike = round(document["t_ms"] - after_ms * as_many, 6)
    world = document["world_size"]
    document["question"] = {
        "changes": [change.words() for change in changes],
        "changed_ms": after_ms,
        "saved_ms": saved,
        "saved_ratio": saved / document["t_ms"] if document["t_ms"] else None,
        "samples_ratio": 1 / as_many,
        "sample_saved_ratio": saved_alike / document["t_ms"] if document["t_ms"] else None,
        "gpu_hours_saved": None if world is None else world * saved_alike * len(rows) / 3.6e6,
        "steps": rows,
    }
    return document, shown[1]


def _micro_batches(changes: Sequence[Change]) -> int | None:
    """Return how many micro-batches the changes ask for; they may ask for one number only."""
    wanted = {int(change.value) for change in changes if change.subject == "micro-batches"}
    if len(wanted) > 1:
        raise UsageError("--fix micro-batches=N: given twice", hint="ask for one number at a time")
    return wanted.pop() if wanted else None


def _batches_of(step: Steps) -> npt.NDArray[np.int64]:
    return np.unique(step.batches[step.batches >= 0])


def _with_batches(
    step: Steps, lengths: npt.NDArray[np.int64], wanted: int | None
) -> tuple[float, npt.NDArray[np.int64]]:
    """Return the time of a step with so many micro-batches, and the lengths of its nodes.

    Fewer: operations of the last ones take no time. More: each takes what the second to the last
    one of the step took on average, so the trace must tell several.
    """
    if wanted is None:
        return _time_of(step, lengths), lengths
    there = _batches_of(step)
    if len(there) < min(2, wanted):
        raise UsageError(
            f"--fix micro-batches={wanted}: step {step.number} has {len(there)} in the trace",
            hint="ask it of a run whose steps have several",
        )
    left = np.where(step.batches > there[min(wanted, len(there)) - 1], 0, lengths)
    if wanted <= len(there):
        return _time_of(step, left), left
    first = np.where(step.batches > there[0], 0, lengths)
    whole, least = _time_of(step, lengths), _time_of(step, first)
    return whole + (wanted - len(there)) * (whole - least) / (len(there) - 1), lengths


def _time_of(step: Steps, lengths: npt.NDArray[np.int64]) -> int:
    ((time_ns,),) = step.graph.times(lengths)
    assert time_ns is not None
    return time_ns


def _known(con: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, Any]:
    (document,) = read_rows(con, _RUN, [run_id])
    lists = {"ranks": "rank, stage, slowdown_ratio, fixed_ratio", "kinds": "kind, slowdown_ratio"}
    for name, columns in lists.items():
        document[name] = read_rows(
            con,
            f"SELECT {columns}, lost_ms FROM whatif_{name}"
            " WHERE run_id = $1 AND lost_ms IS NOT NULL ORDER BY lost_ms DESC, 1",
            [run_id],
        )
    return document


@contextmanager
def _steps(lake: Lake, run_id: str) -> Iterator[Runs]:
    """Yield the steps of a run, computed from its parts."""
    from tracelake.models.columns import (  # noqa: PLC0415 - slow to import
        pieces_of_steps,
        read_columns,
    )
    from tracelake.models.replay import steps_of  # noqa: PLC0415 - likewise

    models, files, snapshot = catalog(), lake.part_files, lake.snapshot()
    with ExitStack() as held:
        folder = spill_folder(lake, held)
        with (
            engine_errors("the run"),
            connect(
                folder, temp_directory=str(folder / "spill"), preserve_insertion_order=False
            ) as con,
        ):
            limit = MemoryLimit(con, 1)
            files.mount(con)
            con.execute(models.macros)
            for name, parts in snapshot.parts_by_table([run_id]).items():
                table, older = tables()[name], snapshot.older
                select = select_parts(table, files.base, parts, older, only=[run_id])
                con.execute(f"CREATE VIEW {own(name)} AS {select}")
            for model in models.upstream(models.inputs["_whatif_replays"]):
                limit.within(con, model.name, partial(compute, con, model))
            pieces = pieces_of_steps(con, models.models["_whatif_replays"].sql)
            columns = (read_columns(con, piece) for piece in pieces)
            steps = held.enter_context(steps_of(columns, folder, together=False))
        yield steps


def _changed(step: Steps, kinds: Sequence[str], changes: Sequence[Change]) -> npt.NDArray[np.int64]:
    """Return the lengths of a step's nodes after the changes."""
    lengths = step.length_ns.copy()
    for change in changes:
        if change.subject == "micro-batches":
            continue
        if change.subject == "split":
            moved = step.balanced_ns - step.peer_ns
            lengths = np.maximum(lengths + moved, 0)
            continue
        keys = {"rank": step.ranks, "stage": step.stages, "kind": step.kinds}[change.subject]
        if change.subject == "kind":
            wanted = kinds.index(change.value) if change.value in kinds else -1
            known = ", ".join(sorted(kinds))
        else:
            wanted = int(change.value)
            known = ", ".join(map(str, np.unique(keys)))
        chosen = keys == wanted
        if wanted < 0 or not (chosen.any() or change.subject == "kind"):
            raise UsageError(
                f"the run has no {change.subject} {change.value}", hint=f"use one of {known}"
            )
        if change.factor is None:
            lengths[chosen] = step.peer_ns[chosen]
        else:
            lengths[chosen] = np.rint(lengths[chosen] * change.factor).astype(np.int64)
    return lengths
