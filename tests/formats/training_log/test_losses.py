"""What a log says of a loss that is NaN or infinite, in the words of every trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import asked
from tests.traces import write

# A loss as its trainer prints it; None where NaN or infinite.
Losses = Sequence[float | None]


def megatron(losses: Losses) -> str:
    """It leaves out a loss that is NaN, and goes on."""
    lines = []
    for step, loss in enumerate(losses, 1):
        said = "grad norm: nan" if loss is None else f"lm loss: {loss:.6E} | grad norm: 1.500"
        lines.append(
            f" [2026-05-10 10:00:{step:02d}] iteration {step:8d}/{len(losses):8d} | elapsed time"
            f" per iteration (ms): 500.0 | {said} | number of skipped iterations:   0 |"
            " number of nan iterations:   0 |\n"
        )
    return "".join(lines)


def fp16(losses: Losses) -> str:
    """It skips the step, and counts it."""
    return "".join(
        f" iteration {step:8d}/{len(losses):8d} | elapsed time per iteration (ms): 500.0 |"
        + (f" lm loss: {loss:.6E} |" if loss is not None else "")
        + f" loss scale: 1024.0 | number of skipped iterations: {int(loss is None):3d} |"
        f" number of nan iterations: {int(loss is None):3d} |\n"
        for step, loss in enumerate(losses, 1)
    )


def megatron_deepspeed(losses: Losses) -> str:
    """It leaves out a loss that is NaN, and prints no norm."""
    return fp16(losses).replace("iterations:   1", "iterations:   0")


def least_scale(losses: Losses) -> str:
    """It skips all steps, although the scale of the loss can be no smaller."""
    log = fp16(losses).replace("scale: 1024.0", "scale: 1.0")
    return log.replace("nan iterations:   1", "nan iterations:   0")


def neox(losses: Losses) -> str:
    return "".join(
        f" samples/sec: 15.625 | iteration {step:8d}/{len(losses):8d} | elapsed time per iteration"
        f" (ms): 500.0 | lm_loss: {'NAN' if loss is None else f'{loss:.6E}'} |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for step, loss in enumerate(losses, 1)
    )


def deepspeed(losses: Losses) -> str:
    return "".join(
        f"steps: {step} loss: {'nan' if loss is None else f'{loss:.4f}'} iter time (s): 0.500"
        " samples/sec: 64.000\n"
        for step, loss in enumerate(losses, 1)
    )


def torchtitan(losses: Losses) -> str:
    return "".join(
        f"[titan] 2026-05-10 10:00:{step:02d},250 - root - INFO - step: {step:2d}  loss:"
        f" {'nan' if loss is None else f'{loss:.4f}':>7}  grad_norm: "
        f"{'nan' if loss is None else '1.5000':>7}  memory: 40.5GiB(42.30%)  tps: 7,000\n"
        for step, loss in enumerate(losses, 1)
    )


def nemo(losses: Losses) -> str:
    """Lightning fills numbers with zeros."""
    return "".join(
        f"Training epoch 0, iteration {at}/{len(losses) - 1} | lr: 1e-05 | global_step: {at} |"
        f" reduced_train_loss: {'nan' if loss is None else f'{loss:.4g}'} |"
        " train_step_timing in s: 0.5\n"
        for at, loss in enumerate(losses)
    )


def nemo_bar(losses: Losses) -> str:
    return (
        "".join(
            f"Epoch 0: :   1%|          | {at + 1}/{len(losses)} [00:0{at}<00:09, v_num=,"
            f" reduced_train_loss={'nan.0' if loss is None else f'{loss:.3f}'},"
            f" global_step={at}.000, train_step_timing in s=0.50{at}]\r"
            for at, loss in enumerate(losses)
        )
        + "\n"
    )


def maxtext(losses: Losses) -> str:
    return "".join(
        f"completed step: {at}, seconds: 0.500, TFLOP/s/device: 36.771, Tokens/s/device: 97.500,"
        f" loss: {'inf' if loss is None else f'{loss:.3f}'}\n"
        for at, loss in enumerate(losses)
    )


def hugging_face(losses: Losses) -> str:
    """It prints 0 for a loss that is NaN, beside a norm that is."""
    text = ""
    for step, loss in enumerate(losses, 1):
        said = "0.0, 'grad_norm': nan" if loss is None else f"{loss}, 'grad_norm': 1.5"
        bar = f"{step * 9:3d}%|##| {step}/{len(losses)} [00:{6 * step:02d}<00:09,  6.00s/it]"
        text += f"{{'loss': {said}, 'learning_rate': 1e-05, 'epoch': 0.{step}}}\r{bar}\n"
    return f"  0%|  | 0/{len(losses)} [00:00<?, ?it/s]\r{text}"


def nanogpt(losses: Losses) -> str:
    return "".join(
        f"iter {at}: loss {'nan' if loss is None else f'{loss:.4f}'}, time 500.25ms, mfu 31.20%\n"
        for at, loss in enumerate(losses)
    )


def llmc(losses: Losses) -> str:
    """C fills what is shorter than its width with blanks."""
    return "".join(
        f"step {step:4d}/{len(losses)} | loss"
        f" {'-nan' if loss is None else f'{loss:.6f}':>8} (+nanz)|"
        " norm 2.1000 (+0.02z)| lr 1.00e-05 | 500.25 ms | 48.2% bf16 MFU | 127001 tok/s\n"
        for step, loss in enumerate(losses, 1)
    )


_TRAINERS: tuple[Callable[[Losses], str], ...] = (
    *(
        megatron,
        fp16,
        megatron_deepspeed,
        least_scale,
        neox,
        deepspeed,
        torchtitan,
        nemo,
        nemo_bar,
        maxtext,
    ),
    *(hugging_face, nanogpt, llmc),
)
_FINITE = (2.5, 2.25, 2.125, 2.0)


def found_in(tracelake: Command, lake: Path) -> dict[str, dict[str, object]]:
    sql = "SELECT label, f.* FROM findings AS f JOIN runs USING (run_id)"
    told = asked(tracelake, lake, f"{sql} WHERE kind = 'loss_not_finite'")
    return {row["label"]: row for row in told}


def test_a_loss_that_is_not_finite_to_the_end_is_critical_in_the_words_of_every_trainer(
    tracelake: Command, tmp_path: Path
) -> None:
    logs, lake = tmp_path / "logs", tmp_path / "lake"
    for trainer in _TRAINERS:
        for name, losses in (("lost", (*_FINITE, None, None)), ("well", (*_FINITE, 2.0, 2.0))):
            write(logs / f"{trainer.__name__}_{name}", {"train.log": trainer(losses)})
    done = tracelake("run", logs, "--lake", lake, "--fail-on", "faults")
    assert done.code == 5, done.err
    assert (
        "critical loss in torchtitan_lost: loss not finite since 2026-05-10 10:00, from step 5"
        in done.out
    )
    found = found_in(tracelake, lake)
    assert {*found} == {f"{trainer.__name__}_lost" for trainer in _TRAINERS}
    assert {(row["severity"], row["gate"], row["subject"]) for row in found.values()} == {
        ("critical", "faults", "loss")
    }
    for label, row in found.items():
        dated = " (2026-05-10 10:00:05)" if label.startswith(("megatron_l", "torchtitan")) else ""
        assert row["evidence"] == (
            f"loss is NaN or infinite from step 5{dated} to the last, 6: in 2 of 6 steps."
        )
    assert found["megatron_lost"]["since"] == "2026-05-10 10:00:05"
    # Of the steps behind the first, which is warm-up.
    assert found["megatron_lost"]["lost_ratio"] == pytest.approx(2 / 5)


def test_a_loss_that_one_of_several_files_prints_is_not_finite(
    tracelake: Command, tmp_path: Path
) -> None:
    for name, losses in (("rank0", (*_FINITE, 2.0, 2.0)), ("rank1", (*_FINITE, None, None))):
        write(tmp_path / "logs" / "job", {f"{name}.log": torchtitan(losses)})
    assert tracelake("run", tmp_path / "logs", "--lake", tmp_path / "lake").code == 0
    (found,) = found_in(tracelake, tmp_path / "lake").values()
    assert found["severity"] == "critical"


def test_a_loss_that_is_finite_again_is_a_notice(tracelake: Command, tmp_path: Path) -> None:
    """Also where the job begins again from an earlier step, and ends before the one it came to."""
    again = megatron((*_FINITE, None, None))
    again += again[: again.index(" [2026-05-10 10:00:04]")].replace(" 10:00:", " 11:00:")
    logs = {
        "skipped": fp16((2.5, 2.25, None, 2.0)),
        "twice": torchtitan((2.5, None, None, 2.25, None, 2.0)),
        "again": again,
    }
    for name, text in logs.items():
        write(tmp_path / "logs" / name, {"train.log": text})
    done = tracelake("run", tmp_path / "logs", "--lake", tmp_path / "lake", "--fail-on", "faults")
    assert done.code == 0, done.err
    found = found_in(tracelake, tmp_path / "lake")
    assert {row["severity"] for row in found.values()} == {"notice"}
    assert {label: row["evidence"] for label, row in found.items()} == {
        "skipped": "loss was NaN or infinite in 1 of 4 steps (3), and is finite since.",
        "twice": "loss was NaN or infinite in 3 of 6 steps (2 to 5), and is finite since.",
        "again": "loss was NaN or infinite in 2 of 6 steps (5 to 6), and is finite since.",
    }


def test_what_healthy_jobs_print_is_no_loss_that_is_not_finite(
    tracelake: Command, tmp_path: Path
) -> None:
    """Loss scaling skips steps, with a gradient that overflows; a policy loss may be 0."""
    scaled = fp16((2.5, 2.25, None, 2.0)).replace("nan iterations:   1", "nan iterations:   0")
    quotient = scaled.replace("(ms): 500.0 | loss scale", "(ms): 500.0 | lm loss: nan | loss scale")
    norms = hugging_face(_FINITE).replace("2.25, 'grad_norm': 1.5", "2.25, 'grad_norm': inf")
    policy = hugging_face((0.0, None, 0.0, 0.0001))
    stages = torchtitan(_FINITE).replace("loss:  2.5000", "loss: -1.0000")
    # Megatron-LM leaves out a loss below 0, and stages before the last one have none.
    below = megatron((*_FINITE, None, 2.0)).replace("grad norm: nan", "grad norm: 1.500")
    pipeline = fp16(_FINITE) + fp16((None,) * 4).replace("iterations:   1", "iterations:   0")
    pipeline = "".join(sorted(pipeline.splitlines(keepends=True), key=lambda line: line[:20]))
    # Lines of DeepSpeed know of no loss, beside those of another trainer.
    mixed = nanogpt(_FINITE) + "".join(
        f"[2026-05-10 10:00:09,1] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0,"
        " lr=[1e-05], mom=[(0.9, 0.95)]\n"
        for step in range(5, 9)
    )
    logs = {"scaled": scaled, "quotient": quotient, "norms": norms, "policy": policy}
    logs |= {"below": below, "pipeline": pipeline, "mixed": mixed}
    for name, text in {**logs, "stages": stages}.items():
        write(tmp_path / "logs" / name, {"train.log": text})
    done = tracelake("run", tmp_path / "logs", "--lake", tmp_path / "lake")
    assert done.code == 0, done.err
    assert "8 runs" in done.out
    assert found_in(tracelake, tmp_path / "lake") == {}


def test_a_mean_over_steps_counts_those_that_it_covers(tracelake: Command, tmp_path: Path) -> None:
    """Of skipped steps the log says how many had no finite loss."""
    text = "".join(
        f" iteration {10 * n:8d}/      30 | elapsed time per iteration (ms): 500.0 |"
        f" lm loss: 2.0E+00 | number of skipped iterations: {nan:3d} |"
        f" number of nan iterations: {nan:3d} |\n"
        for n, nan in ((1, 0), (2, 3), (3, 0))
    )
    write(tmp_path / "logs" / "means", {"train.log": text})
    assert tracelake("run", tmp_path / "logs", "--lake", tmp_path / "lake").code == 0
    (row,) = found_in(tracelake, tmp_path / "lake").values()
    assert (
        row["evidence"]
        == "loss was NaN or infinite in 3 of 21 steps (11 to 20), and is finite since."
    )


def test_a_job_that_checks_its_loss_says_what_ended_it(tracelake: Command, tmp_path: Path) -> None:
    text = megatron((*_FINITE, 2.0)).splitlines(keepends=True)[:-1]
    text += [
        "[rank5]: AssertionError: Rank 5: found NaN in local grad norm for bucket #0. Device: 5\n"
    ]
    write(tmp_path / "logs" / "checked", {"train.log": "".join(text)})
    assert tracelake("run", tmp_path / "logs", "--lake", tmp_path / "lake").code == 0
    sql = "SELECT cause, evidence FROM findings"
    assert asked(tracelake, tmp_path / "lake", sql) == [
        {
            "cause": "loss not finite",
            "evidence": "The run is incomplete: its log ends with step 4 of 5, then Rank 5: found"
            " NaN in local grad norm for bucket #0. Device: 5.",
        }
    ]
