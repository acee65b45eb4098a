"""Models on layer times: the best split against all splits, and trends of noise and of drifts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.lakes import few_models, run_ingest
from tracelake.lake.store import Lake
from tracelake.models.base import create_empty_tables
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect

Row = dict[str, Any]


def rows_of(runs: Sequence[Row], times: Iterable[Row], model: str, sql: str) -> list[Any]:
    """Rows of a query on a model over these runs and layer times."""
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        insert(con, "runs", runs)
        insert(con, "layer_times", list(times))
        for needed in catalog().upstream([model]):
            compute(con, needed)
        return con.execute(sql).fetchall()


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    con.register("given", pa.Table.from_pylist(list(rows)))
    con.execute(f"INSERT INTO {table} BY NAME FROM given")
    con.unregister("given")


# --- splits --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Layers of two steps, cut anywhere into stages.

    Attributes:
        times: Per layer in order, its time in either step.
        cuts: Number of layers that the stages before each boundary hold; whole layers here.
    """

    run_id: str
    times: tuple[tuple[int, int], ...]
    cuts: tuple[int, ...]
    micro_batches: int

    @property
    def stages(self) -> int:
        return len(self.cuts) + 1

    @property
    def medians(self) -> list[Fraction]:
        return [Fraction(sum(pair), 2) for pair in self.times]

    def rows(self) -> Iterable[Row]:
        for index, pair in enumerate(self.times):
            stage = sum(cut <= index for cut in self.cuts)
            for step, time in enumerate(pair, 2):
                yield {
                    "run_id": self.run_id,
                    "rank": stage,
                    "stage": stage,
                    "step": step,
                    "layer": str(index),
                    "layer_index": index,
                    "total_ns": time,
                }

    def loads(self, cuts: Sequence[int]) -> list[Fraction]:
        edges = [0, *cuts, len(self.times)]
        return [sum(self.medians[a:b], Fraction()) for a, b in itertools.pairwise(edges)]

    def step(self, cuts: Sequence[int]) -> Fraction:
        loads = [load / self.micro_batches for load in self.loads(cuts)]
        return sum(loads, Fraction()) + (self.micro_batches - 1) * max(loads)

    def best(self) -> tuple[int, ...]:
        """The best of all splits, by listing them."""
        every = itertools.combinations(range(1, len(self.times)), self.stages - 1)
        return min(every, key=lambda cuts: (sorted(self.loads(cuts), reverse=True), cuts))


def random_job(rng: random.Random, number: int) -> Job:
    layers = rng.randint(1, 11)
    stages = rng.randint(min(2, layers), min(layers, 5))
    # Narrow ranges make many equal splits, wide ones few; odd sums make medians of halves.
    largest = rng.choice((2, 9, 10**9))
    times = [(rng.randint(0, largest), rng.randint(1, largest)) for _ in range(layers)]
    # One layer that is larger than any stage of the others leaves the choice to those.
    if rng.random() < 0.5:
        times[rng.randrange(layers)] = (20 * largest, 20 * largest)
    cuts = tuple(sorted(rng.sample(range(1, layers), stages - 1)))
    return Job(f"r{number:04}", tuple(times), cuts, rng.randint(1, 9))


def test_no_split_is_better_than_the_best() -> None:
    rng = random.Random(20240923)
    jobs = [random_job(rng, number) for number in range(150)]
    runs = [
        {"run_id": job.run_id, "pp": job.stages, "micro_batches": job.micro_batches} for job in jobs
    ]
    found = rows_of(
        runs,
        (row for job in jobs for row in job.rows()),
        "stage_rebalance",
        """
        SELECT
            list(first_layer::INTEGER ORDER BY stage), list(last_layer::INTEGER ORDER BY stage),
            list(micro_batch_ms ORDER BY stage), max(modelled_step_ms),
            max(current_modelled_step_ms), max(gain_ratio)
        FROM stage_rebalance GROUP BY run_id ORDER BY run_id
        """,
    )
    assert len(found) == len(jobs)
    for job, (firsts, lasts, loads, step, current, gain) in zip(jobs, found, strict=True):
        best = job.best()
        assert tuple(firsts) == (0, *best)
        assert tuple(lasts) == (*(cut - 1 for cut in best), len(job.times) - 1)
        wanted = [float(load / job.micro_batches / 10**6) for load in job.loads(best)]
        assert loads == pytest.approx(wanted, rel=1e-12)
        assert step == pytest.approx(float(job.step(best) / 10**6), rel=1e-12)
        assert current == pytest.approx(float(job.step(job.cuts) / 10**6), rel=1e-12)
        assert gain == pytest.approx(float(1 - job.step(best) / job.step(job.cuts)), abs=1e-12)
        assert gain >= -1e-12


def test_a_deep_model_is_split_exactly() -> None:
    """126 equal blocks and a head of ten over 64 stages: 10 for the head, 2 for all others."""
    times = [(1000, 1000)] * 126 + [(10_000, 10_000)]
    job = Job("r", tuple(times), tuple(range(1, 64)), 64)
    assert rows_of(
        [{"run_id": "r", "pp": 64, "micro_batches": 64}],
        job.rows(),
        "stage_rebalance",
        "SELECT layers, count(*), max(bottleneck_layer) FROM stage_rebalance GROUP BY 1 ORDER BY 1",
    ) == [(1, 1, "126"), (2, 63, "126")]


# --- trends --------------------------------------------------------------------------------


def trends(steps: int, time: Callable[[random.Random, int], float]) -> dict[str, int]:
    """How often 600 layers of such times have each trend; `time` is told the step, from 0."""
    rng = random.Random(steps)
    runs = [{"run_id": f"r{run}", "pp": 1, "micro_batches": 1} for run in range(60)]
    rows = [
        {
            "run_id": f"r{run}",
            "rank": 0,
            "stage": 0,
            "step": step + 2,
            "layer": str(layer),
            "layer_index": layer,
            "total_ns": round(time(rng, step) * 1e6),
        }
        for run in range(60)
        for layer in range(10)
        for step in range(steps)
    ]
    sql = "SELECT trend, count(*) FROM layer_stats GROUP BY trend"
    return dict(rows_of(runs, rows, "layer_stats", sql))


NOISE: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda rng: rng.gauss(100, 15),
    "long tail": lambda rng: 100 * rng.paretovariate(3),
    "few values": lambda rng: rng.choice((90, 100, 110)),
    "outliers": lambda rng: 100 if rng.random() > 0.1 else 300,
}


@pytest.mark.parametrize("steps", [10, 20, 60])
@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE.keys())
def test_noise_has_no_trend(steps: int, noise: Callable[[random.Random], float]) -> None:
    found = trends(steps, lambda rng, _: noise(rng))
    # Of 10 steps, outliers can leave too few to judge; chance gives under 2 trends in 1,000.
    assert found["steady"] >= (200 if steps == 10 else 590)
    assert found.get("rising", 0) + found.get("falling", 0) <= 2


@pytest.mark.parametrize(("change", "trend"), [(0.4, "rising"), (-0.4, "falling")])
def test_a_drift_is_found_under_noise(change: float, trend: str) -> None:
    found = trends(20, lambda rng, step: 100 * (1 + change * step / 19) * rng.gauss(1, 0.05))
    assert found.get(trend, 0) >= 590
    assert set(found) <= {trend, "steady"}


# --- real logs -----------------------------------------------------------------------------


def test_real_logs(corpus: Path, tmp_path: Path) -> None:
    """Over 8 stages the head alone is the bottleneck, of any split; no layer drifts."""
    run_ingest(corpus / "optimus", tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    with few_models("stage_rebalance", "layer_stats"):
        build(lake)
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        assert con.execute(
            """
            SELECT pp, round(gain_ratio, 3), bottleneck_layer, round(current_imbalance_ratio, 2),
                round(imbalance_ratio, 2), list(s.layers ORDER BY stage)
            FROM stage_rebalance AS s JOIN runs USING (run_id)
            GROUP BY ALL ORDER BY pp
            """
        ).fetchall() == [
            (2, 0.154, None, 1.25, 1.04, [12, 6]),
            (4, 0.028, None, 1.13, 1.09, [6, 5, 5, 2]),
            (8, 0.351, "lm_head", 2.27, 1.39, [3, 2, 2, 2, 2, 3, 3, 1]),
        ]
        assert con.execute("SELECT DISTINCT trend, trend_reason FROM layer_stats").fetchall() == [
            ("steady", None)
        ]
