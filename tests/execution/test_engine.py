"""A Dask cluster gives the lake that threads give, whatever dies meanwhile."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import duckdb
import pytest
from distributed import Client, LocalCluster

from tests.conftest import SAMPLE, Command
from tests.object_store import ObjectStore, object_store
from tests.traces import op, trace, trace_name, write
from tests.traces import plan as workload
from tracelake.base.errors import RowsError, UsageError, WorkersError
from tracelake.execution import jobs
from tracelake.execution.cluster import Workers, dask_workers
from tracelake.formats import Chunk
from tracelake.ingest.batches import batches as job_batches
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest, plan
from tracelake.ingest.report import IngestReport
from tracelake.ingest.run_plan import RunPlan
from tracelake.lake.store import Lake
from tracelake.models import batches as model_batches
from tracelake.models.build import build
from tracelake.models.state import named_parts
from tracelake.storage.objects import upload
from tracelake.storage.store_path import place_of

TRACELAKE = Path(sys.executable).with_name("tracelake")
ONCE, ONCE_IN_BUILD, FAILS = "once", "once-in-build", "fails-"
# A name in a plan that its parser raises an error on.
RAISES = "it_raises"
# Of a lake, what tells the time or what was once moved in, and not what it holds.
PASSING = ("_run", "_lock", "_staging", "warehouse.duckdb", "_manifest/_loose")

Kill = Callable[[str], None]


def die_on_request(requests: Path) -> None:
    """Makes a worker's process one that kills itself within a batch, where a file asks for it.

    Its parser of plans raises an error on a marked name.
    """
    from tracelake.formats import aicb_workload
    from tracelake.ingest import job
    from tracelake.ingest.run_row import run_row
    from tracelake.lake.parquet import PartWriter
    from tracelake.models.computing import Computing

    close, batch, feed = PartWriter.close, Computing.batch, aicb_workload._Parser.feed

    def die_once(name: str) -> None:
        with suppress(FileNotFoundError):
            (requests / name).unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_close(self: PartWriter, partition: str) -> dict[str, Path]:
        staged = close(self, partition)
        die_once(ONCE)
        return staged

    def dying_row(plan: RunPlan, *given: Any) -> dict[str, Any]:
        if (requests / plan.run_id).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return run_row(plan, *given)

    def dying_batch(self: Computing, *given: Any) -> None:
        batch(self, *given)
        die_once(ONCE_IN_BUILD)
        if any((requests / f"{FAILS}{run_id}").exists() for run_id in given[0].run_ids):
            raise RowsError("it cannot be", subject="step_stats")

    def raising_feed(self: aicb_workload._Parser, chunk: Chunk) -> None:
        feed(self, chunk)
        if RAISES.encode() in chunk.data.tobytes():
            raise ValueError("it cannot be")

    aicb_workload._Parser.feed = raising_feed  # type: ignore[method-assign]
    PartWriter.close = dying_close  # type: ignore[method-assign]
    vars(job)["run_row"] = dying_row
    Computing.batch = dying_batch  # type: ignore[method-assign,assignment]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requests")


@pytest.fixture(scope="module")
def address(
    store: ObjectStore,  # noqa: ARG001 - workers find it by their environment
    requests: Path,
) -> Iterator[str]:
    """Scheduler of two worker processes, which start quickly; a job may be on two that die."""
    quick = {
        "distributed.worker.multiprocessing-method": "forkserver",
        "distributed.scheduler.allowed-failures": 1,
    }
    with (
        dask.config.set(quick),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tcp",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_worker_callbacks(partial(die_on_request, requests))
        yield cluster.scheduler_address


@pytest.fixture
def workers(address: str) -> Iterator[Workers]:
    with dask_workers(address, None) as joined:
        yield joined


@pytest.fixture
def kill(requests: Path) -> Iterator[Kill]:
    yield lambda name: (requests / name).touch()
    for left in requests.iterdir():
        left.unlink()


def packed(files: dict[str, str]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return whole.getvalue()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every format, in files, compressed, in a tar; with lines and a file that are bad."""
    folder = tmp_path_factory.mktemp("archive")
    shutil.copytree(SAMPLE, folder / "sample")
    members = {f"job{n}/{trace_name(n % 2)}": trace(n % 2, start=99.0 * n) for n in range(2)}
    return write(
        folder,
        {
            **{f"plans/plan{n}.txt": workload(3 + n, name=f"p{n}_") for n in range(12)},
            "more/plan.txt.gz": gzip.compress(workload(70).encode()),
            "more/bad.txt": workload(5, name="bad") + "what is this\n",
            "more/cut.txt.gz": gzip.compress(workload(900, name="cut").encode())[:-40],
            "more/jobs.tar.gz": packed({**members, "plans/in_tar.txt": workload(8, name="t")}),
            "more/letter.txt": "Dear all,\n",
        },
    )


def brought_in(archive: Path, lake: Path, **given: Any) -> IngestReport:
    return ingest([str(archive)], Lake.create(lake), Options(), **given)


@pytest.fixture(scope="module")
def local(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, IngestReport]:
    """A lake that threads have made, and what they said of it."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    return lake, brought_in(archive, lake)


def held(lake: Path) -> dict[str, bytes]:
    """Every file that says what the lake holds."""
    found = {
        path.relative_to(lake).as_posix(): path.read_bytes()
        for path in sorted(lake.rglob("*"))
        if path.is_file()
    }
    return {name: content for name, content in found.items() if not name.startswith(PASSING)}


def generations(lake: Path) -> dict[str, str]:
    """The generation of each run: whichever share a part, their rows are the same."""
    return {run_id: run.generation for run_id, run in Lake.open(lake).snapshot().runs.items()}


@pytest.fixture
def many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divides also a small archive into batches."""
    for limit in ("_FEW_BYTES", "_FEW_FILES"):
        monkeypatch.setattr(f"tracelake.ingest.batches.{limit}", 0)


class Told:
    """What a progress was told."""

    def __init__(self, advanced: Callable[[], None] = lambda: None) -> None:
        self.planned_total: tuple[int, ...] = ()
        self.total = [0, 0, 0]
        self._advanced = advanced

    def planned(self, runs: int, files: int, weight: int) -> None:
        self.planned_total = runs, files, weight

    def advance(self, weight: int, files: int, rejected: int) -> None:
        self.total = [a + b for a, b in zip(self.total, (weight, files, rejected), strict=True)]
        self._advanced()


# --- the same lake --------------------------------------------------------------------------------


def test_workers_make_the_lake_that_threads_make(
    archive: Path, local: tuple[Path, IngestReport], workers: Workers, tmp_path: Path
) -> None:
    lake, report = local
    told, told_by_threads = Told(), Told()
    done = brought_in(archive, tmp_path / "lake", workers=workers, progress=told)
    assert held(tmp_path / "lake") == held(lake)
    assert (done.runs, done.skips) == (report.runs, report.skips)
    assert done.rejected == report.rejected > 0
    assert any(run.faults for run in done.runs)
    assert not list((tmp_path / "lake" / "_staging").iterdir())
    brought_in(archive, tmp_path / "again", progress=told_by_threads)
    assert told.planned_total == told_by_threads.planned_total
    assert told.total == told_by_threads.total


def test_workers_that_share_nothing_but_a_store_make_that_lake_too(
    archive: Path,
    store: ObjectStore,
    workers: Workers,
    kill: Kill,
    requests: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(model_batches, "_BATCH_BYTES", 50_000)
    store.make_bucket("shared")
    some = archive / "more"
    names = {p.relative_to(some).as_posix(): p for p in some.rglob("*") if p.is_file()}
    upload(place_of("s3://shared/archive"), names)
    lake = Lake.create("s3://shared/lake")
    kill(ONCE)
    ingest(["s3://shared/archive"], lake, Options(), workers=workers)
    assert not list(requests.iterdir())  # one was killed
    kill(ONCE_IN_BUILD)
    build(lake, workers=workers)
    assert not list(requests.iterdir())
    brought_in(some, tmp_path / "lake")
    expected = Lake.open(tmp_path / "lake")
    build(expected)
    found = {}
    for stored in lake.part_files.stored():
        with lake.part_files.open(stored.part) as file:
            found[stored.part] = file.read()
    named = expected.snapshot().all_parts | named_parts(expected.warehouse)
    assert found == {part: (expected.root / part).read_bytes() for part in named}
    assert rows(lake.root) == rows(expected.root)


def test_a_run_that_grows_is_told_apart_by_workers_too(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # where the workers are not
    folder = write(Path("in"), {f"a/{trace_name(0)}": trace(0)})
    for lake in ("threads", "workers"):
        brought_in(folder, tmp_path / lake)
    write(folder, {f"a/{trace_name(0)}": trace(0, steps=3), f"a/{trace_name(1)}": trace(1)})
    brought_in(folder, tmp_path / "threads")
    report = brought_in(folder, tmp_path / "workers", workers=workers)
    assert [str(run.status) for run in report.runs] == ["updated"]
    assert held(tmp_path / "workers") == held(tmp_path / "threads")


def test_the_command_tells_the_same_on_either_engine(
    archive: Path, address: str, tracelake: Command, tmp_path: Path
) -> None:
    told = []
    for name, options in (
        ("threads", ()),
        ("workers", ("--engine", "dask", "--scheduler", address)),
    ):
        lake = tmp_path / name
        result = tracelake("ingest", archive, "--lake", lake, "--format", "csv", *options)
        (record,) = (lake / "_run" / "records.jsonl").read_text().splitlines()
        kept = json.loads(record)
        amounts = {key: kept[key] for key in ("rows_written", "lines_rejected", "bytes_read")}
        said = result.err.replace(str(lake), "LAKE")
        told.append((result._replace(err=said), sorted(kept["phases"]), amounts))
    assert told[0][0].code == 3  # more bad lines than allowed
    assert {"parse", "write"} < set(told[0][1])
    assert told[0] == told[1]


def rows(lake: Path) -> dict[str, list[tuple[object, ...]]]:
    """Tables of a warehouse: those of models as they lie, in order of grain batch by batch."""
    with duckdb.connect(lake / "warehouse.duckdb", read_only=True) as con:
        listed = con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        return {
            name: con.execute(
                f'FROM "{name}"' + " ORDER BY ALL" * name.startswith("_base_")
            ).fetchall()
            for (name,) in listed
            # Where the lake is, dates of part files, and sums of the rows that are compared here.
            if name not in {"_build", "_build_marks", "_build_sums"}
        }


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_batches, "_BATCH_BYTES", -1)


def test_workers_compute_the_warehouse_that_threads_compute(
    archive: Path,
    workers: Workers,
    kill: Kill,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_batches, "_BATCH_BYTES", 10_000)  # several, some of many runs
    lakes = [tmp_path / name for name in ("threads", "workers")]
    for lake in lakes:
        brought_in(archive / "plans", lake)
        brought_in(archive / "more", lake)
    said: list[str] = []
    kill(ONCE_IN_BUILD)
    assert (
        build(Lake.open(lakes[0])).built
        == build(Lake.open(lakes[1]), workers=workers, progress=said.append).built
    )
    assert rows(lakes[0]) == rows(lakes[1])
    assert sum(line.startswith("computing") for line in said) > 3  # batches, and the fleet models
    assert not list((lakes[1] / "_staging").iterdir())


def test_every_worker_gets_a_batch(local: tuple[Path, IngestReport]) -> None:
    lake = Lake.open(local[0])
    snapshot = lake.snapshot()
    runs = sorted(snapshot.runs)
    counts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_batches, "_BATCH_BYTES", 1 << 30)
        patch.setattr(model_batches, "_SHARED_BYTES", 1)
        for width in (1, 2, 1000):
            found = list(model_batches.batches(lake.part_files, snapshot, runs, width))
            assert sorted(run for batch in found for run in batch.run_ids) == runs
            counts.append(len(found))
    assert counts[0] == 1 < counts[1] <= counts[2] <= len(runs)


@pytest.mark.usefixtures("small_batches")
def test_workers_leave_out_a_run_that_a_model_fails_on(
    workers: Workers, requests: Path, tmp_path: Path
) -> None:
    names = [f"plan{n}" for n in range(3)]
    lake = tmp_path / "lake"
    brought_in(write(tmp_path / "in", {f"{n}.txt": workload(name=n) for n in names}), lake)
    runs = sorted(Lake.open(lake).snapshot().runs)
    request = requests / f"{FAILS}{runs[1]}"
    request.touch()
    try:
        built = build(Lake.open(lake), workers=workers)
    finally:
        request.unlink()
    assert [(run.run_id, run.failed_model) for run in built.failed] == [(runs[1], "step_stats")]
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        planned = con.execute("SELECT DISTINCT run_id FROM workload_comm ORDER BY 1").fetchall()
    assert [run for (run,) in planned] == [runs[0], runs[2]]
    assert not list((lake / "_staging").iterdir())


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_parser_that_fails_in_a_worker_costs_its_run_alone(
    workers: Workers, tmp_path: Path
) -> None:
    good = {f"plan{n}.txt": workload(name=f"p{n}_") for n in range(3)}
    bad = workload(name=RAISES)
    members = {"in_tar.txt": workload(8, name="t"), "bad_in_tar.txt": bad.replace("2000", "2001")}
    archive = write(tmp_path / "in", {**good, "bad.txt": bad, "jobs.tar.gz": packed(members)})
    lake = tmp_path / "lake"
    report = brought_in(archive, lake, workers=workers)
    assert [(failure.input, failure.error) for failure in report.failures] == [
        ("bad.txt", "ValueError: it cannot be"),
        ("jobs.tar.gz/bad_in_tar.txt", "ValueError: it cannot be"),
    ]
    assert {skip["reason"] for skip in report.skips} == {"parser_failed"}
    committed = Lake.open(lake).snapshot().runs
    assert sorted(name.partition("-")[0] for name in committed) == [
        *("in_tar", "plan0", "plan1", "plan2"),
    ]
    assert not list((lake / "_staging").iterdir())


def test_a_worker_that_is_killed_within_a_batch_is_made_up_for(
    archive: Path,
    local: tuple[Path, IngestReport],
    workers: Workers,
    kill: Kill,
    requests: Path,
    tmp_path: Path,
) -> None:
    kill(ONCE)
    report = brought_in(archive, tmp_path / "lake", workers=workers)
    assert not list(requests.iterdir())  # one was killed
    assert held(tmp_path / "lake") == held(local[0])
    assert report.runs == local[1].runs
    assert not list((tmp_path / "lake" / "_staging").iterdir())


@pytest.mark.usefixtures("many_batches")
def test_a_batch_that_kills_its_workers_costs_itself_and_the_next_run_repairs(
    archive: Path,
    local: tuple[Path, IngestReport],
    address: str,
    kill: Kill,
    tracelake: Command,
    tmp_path: Path,
) -> None:
    lake, victim = tmp_path / "lake", local[1].runs[0].run_id
    kill(victim)
    words = ("ingest", archive, "--lake", lake, "--max-bad-ratio", 1)
    result = tracelake(*words, "--engine", "dask", "--scheduler", address)
    assert result.code == 3
    assert re.search(r"error: \d+ runs? of \d+ inputs? could not be read, \S+ among", result.err)
    assert "each of 2 workers that tried it died" in result.err
    assert "continues where it was" in result.err
    there = Lake.open(lake).snapshot().runs
    assert victim not in there
    assert there
    assert not list((lake / "_staging").iterdir())
    assert tracelake(*words).code == 0
    assert generations(lake) == generations(local[0])


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", *words, "--no-dashboard"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def said_address(scheduler: subprocess.Popen[str]) -> str:
    assert scheduler.stderr is not None
    for line in scheduler.stderr:
        if found := re.search(r"Scheduler at:\s+(tcp://\S+)", line):
            return found[1]
    raise AssertionError("the scheduler has not said where it is")


@pytest.mark.usefixtures("many_batches")
def test_a_scheduler_that_goes_away_is_told_and_what_was_done_stays(
    archive: Path,
    local: tuple[Path, IngestReport],
    tmp_path: Path,
) -> None:
    with process("distributed.cli.dask_scheduler", "--host=127.0.0.1", "--port=0") as scheduler:
        address = said_address(scheduler)
        none = dask_workers(address, None, patience=0.1)
        with pytest.raises(WorkersError, match="no worker connected"), none:
            pass
        worker = process("distributed.cli.dask_worker", address, "--nthreads=1", "--no-nanny")
        with worker, dask_workers(address, None) as workers:
            told = Told(scheduler.kill)
            with pytest.raises(WorkersError, match="the scheduler has disappeared"):
                brought_in(archive, tmp_path / "lake", workers=workers, progress=told)
    there = Lake.open(tmp_path / "lake").snapshot().runs
    assert 0 < len(there) < len(local[1].runs)
    brought_in(archive, tmp_path / "lake")
    assert generations(tmp_path / "lake") == generations(local[0])


@pytest.mark.usefixtures("many_batches")
def test_a_worker_that_lacks_a_mount_is_told_and_nothing_is_taken_for_lost(
    workers: Workers, tmp_path: Path
) -> None:
    folder = write(tmp_path / "in", {f"{n}/plan.txt": workload(3 + n) for n in range(3)})

    class Unmounted(Told):
        def planned(self, runs: int, files: int, weight: int) -> None:
            del runs, files, weight
            shutil.move(folder / "1", tmp_path / "1")

    with pytest.raises(WorkersError, match="cannot use an input") as caught:
        brought_in(folder, tmp_path / "lake", workers=workers, progress=Unmounted())
    assert caught.value.path == str(folder / "1")
    assert len(Lake.open(tmp_path / "lake").snapshot().runs) == 2


def test_another_version_is_refused_when_a_cluster_is_joined_and_with_each_batch(
    address: str, archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with dask_workers(address, None) as workers:
        jobs.versions.cache_clear()
        monkeypatch.setattr(jobs, "__version__", "9.9")
        try:
            with pytest.raises(WorkersError, match=r"has tracelake 0\S+, the command 9\.9"):
                brought_in(archive, tmp_path / "lake", workers=workers)
            with (
                pytest.raises(WorkersError, match=r"has tracelake 0\S+, the command 9\.9"),
                dask_workers(address, None),
            ):
                pass
        finally:
            jobs.versions.cache_clear()
    assert not Lake.open(tmp_path / "lake").snapshot().runs


def test_memory_that_does_not_suffice_for_a_workers_threads_is_refused(
    archive: Path, workers: Workers, tmp_path: Path
) -> None:
    many = replace(workers, per_process=4)
    with pytest.raises(UsageError, match="is too small for 4 threads"):
        brought_in(archive, tmp_path / "lake", workers=many, memory=10**9)
    assert brought_in(archive, tmp_path / "lake", workers=workers, memory=10**9).changed


def is_there(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_interrupt_ends_the_command_and_its_cluster_at_once(tmp_path: Path) -> None:
    steps = "".join(op(0, "forward_step", 1000.0 + 20 * i, 10.0) for i in range(300))
    for job in range(80):
        name = f"{job}/{trace_name(0, world=1, stamp=str(20250101000000 + job))}"
        write(tmp_path / "in", {name: op(0, "get_batch", float(job), 1.0) + steps})
    lake = tmp_path / "lake"
    command = subprocess.Popen(
        [TRACELAKE, "ingest", tmp_path / "in", "--lake", lake, "--engine=dask", "--workers=2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list((lake / "_manifest").glob("*.json")):
        assert time.monotonic() < deadline
        assert command.poll() is None
        time.sleep(0.01)
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does it: the workers are meant as well
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130
    told = [line for line in said.splitlines() if not line.startswith("read ")]  # progress
    assert told == ["interrupted"]
    assert not list((lake / "_staging").iterdir())
    while is_there(command.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    brought_in(tmp_path / "in", lake)
    brought_in(tmp_path / "in", tmp_path / "other")
    assert held(lake) == held(tmp_path / "other")


# --- batches and words ----------------------------------------------------------------------------


@pytest.mark.usefixtures("many_batches")
def test_small_runs_share_batches_and_those_of_a_tar_stay_together(
    archive: Path, tmp_path: Path
) -> None:
    plans, _ = plan([str(archive)], str(tmp_path / "lake"), Options(), tmp_path / "spool")
    found = list(job_batches(plans, 2))
    runs = [p.run_id for batch in found for job in batch for p in job]
    assert sorted(runs) == sorted(p.run_id for p in plans)
    assert 4 <= len(found) < len(plans)
    tar = [job for batch in found for job in batch if any(c.entry.packed for c in job[0].sources)]
    assert [len(job) for job in tar] == [2]  # both ranks, and the plan
    largest = max(plans, key=lambda p: p.weight)
    (alone,) = [batch for batch in found if any(largest in job for job in batch)]
    assert len(alone) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "2"], "--workers needs --engine dask"),
        (["--scheduler", "tcp://a:1"], "--scheduler needs --engine dask"),
        (["--engine", "dask", "--workers", "1", "--scheduler", "tcp://a:1"], "exclude each other"),
        (["--engine", "dask", "--scheduler", "odd://a:1"], "no scheduler answers at odd://a:1"),
        (["--engine", "dask", "--jobs", "2"], "--jobs is for --engine local"),
    ],
)
def test_words_that_do_not_fit_together_are_refused(
    words: list[str], said: str, sample: Path, tracelake: Command, tmp_path: Path
) -> None:
    for command in ("ingest", "run"):
        result = tracelake(command, sample, "--lake", tmp_path / "lake", *words)
        assert result.code == 2
        assert said in result.err


def test_the_engine_may_stand_in_the_environment(
    sample: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRACELAKE_SCHEDULER", "odd://a:1")
    monkeypatch.setenv("TRACELAKE_ENGINE", "dask")
    result = tracelake("ingest", sample, "--lake", tmp_path / "lake")
    assert result.code == 2
    assert "odd://a:1" in result.err


def test_without_distributed_the_way_to_it_is_told(
    sample: Path, tracelake: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = tracelake("ingest", sample, "--lake", tmp_path / "lake", "--engine", "dask")
    assert result.code == 2
    assert "pip install 'tracelake[dask]'" in result.err
