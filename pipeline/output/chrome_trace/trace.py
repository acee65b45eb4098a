"""Write a run as a Chrome trace: the object form of the Trace Event Format.

The format is described by "Trace Event Format" (Google, the document that Perfetto and
chrome://tracing refer to): `X` slices, `s`/`t`/`f` flow events, `M` metadata, microseconds.

A process is a rank, a thread one kind of its operations. The slices of a thread never overlap: a
slice that would overlap goes to a further thread of its kind. Only the transfer of a receive lies
inside another slice.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice, starmap
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

import duckdb
from isal import igzip

from tracelake import __version__
from tracelake.base.errors import UsageError
from tracelake.base.figures import count
from tracelake.base.files import output, replaceable
from tracelake.base.text import counted
from tracelake.lake.store import Lake
from tracelake.models.describe import relation_columns
from tracelake.output.chrome_trace import queries
from tracelake.output.chrome_trace.selection import Selection, select
from tracelake.schema.tables import reasons
from tracelake.warehouse.names import resolve_run
from tracelake.warehouse.values import Row, read_rows
from tracelake.warehouse.warehouse import ATTEMPTS, ask, run_rows

# Kind of slice -> name of its thread, in order of display.
TRACKS = {
    "window": "pipeline windows",
    "step": "steps",
    "compute": "compute",
    "in_op": "communication inside operations",
    "p2p": "p2p",
    "collective": "collective",
    "optimizer": "optimizer",
    "data": "data",
    "other": "other operations",
    "waiting": "waiting",
}
_PLACE = {kind: place for place, kind in enumerate(TRACKS)}


class Slice(NamedTuple):
    """A slice from the queries; its texts lack the thread and the end.

    Attributes:
        rank: None for the pipeline as a whole.
        flow: Event of the arrow that starts or ends here.
        waited_ns: End of the wait at its beginning.
        transfer: Slice inside a receive that ends with it.
    """

    rank: int | None
    kind: str
    from_ns: int
    to_ns: int
    text: str
    flow: str | None = None
    waited_ns: int | None = None
    wait: str | None = None
    transfer: str | None = None


class Threads:
    """Puts slices on threads and counts them.

    Args:
        pid: Process id of the pipeline; thread ids are above it.

    Attributes:
        slices: Number of slices written, by kind.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._spare = pid + 1 + pid * len(TRACKS)
        self._ends: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self.slices: Counter[str] = Counter()

    def events(self, slices: Iterable[Slice]) -> Iterator[str]:
        """Yield text of the slices; the name of a new thread comes before its first slice."""
        for slice_ in slices:
            pid = self._pid if slice_.rank is None else slice_.rank + 1
            kind = slice_.kind if slice_.kind in TRACKS else "other"
            tid, named = self._thread(pid, kind, slice_.from_ns, slice_.to_ns)
            yield from named
            yield f'{slice_.text},"tid":{tid}}}'
            if slice_.transfer is not None:
                self.slices["transfer"] += 1
                yield f'{slice_.transfer},"tid":{tid}}}'
            if slice_.flow is not None:
                yield f'{slice_.flow},"tid":{tid}}}'
            if slice_.wait is not None and slice_.waited_ns is not None:
                tid, named = self._thread(pid, "waiting", slice_.from_ns, slice_.waited_ns)
                yield from named
                yield f'{slice_.wait},"tid":{tid}}}'

    def _thread(self, pid: int, kind: str, from_ns: int, to_ns: int) -> tuple[int, tuple[str, ...]]:
        """Return the first free thread of the kind at that time, and its name if it is new."""
        self.slices[kind] += 1
        lanes = self._ends.setdefault((pid, kind), [])
        for lane, (tid, end_ns) in enumerate(lanes):
            if end_ns <= from_ns:
                lanes[lane] = (tid, to_ns)
                return tid, ()
        tid = self._pid + 1 + (pid - 1) * len(TRACKS) + _PLACE[kind]
        name = TRACKS[kind]
        if lanes:
            tid, self._spare = self._spare, self._spare + 1
            name = f"{name} ({len(lanes) + 1})"
        lanes.append((tid, to_ns))
        return tid, (
            metadata("thread_name", {"name": name}, pid, tid),
            metadata("thread_sort_index", {"sort_index": _PLACE[kind]}, pid, tid),
        )


def metadata(name: str, args: Mapping[str, Any], pid: int, tid: int | None = None) -> str:
    """Return a metadata event of a process, or of one of its threads."""
    where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return as_json({"ph": "M", "name": name, **where, "args": args})


def as_json(value: object) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# Memory limit of DuckDB before it spills; the pieces that are read are far smaller.
ENGINE_BYTES = 1_000_000_000
_ROWS_AT_ONCE = 4_096

_LEVEL = 2
_EVENTS_AT_ONCE = 2_000
_SUFFIXES = ("", ".json", ".gz")


@contextlib.contextmanager
def opened(out: Path | BinaryIO) -> Iterator[IO[bytes]]:
    """Yield a stream of bytes into `out`, compressed if its name ends in .gz.

    See `tracelake.base.files.output`.

    Raises:
        UsageError: It cannot be written, or its suffix is that of another format.
    """
    if not isinstance(out, Path):
        yield out
        out.flush()
        return
    suffix = out.suffix.lower()
    if suffix not in _SUFFIXES:
        raise UsageError(
            f"a timeline cannot be written as {out.suffix}", hint="use .json or .json.gz"
        )
    with output(out) as file, _compressed(file) if suffix == ".gz" else file as stream:
        yield stream


def _compressed(file: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """Return a gzip stream without name and date, so equal timelines are equal files."""
    stream = igzip.IGzipFile(  # type: ignore[no-untyped-call]
        filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0
    )
    return cast(AbstractContextManager[IO[bytes]], stream)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline that was written.

    Attributes:
        slices: Operations, sub-operations, steps, windows and waits.
        arrows: Calls whose members are linked.
        notes: Caveats: clocks that are not aligned, operations without a slice, calls without an
            arrow.
    """

    run_id: str
    ranks: int
    steps: int
    slices: int
    arrows: int
    notes: tuple[str, ...]

    def summary(self) -> str:
        """Return one line for people."""
        return (
            f"timeline: {self.run_id}, {counted(self.ranks, 'rank')},"
            f" {counted(self.steps, 'step')}, {counted(self.slices, 'slice')},"
            f" {counted(self.arrows, 'linked call')}"
        )


def write_timeline(
    lake: Lake,
    run: str,
    out: Path | BinaryIO,
    *,
    steps: range | None = None,
    ranks: Sequence[range] = (),
) -> Timeline:
    """Write the timeline of a run; memory does not grow with its length.

    Args:
        run: See `tracelake.warehouse.names.resolve_run`.
        out: A file, compressed where its name ends in .gz, or a stream.
        steps: Only these; all by default.
        ranks: Only these; all by default.

    Raises:
        UsageError: There is no such run, step or rank, the run has no operations with times, or
            the file cannot be written.
        LakeError: The lake has no warehouse, or cannot be read.
    """

    def write(con: duckdb.DuckDBPyConnection) -> Timeline:
        run_id = resolve_run(con, run)
        for name in queries.LARGE:  # a view of all runs opens the parts of each
            con.execute(f"CREATE TEMP VIEW {name} AS {run_rows(con, lake, name, run_id)}")
        selection = select(con, run_id, steps, ranks)
        with opened(out) as stream:
            return _write(con, selection, stream)

    # Data in a stream or a pipe cannot be taken back.
    repeatable = isinstance(out, Path) and replaceable(out)
    attempts = ATTEMPTS if repeatable else 1
    return ask(lake, "the timeline", write, memory=ENGINE_BYTES, attempts=attempts)


def _events(
    con: duckdb.DuckDBPyConnection,
    selection: Selection,
    threads: Threads,
    arrows: Counter[str],
    span: Mapping[str, int],
) -> Iterator[str]:
    """Yield all events; count the calls that several ranks made, and those of them with arrows."""
    yield from _processes(con, selection)
    windows = {**span, "pid": selection.pid}
    yield from threads.events(_slices(con, queries.WINDOWS, selection, windows))
    ends = {"first_rank": selection.ranks[0], "last_rank": selection.ranks[-1]}
    for piece in selection.pieces():
        steps = {"first_step": piece.first_step, "last_step": piece.last_step}
        con.execute(queries.ARROWS, {"run": selection.run_id, **steps, **ends})
        ((calls, drawn),) = con.execute(queries.ARROWS_COUNT).fetchall()
        for first_rank, last_rank in piece.blocks:
            chosen = {**steps, "first_rank": first_rank, "last_rank": last_rank}
            yield from threads.events(_slices(con, queries.RANK_STEPS, selection, chosen))
            chosen |= {"arrows_before": arrows["calls"]}
            yield from threads.events(_slices(con, queries.SLICES, selection, chosen))
        arrows.update(calls=calls, drawn=drawn)


def _write(con: duckdb.DuckDBPyConnection, selection: Selection, stream: IO[bytes]) -> Timeline:
    """Write a JSON object with its events as the first member, as they come."""
    threads, arrows = Threads(selection.pid), Counter(calls=0, drawn=0)
    span = {"first_step": selection.steps[0][0], "last_step": selection.steps[-1][0]}
    events, lead = _events(con, selection, threads, arrows, span), '{"traceEvents":[\n'
    while some := list(islice(events, _EVENTS_AT_ONCE)):
        stream.write((lead + ",\n".join(some)).encode())
        lead = ",\n"
    clocks = read_rows(con, queries.CLOCKS)
    # Operations and sub-operations, of which some have no slice.
    beside = sum(threads.slices[kind] for kind in ("step", "window", "waiting", "transfer"))
    without = sum(n for _, n in selection.steps) - threads.slices.total() + beside
    done = Timeline(
        selection.run_id,
        len(selection.ranks),
        len(selection.steps),
        threads.slices.total(),
        arrows["drawn"],
        tuple(_notes(clocks, arrows, without)),
    )
    stream.write(f"\n],{as_json(_other_members(con, done, clocks, span))[1:]}\n".encode())
    return done


def _slices(
    con: duckdb.DuckDBPyConnection, sql: str, selection: Selection, parameters: Mapping[str, int]
) -> Iterator[Slice]:
    answer = con.execute(sql, {"run": selection.run_id, **parameters})
    while rows := answer.fetchmany(_ROWS_AT_ONCE):
        yield from starmap(Slice, rows)


def _processes(con: duckdb.DuckDBPyConnection, selection: Selection) -> Iterator[str]:
    """Yield names and order of the processes: the pipeline first, then the ranks."""
    yield metadata("process_name", {"name": "pipeline"}, selection.pid)
    yield metadata("process_sort_index", {"sort_index": -1}, selection.pid)
    for row in read_rows(con, "FROM timeline_chosen ORDER BY rank"):
        pid, name = row["rank"] + 1, [f"rank {row['rank']}"]
        name += [] if row["stage"] is None else [f"stage {row['stage']}"]
        name += [f"{what} {row[what]}" for what in ("host", "device") if row[what] is not None]
        yield metadata("process_name", {"name": " · ".join(name)}, pid)
        yield metadata("process_labels", {"labels": _clock_label(row)}, pid)
        yield metadata("process_sort_index", {"sort_index": row["rank"]}, pid)


def _clock_label(rank: Mapping[str, Any]) -> str:
    if not rank["aligned"]:
        return f"own clock: {rank['reason']}"
    if rank["basis"] == "shared":
        return "reference clock"
    return f"clock {rank['offset_ms']:+g} ± {rank['uncertainty_ms']:g} ms, aligned"


def _notes(clocks: Sequence[Row], arrows: Counter[str], without: int) -> Iterator[str]:
    alone = [clock for clock in clocks if not clock["aligned"]]
    for reason in dict.fromkeys(clock["reason"] for clock in alone):
        its = [clock for clock in alone if clock["reason"] == reason]
        yield (
            f"{counted(sum(c['ranks'] for c in its), 'rank')} on {counted(len(its), 'clock')} that"
            f" cannot be aligned ({reason}: {reasons()[reason].rstrip('.')}): do not compare"
            " times of different clocks; each of these begins at 0"
        )
    if (missing := arrows["calls"] - arrows["drawn"]) > 0:
        yield (
            f"{counted(missing, 'call')} of {count(arrows['calls'])} without"
            " arrows: the times of their members contradict the order, or their clocks are not"
            " aligned"
        )
    if without:
        yield f"{counted(without, 'operation')} without times have no slice"


def _other_members(
    con: duckdb.DuckDBPyConnection, done: Timeline, clocks: Sequence[Row], span: Mapping[str, int]
) -> dict[str, Any]:
    (facts,) = read_rows(
        con,
        "SELECT format, name, run_date::VARCHAR AS run_date, world_size, tp, pp, dp, ep, cp, vpp,"
        " micro_batches FROM runs WHERE run_id = $1",
        [done.run_id],
    )
    origin = next((clock["zero_ns"] for clock in clocks if clock["aligned"]), None)
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "run_id": done.run_id,
            "tracelake": __version__,
            "origin_ns": origin,
            "time": "microseconds since origin_ns on the reference clock, that of the lowest rank;"
            " of a clock that is not aligned, since its own zero_ns",
            **span,
            "ranks": done.ranks,
            "slices": done.slices,
            "linked_calls": done.arrows,
            "notes": list(done.notes),
            "run": {name: value for name, value in facts.items() if value is not None},
            "clocks": [
                {name: value for name, value in clock.items() if value is not None}
                for clock in clocks
            ],
            "definitions": _definitions(),
        },
    }


def _definitions() -> dict[str, str]:
    """Return the meanings of the arguments of slices."""
    shown = {*queries.SLICE_ARGS, *queries.STEP_ARGS}
    return {
        column.name: column.doc
        for relation in queries.LARGE
        for column in relation_columns(relation)
        if column.name in shown
    }
