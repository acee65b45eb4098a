"""Which operation a slower step is due to: archives with a known cause, read as a user does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.lakes import ingest_and_build
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
