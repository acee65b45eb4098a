"""Structured logs of torchtitan: how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import asked, rows
from tests.traces import write

_NAME = "training.global_rank_{}.20261127-10050{}-ab2c.jsonl"


def span(rank: int, step: int, name: str, said: str = "", value: float | None = 9.5) -> str:
    line = {"rank": rank, "global_rank": rank, "source": "training", "host_name": "n0"}
    line |= {"step": step, "log_type": "event", "log_type_name": name, "event_name": None}
    line |= {} if value is None else {"value": value}
    return json.dumps(line | {"message": f"[step {step}] {name}{said}"}) + "\n"


def failed(rank: int, step: int, name: str, error: str) -> str:
    """Return how torchtitan ends a span with an error: with that, then as any other."""
    end = span(rank, step, f"{name}_end", " took 1.20 ms", 1.2)
    return span(rank, step, f"{name}_error", f": {error}", None) + end


@pytest.mark.parametrize(
    ("error", "said", "cause"),
    [
        ("OutOfMemoryError: CUDA out of memory\nSee docs", "CUDA out of memory", "out of memory"),
        ("AssertionError: ", "AssertionError", "error"),
    ],
)
@pytest.mark.parametrize("went_on", [False, True])
def test_a_rank_that_ends_with_an_error_says_what_ended_the_job(
    went_on: bool, error: str, said: str, cause: str, tracelake: Command, tmp_path: Path
) -> None:
    for rank in range(2):
        text = "".join(span(rank, step, "step_end") for step in range(1, 4))
        if rank == 1:
            text += "".join(failed(rank, 4, name, error) for name in ("fwd_bwd", "step"))
            text += span(rank, 5, "step_end") * went_on
        write(tmp_path / "in", {_NAME.format(rank, rank): text})
    lake = tmp_path / "lake"
    done = tracelake("run", tmp_path / "in", "--lake", lake, "--fail-on", "incomplete")
    assert done.code == (0 if went_on else 5), done.err
    found = asked(tracelake, lake, "SELECT evidence, cause FROM findings")
    wanted = {
        "evidence": f"The run is incomplete: its log ends with {said}.",
        "cause": cause,
    }
    assert found == ([] if went_on else [wanted])
    assert 4 not in [step for (step,) in rows(lake, "train_steps", "step")]


def test_data_that_came_to_their_end_are_no_failure(tracelake: Command, tmp_path: Path) -> None:
    """The step in which that shows was cancelled."""
    text = "".join(span(0, step, "step_end") for step in range(1, 4))
    text += failed(0, 4, "fetching_batch", "DataloaderExhaustedError: ") + span(0, 4, "step_end")
    write(tmp_path / "in", {_NAME.format(0, 0): text})
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake, "--fail-on", "incomplete").code == 0
    assert rows(lake, "train_steps", "step", "ORDER BY step") == [(1,), (2,), (3,)]


def test_an_error_of_one_task_of_several_ends_no_job(tracelake: Command, tmp_path: Path) -> None:
    text = "".join(span(0, step, "train_step_end") for step in range(1, 4))
    error = json.loads(span(0, 3, "engine_loop_error", ": CancelledError: ", None))
    text += json.dumps(error | {"task_name": "Task-7"}) + "\n"
    write(tmp_path / "in", {_NAME.format(0, 0): text})
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake, "--fail-on", "incomplete").code == 0


def test_a_job_that_waits_for_data_says_which_rank_is_late(
    tracelake: Command, tmp_path: Path
) -> None:
    """Of a step that fetches several batches, it is their sum. A job is called by its folder."""
    for job, waits in (("fed", (1, 1)), ("starved", (20, 20)), ("awaited", (1, 20))):
        for rank, wait in enumerate(waits):
            text = "".join(
                span(rank, step, "fetching_batch_end", value=wait) * 2
                + span(rank, step, "step_end", value=100)
                for step in range(1, 9)
            )
            write(tmp_path / "in" / job / "structured_logs", {_NAME.format(rank, rank): text})
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake).code == 0
    found = asked(
        tracelake,
        lake,
        "SELECT label, rank, evidence, lost_ratio FROM findings JOIN runs USING (run_id)"
        " ORDER BY 1",
    )
    said = "data: the job waited 40.0 ms of a step of 100.0 ms (40.0 %) for data"
    awaited = f"{said}; rank 1 40.0 ms, the fastest rank 2.0 ms."
    assert [tuple(row.values()) for row in found] == [
        ("awaited", 1, awaited, 0.4),
        ("starved", None, f"{said}.", 0.4),
    ]
