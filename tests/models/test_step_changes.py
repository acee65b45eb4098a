"""Which operation a slower step is due to: archives with a known cause, read as a user does."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pytest

from tests.lakes import ingest_and_build
from tracelake.models.base import create_empty_tables, ddl
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect
from tracelake.synth import schedule
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec, ticks
from tracelake.synth.work import Part, get_batch

Row = dict[str, Any]
# The marked run is the last of five; rank 0 is as fast as the others in it.
MARK: dict[str, Any] = {"slow_rank": 0, "slow_factor": 1.0}
COMMON: dict[str, Any] = {
    "formats": ("rank_trace",),
    "noise": 0.005,
    "steps": 4,
    "clean_runs": 4,
}
LOADER = Spec(**COMMON, **MARK, tp=2, pp=2, layers=4, micro_batches=1)
SLOW_RANK = Spec(**COMMON, tp=1, pp=1, dp=8, layers=2, micro_batches=4, slow_rank=3)
SLOW_LINK = Spec(
    **COMMON,
    tp=1,
    pp=4,
    layers=4,
    micro_batches=4,
    busbw_gbps=5.0,
    slow_collective="send_recv/pp",
    slow_collective_factor=20.0,
)
SPECS = {"loader": LOADER, "rank": SLOW_RANK, "link": SLOW_LINK}


def slow_loader(spec: Spec, *, first: bool, last: bool) -> list[Part]:
    slow = first and (spec.slow_rank, spec.slow_factor) == (0, 1.0)
    return [*([ticks(88.0)] if slow else []), *get_batch(spec, first=first, last=last)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("step_changes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "get_batch", slow_loader)
        for name, spec in SPECS.items():
            write_archive(root / "in" / name, spec)
    return ingest_and_build(root / "in", root / "lake").root


@pytest.fixture(scope="module")
def con(lake: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True)


def changes(con: duckdb.DuckDBPyConnection, name: str) -> tuple[list[Row], float]:
    """Rows of the last run of an archive, the largest change first, and that of the step."""
    spec = SPECS[name]
    found = con.execute(
        """
        SELECT c.*, h.step_p50_ms - h.step_p50_ms_baseline AS total_ms
        FROM step_changes AS c
        JOIN run_history AS h USING (run_id)
        JOIN runs AS r USING (run_id)
        WHERE h.verdict = 'regressed' AND (r.tp, r.pp, r.dp) = ($1, $2, $3)
        ORDER BY c.change_ms DESC
        """,
        [spec.tp, spec.pp, spec.dp],
    )
    names = [column[0] for column in found.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return rows, rows[0]["total_ms"]


def test_slow_data_loading_is_named(con: duckdb.DuckDBPyConnection) -> None:
    rows, total = changes(con, "loader")
    first = rows[0]
    assert (first["op"], first["kind"], first["stage"]) == ("get_batch", "data", 0)
    assert first["change_ms"] == pytest.approx(88, abs=1)
    assert total == pytest.approx(88, abs=1)
    assert first["share_ratio"] == pytest.approx(first["change_ms"] / total)


def test_a_slow_rank_is_named_by_what_it_computes(con: duckdb.DuckDBPyConnection) -> None:
    rows, total = changes(con, "rank")
    assert {row["op"] for row in rows[:2]} == {"forward_step", "backward_step"}
    assert {row["kind"] for row in rows[:2]} == {"compute"}
    assert sum(row["change_ms"] for row in rows[:2]) > 0.8 * total


def test_a_slow_link_is_named_by_its_messages(con: duckdb.DuckDBPyConnection) -> None:
    rows, total = changes(con, "link")
    assert rows[0]["kind"] == "p2p"
    assert sum(row["change_ms"] for row in rows if row["kind"] == "p2p") > 0.9 * total


@pytest.mark.parametrize("name", SPECS)
def test_changes_add_up_to_that_of_the_step(name: str, con: duckdb.DuckDBPyConnection) -> None:
    rows, total = changes(con, name)
    assert sum(row["change_ms"] for row in rows) == pytest.approx(total, abs=1e-9)
    assert sum(row["share_ratio"] for row in rows) == pytest.approx(1)
    assert [row["kind"] for row in rows].count("rest") == 1


def test_shares_add_up_to_the_steps(con: duckdb.DuckDBPyConnection) -> None:
    found = con.execute(
        """
        SELECT run_id, sum(share_ms), any_value(step_mean_ms), any_value(steps_ms)
        FROM op_shares
        JOIN (SELECT run_id, avg(step_ms) AS steps_ms FROM step_stats GROUP BY ALL) USING (run_id)
        GROUP BY run_id
        """
    ).fetchall()
    assert len(found) == 15
    for _, shares, step, measured in found:
        assert shares == pytest.approx(step, abs=1e-3)
        assert step == pytest.approx(measured)


def test_a_run_without_a_baseline_has_no_rows(con: duckdb.DuckDBPyConnection) -> None:
    counted = con.execute(
        """
        SELECT count(DISTINCT run_id), count(DISTINCT run_id) FILTER (baseline_runs < 3)
        FROM step_changes JOIN run_history USING (run_id)
        """
    ).fetchall()
    assert counted == [(6, 0)]


@dataclass(frozen=True)
class Run:
    """A run as far as its changes are concerned; one without shares was a log."""

    run_id: str
    config: str
    run_date: datetime | None
    complete: bool
    shares: dict[str, float]


def random_runs(seed: int) -> list[Run]:
    chance = random.Random(seed)
    return [
        Run(
            f"r{number:03}",
            chance.choice("ab"),
            datetime(2025, 1, 1) + timedelta(days=number) if chance.random() < 0.95 else None,
            chance.random() < 0.8,
            {op: chance.uniform(1, 9) for op in "uvwxyz" if chance.random() < 0.6}
            if chance.random() < 0.7
            else {},
        )
        for number in range(120)
    ]


def changes_of(run: Run, runs: list[Run]) -> dict[str, tuple[float, float]]:
    """Baseline and share of each operation: the baseline is the 20 complete runs before."""
    if run.run_date is None:
        return {}
    dated = [(one.run_date, one) for one in runs if one.run_date and one.config == run.config]
    before = [one for date, one in dated if one.complete and date < run.run_date][-20:]
    seen = [one.shares for one in before if one.shares]
    if not run.shares or len(seen) < 3:
        return {}
    return {
        op: (median(shares.get(op, 0) for shares in seen), run.shares.get(op, 0))
        for op in {*run.shares, *(op for shares in seen for op in shares)}
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_baseline_is_of_the_runs_before_that_have_shares(seed: int) -> None:
    runs = random_runs(seed)
    columns = catalog().columns
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        for name in ("op_shares", "run_summary", "run_history", "stage_balance"):
            con.execute(f"CREATE TEMP TABLE {name} ({ddl(columns[name])})")
        dated = [[run.run_id, run.config, run.run_date, run.complete] for run in runs]
        con.executemany(
            "INSERT INTO runs (run_id, config, run_date, complete, ranks_seen)"
            " VALUES ($1, $2, $3, $4, 4)",
            dated,
        )
        con.execute("INSERT INTO run_summary BY NAME SELECT run_id, 50 AS step_p50_ms FROM runs")
        con.execute(
            "INSERT INTO run_history BY NAME"
            " SELECT run_id, 50 AS step_p50_ms, 40 AS step_p50_ms_baseline FROM runs"
        )
        shares = [[run.run_id, op, share] for run in runs for op, share in run.shares.items()]
        con.executemany(
            "INSERT INTO op_shares (run_id, op, kind, share_ms) VALUES ($1, $2, 'compute', $3)",
            shares,
        )
        for name in ("_run_copies", "_run_metrics", "_fleet_runs", "step_changes"):
            compute(con, catalog().models[name])
        rows = con.execute(
            "SELECT run_id, op, baseline_ms, run_ms FROM step_changes WHERE op <> 'rest'"
        ).fetchall()
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for run_id, op, baseline, share in rows:
        found.setdefault(run_id, {})[op] = baseline, share
    wanted = {run.run_id: changes for run in runs if (changes := changes_of(run, runs))}
    assert len(wanted) > 40
    assert found == wanted
