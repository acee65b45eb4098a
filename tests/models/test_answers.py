"""Archives with known answers, through ingest and build: every figure is the simulator's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb
import pytest

from tests.lakes import run_ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.synth.archive import ANSWERS, write_archive
from tracelake.synth.spec import Spec, sample_spec
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.warehouse import open_warehouse

# Nothing but the schedule takes time: what is measured is theory.
FREE: dict[str, Any] = {"overhead_ms": 0.0, "gap_ms": 0.0, "optimizer_ms": 1.0, "busbw_gbps": None}
SPECS: dict[str, tuple[Spec, dict[str, int]]] = {
    "sample": (sample_spec(), {}),
    "theory": (Spec(seed=1, tp=1, pp=4, micro_batches=8, **FREE), {}),
    "interleaved": (
        Spec(seed=2, tp=1, pp=2, vpp=2, micro_batches=4, layers=8, **FREE),
        {"vpp": 2},
    ),
    "run_ahead": (Spec(seed=3, pp=3, layers=6, synchronous_steps=False, steps=5), {}),
    "experts": (Spec(seed=4, pp=2, dp=2, ep=2, experts=4, noise=0.02), {}),
    "slow_link": (Spec(seed=5, pp=2, slow_collective="all_reduce/tp"), {}),
}

Rows = list[tuple[Any, ...]]


class Case(NamedTuple):
    name: str
    con: duckdb.DuckDBPyConnection
    answers: dict[str, Any]

    def runs(self, format_name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Measured runs of a format with their ids, found by the files they were read from."""
        for run in self.answers["runs"]:
            if run["format"] == format_name:
                path = f"{self.name}/{run['files'][0]['path']}"
                ((run_id,),) = self.ask("SELECT run_id FROM sources WHERE path = ?", path)
                yield run_id, run

    def ask(self, sql: str, *values: object) -> Rows:
        return self.con.execute(sql, values).fetchall()


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """All archives in one lake, which passes every check."""
    folder = tmp_path_factory.mktemp("answers")
    answers = {}
    for given in ({}, {"vpp": 2}):
        archive = folder / f"given{len(given)}"
        for name in (name for name, (_, its_own) in SPECS.items() if its_own == given):
            write_archive(archive / name, SPECS[name][0])
            answers[name] = json.loads((archive / name / ANSWERS).read_text())
        run_ingest(archive, folder / "lake", given=given)
    lake = Lake.open(folder / "lake")
    build(lake)
    assert check_lake(lake) == []
    con = open_warehouse(lake)
    return {name: Case(name, con, found) for name, found in answers.items()}


@pytest.fixture(params=SPECS)
def case(request: pytest.FixtureRequest, cases: dict[str, Case]) -> Case:
    return cases[request.param]


def test_nothing_is_rejected(case: Case) -> None:
    for relation in ("rejects", "faults"):
        found = f"FROM {relation} JOIN sources USING (run_id, source_id) WHERE starts_with(path, ?)"
        assert case.ask(found, f"{case.name}/") == []


def test_row_counts(case: Case) -> None:
    for format_name in ("rank_trace", "optimus", "aicb_workload"):
        for run_id, run in case.runs(format_name):
            for table, count in run["rows"].items():
                sql = f"SELECT count(*) FROM {table} WHERE run_id = ?"
                assert case.ask(sql, run_id) == [(count,)]


PARTS = (
    *("window_ns", "compute_ns", "data_ns", "in_op_comm_ns", "p2p_recv_ns", "p2p_send_ns"),
    *("finalize_ns", "other_step_ns", "gap_ns"),
)


def measured(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    return (item for item in case.runs("rank_trace") if not item[1]["simulated"])


def test_every_part_of_every_window_to_the_nanosecond(case: Case) -> None:
    for run_id, run in measured(case):
        sql = f"SELECT step, rank, {', '.join(PARTS)} FROM rank_bubbles WHERE run_id = ?"
        found = {(step, rank): parts for step, rank, *parts in case.ask(sql, run_id)}
        wanted = {
            (row["step"], row["rank"]): [row[part] for part in PARTS] for row in run["rank_steps"]
        }
        assert found == wanted


def test_bubble_ratios(case: Case) -> None:
    names = ("bubble_ratio", "bubble_with_wait_ratio", "bubble_over_ideal_ratio")
    for run_id, run in measured(case):
        sql = f"SELECT step, rank, {', '.join(names)} FROM rank_bubbles WHERE run_id = ?"
        found = {(step, rank): ratios for step, rank, *ratios in case.ask(sql, run_id)}
        for row in run["rank_steps"]:
            wanted = [row[name] for name in names]
            assert found[row["step"], row["rank"]] == pytest.approx(wanted, rel=1e-12)


def test_stage_bubbles_stand_beside_theory(case: Case) -> None:
    for run_id, run in measured(case):
        sql = """
            SELECT step, stage, bubble_ratio, bubble_min_ratio, bubble_max_ratio,
                theory_bubble_ratio, theory_over_ideal_ratio
            FROM stage_bubbles WHERE run_id = ? AND basis = 'measured' ORDER BY ALL
        """
        theory = run["theory"]
        wanted = [
            (
                row["step"],
                row["stage"],
                pytest.approx(row["bubble_ratio"], rel=1e-12),
                pytest.approx(row["bubble_min_ratio"], rel=1e-12),
                pytest.approx(row["bubble_max_ratio"], rel=1e-12),
                pytest.approx(theory["bubble_ratio"], rel=1e-12),
                pytest.approx(theory["bubble_over_ideal_ratio"], rel=1e-12),
            )
            for row in run["stage_bubbles"]
        ]
        assert case.ask(sql, run_id) == sorted(wanted, key=lambda row: row[:2])
        if case.name in ("theory", "interleaved"):
            for row in run["stage_bubbles"]:
                assert row["bubble_ratio"] == pytest.approx(theory["bubble_ratio"], abs=1e-6)


def test_collective_bandwidth(case: Case) -> None:
    for run_id, run in measured(case):
        sql = """
            SELECT collective, group_kind, dtype, size_bytes, overlapped, calls, time_p50_ms,
                busbw_p50_gbps, reason
            FROM collective_bandwidth WHERE run_id = ?
        """
        found = {row[:5]: row[5:] for row in case.ask(sql, run_id)}
        for c in run["collectives"]:
            # A send and the receive it feeds are one call, under the sender's name.
            collective = c["collective"].removesuffix("_recv")
            key = (collective, c["group_kind"], c["dtype"], c["size_bytes"], c["overlapped"])
            calls, time_ms, busbw, reason = found[key]
            assert (calls, reason) == (c["calls"], c["reason"]), key
            if c["time_ns"] is not None:
                assert time_ms == pytest.approx(c["time_ns"] / 1e6, rel=1e-9), key
            assert busbw == (c["busbw_gbps"] and pytest.approx(c["busbw_gbps"], rel=1e-9)), key


def test_only_an_injected_rank_is_a_straggler(case: Case) -> None:
    for run_id, run in measured(case):
        sql = "SELECT rank, verdict, slowdown, time_lost_ms FROM straggler_ranks WHERE run_id = ?"
        found = {rank: rest for rank, *rest in case.ask(sql, run_id)}
        for rank in run["ranks"]:
            verdict, slowdown, lost_ms = found[rank["rank"]]
            if rank["peers"] == 0:
                assert verdict == "not_comparable"
                continue
            injected = rank["injected_factor"] is not None
            assert (verdict == "straggler") == (injected and rank["peers"] > 1)
            assert slowdown == pytest.approx(rank["slowdown"], rel=1e-9)
            assert lost_ms == pytest.approx(rank["lost_ns"] / 1e6, rel=1e-9)


def test_an_injected_straggler_is_what_the_run_lost(case: Case) -> None:
    sql = """
        SELECT straggler_rank, culprit_stability_ratio, time_lost_ms, gpu_hours_lost * 3.6e6,
            world_size * time_lost_ms
        FROM run_summary JOIN runs USING (run_id) WHERE run_id = ?
    """
    for run_id, run in measured(case):
        ((straggler, stability, lost_ms, on_every_rank, expected),) = case.ask(sql, run_id)
        injected = [r for r in run["ranks"] if r["injected_factor"] and r["peers"]]
        assert straggler == (injected[0]["rank"] if injected else None)
        if injected:
            assert stability == 1
            assert lost_ms == pytest.approx(injected[0]["lost_ns"] / 1e6, rel=1e-9)
            assert on_every_rank == pytest.approx(expected)
        else:
            assert not lost_ms


def test_layers_and_steps_of_logs(case: Case) -> None:
    for run_id, run in case.runs("optimus"):
        sql = "SELECT step, layer, stages, total_ms FROM layer_steps WHERE run_id = ?"
        found = {row[:2]: row[2:] for row in case.ask(sql, run_id)}
        wanted = {
            (row["step"], row["layer"]): (row["stages"], pytest.approx(row["total_ns"] / 1e6))
            for row in run["layer_steps"]
        }
        assert found == wanted
        merged = case.ask(
            "SELECT DISTINCT step, rank FROM layer_times"
            " WHERE run_id = ? AND attribution = 'merged' ORDER BY ALL",
            run_id,
        )
        assert merged == [(run["merged_step"], rank) for rank in run["merged_ranks"]]
        if run["slow_layer"] is not None:
            worst = "SELECT layer_index FROM layer_steps WHERE run_id = ? AND NOT warmup"
            order = "ORDER BY deviation_ratio DESC LIMIT 1"
            assert case.ask(f"{worst} {order}", run_id) == [(run["slow_layer"],)]


def test_traffic_of_plans(case: Case) -> None:
    for run_id, run in case.runs("aicb_workload"):
        sql = """
            SELECT pass, collective, group_kind, calls, bytes FROM workload_comm
            WHERE run_id = ? ORDER BY ALL
        """
        wanted = [
            tuple(row[k] for k in ("pass", "collective", "group_kind", "calls", "bytes"))
            for row in run["traffic"]
            if row["calls"]
        ]
        assert case.ask(sql, run_id) == sorted(wanted)
        simulator = case.ask(
            "SELECT DISTINCT bubble_ratio FROM stage_bubbles"
            " WHERE run_id = ? AND basis = 'theory_simulator'",
            run_id,
        )
        # --set vpp says what the plan's own vpp no longer does.
        given = "vpp" in SPECS[case.name][1]
        theory = pytest.approx(run["theory_simulator"]["bubble_ratio"])
        assert simulator == ([] if given else [(theory,)])
