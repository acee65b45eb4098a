"""Generated archives through ingest and build: plan and measurement differ as their spec says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.lakes import few_models, run_ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec
from tracelake.warehouse.warehouse import open_warehouse

# Communication takes no time: an asynchronous call lasts as long as the kernel beside it.
DENSE = Spec(
    seed=11,
    tp=2,
    pp=2,
    micro_batches=4,
    layers=4,
    hidden=64,
    sequence=128,
    steps=2,
    log_steps=4,
    busbw_gbps=None,
)
EXPERTS = Spec(seed=12, pp=2, dp=2, ep=2, experts=4, layers=4, hidden=64, steps=2)

Figures = dict[tuple[Any, ...], tuple[Any, ...]]


def built(spec: Spec, folder: Path) -> duckdb.DuckDBPyConnection:
    write_archive(folder / "archive", spec)
    run_ingest(folder / "archive", folder / "lake")
    lake = Lake.open(folder / "lake")
    with few_models("plan_vs_measured"):
        build(lake)
    return open_warehouse(lake)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    return built(DENSE, tmp_path_factory.mktemp("dense"))


def figures(con: duckdb.DuckDBPyConnection, kind: str, keys: str, shown: str) -> Figures:
    rows = con.execute(
        f"SELECT {keys}, {shown} FROM plan_vs_measured WHERE kind = ?", [kind]
    ).fetchall()
    width = len(keys.split(","))
    return {row[:width]: row[width:] for row in rows}


def test_every_measured_run_has_the_dense_plan(dense: duckdb.DuckDBPyConnection) -> None:
    pairs = dense.execute(
        """
        SELECT DISTINCT r.format, p.model
        FROM plan_vs_measured AS v
        JOIN runs AS r USING (run_id)
        JOIN runs AS p ON p.run_id = v.plan_run_id
        ORDER BY ALL
        """
    ).fetchall()
    assert pairs == [("optimus", "gpt"), ("rank_trace", "gpt")]


def test_compute_errs_by_the_rows_that_a_trace_does_not_have(
    dense: duckdb.DuckDBPyConnection,
) -> None:
    s = DENSE
    layers = s.layers // s.pp
    forward, backward = s.forward_ms * s.micro_batches, s.backward_ms * s.micro_batches
    # Plans have a quarter of a layer for the embedding and one for the head, and of the backward
    # pass an eighth and two; the simulator gives them no time.
    planned = {
        "forward": forward * (layers + (1 / 4 + 1 / 4) / s.pp),
        "backward": backward * (layers + (1 / 8 + 2 / 8) / s.pp),
    }
    measured = {"forward": forward * layers, "backward": backward * layers}
    found = figures(
        dense, "compute", "pass", "planned_compute_ms, measured_compute_ms, compute_error_ratio"
    )
    for name, reasoned in planned.items():
        error = reasoned / measured[name] - 1
        assert found[name,] == pytest.approx((reasoned, measured[name], error), rel=1e-9)
    assert found["finalize",][0] == s.optimizer_ms


def test_sequence_parallel_plan_moves_what_the_all_reduces_of_the_trace_do(
    dense: duckdb.DuckDBPyConnection,
) -> None:
    s = DENSE
    layers = s.layers // s.pp
    size = 2 * s.micro_batch_size * s.sequence * s.hidden
    loss = 3 * 4 * s.micro_batch_size * s.sequence
    # On the bus of two ranks an all-reduce moves its size, the others half of theirs. Of each
    # layer the plan has four of these and the trace two of the former; the embedding all-reduces
    # in both, the head gathers in the plan, which lists the loss once for all micro-batches.
    planned = s.micro_batches * (layers * 4 * size / 2 + (size + size / 2) / s.pp) + loss / s.pp
    measured = s.micro_batches * (layers * 2 * size + (size + loss) / s.pp)
    shown = "planned_bytes, measured_bytes, bytes_error_ratio"
    traffic = figures(dense, "traffic", "group_kind, pass", shown)
    wanted = (planned, measured, planned / measured - 1)
    assert traffic["tp", "forward"] == pytest.approx(wanted, rel=1e-12)
    # Half of the stages send, in each direction.
    messages = (s.micro_batches * size / 2, s.micro_batches * size / 2, 0.0)
    assert traffic["pp", "forward"] == traffic["pp", "backward"] == messages
    calls = figures(dense, "collective", "pass, collective, group_kind", "reason")
    assert calls["forward", "all_gather", "tp"] == ("not_measured",)
    assert calls["finalize", "all_reduce", "embedding"] == ("not_in_plan",)
    assert calls["finalize", "all_reduce", "dp"] == ("group_of_one",)


def test_layers_of_logs(dense: duckdb.DuckDBPyConnection) -> None:
    found = figures(dense, "layer", "layer_kind", "compute_error_ratio, reason")
    # The log's embedding takes a twentieth of a layer and its head one and a half.
    wanted = {"block": 0.0, "embedding": 0.25 / 0.05 - 1, "head": 0.25 / 1.5 - 1}
    assert found == {
        (name,): (pytest.approx(error, abs=1e-12), "forward_modules_only")
        for name, error in wanted.items()
    }


def test_a_trace_with_experts_has_the_plan_with_experts(tmp_path: Path) -> None:
    con = built(EXPERTS, tmp_path)
    models = con.execute(
        """
        SELECT DISTINCT p.model
        FROM plan_vs_measured AS v
        JOIN runs AS p ON p.run_id = v.plan_run_id
        """
    ).fetchall()
    assert models == [("moe",)]
    calls = figures(
        con, "collective", "pass, collective, group_kind", "planned_calls, measured_calls"
    )
    layers = EXPERTS.layers // EXPERTS.pp
    exchanges = 2 * layers * EXPERTS.micro_batches
    assert calls["forward", "all_to_all", "expert"] == (exchanges, exchanges)
    reasons = figures(con, "traffic", "pass, group_kind", "reason")
    assert reasons["finalize", "dp"] == ("declared_size",)
