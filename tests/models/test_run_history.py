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

from tracelake.models.base import create_empty_tables, ddl
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect

# Metric -> 1 where more is worse, -1 where less is.
WATCHED = {"bubble_ratio": 1, "busbw_gbps": -1, "step_p50_ms": 1, "stragglers": 1}
# Metric -> a change that is none, whatever the spread.
LEAST = {"bubble_ratio": 0.01, "busbw_gbps": 0.0, "step_p50_ms": 0.0, "stragglers": 0.0}
FLEET = (
    *("_run_copies", "_run_metrics", "_fleet_runs", "_baselines", "_drifts", "_run_drifts"),
    "run_history",
)
START = datetime(2025, 1, 1)
SEEDS = range(8)


@dataclass(frozen=True)
class Run:
    """A run as far as its history is concerned."""

    run_id: str
    config: str
    run_date: datetime | None
    complete: bool | None
    ranks_seen: int | None
    copies: int  # of its files, how many are copies of others
    files: int
    pp: int
    call: str  # the kind of call that the bandwidth is of
    figures: dict[str, float | None]

    @property
    def judged(self) -> bool:
        """A log has no ranks, and its steps have whole times also where its job broke off."""
        whole = bool(self.complete) or self.ranks_seen is None
        return whole and any(figure(self, metric) is not None for metric in WATCHED)


@dataclass(frozen=True)
class Judged:
    """What is to be said of a run."""

    verdict: str
    reason: str | None
    baseline_runs: int
    regressed: list[str]
    not_compared: list[str]
    medians: dict[str, float | None]
    confirmed: bool | None
    confirmed_figures: list[str]
    drift: str
    drift_reason: str | None
    drifted: list[str]
    drifted_since: datetime | None


@dataclass
class Compared:
    """What is found of one figure of a run."""

    reason: str | None = None
    median: float | None = None
    regressed: bool = False
    at_once: bool = False
    confirmed: bool = False
    drift_reason: str | None = None
    drifted: bool = False


def random_runs(seed: int) -> list[Run]:
    rng = random.Random(seed)
    return [random_run(rng, number) for number in range(rng.choice((5, 60, 250)))]


def random_run(rng: random.Random, number: int) -> Run:
    config = rng.choice((0, 0, 0, 0, 1, 1, 2))
    day = rng.randrange(150)
    # Configuration 0 gets worse by the day.
    level = rng.choice((1.0, 1.0, 1.0, 1.05, 1.3, 0.6)) * (1 + (config == 0) * day / 100)
    missing = rng.choice((0.1, 0.1, 0.1, 0.1, 0.1, 1.0))

    def maybe(value: float) -> float | None:
        return None if rng.random() < missing else value

    files = rng.randint(1, 3)
    return Run(
        run_id=f"r{rng.randrange(10**6)}-{number}",
        config=f"c{config}",
        run_date=None if rng.random() < 0.05 else START + timedelta(days=day),
        complete=rng.choice((True, True, True, True, False, None)),
        ranks_seen=4 if number % 3 else None,
        copies=files if rng.random() < 0.1 else rng.randrange(files),
        files=files,
        pp=1 if config == 1 else 2,
        call=rng.choice(("a", "a", "a", "b")),
        figures={
            "bubble_ratio": maybe(rng.choice((0.0, 0.04, 0.04, 0.05, 0.25, 0.5)) * level),
            "busbw_gbps": maybe(rng.choice((80.0, 90.0, 95.0, 40.0)) / level),
            "step_p50_ms": maybe(rng.choice((100.0, 101.0, 108.0, 125.0)) * level),
            "stragglers": maybe(float(rng.choice((0, 0, 0, 0, 1, 2)))),
        },
    )


def history(runs: Sequence[Run]) -> dict[str, Judged]:
    """The reference: run by run, the runs before it, figure by figure."""
    by_config: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.run_date is not None and run.copies < run.files:
            by_config[run.config].append(run)
    judged = {}
    for listed in by_config.values():
        listed.sort(key=lambda run: (run.run_date, run.run_id))
        last: dict[str, Compared] = {}  # of each figure in the judged run before that has it
        since = None
        for number, run in enumerate(listed):
            before = [other for other in listed[:number] if other.judged]
            found = {metric: compare(run, metric, before) for metric in WATCHED}
            for metric, one in found.items():
                again = metric in last and last[metric].regressed
                one.confirmed = one.regressed and (one.at_once or again)
            if any(one.drifted for one in found.values()):
                since = since or run.run_date
            elif run.judged:
                since = None
            judged[run.run_id] = summary(found, len(before[-20:]), since)
            if run.judged:
                last |= {m: one for m, one in found.items() if figure(run, m) is not None}
    for run in runs:
        if run.run_id not in judged:
            judged[run.run_id] = summary({m: compare(run, m, []) for m in WATCHED}, 0, None)
    return judged


def compare(run: Run, metric: str, before: Sequence[Run]) -> Compared:
    value = figure(run, metric)
    basis = run.call if metric == "busbw_gbps" else None
    if run.copies == run.files:
        return Compared("duplicate", drift_reason="duplicate")
    if value is None:
        reason = "no_pipeline" if metric == "bubble_ratio" and run.pp == 1 else "figure_missing"
        return Compared(reason, drift_reason=reason)
    if run.run_date is None:
        return Compared("run_undated", drift_reason="run_undated")
    alike = [
        (other, v)
        for other in before
        if (v := figure(other, metric)) is not None and (basis is None or other.call == basis)
    ]
    found = Compared("few_runs")
    values = [v for other, v in alike if other in before[-20:]]
    if len(values) >= 3:
        change, bound = WATCHED[metric] * (value - median(values)), allowed(values, metric)
        found = Compared(None, median(values), change > bound, change > 2 * bound)
    found.drift_reason = "run_incomplete" if not run.judged else "few_runs"
    tens = [alike[n : n + 10] for n in range(len(alike) - 13)]
    first = run.run_date - timedelta(days=90)
    tens = [ten for ten in tens if ten[0][0].run_date is not None and ten[0][0].run_date >= first]
    if run.judged and tens:
        best = min(([v for _, v in ten] for ten in tens), key=lambda v: WATCHED[metric] * median(v))
        latest = median([v for _, v in alike[-4:]] + [value])
        found.drift_reason = None
        sign = WATCHED[metric]
        worse = sign * (latest - median(best)) > allowed(best, metric)
        found.drifted = worse and sign * value > max(sign * v for v in best)
    return found


def figure(run: Run, metric: str) -> float | None:
    return None if metric == "bubble_ratio" and run.pp == 1 else run.figures[metric]


def allowed(values: Sequence[float], metric: str) -> float:
    middle = median(values)
    if middle == 0:
        return max(values) + LEAST[metric]
    spread = max(median(abs(v - middle) for v in values), 0.01 * middle)
    return max(0.1 * middle, 3 * (1.4826 * spread), LEAST[metric])


def summary(found: dict[str, Compared], baseline_runs: int, since: datetime | None) -> Judged:
    compared = [one for one in found.values() if one.reason is None]
    held = [one for one in found.values() if one.drift_reason is None]
    regressed = [metric for metric, one in found.items() if one.regressed]
    confirmed = [metric for metric, one in found.items() if one.confirmed]
    drifted = [metric for metric, one in found.items() if one.drifted]
    reasons = {metric: one.reason for metric, one in found.items() if one.reason}
    drift_reasons = {metric: one.drift_reason for metric, one in found.items() if one.drift_reason}
    return Judged(
        verdict=("regressed" if regressed else "ok") if compared else "not_comparable",
        reason=None if compared else first_of(reasons),
        baseline_runs=baseline_runs,
        regressed=regressed,
        not_compared=[f"{metric}: {why}" for metric, why in sorted(reasons.items())],
        medians={metric: one.median for metric, one in found.items()},
        confirmed=bool(confirmed) if compared else None,
        confirmed_figures=confirmed,
        drift=("drifted" if drifted else "ok") if held else "not_comparable",
        drift_reason=None if held else first_of(drift_reasons),
        drifted=drifted,
        drifted_since=since if drifted else None,
    )


def first_of(reasons: dict[str, str]) -> str:
    """Of a figure that is there, where there is one."""
    last = ("figure_missing", "coarse_calls", "no_pipeline")
    order = {why: place for place, why in enumerate(last, 1)}
    return min((order.get(why, 0), metric, why) for metric, why in reasons.items())[2]


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        for name in ("run_summary", "stage_balance"):
            con.execute(f"CREATE TEMP TABLE {name} ({ddl(catalog().columns[name])})")
        yield con


def compute_history(con: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Computes run_history over the headline rows of these runs."""
    own = ("run_id", "config", "run_date", "complete", "ranks_seen", "pp")
    rows = [
        (*(getattr(r, name) for name in own), r.call, *map(r.figures.get, WATCHED)) for r in runs
    ]
    files = [(r.run_id, n, "x" if n < r.copies else None) for r in runs for n in range(r.files)]
    types = ("VARCHAR", "VARCHAR", "TIMESTAMP", "BOOLEAN", "INTEGER", "INTEGER", "VARCHAR")
    names = (*own, "busbw_call", *WATCHED)
    fill(con, "given", names, (*types, *["DOUBLE"] * len(WATCHED)), rows)
    con.execute(f"INSERT INTO runs BY NAME SELECT {', '.join(own)} FROM given")
    shown = "* EXCLUDE (complete, ranks_seen, pp)"
    con.execute(f"INSERT INTO run_summary BY NAME SELECT {shown} FROM given")
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
        "SELECT run_id, verdict, reason, baseline_runs, regressions, not_compared, confirmed,"
        f" confirmed_regressions, drift, drift_reason, drifts, drifted_since, {medians}"
        " FROM run_history"
    ).fetchall()
    wanted = history(runs)
    assert {row[0] for row in rows} == wanted.keys()
    for run_id, verdict, reason, baseline_runs, worse, missing, *confirmed, drift in (
        (*row[:8], row[8:]) for row in rows
    ):
        said = Judged(
            verdict,
            reason,
            baseline_runs,
            figures_of(worse),
            missing,
            dict(zip(WATCHED, drift[4:], strict=True)),
            confirmed[0],
            figures_of(confirmed[1]),
            drift[0],
            drift[1],
            figures_of(drift[2]),
            drift[3],
        )
        assert set(confirmed[1]) <= set(worse)
        assert said.medians == pytest.approx(wanted[run_id].medians)
        assert replace(said, medians={}) == replace(wanted[run_id], medians={})


def figures_of(sentences: Sequence[str]) -> list[str]:
    return sorted(sentence.split()[0].rstrip(":") for sentence in sentences)


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
    assert any("bubble_ratio: no_pipeline" in found.not_compared for found in judged)
    assert {found.drift for found in judged} == {"drifted", "ok", "not_comparable"}
    assert {found.drift_reason for found in judged} >= {None, "few_runs", "run_incomplete"}
    assert {metric for found in judged for metric in found.drifted} == WATCHED.keys()
    assert {metric for found in judged for metric in found.confirmed_figures} == WATCHED.keys()
    assert {found.confirmed for found in judged if found.regressed} == {True, False}
    assert {metric for found in judged for metric in found.regressed} == WATCHED.keys()


def test_a_run_of_many_is_beside_twenty(con: duckdb.DuckDBPyConnection) -> None:
    figures: dict[str, float | None] = dict.fromkeys(WATCHED, 1.0)
    runs = [
        Run(f"r{n:05}", "c", START + timedelta(hours=n), True, 4, 0, 1, 2, "a", figures)
        for n in range(10_000)
    ]
    compute_history(con, runs)
    pairs = con.execute("SELECT sum(baseline_runs) FROM run_history").fetchone()
    assert pairs == (20 * 10_000 - sum(range(1, 21)),)
    assert con.execute("SELECT min(baseline_runs) FROM run_history").fetchone() == (0,)
    assert con.execute(
        "SELECT count(*) FROM run_history WHERE baseline_runs = 20 AND verdict = 'ok'"
    ).fetchone() == (9_980,)
    assert con.execute("SELECT count(*) FROM run_history WHERE drift = 'ok'").fetchone() == (9_986,)
