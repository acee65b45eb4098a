"""Logs that the processes or pods of one job write, each a file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import rows, run_ingest
from tests.traces import write
from tracelake.ingest.run_plan import Status

_START = datetime(2026, 5, 10, 10)
_BROKEN = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def log(*steps: int, late: float = 0, sizes: bool = False) -> str:
    """What a process prints of a job of 4 steps of 20 s: its sizes, and a record per step."""
    said = ["using world size: 16, data-parallel size: 4"] * sizes
    stamp = _START + timedelta(seconds=late)
    said.append(f"[{stamp:%Y-%m-%d %H:%M:%S}] setting up")
    for step in steps:
        at = stamp + timedelta(seconds=20 * step)
        said.append(
            f"[{at:%Y-%m-%d %H:%M:%S}] iteration {step:8}/       4 |"
            f" elapsed time per iteration (ms): {20_000 + late:.1f} | lm loss: 2.5E+00 |"
        )
    return "".join(f"{line}\n" for line in said)


def runs(folder: Path, files: dict[str, str]) -> list[list[str]]:
    run_ingest(write(folder / "in", files), folder / "lake")
    found = rows(
        folder / "lake",
        "sources",
        "list(path ORDER BY path) AS paths",
        "GROUP BY run_id ORDER BY 1",
    )
    return [paths for (paths,) in found]


@pytest.mark.parametrize(
    "name",
    [
        "job-worker-{}.log",
        "job/pod_{}/train.log",
        "rank{}.txt",
        "none_a1b2c3d4/attempt_0/{}/stdout.log",
    ],
)
def test_files_that_differ_in_the_number_of_a_process_are_one_run(
    tmp_path: Path, name: str
) -> None:
    files = {name.format(process): log(1, 2, late=process) for process in range(3)}
    assert runs(tmp_path, files) == [[*files]]


def test_nodes_with_several_ranks_are_one_run(tmp_path: Path) -> None:
    names = [f"node-{node}/rank{rank}.log" for node in (3, 4) for rank in range(2)]
    # In another order than they begin.
    files = {name: log(1, 2, late=(7 * n) % 5) for n, name in enumerate(names)}
    assert runs(tmp_path, files) == [names]


def test_files_that_a_pattern_gives_one_run_are_that_run(tmp_path: Path) -> None:
    files = {f"job/{name}.log": log(1, late=900 * n) for n, name in enumerate("ab")}
    archive = write(tmp_path / "in", files)
    run_ingest(archive, tmp_path / "lake", run_pattern=r"(?P<run>\w+)/")
    assert rows(tmp_path / "lake", "runs", "label") == [("job",)]


@pytest.mark.parametrize(
    "name", ["none_a1b2c3d4/attempt_0/{}/stdout.log", "rank{}.log", "job-worker-{}.log"]
)
def test_files_between_the_first_and_the_last_process_may_say_nothing(
    tmp_path: Path, name: str
) -> None:
    files = {f"llama/{name.format(process)}": log(1, late=process) for process in (0, 7)}
    assert runs(tmp_path, files) == [[*files]]
    (named,) = rows(tmp_path / "lake", "runs", "name")
    assert named == ("stdout" if "stdout" in name else "llama" if "rank" in name else "job",)


@pytest.mark.parametrize(
    "name", ["gpt-12345-node{}.log", "slurm-12345.{}.out", "x_12345_dgx{}.log"]
)
def test_names_with_the_number_of_a_job_are_those_of_its_processes(
    tmp_path: Path, name: str
) -> None:
    files = {name.format(process): log(1, late=process) for process in (4, 8)}
    assert runs(tmp_path, files) == [[*files]]


def test_the_number_of_a_job_joins_files_however_late_their_first_date_is(tmp_path: Path) -> None:
    """The second has no date, and is known by what its launcher prints."""
    files = {
        "gpt-12345-node1.log": log(sizes=True),
        "gpt-12345-node2.log": f"pretrain_gpt.py --train-iters 4\n{_BROKEN}",
        "gpt-12345-node3.log": log(1, 2, late=500),
    }
    assert runs(tmp_path, files) == [[*files]]
    found = rows(tmp_path / "lake", "runs", "run_date::VARCHAR, attributes['ended_by'], world_size")
    assert found == [("2026-05-10 10:00:00", "device_error", 16)]


@pytest.mark.parametrize(
    "hosts", [("gpu017", "gpu018"), ("node-a1", "node-b1"), ("ip-10-1-2-3", "ip-10-1-9-2")]
)
def test_hosts_behind_the_number_of_a_job_are_of_it(tmp_path: Path, hosts: Sequence[str]) -> None:
    files = {f"gpt-12345-{host}.out": log(1, late=n) for n, host in enumerate(hosts)}
    assert runs(tmp_path, files) == [[*files]]
    assert rows(tmp_path / "lake", "runs", "name") == [("gpt-12345",)]


def test_files_of_different_sizes_hide_none_that_broke_off(tmp_path: Path) -> None:
    other = "using world size: 8, data-parallel size: 4\n"
    files = {"rank0.log": log(1, 2, 3, 4, sizes=True), "rank1.log": other + log(1, 2, late=1)}
    assert runs(tmp_path, files) == [[*files]]
    assert rows(tmp_path / "lake", "runs", "world_size, dp, complete") == [(None, None, False)]


def test_the_master_is_a_process_beside_the_workers(tmp_path: Path) -> None:
    files = {f"job-{who}-0.log": log(1, late=n) for n, who in enumerate(("master", "worker"))}
    assert runs(tmp_path, files) == [[*files]]


@pytest.mark.parametrize(
    "files",
    [
        # Another start, another job, a number of what is no process, gaps between the numbers.
        {"worker-0.log": log(1), "worker-1.log": log(1, late=90)},
        {"a-worker-0.log": log(1), "b-worker-1.log": log(1)},
        {"trial-0.log": log(1), "trial-1.log": log(1)},
        {"gpt-node4.log": log(1), "gpt-node8.log": log(1)},
        {"20260510-node4.log": log(1), "20260510-node8.log": log(1)},
        {"gpt-20260510.4.log": log(1), "gpt-20260510.8.log": log(1)},
        {"gpt-gpu1.log": log(1), "gpt-gpu2.log": log(1)},
        {"gpt-20260510-gpu1.log": log(1), "gpt-20260510-gpu2.log": log(1)},
        {"gpt-12345-seed1.log": log(1), "gpt-12345-seed2.log": log(1)},
        # Tasks of an array.
        {"slurm-12345_4.out": log(1), "slurm-12345_8.out": log(1)},
        # Nothing says when they began.
        {f"worker-{n}.log": log(1).replace("2026-05-10", "") for n in range(2)},
    ],
)
def test_other_files_are_runs_by_themselves(tmp_path: Path, files: dict[str, str]) -> None:
    assert runs(tmp_path, files) == [[name] for name in files]


def test_one_file_has_the_sizes_and_another_the_steps(tracelake: Command, tmp_path: Path) -> None:
    files = {
        "job/rank0.log": log(sizes=True),
        "job/rank1.log": log(1, 2, 3, 4, late=1),
        "job/rank2.log": log(1, 2, 3, late=2),
    }
    lake = tmp_path / "lake"
    done = tracelake("run", write(tmp_path / "in", files), "--lake", lake)
    assert "No problems found" in done.out
    assert rows(lake, "runs", "label, world_size, complete") == [("job", 16, True)]
    steps = tracelake(
        "query", "SELECT step, step_ms, restarts FROM step_stats ORDER BY 1", "--lake", lake,
        "--format", "csv",
    ).out  # fmt: skip
    assert steps.splitlines()[1:] == ["1,20001.5,0", "2,20001.5,0", "3,20001.5,0", "4,20001,0"]


def test_a_job_that_ended_has_no_cause_of_an_end(tmp_path: Path) -> None:
    files = {"rank0.log": log(1, 2) + _BROKEN, "rank1.log": log(1, 2, 3, 4, late=1)}
    run_ingest(write(tmp_path / "in", files), tmp_path / "lake")
    found = rows(tmp_path / "lake", "runs", "complete, attributes['ended_by']")
    assert found == [(True, None)]


def test_what_ended_a_job_is_said_by_one_of_its_processes(
    tracelake: Command, tmp_path: Path
) -> None:
    files = {"job/rank0.log": log(1, 2) + _BROKEN, "job/rank1.log": log(1, 2, late=1)}
    done = tracelake("run", write(tmp_path / "in", files), "--lake", tmp_path / "lake")
    assert "job: incomplete since 2026-05-10, its log ends with step 2 of 4" in done.out
    assert rows(tmp_path / "lake", "runs", "attributes['ended_by']") == [("device_error",)]


def test_a_launcher_that_ends_the_other_processes_did_not_cancel_the_job(tmp_path: Path) -> None:
    failed = "failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python\n"
    ended = "Received 15 death signal, shutting down workers\n"
    files = {"job/rank0.log": log(1, 2) + ended, "job/rank1.log": log(1, 2, late=1) + failed}
    run_ingest(write(tmp_path / "in", files), tmp_path / "lake")
    assert rows(tmp_path / "lake", "runs", "attributes['ended_by']") == [("error",)]


@pytest.mark.parametrize(
    "lost",
    [
        "Traceback (most recent call last):\n"
        "RuntimeError: [a/pair.cc:534] Connection closed by peer [172.17.0.3]:29400\n",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1,"
        " OpType=ALLREDUCE) ran for 600185 milliseconds before timing out.\n",
        "failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python\n",
    ],
)
def test_a_process_that_lost_another_does_not_say_why_the_job_ended(
    tmp_path: Path, lost: str
) -> None:
    failed = "Traceback (most recent call last):\nKeyError: 'ids'\n"
    files = {"job/rank0.log": log(1, 2) + lost, "job/rank1.log": log(1, 2, late=1) + failed}
    run_ingest(write(tmp_path / "in", files), tmp_path / "lake")
    found = rows(tmp_path / "lake", "runs", "attributes['ended_with']")
    assert found == [("KeyError: 'ids'",)]


def test_attempts_of_torchrun_have_the_name_of_their_job(tmp_path: Path) -> None:
    names = (f"llama/none_a1b2c3d4/attempt_{n}/0/stdout.log" for n in range(2))
    files = {name: log(1, 2, late=90 * n) for n, name in enumerate(names)}
    run_ingest(write(tmp_path / "in", files), tmp_path / "lake")
    assert rows(tmp_path / "lake", "runs", "label") == [("llama",)] * 2


_TRACEBACK = "Traceback (most recent call last):\n  File 'train.py', line 1\nKeyError: 'ids'\n"


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("sweep/gpt-job-12345.out", "sweep/gpt-job-12345.err"),
        ("gpt/stdout.log", "gpt/stderr.log"),
        ("out/gpt.txt", "err/gpt.txt"),
        ("gpt.log", "gpt_error.log"),
        ("gpt/attempt_0/0/stdout.log", "gpt/attempt_0/3/stderr.log"),
    ],
)
@pytest.mark.parametrize(
    "said",
    [
        _TRACEBACK,
        _TRACEBACK.replace("train.py", "pretrain_gpt.py"),
        "100%|####| 4/4 [00:12<00:00,  3.00it/s]\n" * 3000 + _TRACEBACK,
    ],
    ids=["alone", "launcher", "bars"],
)
def test_the_stream_of_errors_belongs_to_the_log_beside_it(
    tmp_path: Path, output: str, errors: str, said: str
) -> None:
    archive = write(tmp_path / "in", {output: log(1, 2)})
    run_ingest(archive, tmp_path / "alone")
    write(archive, {errors: said})
    run_ingest(archive, tmp_path / "lake")
    found = rows(tmp_path / "lake", "runs", "run_date, attributes['ended_with']")
    assert found == [(_START, "KeyError: 'ids'")]
    named = (rows(tmp_path / lake, "runs", "run_id, label, name") for lake in ("alone", "lake"))
    assert len({*map(repr, named)}) == 1
    assert sorted(rows(tmp_path / "lake", "sources", "path")) == sorted([(output,), (errors,)])
    again = run_ingest(archive, tmp_path / "lake")
    assert [run.status for run in again.runs] == [Status.UNCHANGED]


def test_a_process_that_printed_its_error_alone_is_one_of_the_job(tmp_path: Path) -> None:
    files = {"gpt/rank0.log": log(1, 2), "gpt/rank5.log": _TRACEBACK}
    assert runs(tmp_path, files) == [[*files]]
    found = rows(tmp_path / "lake", "runs", "run_date, attributes['ended_with']")
    assert found == [(_START, "KeyError: 'ids'")]


def test_a_pattern_gives_errors_their_run_under_any_name(tmp_path: Path) -> None:
    archive = write(tmp_path / "in", {"7/a.log": log(1, 2), "7/z.txt": _TRACEBACK})
    run_ingest(archive, tmp_path / "lake", run_pattern=r"(?P<run>\d+)/")
    found = rows(tmp_path / "lake", "runs", "label, run_date, attributes['ended_with']")
    assert found == [("7", _START, "KeyError: 'ids'")]


def test_errors_that_come_later_are_those_of_the_run(tmp_path: Path) -> None:
    write(tmp_path / "in", {"gpt-12345.out": log(1, 2)})
    run_ingest(tmp_path / "in", tmp_path / "lake")
    write(tmp_path / "in", {"gpt-12345.err": _TRACEBACK})
    run_ingest(tmp_path / "in", tmp_path / "lake")
    run_ingest(tmp_path / "in", tmp_path / "at_once")
    shown = "run_id, label, run_date, complete, attributes"
    later, at_once = (rows(tmp_path / lake, "runs", shown) for lake in ("lake", "at_once"))
    assert later == at_once
    assert len(later) == 1


def test_errors_of_a_start_do_not_hide_that_its_job_went_on(
    tracelake: Command, tmp_path: Path
) -> None:
    starts = "job/attempt_{}/0/std{}.log"
    files = {
        starts.format(0, "out"): log(1, 2),
        starts.format(0, "err"): _TRACEBACK,
        starts.format(1, "out"): log(3, 4, late=600),
    }
    lake = tmp_path / "lake"
    tracelake("run", write(tmp_path / "in", files), "--lake", lake)
    sql = "SELECT count(*) AS n FROM run_list WHERE continued_by IS NOT NULL"
    assert tracelake("query", sql, "--lake", lake, "--format", "csv").out.split()[1:] == ["1"]


def test_errors_without_a_log_are_no_run_until_it_comes(tmp_path: Path) -> None:
    archive = write(tmp_path / "in", {"a.err": _TRACEBACK, "b.err": _TRACEBACK, "b.out": log(1)})
    skipped = "path, reason"
    run_ingest(archive, tmp_path / "lake")
    assert rows(tmp_path / "lake", "skipped", skipped) == [("a.err", "no_format")]
    assert rows(tmp_path / "lake", "runs", "label") == [("b",)]
    write(archive, {"a.out": log(1, 2, 3)})
    run_ingest(archive, tmp_path / "lake")
    assert rows(tmp_path / "lake", "skipped", skipped) == []
    assert sorted(rows(tmp_path / "lake", "runs", "label")) == [("a",), ("b",)]


def test_logs_that_are_all_in_streams_of_errors_are_runs(tmp_path: Path) -> None:
    files = {f"{name}.err": log(1, 2, late=900 * n) for n, name in enumerate("ab")}
    assert runs(tmp_path, files) == [["a.err"], ["b.err"]]
