"""Logs of reinforcement learning: parts of a step, and steps whose work differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.parsing import claim_of, parse
from tests.traces import write
from tracelake.formats import Claim, formats

_STEPS = 100


def log(seconds: Callable[[int], float], tokens: Callable[[int], float]) -> str:
    """What verl prints, of steps with given times and tokens."""
    lines = []
    for step in range(1, _STEPS + 1):
        took = seconds(step) * (1 + step % 3 / 100)
        lines.append(
            f"step:{step} - actor/pg_loss:0.5 - timing_s/gen:{0.5 * took} -"
            f" timing_s/update_actor:{0.25 * took} - timing_s/step:{took} -"
            f" perf/throughput:{tokens(step) / took}\n"
        )
    return "".join(lines)


def growing(step: int) -> float:
    return 20 + step / 4


def jumping(step: int) -> float:
    return 20.0 if step < 60 else 30.0


def constant(_: int) -> float:
    return 1000.0


def findings(tracelake: Command, lake: Path, columns: str = "kind") -> list[dict[str, object]]:
    sql = f"SELECT {columns} FROM findings ORDER BY ALL"
    told: list[dict[str, object]] = json.loads(
        tracelake("query", sql, "--lake", lake, "--format", "json").out
    )
    return told


@pytest.mark.parametrize("seconds", [growing, jumping])
def test_steps_that_generate_more_tokens_are_longer_and_not_slower(
    tracelake: Command, tmp_path: Path, seconds: Callable[[int], float]
) -> None:
    for name, tokens, kinds in (
        ("same", constant, [{"kind": "slowed"}]),
        ("more", lambda step: 50 * seconds(step), []),
    ):
        lake = tmp_path / name
        archive = write(tmp_path / f"in-{name}", {"job.log": log(seconds, tokens)})
        assert tracelake("run", archive, "--lake", lake).code == 0
        assert findings(tracelake, lake) == kinds


def test_a_few_long_steps_are_slow_where_the_others_have_equal_work(
    tracelake: Command, tmp_path: Path
) -> None:
    def saving(step: int) -> float:
        return 60.0 if step % 20 == 0 else 20.0

    found = {}
    for name, tokens in (
        ("equal", constant),
        ("varied", lambda step: 1000.0 + 40 * (step * 7 % 11)),
    ):
        lake = tmp_path / name
        archive = write(tmp_path / f"in-{name}", {"job.log": log(saving, tokens)})
        assert tracelake("run", archive, "--lake", lake).code == 0
        sql = "SELECT kind FROM opportunities"
        found[name] = json.loads(tracelake("query", sql, "--lake", lake, "--format", "json").out)
    assert found == {"equal": [{"kind": "slow_steps"}], "varied": []}


def test_the_parts_of_a_step_have_their_shares(tracelake: Command, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    archive = write(tmp_path / "in", {"job.log": log(constant, constant)})
    assert tracelake("run", archive, "--lake", lake).code == 0
    sql = "SELECT name, round(share_ratio, 3) AS share FROM timer_summary ORDER BY name"
    told = json.loads(tracelake("query", sql, "--lake", lake, "--format", "json").out)
    assert told == [{"name": "gen", "share": 0.5}, {"name": "update_actor", "share": 0.25}]


def test_a_loss_that_stays_nan_is_a_finding(tracelake: Command, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    text = log(constant, constant)
    cut = text.index("step:90 ")
    broken = text[:cut] + text[cut:].replace("pg_loss:0.5", "pg_loss:np.float64(nan)")
    assert tracelake("run", write(tmp_path / "in", {"job.log": broken}), "--lake", lake).code == 0
    (found,) = findings(tracelake, lake, "kind, evidence")
    assert found["kind"] == "loss_not_finite"
    assert "from step 90 to the last, 100: in 11 of 100 steps" in str(found["evidence"])


@pytest.mark.parametrize(
    "preamble",
    [
        "(TaskRunner pid=7) {'actor_rollout_ref': {'actor': {}}}",
        "(MegatronTrainRayActor pid=7) rank 0 is ready",
        "/opt/nemo_rl/models/policy.py: a warning",
        "python -m areal.launcher.local train.py",
    ],
)
def test_a_record_may_come_after_a_long_preamble(preamble: str) -> None:
    data = "".join(f"{preamble} {n}\n" for n in range(5000)).encode()
    claims = [name for name, fmt in formats().items() if claim_of(fmt, data) is not Claim.NO]
    assert claims == ["training_log"]


def test_notes_about_a_step_are_no_log() -> None:
    notes = b"""
    - timing_s/gen:24.5
    - timing_s/step:93.5
    Look for step:2 - and what follows.
      \xe2\x80\xa2 Total step time: 35.70s
      \xe2\x80\xa2 generation: 4.95s (13.9%)
    Each line has 'perf/step_time': 2.5 and 1|25|Loss: 2.5
    """
    assert [name for name, fmt in formats().items() if fmt.sniff(notes) is not Claim.NO] == []


def test_an_item_counts_where_it_is_of_the_step_that_ended() -> None:
    header = "========================= Step {}/9 ========================="
    lines = [
        "  • generation: 9.00s (50.0%)",
        header.format(1),
        "  • generation: 8.00s (50.0%)",
        "  • Total step time: 4.00s",
        "  • generation: 2.00s (50.0%)",
        header.format(2),
        "  • Total validation time: 7.00s",
    ]
    run = parse("training_log", {"job.log": "\n".join([*lines, ""]).encode()}).only
    assert [row["step_time_ns"] for row in run.rows("train_steps")] == [4_000_000_000]
    assert [row["duration_ns"] for row in run.rows("timings")] == [2_000_000_000]
