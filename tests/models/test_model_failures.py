"""A run that a model fails on is left out and named; all other runs keep their figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from tests.tiny_lakes import commit_run, log_run
from tests.traces import plan, trace, trace_name, write
from tracelake.base.errors import ContractError
from tracelake.lake.store import Lake
from tracelake.models.base import engine_errors
from tracelake.models.build import BuildResult, build
from tracelake.models.catalog import Catalog, catalog, load
from tracelake.models.compute import compute
from tracelake.models.header import Model
from tracelake.warehouse.warehouse import open_warehouse

MOST = 2**63 - 1
MODELS = {
    "model_failures": catalog().models["model_failures"].sql,
    "figures": """-- A figure of a run, which fails for one value.
-- @grain run_id
-- @column figure BIGINT | The figure.
SELECT run_id, CASE WHEN params = 13 THEN error(concat('not ', params)) ELSE params END AS figure
FROM runs
""",
    "totals": """-- Sum over the runs, which has a limit.
-- @scope fleet
-- @grain run_count
-- @column run_count BIGINT runs | How many.
-- @column total BIGINT | The sum.
SELECT count(*) AS run_count, coalesce(sum(f.figure), 0)::BIGINT AS total
FROM runs AS r
JOIN figures AS f USING (run_id)
""",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("sql")
    (folder / "a").mkdir()
    for name, sql in MODELS.items():
        (folder / "a" / f"{name}.sql").write_text(sql)
    return load(folder)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def commit(lake: Lake, **params: int) -> None:
    for run_id, value in params.items():
        commit_run(lake, run_id, log_run(params=value))


def failed(built: BuildResult) -> list[tuple[str, str]]:
    return [(run.run_id, run.failed_model) for run in built.failed]


def rows_of(lake: Lake, relation: str) -> list[tuple[Any, ...]]:
    with open_warehouse(lake) as con:
        return con.execute(f"FROM {relation} ORDER BY ALL").fetchall()


def test_a_failing_run_costs_itself_alone(lake: Lake, models: Catalog) -> None:
    """One fails by itself in the first half of the batch, one in the second, one in the sum."""
    commit(lake, r1=1, r2=13, r3=3, r4=MOST, r5=5, r6=13)
    built = build(lake, models=models)
    assert failed(built) == [("r2", "figures"), ("r4", "totals"), ("r6", "figures")]
    assert built.failed[0].message == "Invalid Input Error: not 13"
    assert rows_of(lake, "figures") == [
        (f"r{n}", None if n in {2, 4, 6} else n) for n in range(1, 7)
    ]
    assert [total for _, total in rows_of(lake, "totals")] == [9]
    assert len(rows_of(lake, "runs")) == 6
    again = build(lake, models=models)
    assert (again.unchanged, again.failed) == (True, built.failed)
    # A failed run is tried again when it changes, the others when all models are computed again.
    commit(lake, r2=2, r7=7)
    assert failed(build(lake, models=models)) == [("r4", "totals"), ("r6", "figures")]
    assert [total for _, total in rows_of(lake, "totals")] == [18]
    commit(lake, r4=4, r8=MOST)
    assert failed(build(lake, models=models)) == [("r6", "figures"), ("r8", "totals")]


def test_a_model_that_fails_whatever_the_runs_hold_ends_the_build(
    lake: Lake, models: Catalog
) -> None:
    commit(lake, r=1)
    for model in ("figures", "totals"):
        with strict(model, "true"), pytest.raises(ContractError, match="it cannot be"):
            build(lake, models=models)
    assert not lake.warehouse.exists()


@contextmanager
def strict(model_name: str, condition: str) -> Iterator[None]:
    """Lets one model fail under a condition."""

    def checked(con: duckdb.DuckDBPyConnection, model: Model, *how: Any) -> int:
        if model.name == model_name:
            with engine_errors(model.name, model.path):
                con.execute(f"SELECT error('it cannot be') WHERE {condition}")
        return compute(con, model, *how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracelake.models.computing.compute", checked)
        yield


def test_the_job_names_run_and_file_and_judges_the_others(
    tracelake: Command, tmp_path: Path
) -> None:
    files = {
        f"good/{trace_name(0)}": trace(0, steps=3) + "rank:0:torn(\n",
        f"good/{trace_name(1)}": trace(1, steps=3),
        "job-4711/bad.txt": plan().replace("ga: 1", "ga: 13"),
    }
    write(tmp_path / "in", files)
    lake, summary = tmp_path / "lake", tmp_path / "summary.json"
    job = ("run", tmp_path / "in", "--lake", lake, "--summary", summary)
    with strict("workload_comm", "EXISTS (FROM runs WHERE micro_batches = 13)"):
        first = tracelake(*job, "--fail-on", "faults,rejects", "--max-bad-ratio", "1")
    assert first.code == 3
    assert "error: 1 run without figures, because a model failed on the data" in first.err
    assert "(job-4711/bad.txt): workload_comm: Invalid Input Error: it cannot be\n" in first.err
    assert "error: 2 gates of 2 failed\n  faults: 1 run\n    bad-" in first.err
    assert "  rejects: 1 run\n    wd2_tp2" in first.err
    told = json.loads(summary.read_text())
    assert [run["input"] for run in told["model_failures"]] == ["job-4711/bad.txt"]
    assert [one["count"] for one in told["attention"] if one["kind"] == "faults"] == [1]
    assert {run["run_id"][:3]: run["steps"] for run in told["runs"]} == {"wd2": 3, "bad": None}
    page = (lake / "report.html").read_text()
    assert "Runs without figures" in page
    shown = tracelake("show", "bad", "--lake", lake)
    assert (shown.code, "model_failed job-4711/bad.txt: no figure" in shown.out) == (0, True)
    assert "job-4711" in tracelake("runs", "--lake", lake).out
    checked = tracelake("check", "--quick", "--lake", lake)
    assert (checked.code, "models_computed" in checked.out) == (0, True)
    with open_warehouse(Lake.open(lake)) as con:
        reasons = con.execute(
            "SELECT DISTINCT reason, remedy IS NOT NULL FROM abstentions"
            " JOIN model_failures USING (run_id)"
        )
        assert reasons.fetchall() == [("model_failed", True)]
    assert tracelake("build", "--lake", lake).code == 3
    assert tracelake("drop", "bad", "--lake", lake).code == 0
    assert tracelake("build", "--lake", lake).code == 0
