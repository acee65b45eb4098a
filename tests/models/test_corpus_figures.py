"""Figures of the real traces, through ingest and build: known ones, exact sums, and abstentions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.figures import unexplained
from tests.lakes import run_ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build

# The measured runs with a trace of every rank; all others are simulated or a single rank.
EIGHT_RANKS = "name LIKE 'wd8_tp2_pp4%'"
MEASURED = "format = 'rank_trace' AND NOT simulated AND world_size = ranks_seen"


@pytest.fixture(scope="module")
def warehouse(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("lake")
    run_ingest(corpus, folder)
    lake = Lake.open(folder)
    build(lake)
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        yield con


def rows(con: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()


def test_bubble_of_the_eight_rank_trace(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert rows(
        warehouse,
        f"""
        SELECT rank, round(bubble_ratio, 3), round(p2p_recv_ns / window_ns, 3), theory_bubble_ratio
        FROM rank_bubbles JOIN runs USING (run_id)
        WHERE {EIGHT_RANKS} AND rank % 2 = 0 ORDER BY rank
        """,
    ) == [
        (0, 0.828, 0.827, 0.75),
        (2, 0.83, 0.713, 0.75),
        (4, 0.828, 0.596, 0.75),
        (6, 0.517, 0.169, 0.75),
    ]


def test_with_one_micro_batch_stages_idle_for_each_other(
    warehouse: duckdb.DuckDBPyConnection,
) -> None:
    """With m = 1 the busy parts of the stages fill the window, whatever each of them takes."""
    for measured, modelled, theory in rows(
        warehouse,
        f"""
        SELECT
            avg(bubble_ratio) FILTER (basis = 'measured'),
            avg(bubble_ratio) FILTER (basis = 'modelled'),
            avg(bubble_ratio) FILTER (basis = 'theory')
        FROM stage_bubbles JOIN runs USING (run_id) WHERE {MEASURED} GROUP BY run_id
        """,
    ):
        assert modelled == pytest.approx(theory, rel=1e-12)
        assert measured == pytest.approx(theory, abs=0.005)


def test_windows_close_to_the_nanosecond(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert rows(
        warehouse,
        f"""
        SELECT
            count(DISTINCT run_id), count(*), count(*) FILTER (window_ns = compute_ns + data_ns
                + in_op_comm_ns + p2p_recv_ns + p2p_send_ns + finalize_ns + other_step_ns + gap_ns),
            sum(overlap_ns)::BIGINT, count(reason)
        FROM rank_bubbles JOIN runs USING (run_id) WHERE {MEASURED}
        """,
    ) == [(3, 16, 16, 0, 0)]


def test_healthy_runs_have_no_straggler(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert rows(
        warehouse,
        f"""
        SELECT verdict, reason, count(*) FROM straggler_ranks JOIN runs USING (run_id)
        WHERE {MEASURED} GROUP BY ALL ORDER BY ALL
        """,
    ) == [("ok", None, 15), ("suspect", "one_peer", 1)]


def test_the_suspect_is_the_rank_its_twin_waited_for(
    warehouse: duckdb.DuckDBPyConnection,
) -> None:
    """One step and one peer prove nothing, but the two ways to look at it agree."""
    assert rows(
        warehouse,
        f"""
        SELECT
            rank, round(slowdown, 3), time_lost_ms, in_op_wait_ms, least_waiting, waiting_rank,
            waiting_rank_ms, culprit_steps
        FROM straggler_ranks JOIN runs USING (run_id) WHERE {EIGHT_RANKS} AND verdict = 'suspect'
        """,
    ) == [(7, 2.282, 848.59, 0.0, True, 6, 346.26, 1)]


def test_every_call_of_a_complete_run_is_matched(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert rows(
        warehouse,
        f"""
        SELECT group_kind, min(group_size), count(DISTINCT (run_id, call)), count(*)
        FROM collective_calls JOIN runs USING (run_id)
        WHERE {MEASURED} AND matched GROUP BY group_kind ORDER BY group_kind
        """,
    ) == [("dp", 1, 22, 22), ("embedding", 2, 6, 12), ("pp", 2, 20, 40), ("tp", 2, 513, 1026)]
    unmatched = f"""
        SELECT count(*) FROM collective_calls JOIN runs USING (run_id)
        WHERE {MEASURED} AND NOT matched
    """
    assert rows(warehouse, unmatched) == [(0,)]


def test_bandwidth_of_the_links(warehouse: duckdb.DuckDBPyConnection) -> None:
    """80 MiB all-reduces between two ranks, by the shorter of their times."""
    assert rows(
        warehouse,
        f"""
        SELECT overlapped, calls, time_p50_ms, round(busbw_p50_gbps, 3), time_basis, reason
        FROM collective_bandwidth JOIN runs USING (run_id)
        WHERE {EIGHT_RANKS} AND size_bytes = 83886080 AND group_kind = 'tp' ORDER BY overlapped
        """,
    ) == [
        (False, 81, 0.68, round(83886080 / 680000, 3), "min", None),
        (True, 81, 3.35, None, "min", "overlaps_compute"),
    ]


def test_no_speed_without_a_second_rank(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert rows(
        warehouse,
        f"""
        SELECT DISTINCT size_convention, group_size, group_size_source, algbw_p50_gbps, reason
        FROM collective_bandwidth JOIN runs USING (run_id)
        WHERE {MEASURED} AND group_kind = 'dp' ORDER BY size_convention
        """,
    ) == [
        ("buffer", 1, "derived", None, "group_of_one"),
        ("declared", 1, "derived", None, "group_of_one"),
    ]


@pytest.mark.parametrize(
    ("model", "figure", "reason"),
    [
        ("rank_bubbles", "bubble_ratio", "simulated"),
        ("collective_bandwidth", "coalesce(busbw_p50_gbps, time_p50_ms)", "simulated"),
        ("straggler_ranks", "slowdown", "simulated"),
    ],
)
def test_simulated_runs_abstain(
    warehouse: duckdb.DuckDBPyConnection, model: str, figure: str, reason: str
) -> None:
    assert rows(
        warehouse,
        f"""
        SELECT count({figure}), min(m.reason), max(m.reason), count(DISTINCT run_id)
        FROM {model} AS m JOIN runs USING (run_id) WHERE simulated
        """,
    ) == [(0, reason, reason, 13)]


def test_compute_times_of_simulated_runs_stand(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert rows(
        warehouse,
        """
        SELECT count(own_ms) = count(*), count(slowdown) > 0
        FROM straggler_steps JOIN runs USING (run_id) WHERE simulated AND in_verdict
        """,
    ) == [(True, True)]


def test_a_nameless_rank_has_no_topology(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert rows(
        warehouse,
        """
        SELECT b.reason, b.window_ns, s.verdict, s.reason
        FROM rank_bubbles AS b JOIN straggler_ranks AS s USING (run_id, rank)
        WHERE run_id LIKE '000%'
        """,
    ) == [("topology_unknown", None, "not_comparable", "no_peer")]


def test_modelled_bubbles_of_logs_say_how_little_they_cover(
    warehouse: duckdb.DuckDBPyConnection,
) -> None:
    assert rows(
        warehouse,
        """
        SELECT
            count(DISTINCT run_id), min(reason), max(reason), min(covered_ratio) > 0.1,
            max(covered_ratio) < 0.25, count(*) - count(bubble_ratio)
        FROM stage_bubbles JOIN runs USING (run_id) WHERE format = 'optimus' AND basis = 'modelled'
        """,
    ) == [(4, "forward_modules_only", "forward_modules_only", True, True, 0)]


def test_theory_of_plans(warehouse: duckdb.DuckDBPyConnection) -> None:
    """tp 8, pp 16, ga 16 on 1,024 GPUs: 15 / 31."""
    assert rows(
        warehouse,
        """
        SELECT DISTINCT step, basis, bubble_ratio, bubble_over_ideal_ratio
        FROM stage_bubbles WHERE run_id LIKE '004%'
        """,
    ) == [(0, "theory", 15 / 31, 15 / 16)]


def test_a_figure_that_is_null_has_a_reason(warehouse: duckdb.DuckDBPyConnection) -> None:
    assert unexplained(warehouse) == {}


def test_all_calls_of_complete_traces_are_matched(warehouse: duckdb.DuckDBPyConnection) -> None:
    sql = f"""
        SELECT sum(calls) > 0, sum(calls - matched_calls)
        FROM coverage JOIN runs USING (run_id) WHERE {EIGHT_RANKS}
        """
    assert rows(warehouse, sql) == [(True, 0)]
    assert rows(warehouse, "SELECT DISTINCT contradictions FROM coverage") == [([],)]
