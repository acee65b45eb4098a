"""Training logs of every trainer behind every launcher, written here from their grammar."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.golden_cases import GOLDEN
from tests.lakes import asked, rows
from tests.parsing import claim_of, parse
from tests.traces import write
from tracelake.formats import Claim, formats

_START = datetime(2026, 3, 1, 10)
_STEPS = 12

# A trainer: step, seconds of the step, seconds since the start -> a line, and what it says.
Line = tuple[str, dict[str, object]]


def early(step: int, seconds: float, _: float) -> Line:
    loss = 11 - step / 10
    return (
        f" iteration {step:8d}/{_STEPS:8d} | elapsed time per iteration (ms): {seconds * 1e3:.1f}"
        f" | learning rate: {step:.3E} | lm loss: {loss:.6E} | loss scale: 1024.0 |",
        {"step_time_ns": round(seconds * 1e9), "loss": loss, "lr": float(step)},
    )


def dated(step: int, seconds: float, at: float) -> Line:
    text, values = early(step, seconds, at)
    return f" [{_START + timedelta(seconds=int(at)):%Y-%m-%d %H:%M:%S}]{text}", values


def deepspeed_fork(step: int, seconds: float, _: float) -> Line:
    text = (
        f" iteration {step:8d}/{_STEPS:8d} | consumed samples: {16 * step:12d} | consumed tokens:"
        f" {32 * step:12d} | elapsed time per iteration (s): {seconds:.2f} | learning rate: 1.0E-04"
        f" | global batch size:    16 | lm-loss: nan | number of skipped iterations:   1 |"
        f" samples per second: {16 / seconds:.3f} | TFLOPs: {step}.25 |"
    )
    return text, {
        "step_time_ns": round(round(seconds, 2) * 1e9),
        "consumed_samples": 16 * step,
        "skipped_steps": 1,
        "tflops_per_gpu": step + 0.25,
    }


def primus(step: int, seconds: float, at: float) -> Line:
    time = f"{seconds * 1e3:.1f}" + (f"/{seconds * 2e3:.1f}" if step > 2 else "")
    text = (
        f"\x1b[32m[20260301 10:00:00][rank-7/8][DEBUG]\x1b[0m [-----utils.py:425] : ["
        f"{_START + timedelta(seconds=at):%Y-%m-%d %H:%M:%S.%f}] iteration {step:8d}/{_STEPS:8d} |"
        f" consumed samples: {8 * step:12d} | elapsed time per iteration (ms): {time} | throughput"
        f" per GPU (TFLOP/s/GPU): {step}.5/9.5 | lm loss: 1.5E+00 | hip mem usage/free/total/"
        f"usage_ratio: 1.5GB/2GB/3GB/50% | rank-3 rocm max mem usage/usage_ratio: 9GB/90%\x1b[0m"
    )
    return text, {
        "step_time_ns": round(seconds * 1e9),
        "consumed_samples": 8 * step,
        "tflops_per_gpu": step + 0.5,
        "memory_bytes": 3 << 29,
    }


def nemo(step: int, seconds: float, _: float) -> Line:
    text = (
        f"Training epoch {step // 7}, iteration {(step - 1) % 6}/{_STEPS - 1} | lr: 1.499e-07 |"
        f" global_batch_size: 512 | global_step: {step - 1} | reduced_train_loss: 10.32 |"
        f" train_step_timing in s: {seconds:.3f}"
    )
    return text, {"step_time_ns": round(seconds * 1e9), "loss": 10.32, "epoch": step // 7}


def titan(step: int, _: float, at: float) -> Line:
    stamp = f"{_START + timedelta(seconds=at):%Y-%m-%d %H:%M:%S.%f}"[:-3].replace(".", ",")
    text = (
        f"[titan] {stamp} - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss: {step:8.4f}  "
        f"\x1b[33mmemory:  1.50GiB(2.30%)  \x1b[34mtps: 1,{step:03d}  \x1b[36mtflops: 12.50  "
        f"\x1b[35mmfu: 1.20%\x1b[39m"
    )
    return text, {"loss": float(step), "tokens_per_s": 1000.0 + step, "memory_bytes": 3 << 29}


def deepspeed(step: int, _: float, at: float) -> Line:
    stamp = f"{_START + timedelta(seconds=at):%Y-%m-%d %H:%M:%S.%f}"[:-3].replace(".", ",")
    text = (
        f"[{stamp}] [INFO] [timer.py:264:stop] epoch=0/micro_step={step * 4}/global_step={step},"
        f" RunningAvgSamplesPerSec=9.5, CurrSamplesPerSec={step}.5, MemAllocated=1.5GB,"
        " MaxMemAllocated=9GB"
    )
    return text, {"samples_per_s": step + 0.5, "memory_bytes": 3 << 29}


def nano(step: int, seconds: float, _: float) -> Line:
    text = f"iter {step - 1}: loss {step / 4:.4f}, time {seconds * 1e3:.2f}ms, mfu 31.20%"
    return text, {"step_time_ns": round(seconds * 1e9), "loss": step / 4}


def llm_c(step: int, seconds: float, _: float) -> Line:
    text = (
        f"step {step:4d}/{_STEPS} | loss {step / 4:.6f} (-0.31z)| norm 1.2500 (+nanz)| lr 3.00e-04"
        f" | {seconds * 1e3:.2f} ms | -100.0% bf16 MFU | {1000 + step} tok/s"
    )
    values = {"loss": step / 4, "grad_norm": 1.25, "lr": 3e-4, "tokens_per_s": 1000.0 + step}
    return text, {"step_time_ns": round(seconds * 1e9), **values}


def timm(step: int, seconds: float, _: float) -> Line:
    text = (
        f"Train: 0 [{step - 1:>4d}/{_STEPS} ({step / _STEPS:>4.0%})]  Loss: {step / 4:#.3g} (2.50)"
        f"  Time: {seconds:.3f}s, {256 / seconds:>7.2f}/s  (1.250s,  204.80/s)  LR: 3.000e-04"
        "  Data: 0.025 (0.500)"
    )
    values = {"loss": step / 4, "lr": 3e-4, "step_time_ns": round(seconds * 1e9)}
    return text, {**values, "samples_per_s": round(256 / seconds, 2)}


def verl(step: int, seconds: float, _: float) -> Line:
    text = (
        f"step:{step} - global_seqlen/mean:512.0 - actor/pg_loss:np.float64({step / 4}) -"
        f" critic/score/mean:-0.25 - timing_s/gen:0.5 - timing_s/step:{seconds} -"
        f" perf/throughput:{100 + step}.5"
    )
    values = {"loss": step / 4, "tokens_per_s": step + 100.5}
    return text, {"step_time_ns": round(seconds * 1e9), **values}


def slime(step: int, seconds: float, _: float) -> Line:
    text = (
        f"train_metric_utils.py:50 - perf {step - 1}: {{'perf/train_wait_time': 0.5,"
        f" 'perf/actor_train_time': 0.25, 'perf/actor_train_tok_per_s': 2048.0,"
        f" 'perf/step_time': {seconds}, 'perf/wait_time_ratio': 0.5}}"
    )
    return text, {"step_time_ns": round(seconds * 1e9), "tokens_per_s": 512 / seconds}


_TRAINERS = (
    *(early, dated, deepspeed_fork, primus, nemo, titan, deepspeed, nano, llm_c, timm),
    *(verl, slime),
)
_LAUNCHERS = (
    "",
    "vm-07-14: ",
    "10.12.0.7: ",
    "[default7]: ",
    "[rank3]:",
    "[trainer0]:",
    "[3] ",
    "[gpu-7.site:3]: ",
    "trainer/0 [0]:",
    "nemo.pretrain/0 [default0]:",
    "[2026-03-01, 10:00:00 UTC] {subprocess.py:93} INFO - ",
    "[2026-03-01T10:00:00.123+0000] {pod_manager.py:477} INFO - ",
    "[2026-03-01T10:00:00.123456Z] dc5b74e6 [rank=0] || INFO: ",
    "<info>    [2026-03-01 10:00:00] [dc5b74e6 || rank=0] || ",
    "2026-03-01 10:00:00.123 [177/train/578 (pid 28936)] ",
    "2026-03-01 10:00:00.123 [177/train/578 (pid 28936)] [09c561ee-a44c-4795-967c-7183a83b3160] ",
    "#015[1,mpirank:7,algo-2]<stderr>:",
    "0: ",
    "[1,0]<stdout>:",
    "[1,mpirank:0,algo-1]<stdout>:",
    "[0]<stderr>:",
    "(RayWorker pid=77, ip=10.0.0.1) ",
    "[pod/job-0/trainer] 2026-03-01T10:00:00.123456789Z ",
    "2026-03-01T10:00:00.123456789Z stdout F ",
    "2026-03-01T10:00:00.123456+00:00 host train[123]: ",
    "2026-03-01T10:00:00+0000 gpu-7 train[123]: ",
    "Mar  1 10:00:00 gpu7.example.org python3: ",
    "worker_1 | ",
    "trainer  | ",
    "job.1.k3x9@gpu7    | 2026-03-01T10:00:00.123456789Z ",
    "\x1b[36m(main, pid=7)\x1b[0m ",
)
_TIME = "2026-03-01T10:00:00.123456789Z"
_COLLECTORS: dict[str, Callable[[str], dict[str, object]]] = {
    "docker": lambda line: {"log": f"{line}\n", "stream": "stderr", "time": _TIME},
    "fluent-bit": lambda line: {"date": 1772359200.1, "log": line, "kubernetes": {"pod": "job-0"}},
    "elastic": lambda line: {"@timestamp": _TIME, "message": line, "host": {"name": "gpu-7"}},
    "journalctl": lambda line: {"_PID": "123", "MESSAGE": line, "_HOSTNAME": "gpu-7"},
    "logcli": lambda line: {"labels": {"app": "job"}, "line": line, "timestamp": _TIME},
    "google": lambda line: {"insertId": "a1", "textPayload": line, "timestamp": _TIME},
}
_PREFIXES = (*_LAUNCHERS, "42%|####      | 5/12 [00:01<00:02]\r")


def records(trainer: Callable[[int, float, float], Line]) -> Iterator[Line]:
    at = 0.0
    for step in range(1, _STEPS + 1):
        seconds = (1000 + 7 * step) / 1000
        at += seconds
        text, values = trainer(step, seconds, at)
        yield text, {"step": step, **values}


@pytest.mark.parametrize("prefix", _LAUNCHERS, ids=str.strip)
def test_sizes_and_timers_are_read_behind_every_launcher(prefix: str) -> None:
    text, _ = next(records(dated))
    lines = ["  num_layers ............ 24", "  micro_batch_size ............ 2", text]
    lines += ["    (min, max) time across ranks (ms):", "    all-grads-sync ....: (1.50, 2.25)"]
    data = "".join(f"{prefix}{line}\n" for line in lines)
    run = parse("training_log", {"a.log": data.encode()}).only
    sizes = ("layers", "micro_batch_size")
    assert [run.facts.topology.get(size) for size in sizes] == [24, 2]
    assert [row["duration_ns"] for row in run.rows("timings")] == [1_500_000, 2_250_000]


@pytest.mark.parametrize("prefix", _LAUNCHERS, ids=str.strip)
def test_bars_and_what_ended_a_job_are_read_behind_every_launcher(prefix: str) -> None:
    bars = [
        f"{step}%|#         | {step}/100 [00:{2 * step:02}<09:59,  2.00s/it]" for step in (2, 20)
    ]
    lines = ["***** Running training *****", "  Total optimization steps = 100", *bars]
    lines += [f"{{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.2}}#015{bars[1]}"]
    lines += ["Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'ids'"]
    data = "".join(f"{prefix}{line}\n" for line in lines)
    run = parse("training_log", {"a.log": data.encode()}).only
    losses = [row["step"] for row in run.rows("train_steps") if row.get("loss") == 2.5]
    assert losses == [20]
    assert run.facts.attributes["ended_with"] == "KeyError: 'ids'"


@pytest.mark.parametrize("prefix", _PREFIXES, ids=str.strip)
@pytest.mark.parametrize("trainer", _TRAINERS, ids=lambda t: t.__name__)
def test_every_trainer_is_read_behind_every_launcher(
    trainer: Callable[[int, float, float], Line], prefix: str
) -> None:
    said = list(records(trainer))
    noise = random.Random(7)
    lines = []
    for text, _ in said:
        lines += ["rank 3 wrote this"] * noise.randrange(3) + [prefix + text]
    data = "\n".join([*lines, ""]).encode()
    claims = [name for name, fmt in formats().items() if claim_of(fmt, data) is not Claim.NO]
    assert claims == ["training_log"]
    run = parse("training_log", {"job.log": data}).only
    got = run.rows("train_steps")
    assert run.rejects() == []
    assert [
        {key: row[key] for key in values} for row, (_, values) in zip(got, said, strict=True)
    ] == [values for _, values in said]


@pytest.mark.parametrize("collector", _COLLECTORS)
@pytest.mark.parametrize("trainer", _TRAINERS, ids=lambda t: t.__name__)
def test_every_trainer_is_read_out_of_what_collectors_of_logs_write(
    trainer: Callable[[int, float, float], Line], collector: str
) -> None:
    said = [*records(trainer)]
    lines = ["The data are at '/data/a \"b\"'\nand in memory", *(text for text, _ in said)]
    objects = [json.dumps(_COLLECTORS[collector](line)) for line in lines]
    data = "\n".join([*objects, ""]).encode()
    assert claim_of(formats()["training_log"], data) is not Claim.NO
    run = parse("training_log", {"job.log": data}).only
    assert run.rejects() == []
    got = run.rows("train_steps")
    assert [row["line"] for row in got] == [*range(2, len(lines) + 1)]
    assert [
        {key: row[key] for key in values} for row, (_, values) in zip(got, said, strict=True)
    ] == [values for _, values in said]


def test_lines_between_objects_stay_as_they_are() -> None:
    said = [*records(dated)]
    lines = [
        json.dumps(_COLLECTORS["docker"](text)) if place % 2 else text
        for place, (text, _) in enumerate(said)
    ]
    run = parse("training_log", {"job.log": "\n".join([*lines, ""]).encode()}).only
    got = run.rows("train_steps")
    assert [(row["line"], row["step"], row["loss"]) for row in got] == [
        (step, step, values["loss"]) for step, (_, values) in enumerate(said, 1)
    ]


_HEADING = (
    "***** Running training *****",
    "  Num examples = 40",
    "  Num Epochs = 10",
    "  Total train batch size (w. parallel, distributed & accumulation) = 4",
    "  Total optimization steps = 100",
)


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (("[step=1/9,epoch=1]",), "    throughput/device/BPS=1e-300"),
        ((), "step:  1  loss: --inf  memory: 1.00GiB(2.00%)"),
        ((), '{"current_steps": 3, "epoch": 0.1, "elapsed_time": "0:01:00", "a": " data_time: 1"}'),
        ((), '{"current_steps": 3, "total_steps": 9, "epoch": 0.1, "loss": 2.0}'),
    ],
    ids=["rate", "signs", "no_total", "no_time"],
)
def test_a_value_that_no_step_can_have_is_a_reject(before: Sequence[str], line: str) -> None:
    run = parse("training_log", {"a.log": "\n".join([*before, line, ""]).encode()}).only
    assert [(reason, text) for *_, reason, text in run.rejects()] == [("bad_value", line)]


def losses_of(*lines: str) -> list[tuple[int, float]]:
    data = "\n".join([*lines, ""]).encode()
    run = parse("training_log", {"a.log": data}).only
    assert list(run.rejects()) == []
    read = [row for row in run.rows("train_steps") if row["loss"] is not None]
    return [(int(str(row["step"])), float(str(row["loss"]))) for row in read]


def test_a_record_that_the_board_of_llama_factory_writes_too_is_one() -> None:
    logger = "[INFO|2025-02-09 07:05:39] llamafactory.train.callbacks:157 >> "
    lines = [bar(5, 20)]
    for done, loss in ((10, "1.0800"), (20, "0.9999"), (30, "0.9999")):
        # The board prints two digits of the epoch, the Trainer all or none at its end.
        epoch = done / 100 if done < 30 else 0.30123
        first = f"{{'loss': {loss}, 'learning_rate': 1.9999e-05, 'epoch': 0.{done}}}"
        again = f"{{'loss': {float(loss)}, 'learning_rate': 2e-05, 'epoch': {epoch}}}"
        lines += [f"{bar(done, 60 * done)}{logger}{first}", again, bar(done, 60 * done + 1)]
    assert losses_of(*lines) == [(10, 1.08), (20, 0.9999), (30, 0.9999)]


def test_a_dict_of_ms_swift_2_has_its_step_without_a_bar() -> None:
    lines = [f"{{'loss': {n}.5, 'learning_rate': 2e-05, 'global_step': {n}}}" for n in (1, 5, 10)]
    assert losses_of(*lines) == [(1, 1.5), (5, 5.5), (10, 10.5)]
    # Where there are bars, these say the step, the total and the time.
    shown = [
        text for n, text in zip((1, 5, 10), lines, strict=True) for text in (text, bar(n, 6 * n))
    ]
    assert losses_of(bar(0, 0), *shown) == [(1, 1.5), (5, 5.5), (10, 10.5)]
    run = parse("training_log", {"a.log": "\n".join([bar(0, 0), *shown, ""]).encode()}).only
    assert run.facts.attributes["planned_steps"] == "40"


def test_the_first_record_of_a_start_of_olmo_has_no_speed() -> None:
    def block(step: int, second: int, *, first: bool = False) -> list[str]:
        speed = [] if first else ["    throughput/device/tokens_per_second=26,668"]
        began = (
            f"2024-08-06 10:00:{second}.520\thost:0\tolmo.train:908\tINFO\t[step={step}/99,epoch=0]"
        )
        return [began, f"    train/CrossEntropyLoss={step}.5", *speed]

    lines = [*block(1, 10, first=True), *block(2, 22), *block(3, 33, first=True), *block(4, 45)]
    assert losses_of(*lines) == [(1, 1.5), (2, 2.5), (3, 3.5), (4, 4.5)]


def test_a_record_at_an_epoch_that_is_no_number_has_no_step() -> None:
    lines = [*_HEADING, "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': -inf}"]
    data = "\n".join([*lines, ""]).encode()
    assert parse("training_log", {"a.log": data}).only.rows("train_steps") == []


def test_bars_of_lightning_fill_a_loss_that_is_no_number_with_zeros() -> None:
    losses = ("2.500", "1e-05", "nan.0", "-inf.")
    data = "".join(
        f"Epoch 0:  50%|###   | {n}/9 [0{n}:00<01:00,  0.02it/s, v_num=1, train_loss={loss}]\n"
        for n, loss in enumerate(("3.000", *losses), 1)
    )
    read = parse("training_log", {"a.log": data.encode()}).only.rows("train_steps")
    said = [str(row["loss"]) for row in read if row["loss"] is not None]
    assert said == ["2.5", "1e-05", "nan", "-inf"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (":  50%|###   | {}/6", ":  50%|###   | {}/6"),
        # With max_steps, the total is what is left of them.
        (":  50%|###   | {}/99", ":  50%|###   | {}/93"),
        (": |          | {}/?", ": |          | {}/?"),
        (": : {}it", ": : {}it"),
        (": {}it", ": {}it"),
        (":  50%|###   | {}/9", ":  50%|###   | {}/8"),
    ],
    ids=["total", "steps_left", "no_total", "before_2_1", "plain", "other_lengths"],
)
def test_steps_of_lightning_go_on_with_the_next_epoch(first: str, second: str) -> None:
    end = "," if "it" in first else "<00:00,"
    lines = [
        f"Epoch {epoch}{shown.format(n)} [{n:02d}:00{end}  0.02it/s, v_num=1, train_loss={n}.5]"
        for epoch, shown in enumerate((first, second, first))
        for n in range(1, 7)
    ]
    data = ("\r".join(lines) + "\n").encode()
    claims = [name for name, fmt in formats().items() if fmt.sniff(data) is not Claim.NO]
    assert claims == ["training_log"]
    run = parse("training_log", {"a.log": data}).only
    read = run.rows("train_steps")
    assert [(row["step"], row["loss"]) for row in read if row["loss"] is not None] == [
        (6 * epoch + n, n + 0.5) for epoch in range(3) for n in range(2, 7)
    ]
    assert {row["step_time_ns"] for row in read if row["step_time_ns"]} == {60 * 10**9}
    assert list(run.rejects()) == []


@pytest.mark.parametrize(
    "bar",
    [
        "Epoch {epoch}: 100%|###| 900/900 [{clock}<00:00,  1.25it/s, v_num=1, train_loss=1.5]",
        "{epoch}|{step}|Loss: 1.5: 100%|###| 900/900 [{clock}<00:00,  1.25it/s]",
        "Training Epoch: {epoch}/9, step 899/900 completed (loss: 1.5): 100%|#| 900/900 [{clock}<",
    ],
    ids=["lightning", "torchtune", "llama-recipes"],
)
def test_the_last_bar_of_an_epoch_alone_has_the_time_of_all_its_steps(bar: str) -> None:
    """A terminal that is copied shows no other."""
    clocks = ((1, "12:00"), (2, "13:30"), (3, "15:00"))
    data = "".join(f"{bar.format(epoch=e, step=900 * e, clock=at)}\n" for e, at in clocks)
    read = parse("training_log", {"a.log": data.encode()}).only.rows("train_steps")
    times = [row["step_time_ns"] for row in read if row["step_time_ns"]]
    assert times == [900_000_000, 1_000_000_000]


@pytest.mark.parametrize(
    ("bar", "clocks"),
    [
        ("100%|#####| {n}/90 [{at}<00:00,  1.25it/s]", ("01:12", "01:21", "01:30")),
        ("100% ━━━━━━━━━╸── {n}/90 1.25it/s {at}<0.1s", ("1:12", "1:21", "1:30")),
        ("100% ━━━━━━━━━━━━ {n}/90 2.50it/s {at}", ("32.0s", "36.0s", "40.0s")),
    ],
    ids=["before_2025", "minutes", "seconds"],
)
@pytest.mark.parametrize("first", [0, 1])
def test_bars_of_ultralytics_are_read(bar: str, clocks: tuple[str, ...], first: int) -> None:
    """YOLOv5 counts epochs from 0. Bars of an evaluation have no such number."""
    lines = ["      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size"]
    for epoch, at in enumerate(clocks, first):
        drawn = bar.format(n=90, at=at)
        lines += [
            f"\x1b[K      {epoch}/300      7.44G       3.37      4.74     nan    18   640: {drawn}",
            f"                 Class     Images  Instances      Box(P   R      mAP50): {drawn}",
            "                   all       5000      36335      0.645      0.512      0.561",
        ]
    data = "\n".join([*lines, ""]).encode()
    assert [n for n, fmt in formats().items() if fmt.sniff(data) is not Claim.NO] == [
        "training_log"
    ]
    read = parse("training_log", {"a.log": data}).only.rows("train_steps")
    times = {"01:12": (900, 1000), "1:12": (900, 1000), "32.0s": (400, 444.444444)}[clocks[0]]
    assert [(row["step"], row["batches_covered"], row["step_time_ns"]) for row in read] == [
        (180 + 90 * n, 90, round(time * 10**6)) for n, time in enumerate(times)
    ]


_DIT = "[\x1b[34m{at}\x1b[0m] (step={at_step:07d}) Train Loss{ce}: 1.5, {mse}Train Steps/Sec: 0.16"
_ESPNET = (
    "[gpu01:0/2] {at},080 (trainer:464) INFO: {epoch}epoch:train:1-{at_step}batch: iter_time=2e-04,"
    " loss=1.5, loss_att=7.4, grad_norm=2.5, optim0_lr0=3e-04, train_time=1.816"
)
_ICEFALL = (
    "{at},080 INFO [train.py:908] ({rank}/2) Epoch {epoch}, batch {from_0}, loss[ctc_loss=7.5,"
    " loss=1.5, over 24.00 frames.], tot_loss[loss=9.5, over 46.04 frames.], batch size: 9,"
    " lr: 3e-04, grad_scale: 65536.0"
)
_WENET = (
    "{at},080 DEBUG TRAIN Batch {epoch}/{from_0} loss 1.5 loss_att 7.4 lr 0.0003 rank {rank}\n"
    "{at},090 DEBUG CV Batch {epoch}/0 loss 28.5 loss_att 24.1 history loss 27.9 rank {rank}"
)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (_DIT.replace("{ce}", "").replace("{mse}", ""), {"loss": 1.5}),
        # Two losses are none.
        (_DIT.replace("{ce}", " ce").replace("{mse}", "Train Loss mse: 2.5, "), {}),
        (_ESPNET, {"loss": 1.5, "lr": 3e-4, "grad_norm": 2.5}),
        (_ICEFALL, {"loss": 1.5, "lr": 3e-4}),
        (_WENET, {"loss": 1.5, "lr": 3e-4}),
    ],
    ids=["dit", "bagel", "espnet", "icefall", "wenet"],
)
def test_loops_without_a_fine_time_have_that_of_their_dates(
    line: str, values: dict[str, float]
) -> None:
    """A rank prints its line 20 s after the other; between two epochs is an evaluation."""
    of_job = "(step=" in line
    lines = [
        line.format(
            at=datetime(2026, 3, 1, 10)
            + timedelta(
                seconds=0.9 * step + 20 * rank + (0 if of_job else (step - 1) // 200 * 500)
            ),
            at_step=step if of_job else (step - 1) % 200 + 1,
            from_0=(step - 1) % 200,
            epoch=1 + (step - 1) // 200,
            rank=rank,
        )
        for step in range(100, 501, 100)
        for rank in range(1 if of_job or "trainer" in line else 2)
    ]
    data = "\n".join([*lines, ""]).encode()
    assert [n for n, fmt in formats().items() if fmt.sniff(data) is not Claim.NO] == [
        "training_log"
    ]
    read = parse("training_log", {"a.log": data}).only.rows("train_steps")
    records = [row for row in read if not row["step_time_ns"]]
    steps = [row["step"] for row in records if not row["copy"]]
    assert steps == ([100, 200, 300, 400, 500] if values else [])
    columns = ("loss", "lr", "grad_norm")
    assert all({c: row[c] for c in columns if row[c] is not None} == values for row in records)
    times = [(row["batches_covered"], row["step_time_ns"]) for row in read if row["step_time_ns"]]
    assert times == [(100, 900_000_000)] * (4 if of_job else 2)


def test_a_json_record_may_have_a_loss_that_is_no_number() -> None:
    data = "".join(
        f'{{"current_steps": {n}, "total_steps": 9, "loss": {loss}, "epoch": 0.1,'
        f' "elapsed_time": "0:0{n}:00"}}\n'
        for n, loss in enumerate(("2.5", "NaN", "-Infinity"), 1)
    )
    read = parse("training_log", {"a.jsonl": data.encode()}).only.rows("train_steps")
    said = [(row["step"], str(row["loss"])) for row in read if row["loss"] is not None]
    assert said == [(1, "2.5"), (2, "nan"), (3, "-inf")]


def bar(done: int, seconds: int, total: int = 40) -> str:
    clock = f"{seconds // 60:02d}:{seconds % 60:02d}"
    return f"{done * 100 // total:3d}%|###       | {done}/{total} [{clock}<09:59,  6.00s/it]"


def said(done: int, *, quoted: bool = False) -> str:
    loss, rate = (f"'{done / 8}'", "'2e-05'") if quoted else (f"{done / 8}", "2e-05")
    return f"{{'loss': {loss}, 'grad_norm': 0.5, 'learning_rate': {rate}, 'epoch': 0.1}}"


@pytest.mark.parametrize("prefix", _LAUNCHERS, ids=str.strip)
def test_a_dict_has_the_step_of_the_bar_behind_it(prefix: str) -> None:
    """The bar before it may be an older one, and an evaluation has bars too."""
    lines = [f"{prefix}\r{bar(0, 0)}\r{bar(1, 20)}"]
    for done in (10, 20):
        shown = f"\r{bar(done - 1, 6 * done + 8)}\r{' ' * 60}\r"
        lines += [f"{prefix}{shown}{said(done, quoted=done == 20)}", f"{prefix}"]
        lines += [f"{prefix}\r{bar(done, 6 * done + 14)}\r{bar(3, 9, total=7)}"]
    data = "\n".join([*lines, ""]).encode()
    claims = [name for name, fmt in formats().items() if fmt.sniff(data) is not Claim.NO]
    assert claims == ["training_log"]
    run = parse("training_log", {"job.log": data}).only
    got = run.rows("train_steps")
    assert [(r["step"], r["loss"]) for r in got if r["loss"]] == [(10, 1.25), (20, 2.5)]
    assert {r["step_time_ns"] for r in got} == {None, 6_000_000_000}
    # Which bar is that of the job is known since the first dict.
    assert [(r["step"], r["batches_covered"]) for r in got if r["step_time_ns"]] == [(19, 9)]
    assert run.facts.ended is False
    assert run.facts.attributes == {"last_step": "20", "planned_steps": "40"}


def test_an_evaluation_behind_every_step_is_no_time_of_a_step() -> None:
    shown = []
    for done in range(1, 31):
        again = bar(done, 13 * done - 10)
        shown += [again, f"\n{said(done)}\n", again, bar(1, 5, total=2), bar(2, 10, total=2)]
        shown += ["\n{'eval_loss': 1.5}\n", bar(done, 13 * done)]
    text = f"{_TRAINING.format(312, 40)}{chr(13).join(shown)}\n"
    run = parse("training_log", {"job.log": text.encode()}).only
    times = [row["step_time_ns"] for row in run.rows("train_steps") if row["step_time_ns"]]
    assert times == [3_000_000_000] * 2


def test_bars_that_two_processes_draw_a_moment_apart_have_times() -> None:
    shown = "\r".join(bar(k, 3 * k + moment) for k in range(1, 31) for moment in (1, 0))
    data = f"{_TRAINING.format(312, 40)}{shown}\n".encode()
    got = parse("training_log", {"a.log": data}).only.rows("train_steps")
    assert [row["step_time_ns"] for row in got] == [3_000_000_000] * 2


@pytest.mark.parametrize("batches", [1, 2])
def test_bars_of_llama_recipes_are_read(batches: int) -> None:
    """Each rank draws them, first with the loss of the batch before."""
    shown = []
    for done in range(1, 41):
        epoch, count = divmod(done - 1, 20)
        for batch in (batches * (count + 1) - 2, batches * (count + 1) - 1):
            shown += [
                f"Training Epoch: {epoch + 1}/3, step {batch}/{20 * batches} completed (loss:"
                f" {batch + 0.5}): {5 * count + 5}%|##| {count + 1}/20 [{3 * count // 60:02d}:"
                f"{3 * count % 60:02d}<01:00,  3.00s/it]"
            ] * 2
    data = "\r".join([*shown, "\n"]).encode()
    assert claim_of(formats()["training_log"], data) is not Claim.NO
    run = parse("training_log", {"job.log": data}).only
    got = run.rows("train_steps")
    losses = {r["step"]: r["loss"] for r in got if r["loss"] is not None}
    assert losses == {k: batches * ((k - 1) % 20 + 1) - 0.5 for k in range(1, 41)}
    assert {r["step_time_ns"] for r in got} == {None, 3_000_000_000}
    assert run.facts.attributes == {"last_step": "40", "planned_steps": "60"}


def test_a_part_of_a_bar_is_no_bar() -> None:
    """Collectors of logs cut lines at 16 KiB: what is left of 115/400 is no step 5."""
    bars = "\r".join(bar(done, 3 * done, total=400) for done in range(200))
    cut = bars.index("115/400") + 2
    text = f"{_TRAINING.format(3200, 400)}{bars[:cut]}\n{bars[cut:]}\n"
    run = parse("training_log", {"job.log": text.encode()}).only
    assert {row["step_time_ns"] for row in run.rows("train_steps")} == {3_000_000_000}


@pytest.mark.parametrize(("last", "ended"), [(37, False), (40, True)])
def test_a_bar_says_how_far_a_job_came_behind_its_last_record(last: int, ended: bool) -> None:
    lines = [f"\r{bar(0, 0)}"]
    for done in range(1, last + 1):
        shown = f"\r{bar(done, 6 * done)}"
        lines += [shown, said(done), shown] if done % 10 == 0 else [shown]
    run = parse("training_log", {"job.log": "\n".join([*lines, ""]).encode()}).only
    assert len([row for row in run.rows("train_steps") if row["loss"]]) == last // 10
    assert run.facts.attributes["last_step"] == str(last)
    assert run.facts.ended is ended


@pytest.mark.parametrize(
    "text",
    [
        f"{said(10)}\n{bar(30, 99)}\n",
        f"{bar(0, 0)}\n{said(10)}\n{said(20)}\n{bar(30, 99)}\n",
        f"{bar(0, 0)}\n{said(10)}\nMap: 100%|###| 7/7 [00:01<00:00, 7.00 examples/s]\n",
    ],
)
def test_a_dict_that_is_not_alone_between_two_bars_is_no_record(text: str) -> None:
    assert parse("training_log", {"job.log": text.encode()}).only.rows("train_steps") == []


_TRAINING = (
    "***** Running training *****\n  Num examples = {}\n  Num Epochs = 3\n"
    "  Instantaneous batch size per device = 2\n"
    "  Total train batch size (w. parallel, distributed & accumulation) = 8\n"
    "  Gradient Accumulation steps = 2\n  Total optimization steps = {}\n"
)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (f"{bar(0, 0)}\n{said(10)}\n{bar(10, 60)}\n", "10"),
        (f"{_TRAINING.format(104, 39)}{bar(0, 0)}\n{said(10)}\n{bar(10, 60, total=39)}\n", "10"),
        (f"{_TRAINING.format(104, 39)}{bar(0, 0)}\n{said(10)}\n", None),
    ],
)
def test_bars_of_another_loop_are_no_steps(text: str, last: str | None) -> None:
    """An evaluation that follows the training draws bars of its own."""
    summary = "{'train_runtime': 60.0, 'train_steps_per_second': 0.2, 'epoch': 3.0}\n"
    others = "".join(f"{bar(done, 7 * done, total=200)}\n" for done in range(0, 200, 10))
    run = parse("training_log", {"job.log": (text + summary + others).encode()}).only
    assert run.facts.attributes.get("last_step") == last
    assert not [row for row in run.rows("train_steps") if row["step_time_ns"]]


def test_another_training_has_bars_of_its_own() -> None:
    """Its heading went elsewhere."""
    parts = [f"{bar(0, 0, total=n)}\n{said(1)}\n{bar(1, 6, total=n)}\n" for n in (30, 60)]
    summary = "{'train_runtime': 60.0, 'train_steps_per_second': 0.5, 'epoch': 3.0}\n"
    for heading in (30, 100):
        text = _TRAINING.format(80, heading) + summary.join(parts)
        run = parse("training_log", {"job.log": text.encode()}).only
        assert run.facts.attributes["planned_steps"] == "60"


def test_an_epoch_may_have_more_steps_than_planned() -> None:
    """The batches that are left at its end are one more."""
    text = _TRAINING.format(84, 30)
    for done in range(1, 31):
        epoch, step = divmod(done - 1, 11)
        shown = min(21, 2 * step + 2) / 21 + epoch
        record = f"{{'loss': {done}, 'learning_rate': 1e-05, 'epoch': {shown:.2f}}}"
        text += f"{bar(done - 1, 6 * done, total=30)}\n{record}\n{bar(done, 6 * done, total=30)}\n"
    read = parse("training_log", {"job.log": text.encode()}).only.rows("train_steps")
    found = [(row["step"], row["loss"]) for row in read if row["loss"]]
    assert found == [(step, step) for step in range(1, 31)]


def test_an_epoch_contradicts_the_bar_behind_a_dict() -> None:
    """A terminal shows of each bar the last state, which is of the next dict."""
    line = "{{'loss': {}, 'learning_rate': 1e-05, 'epoch': {}}}\n{}\n"
    found = {}
    for name, of_epoch, records in (
        ("copied", 10, ((5, "0.50", 10), (10, "1.00", 15))),
        ("as_drawn", 10, ((5, "0.50", 5), (10, "1.00", 10))),
        ("rounded", 400, ((200, "0.50", 400), (400, "1.00", 400))),  # 0.50 is no step of 400
    ):
        lines = (
            line.format(step, epoch, bar(shown, 6 * shown, total=3 * of_epoch))
            for step, epoch, shown in records
        )
        text = f"{_TRAINING.format(8 * of_epoch, 3 * of_epoch)}{bar(0, 0)}\n{''.join(lines)}"
        rows_read = parse("training_log", {"job.log": text.encode()}).only.rows("train_steps")
        found[name] = [(row["step"], row["loss"]) for row in rows_read if row["loss"]]
    assert found == {
        "copied": [(5, 5.0), (10, 10.0)],
        "as_drawn": [(5, 5.0), (10, 10.0)],
        "rounded": [(400, 400.0)],
    }


def test_an_epoch_says_a_step_only_where_it_is_exact() -> None:
    line = "{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {}}}\n"
    found = {}
    for name, examples, steps, epochs in (
        ("exact", 3200, 1200, (0.0025, 0.5, 1.2525)),
        ("rounded", 3200, 1200, (0.25, 0.5)),
        ("few", 80, 30, (0.25, 0.3, 2.0)),  # 0.25 is no step of ten
        ("empty", 0, 0, (0.5,)),
        ("limited", 3200, 900, (0.0025, 0.33333)),  # 400 steps are an epoch, not 300
    ):
        text = _TRAINING.format(examples, steps) + "".join(line.format(epoch) for epoch in epochs)
        rows_read = parse("training_log", {f"{name}.log": text.encode()}).only.rows("train_steps")
        found[name] = [row["step"] for row in rows_read]
    assert found == {
        "exact": [1, 200, 501],
        "rounded": [],
        "few": [3, 20],
        "empty": [],
        "limited": [],
    }


def test_the_code_that_prints_records_is_no_log() -> None:
    code = b"""
    print(f"iter {i}: loss {loss:.4f}, time {dt*1000:.2f}ms, mfu {mfu*100:.2f}%")
    print0(f"step:{step}/{args.steps} val_loss:{loss:.4f} train_time:{t:.0f}ms step_avg:{a}ms")
    printf("step %4d/%d | loss %7.6f (%+.2fz)| norm %6.4f | %.2f ms | %.1f%% bf16 MFU | %.0f tok/s")
    logger.info(f"  Total train batch size (w. parallel, distributed) = {total:,}")
    self.log({'loss': loss, 'learning_rate': rate})
    f"Train: {epoch} [{i:>4d}/{n} ({p:>3.0f}%)]  Time: {t:.3f}s, {r:>7.2f}/s (0s) Data: {d:.3f}"
    f"Train Epoch: {epoch} [{n:>8}/{all} ({p:.0f}%)] Data (t): {d:.3f} Batch (t): {b:.3f}, {r:#g}/s"
    "Epoch: [{}][{}/{}] Time {time:6.3f} ({avg:6.3f}) Data {data:6.3f} ({avg:6.3f})"
    logs = {"current_steps": steps, "total_steps": total, "epoch": epoch}
    output = [f"step:{step}", f"timing_s/step:{time}"]  # joined by " - "
    logger.info(f"perf {number}: {values}")  # with values['perf/step_time'] = 2.5
    print(f"  * Total step time: {time:.2f}s")
    print(f"{'=' * 25} Step {step}/{steps} {'=' * 25}")
    logger.info(f"Train step {step}/{steps} done.")
    bar.set_description(f"{epoch + 1}|{step}|Loss: {loss}")
    "| epoch {:03d}: {:6d} / {:d} num_updates={:d}"
    """
    assert [name for name, fmt in formats().items() if fmt.sniff(code) is not Claim.NO] == []


def test_a_record_that_another_writer_tears_gives_no_wrong_value() -> None:
    """Cut every record in every place and let another writer's record stand in the gap."""
    (first, values), (second, others) = list(records(early))[:2]
    known = {values["step_time_ns"], others["step_time_ns"], None}
    losses = {values["loss"], others["loss"], None}
    for cut in range(0, len(first), 3):
        torn = f"{first[:cut]}{second}{first[cut:]}\n{first[:cut]}\n{first[cut:]}\n"
        rows_read = parse("training_log", {"job.log": torn.encode()}).only.rows("train_steps")
        by_step = {1: values, 2: others}
        for row in rows_read:
            assert row["step_time_ns"] in known, torn
            assert row["loss"] in losses, torn
            if row["step"] in by_step and row["step_time_ns"] is not None:
                assert row["step_time_ns"] == by_step[row["step"]]["step_time_ns"], torn


@pytest.mark.parametrize("interval", [1, 2, 10])
@pytest.mark.parametrize("resumed", [0, 1000])
@pytest.mark.parametrize("told", [True, False])
def test_a_mean_that_counts_the_first_step_again_is_the_time_of_no_step(
    interval: int, resumed: int, told: bool
) -> None:
    """Megatron-LM since 2026: the record after the first step does not reset the timer."""
    text = "  log_interval .................................... " + f"{interval}\n" if told else ""
    seconds = [30.0] + [1.0] * 39  # of each step
    sums: list[float] = []
    wrong = set()
    for i, second in enumerate(seconds):
        sums.append(second)
        step = resumed + i + 1
        if i == 0 or step % interval == 0:
            at = _START + timedelta(seconds=sum(seconds[: i + 1]))
            mean = sum(sums) / len(sums)
            if i and sums[0] == 30.0:
                wrong.add(step)
            text += (
                f" [{at:%Y-%m-%d %H:%M:%S.%f}] iteration {step}/ 2000 |"
                f" elapsed time per iteration (ms): {mean * 1e3:.1f} |\n"
            )
            sums = sums if i == 0 else []
    run = parse("training_log", {"job.log": text.encode()}).only
    found = {r["step"]: r for r in run.rows("train_steps")}
    assert wrong
    assert {s for s, r in found.items() if r["time_basis"] == "includes_first"} == wrong
    steady = {r["step_time_ns"] for s, r in found.items() if s not in wrong | {resumed + 1}}
    assert steady == {1_000_000_000}


def test_a_log_that_begins_within_its_job_has_the_time_of_its_second_record() -> None:
    """The dates say that the mean is that of the steps between, as of a log that was rotated."""
    text = "".join(
        f" [{_START + timedelta(seconds=at, microseconds=1):%Y-%m-%d %H:%M:%S.%f}] iteration {step}"
        f"/ 99 | elapsed time per iteration (ms): {mean * 1e3:.1f} |\n"
        for step, at, mean in ((44, 30, 9.0), (45, 37, 7.0), (46, 44, 7.0))
    )
    got = parse("training_log", {"job.log": text.encode()}).only.rows("train_steps")
    assert [r["time_basis"] for r in got] == ["mean", "own", "own"]


def test_a_pause_between_the_first_two_records_changes_nothing() -> None:
    text = ""
    for step, at, mean in ((1, 30, 30.0), (2, 331, 15.5), (3, 332, 1.0), (4, 333, 1.0)):
        stamp = _START + timedelta(seconds=at, microseconds=1)
        text += (
            f" [{stamp:%Y-%m-%d %H:%M:%S.%f}] iteration {step}/ 9 |"
            f" elapsed time per iteration (ms): {mean * 1e3:.1f} |\n"
        )
    got = parse("training_log", {"job.log": text.encode()}).only.rows("train_steps")
    assert [r["time_basis"] for r in got] == ["own", "includes_first", "own", "own"]


def test_what_deepspeed_prints_beside_a_record_is_not_its_time() -> None:
    """In its early versions it is the time of one step over all that it prints once."""
    records = [
        f" iteration {step:6d}/ 9000 | elapsed time per iteration (ms): 5000.0 | lm loss: 2.5 |"
        for step in (200, 400, 600)
    ]
    pipeline = "steps: {} loss: 2.4 iter time (s): {} samples/sec: {}"
    records[0] += "\n" + pipeline.format(300, "4.900", "104.490")
    records[1] = pipeline.format(400, "0.003", "172747.511") + "\n" + records[1]
    data = "".join(f"{line}\n" for line in records).encode()
    got = parse("training_log", {"job.log": data}).only.rows("train_steps")
    assert [(r["step"], r["step_time_ns"]) for r in got] == [
        (200, 5_000_000_000),
        (300, 4_900_000_000),
        (400, None),
        (400, 5_000_000_000),
        (600, 5_000_000_000),
    ]
    assert {r["samples_per_s"] for r in got} == {None, 104.49}


def test_values_of_2019_stand_behind_their_keys_without_a_colon() -> None:
    data = "".join(
        f" iteration {step:8d}/  320000 | elapsed time per iteration (ms): 556.5 | learning rate"
        f" {step}.500E-06 | lm loss 9.7{step}4535E+00 | loss scale 131072.0 |\n"
        for step in range(1, 9)
    )
    got = parse("training_log", {"job.log": data.encode()}).only.rows("train_steps")
    assert [(r["lr"], r["loss"], r["loss_scale"]) for r in got] == [
        (float(f"{step}.5E-06"), float(f"9.7{step}4535"), 131072.0) for step in range(1, 9)
    ]


def test_steps_without_a_printed_time_get_it_from_rates_or_dates(
    tracelake: Command, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    titan_log = "".join(f"{text}\n" for text, _ in records(titan))
    speed_log = "".join(f"{text}\n" for text, _ in records(deepspeed))
    write(archive, {"titan.log": titan_log, "speed.log": speed_log})
    assert tracelake("run", archive, "--lake", lake, "--set", "global_batch_size=9").code == 0
    query = (
        "SELECT s.step, round(s.step_ms, 3), s.time_basis, s.reason FROM step_stats AS s"
        " JOIN runs AS r USING (run_id) WHERE s.step < 3 ORDER BY r.name, s.step"
    )
    answer = tracelake("query", query, "--lake", lake, "--format", "csv")
    assert answer.out.replace('"', "").splitlines()[1:] == [
        "1,6000,samples_per_s,",
        "2,3600,samples_per_s,",
        "1,,,no_step_time",
        "2,1014,dates,",
    ]
    assert rows(lake, "rejects") == []


def nights(
    milliseconds: Sequence[float], sizes: Sequence[str] = (), batch: int = 32
) -> dict[str, str]:
    """Logs of a job, one a night, by name."""
    head = "".join(f"  {size.replace('=', ' ........................ ')}\n" for size in sizes)
    return {
        f"night{night}-{batch}.log": head
        + "".join(
            f" [2026-03-{night:02d} 02:00:{step:02d}] iteration {step:8d}/{_STEPS:8d} |"
            f" elapsed time per iteration (ms): {time:.1f} | global batch size: {batch:5d} |\n"
            for step in range(1, _STEPS + 1)
        )
        for night, time in enumerate(milliseconds, 1)
    }


def later(logs: dict[str, str], night: int) -> dict[str, str]:
    """The log of a job's first night, on another one."""
    (text,) = logs.values()
    return {f"late{night}.log": text.replace("2026-03-01", f"2026-03-{night:02d}")}


@pytest.mark.parametrize(
    ("before", "after", "config"),
    [
        (
            nights([500] * 4, ["num_layers=24", "hidden_size=1024", "seq_length=2048"]),
            nights([9000], ["num_layers=24", "hidden_size=8192", "seq_length=8192"]),
            "global_batch_size=32 layers=24 hidden=8192 sequence=8192",
        ),
        (
            nights([500] * 4, ["world_size=8"]),
            nights([9000], ["world_size=8"], batch=1024),
            "world_size=8 global_batch_size=1024",
        ),
        (nights([500] * 4), nights([9000]), "global_batch_size=32"),
    ],
    ids=["sizes", "batch", "nothing_but_the_batch"],
)
def test_another_job_is_no_regression(
    before: dict[str, str],
    after: dict[str, str],
    config: str,
    tmp_path: Path,
    tracelake: Command,
) -> None:
    archive, lake = write(tmp_path / "in", {**before, **later(after, 9)}), tmp_path / "lake"
    assert tracelake("run", archive, "--lake", lake, "--fail-on", "regression").code == 0
    query = """
        SELECT r.config, verdict FROM run_history JOIN runs AS r USING (run_id)
        ORDER BY r.run_date DESC LIMIT 1
    """
    answer = tracelake("query", query, "--lake", lake, "--format", "csv")
    assert answer.out.replace('"', "").splitlines()[1] == (
        f"format=training_log {config},not_comparable"
    )


def test_a_slower_night_of_the_same_job_is_a_regression(tmp_path: Path, tracelake: Command) -> None:
    sizes = ["num_layers=24", "hidden_size=1024", "seq_length=2048"]
    archive = write(tmp_path / "in", nights([500, 500, 500, 500, 900], sizes))
    assert (
        tracelake("run", archive, "--lake", tmp_path / "lake", "--fail-on", "regression").code == 5
    )


def test_jobs_that_only_their_batch_tells_apart_are_compared_nowhere(
    tmp_path: Path, tracelake: Command
) -> None:
    jobs = {"fast": nights([500, 500], []), "slow": nights([1500], [])}
    files = {f"{job}/{name}": text for job, logs in jobs.items() for name, text in logs.items()}
    archive, on_lake = write(tmp_path / "in", files), ("--lake", tmp_path / "lake")
    metrics = tmp_path / "night.prom"
    assert tracelake("run", archive, *on_lake, "--metrics", metrics).code == 0
    for name in ("trend", "config_change"):
        assert tracelake("ask", name, *on_lake, "--format", "csv").out.count("\n") == 1
    before = tracelake("show", "latest~1", *on_lake)
    assert "no earlier runs of its configuration" in before.err
    ids = [row[0] for row in rows(tmp_path / "lake", "runs", "run_id", "ORDER BY label, run_date")]
    document = json.loads(tracelake("diff", *ids[1:], *on_lake, "--format", "json").out)
    assert document["comparable"] is False
    assert "no size of the job of before is known: it may be another job" in document["caveats"]
    assert "tracelake_step_seconds{" not in metrics.read_text()


def test_a_job_of_other_sizes_in_the_same_log_is_named_and_no_size_is_used(
    tmp_path: Path, tracelake: Command
) -> None:
    logs = [
        f"  world_size ........ {size}\n  pipeline_model_parallel_size ........ 2\n{log}"
        for size, batch in ((8, 32), (16, 64))
        for log in nights([500], ["num_layers=24"], batch).values()
    ]
    archive, lake = write(tmp_path / "in", {"train.log": "".join(logs)}), tmp_path / "lake"
    assert tracelake("run", archive, "--lake", lake).code == 0
    for query, expected in (
        ("SELECT world_size, pp, layers, config FROM runs", ",,,format=training_log"),
        ("SELECT DISTINCT verdict, reason FROM run_history", "not_comparable,config_unknown"),
        (
            "SELECT evidence FROM findings WHERE kind = 'contradiction'",
            "sizes: records from line 19 of train.log on are of other sizes than those before"
            " (world_size 8, then 16).",
        ),
    ):
        answer = tracelake("query", query, "--lake", lake, "--format", "csv")
        assert answer.out.replace('"', "").splitlines()[1:] == [expected]
    assert "sizes_changed" in tracelake("ask", "tolerated_faults", "--lake", lake).out


def test_a_batch_that_the_job_increases_is_not_the_size_of_every_step() -> None:
    text = "".join(
        f" iteration {step}/ 9 | elapsed time per iteration (ms): 9.0 |"
        f" global batch size: {step} |\n"
        for step in (1, 2)
    )
    run = parse("training_log", {"job.log": text.encode()}).only
    assert "global_batch_size" not in run.facts.topology


@pytest.mark.parametrize(
    "head",
    [
        "[\x1b[32m20260511 02:17:24\x1b[0m][\x1b[36mrank-1/8\x1b[0m] global logger",
        "[\x1b[32m2026-05-11 02:17:24\x1b[0m][\x1b[36mrank-1/8\x1b[0m] global logger",
        "05/11/2026 02:17:24 - INFO - __main__ - ***** Running training *****",
    ],
)
def test_a_day_is_the_date_of_the_run_in_whatever_form(
    head: str, tmp_path: Path, tracelake: Command
) -> None:
    record, _ = early(1, 1, 0)
    text = f"{head}\n{record}\n"
    archive, lake = write(tmp_path / "in", {"train.log": text}), tmp_path / "lake"
    assert tracelake("run", archive, "--lake", lake).code == 0
    answer = tracelake("query", "SELECT run_date FROM runs", "--lake", lake, "--format", "csv")
    assert "2026-05-11 02:17:24" in answer.out


def test_a_log_that_ends_early_says_with_which_step(tracelake: Command, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    log = GOLDEN / "training_log" / "megatron" / "input" / "early.log"
    assert tracelake("run", log, "--lake", lake, "--max-bad-ratio", "1").code == 0
    sql = "SELECT evidence FROM findings WHERE kind = 'incomplete'"
    found = tracelake("query", "--lake", lake, "--format", "json", sql)
    assert json.loads(found.out) == [
        {"evidence": "The run is incomplete: its log ends with step 6 of 100."}
    ]


def test_what_ended_a_job_is_the_cause_of_its_incident(tracelake: Command, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ended = tracelake("run", GOLDEN / "training_log" / "endings" / "input", "--lake", lake)
    assert (
        "memory: incomplete since 2026-05-10, its log ends with step 1 of 50, cause out of memory,"
    ) in ended.out
    unplanned = "SELECT brief FROM incidents WHERE cause = 'device error'"
    assert asked(tracelake, lake, unplanned) == [
        {"brief": "its log ends with CUDA error: uncorrectable ECC error encountered"}
    ]
    incidents = "SELECT cause, subject, slow_runs FROM incidents ORDER BY cause"
    told = tracelake("query", incidents, "--lake", lake, "--format", "csv").out.splitlines()[1:]
    assert told == [
        f'"{cause}","run",1'
        for cause in (
            *("cancelled", "collective timeout", "device error"),
            *("input", "link error", "out of memory"),
        )
    ]
    sql = "SELECT split_part(run_id, '-', 1) AS log, cause, evidence, advice FROM findings"
    told = json.loads(tracelake("query", sql, "--lake", lake, "--format", "json").out)
    assert {row["log"]: row["cause"] for row in told} == {
        "limit": "cancelled",
        "link": "link error",
        "memory": "out of memory",
        "timeout": "collective timeout",
        "unplanned": "device error",
        "went_on": "input",
    }
    (timeout,) = [row for row in told if row["log"] == "timeout"]
    assert timeout["evidence"] == (
        "The run is incomplete: its log ends with step 2 of 50, then ALLREDUCE timed out after"
        " 600 s on ranks 0-3, 5-6, not on ranks 4, 7."
    )
    assert timeout["advice"].startswith("See what the ranks did that print no timeout")
    (memory,) = [row for row in told if row["log"] == "memory"]
    assert memory["evidence"].endswith("of which 1.02 GiB is free.")


@pytest.mark.parametrize(
    "before", ["", "gpt-worker-0 pytorch ", "[Mar 01 10:00:00] ", "trainer/3 "]
)
def test_arguments_are_read_behind_what_any_collector_writes(before: str) -> None:
    """Without them two models of one world size would be compared."""
    arguments = "  micro_batch_size ......... 2\n  num_layers ............... 24\n"
    log = "".join(f"{before}{line}\n" for line in [*arguments.splitlines(), early(1, 1, 0)[0]])
    run = parse("training_log", {"train.log": log.encode()}).only
    assert run.facts.topology == {"layers": 24, "micro_batch_size": 2}


_TESTS = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20\n"
    "#  Rank  0 Group  0 Pid      7 on   node1 device  0 [0x1b] NVIDIA H100\n"
    "           8             2     float     sum      -1   12.50    0.00    0.00      0\n"
)
_MESSAGES = "".join(
    f"node1:7:9 [0] NCCL INFO Channel {i:02d} : 0[0] -> 1[1]\n" for i in range(1500)
)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("before", [_TESTS, _MESSAGES, _TESTS + 20 * _MESSAGES])
def test_a_log_behind_tests_of_links_and_messages_of_nccl_is_read(
    before: str, packed: bool, tmp_path: Path, tracelake: Command
) -> None:
    log = before + "".join(f"{dated(step, 1.5, step * 1.5)[0]}\n" for step in range(1, _STEPS + 1))
    content = gzip.compress(log.encode()) if packed else log.encode()
    archive = write(tmp_path / "in", {f"slurm-7.out{'.gz' * packed}": content})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 0
    assert rows(tmp_path / "lake", "runs", "format, run_date::VARCHAR") == [
        ("training_log", "2026-03-01 10:00:01")
    ]
    assert rows(tmp_path / "lake", "train_steps", "count(*)") == [(_STEPS,)]
    counted = rows(tmp_path / "lake", "sources", "irrelevant['nccl_tests']")
    assert counted == [(1 if _TESTS in before else None,)]


@pytest.mark.parametrize("before", [_TESTS, 20 * _MESSAGES])
def test_a_log_of_another_trainer_behind_them_is_read_too(
    before: str, tmp_path: Path, tracelake: Command
) -> None:
    log = "> World size: 8\n> PP: 4\n> TP: 2\n| epoch   1 |     1/    9 batches |"
    log += " lr 0.00 | ms/batch 900.00 | loss  7.00 | ppl  1096.63\n"
    archive = write(tmp_path / "in", {"slurm-7.out": before + log})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 0
    assert rows(tmp_path / "lake", "runs", "format, world_size") == [("optimus", 8)]
    assert rows(tmp_path / "lake", "train_steps", "count(*)") == [(1,)]


def test_a_date_of_something_else_is_not_that_of_the_run(
    tmp_path: Path, tracelake: Command
) -> None:
    log = "index of 2024-05-06 07:08:09\nckpt of 2025-12-31 23:59:59\n"
    log += "".join(f"{text}\n" for text, _ in records(dated))
    archive = write(tmp_path / "in", {"train.log": log})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 0
    ((found,),) = rows(tmp_path / "lake", "runs", "run_date::DATE::VARCHAR")
    assert found == "2026-03-01"


_UNDATED = "".join(f"iter {k}: loss 2.5000, time 100.00ms, mfu 30.00%\n" for k in range(5))


@pytest.mark.parametrize("log", [_UNDATED, _TESTS])
@pytest.mark.parametrize(
    ("printed", "date"),
    [
        ("Fri Nov  6 22:28:34 UTC 2026\n", "2026-11-06 22:28:34"),
        ("0: Job 7 began at Fri Nov 27 10:28:34 PM CET 2026\r\n", "2026-11-27 22:28:34"),
        ("Fri 27 Nov 2026 12:28:34 AM +08\n", "2026-11-27 00:28:34"),
        ("Fri 27 Nov 22:28:34 CET 2026\n", "2026-11-27 22:28:34"),
        ("Fri Nov 27 22:28:34 2026       \n+-----+\n", "2026-11-27 22:28:34"),  # nvidia-smi
        ("Fri Feb 30 01:02:03 UTC 2026\nSat Nov 28 01:02:03 UTC 2026\n", "2026-11-28 01:02:03"),
        ("Linux n1 5.15 #101 SMP Tue Nov 14 13:30:08 UTC 2023 x86_64 GNU/Linux\n", None),
        ("#101-Ubuntu SMP Tue Nov 14 13:30:08 UTC 2023\n", None),
        ("Date:   Fri Nov 27 22:28:34 2026 +0000\n", None),  # of a commit
    ],
)
def test_a_log_without_dates_has_that_which_its_script_printed(
    log: str, printed: str, date: str | None, tmp_path: Path, tracelake: Command
) -> None:
    archive = write(tmp_path / "in", {"train.log": printed + log})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 0
    source = "content" if date else None
    assert rows(tmp_path / "lake", "runs", "run_date::VARCHAR, date_source") == [(date, source)]


@pytest.mark.parametrize("banner", ["", "Loading modules\n"])
def test_a_log_behind_the_trace_of_a_batch_script_is_read(
    banner: str, tmp_path: Path, tracelake: Command
) -> None:
    trace = "".join(
        f"{'+' * (n % 3 + 1)} export PART_{n}=/shared/modules/part-{n}\n" for n in range(2000)
    )
    log = banner + trace + "".join(f"{early(step, 1.5, 0)[0]}\n" for step in range(1, _STEPS + 1))
    archive = write(tmp_path / "in", {"slurm-7.out": log})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 0
    assert rows(tmp_path / "lake", "train_steps", "count(*)") == [(_STEPS,)]


def test_a_diff_is_no_trace_of_a_batch_script() -> None:
    diff = b"@@ -1,3 +1,300 @@\n" + b"+ a line that is new\n" * 300
    assert claim_of(formats()["training_log"], b"diff --git a/a.txt b/a.txt\n" + diff) is Claim.NO


@pytest.mark.parametrize(
    ("event", "ended_by"),
    [
        ("Got non-fatal async event: client reregistration(17)", None),
        ("Got async event : port active", None),
        ("Got non-fatal async event: port error(10)", "link_error"),
        ("Got fatal async event: device fatal error(8)", "link_error"),
        ("Got completion from peer 10.0.0.7 with error 12", "link_error"),
    ],
)
def test_what_a_network_goes_through_did_not_end_a_job(event: str, ended_by: str | None) -> None:
    warning = f"node7:41:88 [3] transport/net_ib.cc:95 NCCL WARN NET/IB : mlx5_1:1 {event}\n"
    log = "".join(f"{early(step, 1.5, 0)[0]}\n" for step in range(1, 4)) + warning
    (run,) = parse("training_log", {"train.log": log.encode()}).runs
    assert run.facts.attributes.get("ended_by") == ended_by
