"""Structured logs of torchtitan: how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import asked
from tests.traces import write

_ERROR = "RuntimeError: CUDA out of memory"


def span(rank: int, step: int, name: str, said: str = "train_step", value: float = 9.5) -> str:
    line = {"rank": rank, "global_rank": rank, "source": "training", "host_name": "n0"}
    line |= {"step": step, "log_type": "event", "log_type_name": name, "event_name": said}
    return json.dumps(line | {"value": value})


@pytest.mark.parametrize("went_on", [False, True])
def test_a_rank_that_ends_with_an_error_says_what_ended_the_job(
    went_on: bool, tracelake: Command, tmp_path: Path
) -> None:
    for rank in range(2):
        lines = [span(rank, step, "step_end") for step in range(1, 4)]
        if rank == 1:
            lines += [span(rank, 4, name, _ERROR) for name in ("fwd_bwd_error", "step_error")]
            lines += [span(rank, 5, "step_end")] * went_on
        name = f"training.global_rank_{rank}.20261127-10050{rank}-ab2c.jsonl"
        write(tmp_path / "in", {name: "".join(f"{line}\n" for line in lines)})
    lake = tmp_path / "lake"
    done = tracelake("run", tmp_path / "in", "--lake", lake, "--fail-on", "incomplete")
    assert done.code == (0 if went_on else 5), done.err
    found = asked(tracelake, lake, "SELECT evidence, cause FROM findings")
    wanted = {
        "evidence": "The run is incomplete: its log ends with CUDA out of memory.",
        "cause": "out of memory",
    }
    assert found == ([] if went_on else [wanted])
