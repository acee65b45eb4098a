"""Records that are read together give what each gives alone, and in its place among others."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.parsing import parse

START = datetime(2026, 3, 1)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few records read together, too."""
    monkeypatch.setattr("tracelake.formats.many_lines._FEWEST", 1)


# Keys of records with texts of their values: plain, unusual, wrong.
FIELDS = {
    "consumed samples": ["12", "     512", "-3", "9223372036854775807", "9223372036854775808", ""],
    "elapsed time per iteration (ms)": ["1504.5", "1.0000005", "87886501365.888598", "1e3", ".5"],
    "elapsed time per iteration (s)": ["1.504500001", "0.1234567895", "12/15.5", "7 (avg 6.5)"],
    "learning rate": ["1.5E-04", "0", "+1", "1.", "1E-400", "1E400", "1e-04/2e-04"],
    "lm loss": ["2.123456E+00", "nan", "-inf", "2.5 ", "\t2.5", "two", "1" * 25],
    "loss scale": ["1.0", "1024", "1,024"],
    "loss": ["3.5", "nan"],
    "rocm mem usage/free/total/usage ratio": [
        "30.1GB/161.9GB/192.0GB/15.68%",
        "12.5GiB",
        "1(2)",
        "",
    ],
    "number of nan iterations": ["0", "7", "0.5"],
    "grad=norm": ["1.5", "1.5:2"],
    "mtp_1 loss": ["7.5", "a:b=c", ""],
    "no value": ["", "12"],
    "": ["loss scale", "a word", "a word 2", "loss scale: 3", "loss scale=3"],
}
COLUMNS = (
    *("step", "step_time_ns", "consumed_samples", "lr", "loss", "loss_scale", "grad_norm"),
    *("memory_bytes", "nan_steps", "logged_at"),
)


def records(noise: random.Random) -> list[str]:
    """Return records that have the keys of those before, and sometimes one unusual value."""
    found: list[str] = []
    while len(found) < 800:
        keys = noise.sample([*FIELDS], noise.randint(0, len(FIELDS)))
        for _ in range(noise.randint(1, 20)):
            odd, key = noise.random() < 0.6, noise.choice([*keys, "end"])
            texts = {key: FIELDS[key][0] for key in keys}
            end = ""
            if odd and key == "end":
                end = noise.choice(["cut", " 15.6%", " grad norm: 1)", " lm loss: 7.0"])
            elif odd:
                texts[key] = noise.choice(FIELDS[key])
            said = [f" {key}: {text} |" if key else f" {text} |" for key, text in texts.items()]
            twice = said[:1] if noise.random() < 0.02 else []
            found.append(f" iteration {len(found) + 1:6d}/ 1000 |{''.join([*said, *twice, end])}\n")
    return found


def values(text: str) -> list[tuple[object, ...]]:
    """Return what is read of records: values of rows, and reasons of rejects."""
    run = parse("training_log", {"train.log": text.encode()}).only
    read = [tuple(row[column] for column in COLUMNS) for row in run.rows("train_steps")]
    return [*read, *((reason, said) for _, _, _, reason, said in run.rejects())]


def test_a_record_has_the_values_that_it_has_alone() -> None:
    texts = records(random.Random(5))
    alone = [value for text in texts for value in values(text)]
    assert 0 < sum(len(value) == 2 for value in alone) < 300  # rejects
    assert sorted(map(repr, values("".join(texts)))) == sorted(map(repr, alone))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("note: 1", "note: 1\r2"),
        ("note: 1 ", "note: iteration 7/ 9 "),
        ("note: 1 ", "note: time (ms) "),
        ("memory: 1(2) ", "memory: 1(iteration 7/ 9 "),
        ("| loss scale|", "| loss scale: 3|"),
        ("| loss scale|", "| loss scale |"),
        ("iteration 1/", "12026-03-01 10:00:00 iteration 1/"),
        ("iteration 1/", "2026-01-01 10:00:00 2026-03-01 10:00:00 iteration 1/"),
        ("iteration 1/", "Training epoch 0, iteration 1/"),
        ("iteration 1/", "samples/sec: 12.5 | iteration 1/"),
        ("iteration 1/", "iteration:1/"),
        ("iteration 1/", "iteration 9999999999/"),
    ],
)
def test_a_record_that_looks_like_the_one_before_is_read_as_what_it_is(
    one: str, other: str
) -> None:
    first = (
        " iteration 1/ 9 | lm loss: 2.5 | note: 1 | memory: 1(2) | loss scale| grad norm: 1.5 |\n"
    )
    assert one in first
    second = first.replace(one, other)
    assert values(first + second)[1:] == [*values(first), *values(second)][1:]


def test_of_two_keys_of_one_column_the_first_counts_in_every_record() -> None:
    texts = [f" iteration {n}/ 9 | lm loss: {n}.5 | loss: 7.5 |\n" for n in range(1, 10)]
    assert [row[4] for row in values("".join(texts))] == [n + 0.5 for n in range(1, 10)]


def log(noise: random.Random) -> str:
    """Return the log of a job: records with gaps, restarts, dates and sizes, and other lines."""
    dates = noise.choice(["", "%Y-%m-%d %H:%M:%S ", "2026-01-01 00:00:00 [%Y/%m/%d %H:%M:%S.%f] "])
    gap, step, at, batch, total = noise.choice([1, 1, 5, 100]), 0, START, 512, 90_000
    interval = noise.choice([gap, gap, 1, 2 * gap])
    lines = noise.sample(
        ["using world size: 8, data-parallel size: 4", f"  log_interval ........... {interval}"],
        noise.randint(0, 2),
    )
    for _ in range(noise.randint(3, 150)):
        step = max(0, step + gap * noise.choice([1] * 60 + [-3, -1, 0, 2]))
        gap = noise.choice([gap] * 80 + [1, 5])
        ms = noise.gauss(1500, 20) * noise.choice([1] * 50 + [2])
        at += timedelta(milliseconds=ms * gap + noise.choice([0] * 50 + [90_000]))
        batch += noise.choice([0] * 80 + [64])
        total += noise.choice([0] * 50 + [100])
        fields = [
            f"elapsed time per iteration (ms): {ms:.1f}",
            f"global batch size: {batch}",
            f"lm loss: {noise.random():.6E}",
            f"mem usages: {noise.random():.4f}",
        ]
        line = f" {at:{dates}}" if dates else " "
        line += f"iteration {step:8d}/ {total} | {' | '.join(fields)} |"
        odd = [
            line[: noise.randint(5, len(line))],
            line + line,
            f"{line} time (ms) | forward: 1.25 |",
        ]
        lines.append(noise.choice([line] * 60 + odd))
        if noise.random() < 0.1:
            lines.append(
                noise.choice(
                    [
                        "    forward-backward ...............: (1.25, 2.50)",
                        "using world size: 16, data-parallel size: 8",
                        " Step Time : 1.5s GPU utilization: 300.5MODEL_TFLOP/s/GPU",
                        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
                        f"  log_interval ........... {noise.choice([1, 5, gap])}",
                    ]
                )
            )
    return "\n".join([*lines, ""])


def titan(noise: random.Random) -> str:
    """Return the log of a job of torchtitan, likewise."""
    gap, step, at = noise.choice([1, 10]), 0, START
    keys = noise.sample(["grad_norm", "memory", "tps", "tflops"], noise.randint(0, 4))
    lines = []
    for _ in range(noise.randint(3, 120)):
        step = max(0, step + gap * noise.choice([1] * 60 + [-3, -1, 0, 2]))
        at += timedelta(seconds=1.5)
        said = {
            "grad_norm": f"{noise.random():7.4f}",
            "memory": f"{noise.choice(['22.11', '23.01'])}GiB(23.2%)",
            "tps": f"{noise.randint(900, 7000):,}",
            "tflops": noise.choice(["150.25"] * 20 + ["nan", "1,5x"]),
        }
        loss = noise.choice([f"{noise.random():8.4f}"] * 30 + [" -1.0", " nan", " none"])
        pairs = "".join(f"  {key}: {said[key]}" for key in keys)
        date = f"[titan] {at:%Y-%m-%d %H:%M:%S},101 - root - INFO - "
        line = f"{date}step: {step:2d}  loss: {loss}{pairs}  mfu: 48.1%"
        odd = [
            line.replace("[titan]", "[titan] 2026-01-01 00:00:00"),
            line.replace("mfu", "mfu: 1 step: 7  loss: 2.5 mfu"),
            line.replace("  mfu", "  wps: 12 mfu"),
            line.replace("  mfu", "  grad_norm: 0.5 mfu"),
            line.replace("mfu", "Rank 3: 12.5 ms"),
            line.replace("[titan]", "Training epoch 0, iteration 5/ 9 | x: 1 |"),
            line.replace("  mfu", "\r mfu"),
            line.replace("step", "a_step"),
            line.replace("INFO", "rank_id: 1, forward time: 2.5"),
        ]
        lines.append(noise.choice([line] * 90 + odd))
        if noise.random() < 0.05:
            lines.append(
                noise.choice(["=== Straggler Report at Step 5 ===", "times across ranks (ms):"])
            )
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("written", [log, titan])
def test_records_have_the_steps_and_times_that_they_have_one_by_one(
    written: Callable[[random.Random], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [written(random.Random(seed)) for seed in range(60)]

    def read() -> list[str]:
        runs = [parse("training_log", {"train.log": text.encode()}).only for text in logs]
        return [
            repr([run.facts, *map(run.rows, ("train_steps", "timings", "rejects", "faults"))])
            for run in runs
        ]

    together = read()
    monkeypatch.setattr("tracelake.formats.many_lines._SEARCHES", 0)
    assert together == read()
