"""A run that a parser raises an error on is left out and named; all other runs are read."""

from __future__ import annotations

import errno
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest

from tests.conftest import Command
from tests.lakes import rows, run_ingest, statuses
from tests.traces import plan, trace, trace_name, write
from tracelake.base.errors import InputError, TracelakeError, UsageError
from tracelake.formats import Chunk, Format, aicb_workload, formats, rank_trace
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.parquet import PartWriter
from tracelake.lake.store import Lake

MARK = "raises"
# Where a parser raises its error.
CALLS = ("made", "feed", "drain", "batches", "finish")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets two parsers raise an error for a run with a marked line."""

    def breaking(error: BaseException, call: str = "feed") -> None:
        for module in (aicb_workload._Parser, rank_trace._Parser):
            _break(monkeypatch, module, error, call)

    return breaking


def _break(monkeypatch: pytest.MonkeyPatch, parser: Any, error: BaseException, call: str) -> None:
    made, feed, drain, finish = parser.__init__, parser.feed, parser.drain, parser.finish

    def init(self: Any, run: Any, ledger: Any) -> None:
        made(self, run, ledger)
        self.marked = False
        if call == "made" and any(MARK in source.path for source in run.sources):
            raise error

    def broken_feed(self: Any, chunk: Chunk) -> None:
        feed(self, chunk)
        self.marked |= MARK.encode() in chunk.data.tobytes()
        if self.marked and call == "feed":
            raise error

    def broken_drain(self: Any) -> Any:
        if self.marked and call == "drain":
            raise error
        ready = drain(self)
        return {t: torn(b) for t, b in ready.items()} if self.marked else ready

    def torn(batches: Any) -> Iterator[pa.RecordBatch]:
        yield from batches
        if call == "batches":
            raise error

    def broken_finish(self: Any) -> Any:
        if self.marked and call == "finish":
            raise error
        return finish(self)

    for name, changed in {
        "__init__": init,
        "feed": broken_feed,
        "drain": broken_drain,
        "finish": broken_finish,
    }.items():
        monkeypatch.setattr(parser, name, changed)


def panic() -> BaseException:
    """An error in the Rust code of polars, which is no Exception."""
    kind: type[BaseException] = pl.exceptions.PanicException
    return kind("it cannot be")


def files(*, good: int = 3) -> dict[str, str | bytes]:
    """Plans, one of which is marked, and the traces of two ranks."""
    return {
        **{f"plan{n}.txt": plan(3 + n, name=f"p{n}_") for n in range(good)},
        f"{MARK}.txt": plan(9, name=MARK),
        **{f"job/{trace_name(rank)}": trace(rank, steps=3) for rank in range(2)},
    }


def tar(content: dict[str, str | bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, text in content.items():
            data = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return whole.getvalue()


@pytest.mark.parametrize("call", CALLS)
def test_a_run_whose_parser_fails_costs_itself_alone(
    broken: Callable[..., None], tmp_path: Path, call: str
) -> None:
    folder, lake = write(tmp_path / "in", files()), tmp_path / "lake"
    broken(ValueError("it cannot be"), call)
    report = run_ingest(folder, lake, jobs=2)
    assert statuses(report) == ["new"] * 4
    (failure,) = report.failures
    assert (failure.input, failure.format) == (f"{MARK}.txt", "aicb_workload")
    assert failure.error == "ValueError: it cannot be"
    assert failure.place.startswith("ingest/test_parser_failures.py:")
    assert rows(lake, "skipped", "path, reason") == [(f"{MARK}.txt", "parser_failed")]
    assert len(Lake.open(lake).snapshot().runs) == 4
    assert not list((lake / "_staging").iterdir())
    assert failure.run_id not in {run_id for run_id, *_ in rows(lake, "sources", "run_id")}


@pytest.mark.parametrize(
    "error",
    [
        OverflowError("x"),
        IndexError("x"),
        TypeError("x"),
        RecursionError("x"),
        ZeroDivisionError("x"),
        KeyError("x"),
        StopIteration("x"),
        pa.ArrowInvalid("x"),
        pl.exceptions.ComputeError("x"),
        OSError("what pyarrow says of bytes that are no Parquet"),
        ValueError("a line of megabytes" * 100_000),
        panic(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_error_of_a_parser_is_fenced(
    broken: Callable[..., None], tmp_path: Path, error: BaseException
) -> None:
    broken(error)
    report = run_ingest(write(tmp_path / "in", files(good=1)), tmp_path / "lake")
    (failure,) = report.failures
    assert failure.error.partition(":")[0] == type(error).__name__
    assert len(failure.error + failure.trace) < 11_000


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        CancelledError(),
        KeyboardInterrupt(),
        SystemExit(7),
        UsageError("x"),
        InputError("x"),
        OSError(errno.ENOSPC, "no space"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("call", ["feed", "batches"])
def test_errors_that_mean_the_job_end_it(
    broken: Callable[..., None], tmp_path: Path, error: BaseException, call: str
) -> None:
    broken(error, call)
    with pytest.raises(type(error)):
        run_ingest(write(tmp_path / "in", files(good=1)), tmp_path / "lake")


def test_an_error_of_the_writer_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is not the parser's, so it is not known to concern one run only."""

    def add(self: PartWriter, table: str, batches: Any, run_id: str) -> None:
        raise ValueError(f"{self} {table} {batches} {run_id}")

    monkeypatch.setattr(PartWriter, "add", add)
    with pytest.raises(ValueError, match="workload_passes"):
        run_ingest(write(tmp_path / "in", {"plan.txt": plan()}), tmp_path / "lake")


def test_facts_that_no_column_can_hold_are_the_parsers_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finish = rank_trace._Parser.finish

    def too_large(self: Any) -> Any:
        found = finish(self)
        return replace(found, params=2**70)

    monkeypatch.setattr(rank_trace._Parser, "finish", too_large)
    report = run_ingest(write(tmp_path / "in", files()), tmp_path / "lake")
    (failure,) = report.failures
    assert (failure.format, failure.more_inputs) == ("rank_trace", 1)
    assert rows(tmp_path / "lake", "skipped", "path, reason", "ORDER BY ALL") == [
        (f"job/{trace_name(rank)}", "parser_failed") for rank in range(2)
    ]


def test_facts_of_one_of_many_small_runs_cost_itself_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What small runs say of themselves is converted at once, also what no column can hold."""
    finish = aicb_workload._Parser.finish
    folder = write(tmp_path / "in", {f"plan{n}.txt": plan(3 + n, name=f"p{n}_") for n in range(5)})
    names = iter(range(5))

    def third_too_large(self: Any) -> Any:
        found = finish(self)
        return replace(found, params=2**70) if next(names) == 2 else found

    monkeypatch.setattr(aicb_workload._Parser, "finish", third_too_large)
    report = run_ingest(folder, tmp_path / "lake", jobs=1)
    (failure,) = report.failures
    assert (failure.error.partition(":")[0], failure.more_inputs) == ("OverflowError", 0)
    assert rows(tmp_path / "lake", "skipped", "path, reason") == [(failure.input, "parser_failed")]
    monkeypatch.undo()
    run_ingest(folder, tmp_path / "expected")
    lost = f"WHERE run_id <> '{failure.run_id}' ORDER BY ALL"
    for table in ("runs", "sources", "workload_passes"):
        found = rows(tmp_path / "lake", table, "*", "ORDER BY ALL")
        assert found == rows(tmp_path / "expected", table, "*", lost)
        assert len({run_id for run_id, *_ in rows(tmp_path / "lake", table, "run_id")}) == 4


@pytest.mark.parametrize("call", CALLS)
def test_a_run_in_a_tar_does_not_spoil_the_others(
    broken: Callable[..., None], tmp_path: Path, call: str
) -> None:
    """A failing run of several ranks, whose members lie between those of others."""
    bad = {
        f"{MARK}/{trace_name(rank, stamp='20250202000000')}": trace(
            rank, steps=3, start=9e3
        ).replace("None", MARK, int(rank == 1))
        for rank in range(4)
    }
    names = iter(bad)
    mixed: dict[str, str | bytes] = {}
    for name, content in files().items():
        mixed[name] = content
        if (other := next(names, None)) is not None:
            mixed[other] = bad[other]
    good = {name: content for name, content in mixed.items() if MARK not in name}
    lake, expected = tmp_path / "lake", tmp_path / "expected"
    run_ingest(write(tmp_path / "good", {"jobs.tar.gz": tar(good)}), expected)
    broken(ValueError("it cannot be"), call)
    report = run_ingest(write(tmp_path / "in", {"jobs.tar.gz": tar(mixed)}), lake)
    assert [failure.format for failure in report.failures] == ["aicb_workload", "rank_trace"]
    for table in ("ops", "workload_passes"):
        assert rows(lake, table, "*", "ORDER BY ALL") == rows(expected, table, "*", "ORDER BY ALL")
    skipped = rows(lake, "skipped", "member, reason", "ORDER BY ALL")
    assert skipped == sorted((name, "parser_failed") for name in mixed if MARK in name)


def test_a_run_that_is_in_the_lake_stays_and_the_input_is_tried_again(
    broken: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, lake = write(tmp_path / "in", files()), tmp_path / "lake"
    run_ingest(folder, lake)
    before = rows(lake, "workload_passes", "*", "ORDER BY ALL")
    write(folder, {f"{MARK}.txt": plan(9, name=MARK) + "more\n"})
    with monkeypatch.context():
        broken(ValueError("it cannot be"))
        for _ in range(2):
            report = run_ingest(folder, lake)
            assert statuses(report) == ["unchanged"] * 4
            assert [failure.input for failure in report.failures] == [f"{MARK}.txt"]
            assert rows(lake, "workload_passes", "*", "ORDER BY ALL") == before
            assert rows(lake, "skipped", "reason") == [("parser_failed",)]
            assert not any("already has" in line for line in report.as_lines())
        monkeypatch.undo()
    report = run_ingest(folder, lake)
    assert statuses(report) == ["unchanged"] * 4 + ["updated"]
    assert rows(lake, "skipped", "reason") == []
    assert len(rows(lake, "rejects", "line")) == 1


def test_an_input_with_nothing_else_is_named_too(
    broken: Callable[..., None], tmp_path: Path
) -> None:
    broken(ValueError("it cannot be"))
    folder = write(tmp_path / "in", {f"{MARK}.txt": plan(9, name=MARK)})
    with pytest.raises(TracelakeError, match="ValueError: it cannot be"):
        ingest([str(folder)], Lake.create(tmp_path / "lake"), Options())


def test_the_command_names_file_format_and_error_and_does_the_rest(
    broken: Callable[..., None],
    tracelake: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    content = files()
    content[f"job/{trace_name(0)}"] = trace(0, steps=3) + "rank:0:torn(\n"
    write(tmp_path / "in", content)
    lake, summary = tmp_path / "lake", tmp_path / "summary.json"
    job = ("run", tmp_path / "in", "--lake", lake, "--summary", summary, "--max-bad-ratio", "1")
    broken(ValueError("it cannot be"))
    first = tracelake(*job, "--fail-on", "faults,rejects", "--quiet")
    assert (first.code, "Traceback" in first.err) == (3, False)
    assert "error: 1 run left out, because tracelake's reader of the format failed" in first.err
    assert f"  {MARK}.txt (aicb_workload, run {MARK}-" in first.err
    assert "): ValueError: it cannot be, in ingest/test_parser_failures.py:" in first.err
    assert "report it" in first.err
    assert (
        "error: 2 gates of 2 failed\n  faults: 1 file\n    no run: raises.txt: trace" in first.err
    )
    assert "  rejects: 1 run\n    wd2_tp2" in first.err
    told = json.loads(summary.read_text())
    assert told["exit_code"] == 3
    assert told["ingest"]["skipped"] == {"parser_failed": 1}
    assert "ValueError: it cannot be" in told["errors"][0]["what"]
    assert len(told["runs"]) == 4
    assert "s reader of the format failed" in (lake / "report.html").read_text()
    again = tracelake(*job)
    assert (again.code, "ValueError: it cannot be" in again.err) == (3, True)
    assert f"skipped 1 file on which tracelake's reader failed: {MARK}.txt" in again.err
    monkeypatch.setenv("TRACELAKE_TRACEBACK", "1")
    ingested = tracelake("ingest", tmp_path / "in", "--lake", lake, "--max-bad-ratio", "0")
    assert (ingested.code, "in broken_feed\n" in ingested.err) == (3, True)
    assert tracelake("check", "--lake", lake).code == 0
    found = tracelake("ask", "unreadable", "--lake", lake)
    assert (found.code, f"{MARK}.txt" in found.out) == (0, True)
    monkeypatch.undo()
    assert tracelake(*job).code == 0
    assert json.loads(summary.read_text())["ingest"]["skipped"] == {}


def break_looking(patch: pytest.MonkeyPatch, call: str, error: BaseException) -> None:
    """Lets a function of two formats raise an error for what has the mark in it."""

    def failing(given: Callable[..., Any]) -> Callable[..., Any]:
        def fail(*args: Any) -> Any:
            if any(MARK in str(one) for one in args):
                raise error
            return given(*args)

        return fail

    registry = cast("dict[str, Format]", formats())
    for name in ("aicb_workload", "rank_trace"):
        changed: Any = {call: failing(getattr(registry[name], call))}
        patch.setitem(registry, name, replace(registry[name], **changed))


@pytest.mark.parametrize("call", ["sniff", "facts", "group"])
@pytest.mark.parametrize("error", [ValueError("it cannot be"), panic()])
def test_a_file_that_no_format_can_look_at_costs_itself_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, error: BaseException
) -> None:
    folder, lake = write(tmp_path / "in", files()), tmp_path / "lake"
    with monkeypatch.context() as patch:
        break_looking(patch, call, error)
        for expected in ("new", "unchanged"):  # it is tried again
            report = run_ingest(folder, lake)
            # The grouping of a format knows no single file.
            lost = sorted(files()) if call == "group" else [f"{MARK}.txt"]
            plans = [name for name in lost if name.endswith(".txt") and "/" not in name]
            assert statuses(report) == [expected] * (1 if call == "group" else 4)
            (failure,) = report.failures
            assert failure.run_id is None
            assert failure.error == f"{type(error).__name__}: it cannot be"
            assert 1 + failure.more_inputs == len(plans)
            skipped = rows(lake, "skipped", "path, reason", "ORDER BY ALL")
            assert skipped == [(name, "parser_failed") for name in plans]
    assert statuses(run_ingest(folder, lake)).count("new") == len(plans)
    assert rows(lake, "skipped", "path") == []


def test_a_run_that_is_in_the_lake_stays_where_its_file_cannot_be_looked_at(
    monkeypatch: pytest.MonkeyPatch, tracelake: Command, tmp_path: Path
) -> None:
    folder, lake = write(tmp_path / "in", files()), tmp_path / "lake"
    run_ingest(folder, lake)
    before = rows(lake, "ops", "*", "ORDER BY ALL")
    write(folder, {f"job/{trace_name(1)}": trace(1, steps=4) + f"{MARK}\n"})
    break_looking(monkeypatch, "facts", ValueError("no"))
    told = tracelake("ingest", folder, "--lake", lake)
    assert told.code == 3
    assert "error: 1 file left out, because tracelake's reader of the format failed" in told.err
    assert f"job/{trace_name(1)} (rank_trace): ValueError: no, in ingest/" in told.err
    assert rows(lake, "ops", "*", "ORDER BY ALL") == before
