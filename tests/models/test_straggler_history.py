"""Recurrence of slow ranks over runs, against a reference that walks runs and ranks one by one."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import comb
from statistics import median
from typing import Any

import pyarrow as pa
import pytest

from tests.tiny_lakes import with_meanings
from tracelake.models.base import create_empty_tables
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect

MS = 1_000_000
Row = dict[str, Any]
# config, host, device, rank
Subject = tuple[str, str | None, str | None, int | None]


def random_fleet(rng: random.Random) -> dict[str, list[Row]]:
    """Runs of one step, of few configurations, hosts and dates, so that all of them collide."""
    given: dict[str, list[Row]] = {"runs": [], "sources": [], "ops": []}
    for run_id in rng.sample(range(1000), 240):
        run = {"run_id": f"r{run_id:03}"}
        day = rng.choice((None, *range(6)))
        given["runs"].append(
            {
                **run,
                "config": rng.choice(("a", "a", "a", "b", f"c{rng.randrange(20)}", None)),
                "run_date": None if day is None else datetime(2025, 1, 1) + timedelta(days=day),
                "world_size": rng.choice((4, 4, 4, 4, 8, None)),
                "simulated": rng.random() < 0.1,
                "pp": 2,
            }
        )
        copied = rng.random() < 0.2
        for rank in range(rng.choice((1, 3, 4, 5))):
            given["sources"].append(
                {
                    **run,
                    "source_id": rank,
                    "host": rng.choice((None, "n1", "n2")),
                    "device": rng.choice((None, "gpu0", "gpu1")),
                    "duplicate_of": "x" if copied or rng.random() < 0.2 else None,
                }
            )
            start = 0
            for seq, op in enumerate(("forward_step", "backward_step"), 1):
                duration = rng.choice((5, 5, 5, 6, 8, 11)) * MS
                given["ops"].append(
                    {
                        **run,
                        "source_id": rank,
                        "rank": rank,
                        "stage": rng.choice((0, 0, 0, 1)) if seq == 1 else None,
                        "step": 1,
                        "seq": seq,
                        "op": op,
                        "category": "compute",
                        "start_ns": start,
                        "end_ns": start + duration,
                        "duration_ns": duration,
                    }
                )
                start += duration
    return given


def modelled(given: Mapping[str, list[Row]], *names: str) -> list[list[Row]]:
    """Rows of the named models over these base rows."""
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        for name, rows in given.items():
            con.register("given", pa.Table.from_pylist([with_meanings(name, r) for r in rows]))
            con.execute(f"INSERT INTO {name} BY NAME FROM given")
        for model in catalog().upstream(names):
            compute(con, model)
        return [con.table(name).to_arrow_table().to_pylist() for name in names]


def reference(given: Mapping[str, list[Row]], ranks: Sequence[Row]) -> dict[Subject, Row]:
    """The history of every subject, worked out from the verdicts of ranks."""
    copies: dict[str, bool] = defaultdict(lambda: True)
    place = {}
    for source in given["sources"]:
        copies[source["run_id"]] &= source["duplicate_of"] is not None
        place[source["run_id"], source["source_id"]] = source["host"], source["device"]
    runs = {
        run["run_id"]: run
        for run in given["runs"]
        if run["config"] is not None and not copies[run["run_id"]]
    }
    compared: dict[Subject, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in ranks:
        if row["run_id"] in runs and row["verdict"] != "not_comparable":
            config = runs[row["run_id"]]["config"]
            host, device = place[row["run_id"], row["rank"]]
            who = (None, None, row["rank"]) if host is None else (host, device, None)
            compared[(config, *who)][row["run_id"]].append(row)
    return {
        subject: history([(runs[run_id], found) for run_id, found in by_run.items()])
        for subject, by_run in compared.items()
    }


def history(found: Sequence[tuple[Row, list[Row]]]) -> Row:
    ordered = sorted(
        found, key=lambda one: (one[0]["run_date"] or datetime.min, one[0]["run_id"]), reverse=True
    )
    told = [(run, rows, [row for row in rows if is_slow(row)]) for run, rows in ordered]
    latest = told[:20]
    slow = [(run, slowed) for run, _, slowed in latest if slowed]
    lost = [max(row["time_lost_ms"] for row in rows) for _, rows in slow]
    sizes = [run["world_size"] for run, _ in slow]
    often = 2 * len(slow) >= len(latest) or all(slowed for _, _, slowed in latest[:3])
    reason = None
    if len(latest) < 3:
        reason = "few_runs"
    elif often and max(row["peers"] for _, rows, _ in latest for row in rows) == 1:
        # In a host of several ranks it has to be the same one.
        by_rank = Counter(row["rank"] for _, rows in slow for row in rows)
        alone = all(len(rows) == 1 for _, rows, _ in latest)
        heads = len(slow) if alone else max(by_rank.values())
        chance = sum(comb(len(latest), k) for k in range(heads, len(latest) + 1))
        reason = "one_peer" if chance / 2 ** len(latest) >= 0.01 else None
    first = first_of_series([(run, bool(slowed)) for run, _, slowed in told]) if slow else None
    return {
        "runs": len(latest),
        "slow_runs": len(slow),
        "verdict": "not_comparable" if reason else "recurring" if often else "ok",
        "reason": reason,
        "slowdown": median(max(row["slowdown"] for row in rows) for _, rows in slow)
        if slow
        else None,
        "time_lost_ms": sum(lost),
        "gpu_hours_lost": None
        if None in sizes
        else sum(size * ms / 3.6e6 for size, ms in zip(sizes, lost, strict=True)),
        "slow_run_ids": [run["run_id"] for run, _ in slow],
        "last_slow_run": slow[0][0]["run_id"] if slow else None,
        "slow_ranks": sorted({row["rank"] for _, rows in slow for row in rows}),
        "first_slow_run": first["run_id"] if first else None,
        "since": first["run_date"] if first else None,
    }


def is_slow(row: Row) -> bool:
    return row["verdict"] in {"straggler", "suspect"}


def first_of_series(runs: Sequence[tuple[Row, bool]]) -> Row:
    """The first slow run of the series of the latest one; the latest run comes first."""
    first, ok = {}, 0
    for run, slow in runs:
        if slow:
            first, ok = run, 0
        else:
            ok += 1
        if first and ok == 3:
            break
    return first


@pytest.mark.parametrize("seed", range(4))
def test_history_of_random_fleets(seed: int) -> None:
    given = random_fleet(random.Random(seed))
    ranks, rows = modelled(given, "straggler_ranks", "straggler_history")
    expected = reference(given, ranks)
    found = {(row["config"], row["host"], row["device"], row["rank"]): row for row in rows}
    assert found.keys() == expected.keys()
    for subject, want in expected.items():
        for name, value in want.items():
            near = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            assert found[subject][name] == near, (subject, name)
        assert (found[subject]["evidence"] is None) == (want["slow_runs"] == 0)
    assert {row["verdict"] for row in rows} == {"recurring", "ok", "not_comparable"}
    assert max(row["runs"] for row in rows) == 20


def test_a_slow_device_is_found_wherever_its_ranks_are() -> None:
    rng = random.Random(0)
    given: dict[str, list[Row]] = {"runs": [], "sources": [], "ops": []}
    for day in range(1, 13):
        run = {"run_id": f"r{day}"}
        date = datetime(2025, 1, day)
        given["runs"].append({**run, "config": "c", "run_date": date, "world_size": 8})
        devices = rng.sample([(host, f"gpu{n}") for host in ("n1", "n2") for n in range(4)], 8)
        for rank, (host, device) in enumerate(devices):
            given["sources"].append({**run, "source_id": rank, "host": host, "device": device})
            own = 12 * MS if (host, device) == ("n2", "gpu1") and day % 3 else 10 * MS
            of = {**run, "source_id": rank, "rank": rank, "stage": 0, "step": 1, "seq": 1}
            given["ops"].append(
                {**of, "op": "forward_step", "category": "compute", "duration_ns": own}
            )
    (rows,) = modelled(given, "straggler_history")
    assert len(rows) == 8
    (worst,) = [row for row in rows if row["verdict"] == "recurring"]
    assert worst["subject"] == "host n2 device gpu1"
    assert (worst["slow_runs"], worst["runs"]) == (8, 12)
    assert worst["time_lost_ms"] == pytest.approx(16)
    assert worst["slowdown"] == pytest.approx(1.2)
