"""Runs against their baseline, beside a reference in plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import duckdb
import pytest

from pipeline.models import catalog, compute, connect, create_empty_tables
from pipeline.models.base import ddl

# Metric -> 1 where more is worse, -1 where less is.
WATCHED = {"bubble_ratio": 1, "busbw_gbps": -1, "step_p50_ms": 1, "stragglers": 1}
FLEET = ("_fleet_runs", "_baseline_runs", "_run_metrics", "_baselines", "run_history")
START = datetime(2025, 1, 1)
SEEDS = range(8)


@dataclass(frozen=True)
class Run:
    """A run as far as its history is concerned."""

    run_id: str
    config: str
    run_date: datetime | None
    complete: bool | None
    copies: int  # of its files, how many are copies of others
    files: int
    figures: dict[str, float | None]


@dataclass(frozen=True)
class Judged:
    """What is to be said of a run."""

    verdict: str
    reason: str | None
    baseline_runs: int
    regressed: list[str]
    not_compared: list[str]
    medians: dict[str, float | None]


def random_runs(seed: int) -> list[Run]:
    rng = random.Random(seed)
    return [random_run(rng, number) for number in range(rng.choice((5, 60, 200)))]


def random_run(rng: random.Random, number: int) -> Run:
    level = rng.choice((1.0, 1.0, 1.0, 1.05, 1.3, 0.6))
    missing = rng.choice((0.1, 0.1, 0.1, 0.1, 0.1, 1.0))

    def maybe(value: float) -> float | None:
        return None if rng.random() < missing else value

    files = rng.randint(1, 3)
    return Run(
        run_id=f"r{rng.randrange(10**6)}-{number}",
        config=f"c{rng.choice((0, 0, 0, 0, 1, 1, 2))}",
        run_date=None if rng.random() < 0.05 else START + timedelta(days=rng.randrange(40)),
        complete=rng.choice((True, True, True, True, False, None)),
        copies=files if rng.random() < 0.1 else rng.randrange(files),
        files=files,
        figures={
            "bubble_ratio": maybe(rng.choice((0.0, 0.25, 0.25, 0.3, 0.5)) * level),
            "busbw_gbps": maybe(rng.choice((80.0, 90.0, 95.0, 40.0)) / level),
            "step_p50_ms": maybe(rng.choice((100.0, 101.0, 108.0, 125.0)) * level),
            "stragglers": maybe(float(rng.choice((0, 0, 0, 0, 1, 2)))),
        },
    )


def history(runs: Sequence[Run]) -> dict[str, Judged]:
    """The reference: run by run, the runs before it, figure by figure."""
    by_config: dict[str, list[tuple[datetime, str, Run]]] = defaultdict(list)
    for run in runs:
        if run.run_date is not None and run.copies < run.files:
            by_config[run.config].append((run.run_date, run.run_id, run))
    for listed in by_config.values():
        listed.sort(key=lambda entry: entry[:2])
    return {run.run_id: judge(run, by_config[run.config]) for run in runs}


def judge(run: Run, listed: Sequence[tuple[datetime, str, Run]]) -> Judged:
    ids = [run_id for _, run_id, _ in listed]
    before = listed[: ids.index(run.run_id)] if run.run_id in ids else []
    baseline = [other for _, _, other in before if other.complete][-20:]
    regressed, missing = [], {}
    medians: dict[str, float | None] = {}
    for metric, sign in WATCHED.items():
        value = run.figures[metric]
        values = [v for other in baseline if (v := other.figures[metric]) is not None]
        medians[metric] = None
        if run.copies == run.files:
            missing[metric] = "duplicate"
        elif value is None:
            missing[metric] = "figure_missing"
        elif run.run_date is None:
            missing[metric] = "run_undated"
        elif len(values) < 3:
            missing[metric] = "few_runs"
        else:
            medians[metric] = median(values)
            if worse(value, values, sign):
                regressed.append(metric)
    if len(missing) < len(WATCHED):
        verdict, reason = ("regressed" if regressed else "ok"), None
    else:
        others = [r for _, r in sorted(missing.items()) if r != "figure_missing"]
        verdict, reason = "not_comparable", (others or ["figure_missing"])[0]
    return Judged(
        verdict,
        reason,
        len(baseline),
        regressed,
        [f"{metric}: {why}" for metric, why in sorted(missing.items())],
        medians,
    )


def worse(value: float, values: Sequence[float], sign: int) -> bool:
    middle = median(values)
    if middle == 0:
        return sign == 1 and value > max(values)
    spread = max(median(abs(v - middle) for v in values), 0.01 * middle)
    return sign * (value - middle) / middle > max(0.1, 3 * 1.4826 * spread / middle)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        con.execute(f"CREATE TEMP TABLE run_summary ({ddl(catalog().columns['run_summary'])})")
        yield con


def compute_history(con: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Computes run_history over the headline rows of these runs."""
    names = ("run_id", "config", "run_date", "complete", *WATCHED)
    rows = [(r.run_id, r.config, r.run_date, r.complete, *r.figures.values()) for r in runs]
    files = [(r.run_id, n, "x" if n < r.copies else None) for r in runs for n in range(r.files)]
    types = ("VARCHAR", "VARCHAR", "TIMESTAMP", "BOOLEAN", *["DOUBLE"] * len(WATCHED))
    fill(con, "given", names, types, rows)
    con.execute("INSERT INTO runs BY NAME SELECT run_id, config, run_date, complete FROM given")
    con.execute("INSERT INTO run_summary BY NAME SELECT * EXCLUDE (complete) FROM given")
    shape = ("VARCHAR", "INTEGER", "VARCHAR")
    fill(con, "files", ("run_id", "source_id", "duplicate_of"), shape, files)
    con.execute("INSERT INTO sources BY NAME FROM files")
    for name in FLEET:
        compute(con, catalog().models[name])


def fill(
    con: duckdb.DuckDBPyConnection,
    name: str,
    columns: Sequence[str],
    types: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
) -> None:
    shown = ", ".join(
        f"unnest(${n}::{kind}[]) AS {column}"
        for n, (column, kind) in enumerate(zip(columns, types, strict=True), 1)
    )
    values = [list(column) for column in zip(*rows, strict=True)]
    con.execute(f"CREATE TEMP TABLE {name} AS SELECT {shown}", values)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories_are_judged_as_by_the_reference(
    con: duckdb.DuckDBPyConnection, seed: int
) -> None:
    runs = random_runs(seed)
    compute_history(con, runs)
    medians = ", ".join(f"{metric}_baseline" for metric in WATCHED)
    rows = con.execute(
        "SELECT run_id, verdict, reason, baseline_runs, regressions, not_compared,"
        f" {medians} FROM run_history"
    ).fetchall()
    wanted = history(runs)
    assert {row[0] for row in rows} == wanted.keys()
    for run_id, verdict, reason, baseline_runs, regressions, not_compared, *found in rows:
        regressed = sorted(sentence.split()[0] for sentence in regressions)
        told = Judged(
            verdict,
            reason,
            baseline_runs,
            regressed,
            not_compared,
            dict(zip(WATCHED, found, strict=True)),
        )
        assert told.medians == pytest.approx(wanted[run_id].medians)
        assert replace(told, medians={}) == replace(wanted[run_id], medians={})


def test_the_random_runs_have_every_verdict_and_reason() -> None:
    judged = [found for seed in SEEDS for found in history(random_runs(seed)).values()]
    assert {found.verdict for found in judged} == {"regressed", "ok", "not_comparable"}
    assert {found.reason for found in judged} == {
        None,
        "duplicate",
        "figure_missing",
        "few_runs",
        "run_undated",
    }
    assert {metric for found in judged for metric in found.regressed} == WATCHED.keys()


def test_a_run_of_many_is_beside_twenty(con: duckdb.DuckDBPyConnection) -> None:
    figures: dict[str, float | None] = dict.fromkeys(WATCHED, 1.0)
    runs = [
        Run(f"r{n:05}", "c", START + timedelta(hours=n), True, 0, 1, figures) for n in range(10_000)
    ]
    compute_history(con, runs)
    pairs = con.execute("SELECT count(*) FROM _baseline_runs").fetchone()
    assert pairs == (20 * 10_000 - sum(range(1, 21)),)
    assert con.execute("SELECT min(baseline_runs) FROM run_history").fetchone() == (0,)
    assert con.execute(
        "SELECT count(*) FROM run_history WHERE baseline_runs = 20 AND verdict = 'ok'"
    ).fetchone() == (9_980,)
