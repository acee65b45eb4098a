"""What is alarmed of a training log, and what a healthy one may look like."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import asked
from tests.parsing import claim_of, parse
from tests.traces import write
from tracelake.formats import Claim, formats

_START = datetime(2026, 3, 1, 10)


def ran(tracelake: Command, folder: Path, text: str, *options: str) -> Path:
    """Return the lake of a log."""
    archive = write(folder / "in", {"train.log": text})
    done = tracelake("run", archive, "--lake", folder / "lake", *options)
    assert done.code == 0, done.err
    return folder / "lake"


def at(seconds: float) -> str:
    return f"{_START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}"


def lines(*several: str) -> str:
    return "".join(f"{line}\n" for line in several)


def megatron(steps: Iterable[int], *, total: int, ms: float = 1000, start: float = 0) -> str:
    """The records of steps, each after as many milliseconds as it takes on average."""
    said, clock, before = [], start, 0
    for step in steps:
        clock += (step - before) * ms / 1000 if before else ms / 1000
        before = step
        said.append(
            f" [{at(clock)}] iteration {step:8}/{total:8} | elapsed time per iteration (ms):"
            f" {ms:.1f} | lm loss: 2.5E+00 |"
        )
    return lines(*said)


def trainer(seconds: Iterable[float], total: int) -> str:
    """What LLaMA-Factory writes of each step: the time since the start in whole seconds."""
    return lines(
        *(
            json.dumps(
                {
                    "current_steps": done,
                    "total_steps": total,
                    "loss": 2.5,
                    "epoch": 0.5,
                    "elapsed_time": str(timedelta(seconds=clock)),
                }
            )
            for done, clock in enumerate(seconds, 1)
        )
    )


def test_means_of_whole_seconds_are_as_many_records_as_were_printed(
    tracelake: Command, tmp_path: Path
) -> None:
    """All means are 4.0 or 6.0 s, which are not two records."""
    clock = [4 * step for step in range(200)]
    clock += [clock[-1] + 6 * step for step in range(1, 201)]
    lake = ran(tracelake, tmp_path, trainer(clock, 400))
    (found,) = asked(tracelake, lake, "SELECT kind, severity, evidence FROM findings")
    assert (found["kind"], found["severity"]) == ("slowed", "critical")
    assert "50.0 % longer than before (4000.0 ms)" in found["evidence"]


def test_few_records_over_many_steps_are_no_slowdown(tracelake: Command, tmp_path: Path) -> None:
    """Two slow records of a hundred steps each are two records, not two hundred."""
    said, clock = [], 0.0
    for step in (1, *range(100, 601, 100)):
        slow = step > 400
        clock += (260 if slow else 200) if step > 1 else 60
        said.append(
            f"[titan] {at(clock)},000 - root - INFO - step: {step:2}  loss:  7.0"
            f"  memory: 40.0GiB(50%)  tps: {1575 if slow else 2048:,}  mfu: 40%"
        )
    lake = ran(tracelake, tmp_path, lines(*said))
    timed = "SELECT time_basis, count(*) AS steps FROM step_stats WHERE step_ms > 0 GROUP BY 1"
    assert asked(tracelake, lake, timed) == [{"time_basis": "dates", "steps": 599}]
    assert asked(tracelake, lake, "SELECT kind FROM findings") == []


def test_a_slowdown_begins_when_the_later_start_of_the_job_came_to_the_step(
    tracelake: Command, tmp_path: Path
) -> None:
    log = megatron(range(1, 61), total=120)
    log += megatron(range(41, 121), total=120, ms=1500, start=7200)
    lake = ran(tracelake, tmp_path, log)
    (found,) = asked(tracelake, lake, "SELECT kind, since FROM findings")
    assert found == {"kind": "slowed", "since": at(7203)}
    (seen,) = asked(tracelake, lake, "SELECT since, last_seen FROM incidents")
    assert seen == {"since": at(7203), "last_seen": at(7203)}


def test_a_pause_before_the_next_step_is_no_time_of_a_step(
    tracelake: Command, tmp_path: Path
) -> None:
    """The job stopped after a checkpoint, and another start of it went on from there."""
    said = [
        f"[titan] {at(2 * step + (36_000 if step > 30 else 0))},000 - root - INFO - step: {step:2}"
        "  loss:  7.0  memory: 40.0GiB(50%)  tps: 2,048  mfu: 40%"
        for step in range(1, 61)
    ]
    lake = ran(tracelake, tmp_path, lines(*said))
    times = "SELECT step_ms, list(step) AS steps FROM step_stats GROUP BY 1 ORDER BY 1"
    usual, none = asked(tracelake, lake, times)
    assert (usual["step_ms"], len(usual["steps"])) == (2000, 58)
    assert none == {"step_ms": None, "steps": [1, 31]}
    assert asked(tracelake, lake, "SELECT kind FROM opportunities") == []


def test_the_first_steps_after_each_start_are_no_slow_steps(
    tracelake: Command, tmp_path: Path
) -> None:
    """A start takes a minute to compile, which is in the mean of its first ten steps."""
    log = ""
    for start in range(4):
        log += "using world size: 8\n  log_interval .................... 10\n"
        steps = range(200 * start + 1, 200 * start + 221)
        log += megatron(steps[9:10], total=820, ms=7000, start=9000 * start)
        log += megatron(steps[19::10], total=820, start=9000 * start + 100)
    lake = ran(tracelake, tmp_path, log)
    (restarts,) = asked(tracelake, lake, "SELECT max(restarts) AS n FROM step_stats")
    assert restarts == {"n": 3}
    assert asked(tracelake, lake, "SELECT kind FROM opportunities") == []


@pytest.mark.parametrize(("starts", "again"), [(1, ""), (2, "once"), (4, "3 times")])
def test_a_job_that_ends_again_and_again_says_how_often(
    starts: int, again: str, tracelake: Command, tmp_path: Path
) -> None:
    log = "".join(
        megatron(range(11, 31), total=50, start=3600 * start) + "Killed\n"
        for start in range(starts)
    )
    lake = ran(tracelake, tmp_path, log)
    (found,) = asked(tracelake, lake, "SELECT evidence FROM findings")
    begun = f"; its job had begun again {again} before" if again else ""
    assert found["evidence"] == (
        f"The run is incomplete: its log ends with step 30 of 50, then Killed{begun}."
    )


def test_steps_of_another_sequence_length_are_not_slower(
    tracelake: Command, tmp_path: Path
) -> None:
    """The log says itself that the second half has other sizes."""
    log = ""
    for half, (length, ms) in enumerate(((2048, 1000), (4096, 1500))):
        log += f"using world size: 8\n  seq_length ........ {length}\n"
        steps = range(100 * half + 1, 100 * half + 101)
        log += megatron(steps, total=200, ms=ms, start=3600 * half)
    lake = ran(tracelake, tmp_path, log)
    assert asked(tracelake, lake, "SELECT kind FROM findings") == [{"kind": "contradiction"}]


def test_steps_whose_sequences_grow_by_a_curriculum_are_not_slower(
    tracelake: Command, tmp_path: Path
) -> None:
    log = "".join(
        megatron(range(100 * n + 1, 100 * n + 101), total=400, ms=1000 + 200 * n, start=3600 * n)
        for n in range(4)
    ).replace("|\n", "| curriculum seqlen:   64 |\n")
    lake = ran(tracelake, tmp_path, log)
    assert asked(tracelake, lake, "SELECT kind FROM findings") == []


def test_a_validation_is_no_step(tracelake: Command, tmp_path: Path) -> None:
    said = []
    for step in range(1, 41):
        said.append(
            f"[rank0]:{at(2 * step)},000 - root - INFO - step: {step:2}  loss:  7.0000  tps: 4,000"
        )
        if step % 10 == 0:
            said.append(
                f"[rank0]:{at(2 * step)},900 - root - INFO - validate step: {step:2}  loss:  5.5000"
                "  memory: 40.00GiB(50.00%)  tps: 9,000"
            )
    lake = ran(tracelake, tmp_path, lines(*said))
    assert asked(tracelake, lake, "SELECT DISTINCT loss, restarts FROM step_stats") == [
        {"loss": 7.0, "restarts": 0}
    ]
    assert asked(tracelake, lake, "SELECT row_lines, context_lines FROM sources") == [
        {"row_lines": 40, "context_lines": 4}
    ]


def fairseq(begin: str) -> str:
    """Ten records, one each ten steps of 4 s; `begin` comes between date and record."""
    return lines(
        *(
            f'{begin.format(at(40 * n))}{{"epoch": 1, "update": 0.1, "loss": "{9 - n / 10}",'
            f' "wps": "1000", "num_updates": "{10 * n}", "lr": "1e-05", "wall": "{40 * n}"}}'
            for n in range(1, 11)
        )
    )


def test_a_mean_beside_its_record_is_no_restart(tracelake: Command, tmp_path: Path) -> None:
    """The time since the start gives a mean only after half a minute of whole seconds."""
    lake = ran(tracelake, tmp_path, fairseq("{} | INFO | train_inner | "))
    assert asked(tracelake, lake, "SELECT restarts FROM coverage") == [{"restarts": 0}]
    steps = asked(
        tracelake, lake, "SELECT DISTINCT step_ms, time_basis FROM step_stats WHERE step > 10"
    )
    assert steps == [{"step_ms": 4000.0, "time_basis": "mean"}]
    dates = asked(
        tracelake, lake, "SELECT count(logged_at) AS dated FROM train_steps WHERE loss > 0"
    )
    assert dates == [{"dated": 10}]


def test_two_rows_of_a_line_are_no_restart(tracelake: Command, tmp_path: Path) -> None:
    """A record has the date, and the mean beside it the time: they come in any order."""
    for job in range(5):
        said = [
            f"{at(10 * n)},123 - mmdet - INFO - Epoch [{(n + 4) // 5}]"
            f"[{20 + 20 * ((n - 1) % 5)}/100]\tlr: 1.978e-03, eta: 1:00:00, time: 0.503,"
            f" data_time: 0.005, memory: 3000, loss: {4.5 + job}, grad_norm: 3.4"
            for n in range(1, 26)
        ]
        write(tmp_path / "in", {f"job{job}/train.log": lines(*said)})
    done = tracelake("run", tmp_path / "in", "--lake", tmp_path / "lake")
    assert done.code == 0, done.err
    found = asked(tracelake, tmp_path / "lake", "SELECT restarts FROM coverage")
    assert found == [{"restarts": 0}] * 5


def primus(step: int, clock: float) -> str:
    stamp = (_START + timedelta(seconds=clock)).strftime("%Y%m%d %H:%M:%S")
    return (
        f"[{stamp}][rank-7/8][INFO ] [---trainer.py:2560] : iteration {step:8}/      40 |"
        f" elapsed time per iteration (ms): {10000 if clock < 600 else 20000}.0/10000.0 |"
    )


def areal(step: int, clock: float) -> str:
    stamp = (_START + timedelta(seconds=clock)).strftime("%Y%m%d-%H:%M:%S.000")
    return lines(
        f"{stamp} StatsLogger INFO: Epoch 1/1 Step {step}/40 Train step {step}/40 done.",
        f"{stamp} StatsLogger INFO: Stats:",
        "│ timeperf/rollout │ 3.0000e+00 │ ppo_actor/update/actor_loss/avg │ 5.0000e-01 │",
        "│ timeperf/train_step │ 2.0000e+00 │ ppo_actor/n_valid_tokens │ 1.6000e+04 │",
    ).rstrip()


@pytest.mark.parametrize("record", [primus, areal])
def test_a_job_that_began_again_has_the_times_of_its_later_start(
    tracelake: Command, tmp_path: Path, record: Callable[[int, float], str]
) -> None:
    said = [record(step, 10 * step) for step in range(1, 31)]
    said += [record(step, 900 + 20 * (step - 20)) for step in range(21, 41)]
    lake = ran(tracelake, tmp_path, lines(*said))
    steps = (
        "SELECT step_ms, restarts, count(*) AS steps FROM step_stats WHERE NOT warmup GROUP BY ALL"
    )
    assert asked(tracelake, lake, f"{steps} ORDER BY restarts") == [
        {"step_ms": 10000.0, "restarts": 0, "steps": 19},
        {"step_ms": 20000.0, "restarts": 1, "steps": 19},
    ]
    dates = asked(
        tracelake, lake, "SELECT count(logged_at) AS dated FROM train_steps WHERE step > 35"
    )
    assert dates == [{"dated": 5}]


def test_records_of_fairseq_by_hydra_are_read(tracelake: Command, tmp_path: Path) -> None:
    lake = ran(tracelake, tmp_path, fairseq("[{},269][train_inner][INFO] - "))
    steps = asked(tracelake, lake, "SELECT DISTINCT step_ms FROM step_stats WHERE step > 10")
    assert steps == [{"step_ms": 4000.0}]


@pytest.mark.parametrize("before", ["", "[default0]:", "[rank0]: ", "[1,0]<stdout>:"])
def test_blocks_of_composer_are_read_behind_what_launchers_write(before: str) -> None:
    said = [
        line
        for step in range(1, 60)
        for line in (
            f"{before}[batch={step}/60]:",
            f"{before}\t Train time/batch: {step - 1}",
            f"{before}\t Train loss/train/total: 9.9000",
            f"{before}\t Train time/train: {step / 300:.4f}",
        )
    ]
    log = lines(*said).encode()
    assert claim_of(formats()["training_log"], log) is Claim.YES
    (run,) = parse("training_log", {"train.log": log}).runs
    assert len([row for row in run.rows("train_steps") if row["loss"]]) == 59


def test_jobs_of_no_known_size_do_not_drift(tracelake: Command, tmp_path: Path) -> None:
    for day in range(1, 17):
        step_ms = 100 if day < 12 else 300
        said = [f"iter {step}: loss 3.1000, time {step_ms:.2f}ms, mfu 35.20%" for step in range(20)]
        write(
            tmp_path / "in",
            {f"2026-03-{day:02}/train.log": lines(f"{at(day * 86400)} begins", *said)},
        )
    done = tracelake("run", tmp_path / "in", "--lake", tmp_path / "lake", "--fail-on", "drift")
    assert done.code == 0, done.err
    found = asked(tracelake, tmp_path / "lake", "SELECT DISTINCT drift FROM run_history")
    assert found == [{"drift": "not_comparable"}]


@pytest.mark.parametrize(
    ("last", "ended"), [(300, True), (310, False), (290, False)], ids=["all", "one more", "less"]
)
def test_the_last_steps_of_a_job_need_not_fill_an_interval(last: int, ended: bool) -> None:
    """A job of 305 steps prints nothing behind step 300."""
    total = 305 if ended or last == 290 else 320
    log = megatron(range(10, last + 1, 10), total=total)
    (run,) = parse("training_log", {"train.log": log.encode()}).runs
    assert run.facts.ended is ended


def test_a_job_that_breaks_behind_its_last_record_has_not_ended() -> None:
    log = megatron(range(10, 301, 10), total=305) + "RuntimeError: CUDA error: an illegal access\n"
    (run,) = parse("training_log", {"train.log": log.encode()}).runs
    assert run.facts.ended is False
    assert run.facts.attributes["ended_by"] == "device_error"


_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = "During handling of the above exception, another exception occurred:"
_TORCHRUN = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
_LAUNCHER = (
    "[2026-04-08 11:20:00,123] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return"
    " code = 1"
)
_FAILED = "failed (exitcode: {}) local_rank: 1 (pid: 7) of binary: python"
_STEP_ENDED = "0: slurmstepd: error: *** STEP 9.0 ON node007 CANCELLED AT 2026-04-01T12:13:27 ***"
_SRUN = "srun: error: node007: task 0: Exited with exit code 1"
_STUCK = (
    "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring"
    " enqueued collectives."
)


def _table(*, rank: int, second: int, code: int) -> list[str]:
    return [
        f"[{rank}]:",
        f"  time      : 2026-04-08_11:20:{second}",
        f"  host      : gpu{rank}.cluster",
        f"  rank      : {rank} (local_rank: 1)",
        f"  exitcode  : {code} (pid: 102930)",
        "  error_file: <N/A>",
    ]


_SLURM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some tasks have been OOM Killed."
)


@pytest.mark.parametrize(
    ("printed", "ended_by", "ended_with"),
    [
        (["[rank3]: ValueError: bad shard", _TORCHRUN], "error", "ValueError: bad shard"),
        # What comes first is the cause.
        (["ValueError: bad shard", "EOFError: ", _LAUNCHER], "error", "ValueError: bad shard"),
        (["ValueError: bad shard", "OSError: gone", _SRUN], "error", "ValueError: bad shard"),
        ([_SRUN], "error", _SRUN),
        ([_SRUN, _SLURM], "host_out_of_memory", _SLURM.removeprefix("slurmstepd: error: ")),
        (["srun: error: node007: task 3: Out Of Memory"], "host_out_of_memory", None),
        (["[CUDA ERROR] at file llmc/a.h:50:", "out of memory"], "out_of_memory", "out of memory"),
        (["[CUDA ERROR] at file llmc/a.h:50:", "an illegal access"], "device_error", None),
        (
            ["Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f."],
            "device_error",
            None,
        ),
        # A step of Slurm in which a task fails is ended as a whole.
        ([_SRUN, _STEP_ENDED], "error", _SRUN),
        (["3: KeyError: 'ids'", "KeyError: 'ids'", _SRUN, _STEP_ENDED], "error", "KeyError: 'ids'"),
        ([_STEP_ENDED], "cancelled", None),
        ([_SRUN, f"{_STEP_ENDED.removesuffix(' ***')} DUE TO TIME LIMIT ***"], "cancelled", None),
        (["[2026-04-20T03:25:23.011] error: *** STEP 9.1 CANCELLED AT now ***"], "cancelled", None),
        (["slurmstepd-a7: error: *** JOB 1 ON a7 CANCELLED AT now ***"], "cancelled", None),
        (
            ["slurmstepd: error: *** JOB 1 ON a7 CANCELLED AT now DUE TO NODE FAILURE ***"],
            "node_failure",
            None,
        ),
        (["W0401 Received 15 death signal, shutting down workers"], "cancelled", None),
        (["a.SignalException: Process 7 got signal: 15"], "cancelled", None),
        # Of a process that a signal killed, the launcher says which.
        ([_FAILED.format(-9), _TORCHRUN], "killed", _FAILED.format(-9)),
        ([_FAILED.format(-11), _TORCHRUN], "error", _FAILED.format(-11)),
        (
            ["ValueError: bad shard", _FAILED.format(-9), _TORCHRUN],
            "error",
            "ValueError: bad shard",
        ),
        ([_LAUNCHER.replace("= 1", "= -9")], "killed", "exits with return code = -9"),
        ([_LAUNCHER], "error", "exits with return code = 1"),
        (["=>> PBS: job killed: walltime 43234 exceeded limit 43200"], "cancelled", None),
        (["TERM_RUNLIMIT: job killed after reaching LSF run time limit."], "cancelled", None),
        (["x3004c0s7b0n0.hostmgmt: rank 5 died from signal 9"], "killed", None),
        (["x3004c0s7b0n0.hostmgmt: shepherd died from signal 9"], "killed", None),
        (["x3004c0s7b0n0.hostmgmt: rank 5 died from signal 11 and dumped core"], "error", None),
        (["prterun noticed that process rank 3 with PID 7 on node n exited"], "error", None),
        (["=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"], "error", None),
        (["Killed"], "killed", "Killed"),
        (["job.sh: line 24: 2550555 Killed  python"], "killed", "line 24: 2550555 Killed  python"),
        (["Segmentation fault (core dumped)"], "error", "Segmentation fault (core dumped)"),
        (
            ["Killed", "TERM_MEMLIMIT: job killed after reaching LSF memory limit."],
            "host_out_of_memory",
            None,
        ),
        (["job.sh: line 4: 7 Aborted   (core dumped) python"], "error", None),
        (["Fatal Python error: Segmentation fault"], "error", None),
        (["ERROR:composer.cli.launcher:Rank 0 crashed with exit code -11."], "error", None),
        # Composer kills the others when one has failed.
        (
            ["Rank 3 crashed with exit code -11.", "Global rank 0 (PID 7) exited with code -9"],
            "error",
            "Rank 3 crashed with exit code -11",
        ),
        (["ValueError: bad shard", "W1 Received 15 death signal, shutting down"], None, None),
        (
            [_LAUNCHER.replace("= 1", "= -9"), "a.CalledProcessError: Command failed"],
            "killed",
            None,
        ),
        ([f"KeyError: '{'x' * 300}'", _SRUN], "error", f"KeyError: '{'x' * 183} [...]"),
        (["mpirun noticed that process rank 7 on a exited on signal 9 (Killed)."], "killed", None),
        (["mpirun noticed that process rank 7 on a exited on signal 6 (Aborted)."], "error", None),
        # The end of a long text is left out, and that is said.
        (
            [f"ValueError: {'bad ' * 80}", _SRUN],
            "error",
            f"ValueError: {'bad ' * 45}ba [...]",
        ),
        (
            ["[10:41] CRITICAL [olmo.util:158] Uncaught OLMoThreadError: it failed", _SRUN],
            "error",
            "OLMoThreadError: it failed",
        ),
        # Trainers that check the loss stop before they print it.
        (["Loss is nan, stopping training", _SRUN], "loss_not_finite", None),
        (
            ["FloatingPointError: Loss became infinite or NaN at iteration=7!"],
            "loss_not_finite",
            None,
        ),
        (["FloatingPointError: Minimum loss scale reached (0.0001)."], "loss_not_finite", None),
        (["ValueError: nan loss encountered", _TORCHRUN], "loss_not_finite", None),
        (["RuntimeError: Train loss contains a NaN.", _TORCHRUN], "loss_not_finite", None),
        (
            [_TRACEBACK, '  File "a.py", line 3', "OSError: [Errno 28] No space left on device"],
            "error",
            "OSError: [Errno 28] No space left on device",
        ),
        ([_TRACEBACK, "[rank2]: AssertionError", _TORCHRUN], "error", "AssertionError"),
        (["AssertionError"], None, None),
        ([_TRACEBACK, "KeyboardInterrupt"], "cancelled", "KeyboardInterrupt"),
        (["Detected KeyboardInterrupt, attempting graceful shutdown ..."], "cancelled", None),
        (["ValueError: bad shard", "KeyboardInterrupt"], None, None),
        (
            [f"[rank0]:[F a.cpp:1169] [PG 0 Rank 0] {_STUCK}", _FAILED.format(-6), _TORCHRUN],
            "collective_timeout",
            _STUCK,
        ),
        (["Training complete", _STUCK, "KeyboardInterrupt"], None, None),
        # Of Ascend.
        (
            [_TRACEBACK, "RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/a.cpp:64", _TORCHRUN],
            "network_error",
            "HCCL error in: torch_npu/csrc/a.cpp:64",
        ),
        (
            ["EI0006: [PID: 7] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: late"],
            "network_error",
            "Getting socket times out. Reason: late",
        ),
        (["EI0006: Getting socket times out. Reason: late", _TORCHRUN], "network_error", None),
        (
            ["EE1002: 2024-09-03-16:50:00.041.231 Stream synchronize timeout. rt failed"],
            "collective_timeout",
            "Stream synchronize timeout. rt failed",
        ),
        (
            ["EI0002: [PID: 7] 2025-10-11 The wait execution of the Notify register times out."],
            "collective_timeout",
            "The wait execution of the Notify register times out",
        ),
        (["command terminated with exit code 137"], "killed", None),  # kubectl exec
        (["command terminated with exit code 1"], "error", None),
        (["trainer-1 exited with code 137"], "killed", None),  # docker compose
        (["trainer-1 exited with code 1"], "error", None),
        (["trainer-1 exited with code 0"], None, None),
        (["Terminated"], "cancelled", None),
        (["job.sh: line 24: 255 Terminated  python"], "cancelled", None),
        (["job.sh: line 24: 255 Terminated  nvidia-smi"], None, None),
        (["Training complete", "Terminated"], None, None),
        # Whatever stands before each line.
        (
            [f"[trainer] {_TRACEBACK}", '[trainer]   File "a.py"', "[trainer] KeyError: 'ids'"],
            "error",
            "KeyError: 'ids'",
        ),
        (
            [f"2026-04-08 11:20:09.1 e7 {_TRACEBACK}", "2026-04-08 11:20:10.23 e7 AssertionError"],
            "error",
            "AssertionError",
        ),
        ([f"[trainer] {_TRACEBACK}", "W0408 [trainer] ValueError: bad shard"], None, None),
        (
            [
                "job stderr Exception ignored in: <function A.__del__>",
                f"job stderr {_TRACEBACK}",
                "job stderr TypeError: no list",
            ],
            None,
            None,
        ),
        # What a kernel, a scheduler or a container says of memory that is used up.
        (["=>> PBS: job killed: mem 10485kb exceeded limit 9437kb"], "host_out_of_memory", None),
        (
            ["slurmstepd: error: Job 7 exceeded memory limit (4196 > 4194), being killed"],
            "host_out_of_memory",
            "exceeded memory limit (4196 > 4194), being killed",
        ),
        (
            ["[1234.5] Memory cgroup out of memory: Killed process 7 (python) total-vm:9kB"],
            "host_out_of_memory",
            None,
        ),
        (["e.service: Failed with result 'oom-kill'."], "host_out_of_memory", None),
        (["      Reason:       OOMKilled", "      Exit Code:    137"], "host_out_of_memory", None),
        (['"OOMKilled": true,'], "host_out_of_memory", None),
        (['"OOMKilled": false,'], None, None),
        (
            ["OutOfMemoryError: Task was killed due to the node running low on memory."],
            "host_out_of_memory",
            "Task was killed due to the node running low on memory",
        ),
        (
            ["(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 crashed"],
            "host_out_of_memory",
            None,
        ),
        (
            ["(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 crashed"],
            None,
            None,
        ),
        (["OSError: [Errno 12] Cannot allocate memory", _SRUN], "host_out_of_memory", None),
        # Of devices.
        (["RuntimeError: CUDA error: out of memory", _TORCHRUN], "out_of_memory", None),
        (
            ["RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"],
            "out_of_memory",
            None,
        ),
        (
            ["Feb 14 05:03:41 gpu-1 kernel: NVRM: Xid (PCI:0000:44:00): 79, fallen off the bus."],
            "device_error",
            "NVRM: Xid (PCI:0000:44:00): 79, fallen off the bus",
        ),
        (["NVRM: Xid (PCI:0000:44:00): 45, pid=7, name=python3, Ch 00000001"], None, None),
        (
            ["HW Exception by GPU node-4 (Agent handle: 0x55) reason :GPU Hang"],
            "device_error",
            None,
        ),
        (
            ["NCCL error in: a.hpp:268, unhandled cuda error (run with NCCL_DEBUG=INFO)"],
            "device_error",
            None,
        ),
        (["NCCL error in: a.cpp:911, unhandled system error"], "network_error", None),
        (["NCCL error in: a.cpp:911, invalid usage"], "nccl_error", None),
        # A mistake of the program, at which no device is broken.
        (
            [_TRACEBACK, "RuntimeError: CUDA error: device-side assert triggered", _TORCHRUN],
            "error",
            "CUDA error: device-side assert triggered",
        ),
        # Where one process fails, the others time out or lose it.
        (
            [
                f"[rank3]: {_TRACEBACK}",
                "[rank3]: KeyError: 'ids'",
                "[rank1]: ncclRemoteError: A call failed possibly due to a network error",
                f"[rank0]:[F a.cpp:1169] [PG 0 Rank 0] {_STUCK}",
            ],
            "error",
            "KeyError: 'ids'",
        ),
        # Handlers of signals.
        (
            ["[a7:332:0:332] Caught signal 11 (Segmentation fault: address not mapped)"],
            "error",
            "Caught signal 11 (Segmentation fault: address not mapped)",
        ),
        (
            ["[a7:123] *** Process received signal ***", "[a7:123] Signal: Bus error (7)"],
            "error",
            "Signal: Bus error (7)",
        ),
        (["*** SIGSEGV received at time=1717 on cpu 3 ***"], "error", None),
        # systemd
        (["a.service: Main process exited, code=killed, status=9/KILL"], "killed", None),
        (["a.service: Main process exited, code=killed, status=15/TERM"], "cancelled", None),
        (["a.service: Main process exited, code=exited, status=1/FAILURE"], "error", None),
        (["a.service: Main process exited, code=exited, status=0/SUCCESS"], None, None),
        (["MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD"], "error", None),
        (
            ["Abort(1) (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1)"],
            "error",
            None,
        ),
        (
            [
                "F1029 client.h:80] Terminating process because the JAX distributed service"
                " detected fatal errors. This most likely indicates that another task died"
            ],
            "error",
            None,
        ),
        # Rich draws a box.
        (
            ["╭──── Traceback (most recent call last) ────╮", "│ a.py │", "ValueError: bad shard"],
            "error",
            "ValueError: bad shard",
        ),
        # Errors whose classes are not called so, and those of C++.
        *(
            ([f"[rank3]: {_TRACEBACK}", f"[rank3]: {error}", _FAILED.format(1)], "error", error)
            for error in (
                "requests.exceptions.ReadTimeout: the hub is slow",
                "triton.runtime.errors.OutOfResources: out of resource: shared memory",
                "torch._dynamo.exc.BackendCompilerFailed: compile_fn raised TypeError: no hooks",
                "zlib.error: Error -3 while decompressing data",
                "StopIteration",
            )
        ),
        (["mmcv.utils: ready", "apex.amp.Scaler"], None, None),
        (
            ["terminate called after throwing an instance of 'c10::Error'", "  what():  graph"],
            "error",
            "graph",
        ),
        (["Training complete", "  what():  invalid device pointer"], None, None),
        # Who lost another process prints that, whichever of them prints first.
        (
            [
                f"[rank0]: {_TRACEBACK}",
                "[rank0]: RuntimeError: [a/pair.cc:534] Connection closed by peer [10.0.0.3]:2940",
                f"[rank5]: {_TRACEBACK}",
                "[rank5]: KeyError: 'ids'",
                _TORCHRUN,
            ],
            "error",
            "KeyError: 'ids'",
        ),
        (
            ["  what():  NCCL error: remote process exited", "ncclRemoteError: A call failed"],
            "network_error",
            "ncclRemoteError: A call failed",
        ),
        (
            [
                "ncclRemoteError: A call failed possibly due to a network error",
                "Last error:",
                "NET/IB : Got completion from peer 10.0.0.3<2> with error 12, opcode 0, len 0",
            ],
            "link_error",
            "NET/IB : Got completion from peer 10.0.0.3<2> with error 12, opcode 0, len 0",
        ),
        # A checkpoint that fails names its ranks, then their errors.
        (
            [
                _TRACEBACK,
                "torch.distributed.checkpoint.api.CheckpointException: CheckpointException"
                " ranks:dict_keys([0, 1])",
                "Traceback (most recent call last): (RANK 0)",
                "OSError: [Errno 28] No space left on device",
            ],
            "error",
            "OSError: [Errno 28] No space left on device",
        ),
        # Where nothing says why, the table of torchrun says who.
        (
            [
                _FAILED.format(1),
                "    raise ChildFailedError(",
                _TORCHRUN,
                "Failures:",
                *_table(rank=2, second=41, code=1),
                "Root Cause (first observed failure):",
                *_table(rank=5, second=40, code=-7),
                "Root Cause (first observed failure):",  # of another host
                *_table(rank=9, second=42, code=1),
            ],
            "error",
            "rank 5 on gpu5.cluster failed first, exit code -7",
        ),
        (
            [
                _TRACEBACK,
                "KeyError: 'ids'",
                _TORCHRUN,
                "Root Cause (first observed failure):",
                *_table(rank=5, second=40, code=1),
            ],
            "error",
            "KeyError: 'ids'",
        ),
        (
            [
                "[rank1]: RuntimeError: Rank 1 successfully reached monitoredBarrier, but received"
                " errors while waiting for send/recv from rank 0.",
                "[rank0]: KeyError: 'ids'",
                _TORCHRUN,
            ],
            "error",
            "KeyError: 'ids'",
        ),
        # Of Ray.
        (
            [
                "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this"
                " task.",
                "\tip: 10.72.56.3",
                "The actor is dead because its node has died. Node Id: 677df2a9",
            ],
            "node_failure",
            "The actor is dead because its node has died. Node Id: 677df2a9",
        ),
        (
            [
                "WARNING worker.py:1462 -- The node with node id: 8f2 and ip: 10.128.0.103 has been"
                " marked dead because the detector has missed too many heartbeats from it."
            ],
            "node_failure",
            None,
        ),
        # What watches processes ends those that hang.
        (
            [
                "[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92"
                " seconds.",
                _FAILED.format(-9),
            ],
            "collective_timeout",
            "Did not get subsequent heartbeat. Waited 171.92 seconds",
        ),
        (
            [
                "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with"
                " signal SIGKILL"
            ],
            "killed",
            None,
        ),
        (
            [
                _TRACEBACK,
                "subprocess.CalledProcessError: 'train.py' died with <Signals.SIGKILL: 9>",
            ],
            "killed",
            None,
        ),
        (
            ["srun: error: node007: task 5: Bus error (core dumped)", _STEP_ENDED],
            "error",
            "srun: error: node007: task 5: Bus error (core dumped)",
        ),
        # A program may print this when it has ended well.
        (["TypeError: 'NoneType' object is not callable"], None, None),
        (
            ["Exception ignored in: <function A.__del__>", _TRACEBACK, "TypeError: no list"],
            None,
            None,
        ),
        (
            ["Exception in thread Thread-5:", _TRACEBACK, "BrokenPipeError: 32", _TORCHRUN],
            "error",
            "BrokenPipeError: 32",
        ),
        (
            [
                "Exception in thread T:",
                _TRACEBACK,
                "OSError: 32",
                _CHAINED,
                _TRACEBACK,
                "KeyError: 1",
            ],
            None,
            None,
        ),
        (
            [
                "Exception in thread Thread-5:",
                _TRACEBACK,
                "_queue.Empty",
                _TRACEBACK,
                "OSError: 28",
            ],
            "error",
            "OSError: 28",
        ),
        (["--- Logging error ---", _TRACEBACK, "ValueError: I/O"], None, None),
        (
            [_TRACEBACK, "ValueError: plot", "- Training completed", "TypeError: at exit"],
            None,
            None,
        ),
        (["[INFO] [launch.py:351:main] Process 7 exits successfully."], None, None),
        (["job.sh: line 12: 34 Killed   nvidia-smi dmon -o T > gpu.log"], None, None),
        (["Training complete", "job.sh: line 12: 34 Killed  python watch.py"], None, None),
        (["Training complete", "Fatal Python error: at interpreter shutdown"], None, None),
    ],
)
def test_what_launchers_say_of_a_process_that_failed_ended_the_job(
    printed: list[str], ended_by: str | None, ended_with: str | None
) -> None:
    """The loop of nanoGPT does not say how many steps it makes."""
    steps = [f"iter {step}: loss 3.1000, time 355.00ms, mfu 35.20%" for step in range(5)]
    (run,) = parse("training_log", {"train.log": lines(*steps, *printed).encode()}).runs
    assert run.facts.ended is (False if ended_by else None)
    assert run.facts.attributes.get("ended_by") == ended_by
    if ended_with:
        assert run.facts.attributes["ended_with"] == ended_with.rstrip(".")


@pytest.mark.parametrize(
    "told",
    [
        "[exiting program at iteration 30] datetime: 2026-03-01 10:01:00\n",
        "Time limit reached. Elapsed time is 0:30:00. Signaling Trainer to stop.\n",
    ],
)
def test_a_job_that_ends_as_it_was_told_has_ended(told: str) -> None:
    log = megatron(range(1, 31), total=5000)
    for text, ended in ((log, False), (log + told, True), (log + told + log, False)):
        (run,) = parse("training_log", {"train.log": text.encode()}).runs
        assert run.facts.ended is ended


_TITAN_MODEL = "[titan] {} - root - INFO - Building llama3 {} with TransformerModelArgs(dim=4096)"
_TRAINER_MODEL = (
    "[INFO] ***** Running training *****\n"
    "[INFO]   Instantaneous batch size per device = 4\n"
    "[INFO]   Number of trainable parameters = 8,030,261,{}"
)
_EXPERTS = "  num_experts ............. {}\n  ffn_hidden_size ......... 14336"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (_TITAN_MODEL.format(at(0), "70B"), " model=llama3_70B "),
        (_TRAINER_MODEL.format(248), " params=8030261248 "),
        (_EXPERTS.format(64), " ffn=14336 experts=64 "),
    ],
)
def test_models_of_one_batch_are_other_configurations(
    tracelake: Command, tmp_path: Path, said: str, kept: str
) -> None:
    lake = ran(tracelake, tmp_path, said + "\n" + megatron(range(1, 9), total=8))
    ((config,),) = [row.values() for row in asked(tracelake, lake, "SELECT config FROM runs")]
    assert kept in f"{config} "


def test_an_error_is_why_a_job_of_more_steps_ended(tracelake: Command, tmp_path: Path) -> None:
    log = megatron(range(1, 9), total=20) + "[rank0]: KeyError: 'text'\n"
    (run,) = parse("training_log", {"train.log": log.encode()}).runs
    assert run.facts.attributes["ended_with"] == "KeyError: 'text'"
    lake = ran(tracelake, tmp_path, log)
    (found,) = asked(tracelake, lake, "SELECT brief, evidence FROM findings")
    said = "its log ends with step 8 of 20, then KeyError: 'text'"
    assert found == {"brief": said, "evidence": f"The run is incomplete: {said}."}


def test_steps_that_are_not_printed_cost_what_the_others_do(
    tracelake: Command, tmp_path: Path
) -> None:
    """Each tenth step of 800 is printed, and the last 300 are half as long again."""
    said = []
    for step in range(10, 801, 10):
        rate = 64 / (8 if step <= 500 else 12)
        said.append(
            f"[{at(step * 8)},989] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/"
            f"global_step={step}, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec={rate},"
            " MemAllocated=20.1GB, MaxMemAllocated=60.2GB"
        )
    sizes = "world_size=64,global_batch_size=64"
    lake = ran(tracelake, tmp_path, lines(*said), "--set", sizes)
    (found,) = asked(tracelake, lake, "SELECT kind, evidence, cost_gpu_hours FROM findings")
    assert found["evidence"].endswith("30 of 80 steps.")
    printed_h, between = (50 * 8 + 30 * 12) * 64 / 3600, 711
    per_day = 30 * 4 / (50 * 8 + 30 * 12)
    assert found["cost_gpu_hours"] == pytest.approx(per_day * (printed_h + between * 8 * 64 / 3600))


def test_an_evaluation_comes_in_none_of_the_steps_between(
    tracelake: Command, tmp_path: Path
) -> None:
    """It comes every hundredth step, and each tenth is printed."""
    said = [
        f"iter {step}: loss 3.1000, time {30350 if step % 100 == 0 else 350:.2f}ms, mfu 35.20%"
        for step in range(0, 601, 10)
    ]
    lake = ran(tracelake, tmp_path, lines(*said))
    (found,) = asked(tracelake, lake, "SELECT kind, gain_ratio, evidence FROM opportunities")
    assert found["kind"] == "slow_steps"
    assert "one every 100" in found["evidence"]
    # Behind the first step, which is warm-up.
    assert found["gain_ratio"] == pytest.approx(6 * 30 / (6 * 30 + 600 * 0.35))


@pytest.mark.parametrize(
    ("after", "ended_with"), [(1, "CUDA out of memory"), (2, "exits with return code = 1")]
)
def test_a_rank_may_fail_before_another_prints_the_last_record(after: int, ended_with: str) -> None:
    log = megatron(range(1, 6), total=100) + lines(_TRACEBACK, "RuntimeError: CUDA out of memory.")
    log += megatron(range(6, 6 + after), total=100, start=5) + lines(_LAUNCHER)
    (run,) = parse("training_log", {"train.log": log.encode()}).runs
    assert run.facts.attributes["ended_with"] == ended_with


@pytest.mark.parametrize(("after", "ended_by"), [(9, "cancelled"), (101, None)])
def test_steps_that_a_scheduler_gives_a_job_follow_its_end(
    after: int, ended_by: str | None
) -> None:
    said = f"{_STEP_ENDED.removesuffix(' ***')} DUE TO TIME LIMIT ***"
    log = megatron(range(1, 6), total=1000) + lines("srun: Job step aborted: Waiting up", said)
    log += megatron(range(6, 6 + after), total=1000, start=5)
    log += lines("srun: error: Timed out waiting for job step to complete")
    (run,) = parse("training_log", {"train.log": log.encode()}).runs
    assert run.facts.attributes.get("ended_by") == ended_by
    begins = "using world size: 8, data-parallel size: 8\n"
    log += begins + megatron(range(6 + after, 9 + after), total=1000, start=900)
    (requeued,) = parse("training_log", {"train.log": log.encode()}).runs
    assert "ended_by" not in requeued.facts.attributes
