"""Runs with one column at an extreme of its type, beside runs that must keep their figures.

    python -m tests.poison        # every column, also beyond what parsers give

A run whose keys are no keys any more, or whose times no parser gives, may be left out; nothing else
may end the build, and no other run may change.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.report_lakes import plan_run, trace_run
from tests.tiny_lakes import OPTIONS, Rows, log_run, source_record
from tracelake.lake.layout import partition_of
from tracelake.lake.manifest import Change, RunEntry
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.schema.tables import Table, tables
from tracelake.warehouse.warehouse import open_warehouse

# Parsers give times up to this, in both directions: an end of 0 and a long duration start before.
_MOST_NS = 4 * 10**18
_MOST = {"INTEGER": 2**31 - 1, "BIGINT": 2**63 - 1}
_KEYS = {"run_id", "source_id", "line", "rank", "seq", "sub_seq", "stage", "step", "copy", "row"}
_TEXTS = ["", "x" * 5000, "{}%s'\"", "\N{RIGHT-TO-LEFT OVERRIDE}"]
_OTHERS: dict[str, list[Any]] = {
    "VARCHAR": _TEXTS,
    "DOUBLE": [float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 0.0],
    "BOOLEAN": [True, False],
    "TIMESTAMP": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)],
    "BIGINT[]": [[], [2**63 - 1] * 2, [-1]],
    "VARCHAR[]": [[], _TEXTS, [""]],
    "MAP(VARCHAR, VARCHAR)": [
        [("pp_comm", text), ("", text)] for text in ("nan", "inf", "9223372036854775808", *_TEXTS)
    ],
    "MAP(VARCHAR, BIGINT)": [[("x", 2**63 - 1), ("y", 2**63 - 1)]],
}


def base_runs() -> dict[str, Rows]:
    """One run of each kind of input."""
    return {
        "trace": trace_run(
            ranks=2, steps=3, world_size=4, pp=2, tp=2, run_date=datetime(2025, 1, 1)
        ),
        "log": log_run(stages=2, rejected=1),
        "plan": plan_run(),
    }


def poisoned(*, beyond: bool) -> Iterator[tuple[str, Rows]]:
    """Yield runs by name: `kind.table.column.number`.

    Args:
        beyond: Also keys, and numbers that no parser gives.
    """
    for kind, rows in base_runs().items():
        for table, given in rows.items():
            for column in tables()[table].columns:
                if column.name == "run_id" or (column.name in _KEYS and not beyond):
                    continue
                values = _values(tables()[table], column.name, column.type, beyond=beyond)
                for number, value in enumerate(values):
                    changed = [{**row, column.name: value} for row in given]
                    run_id = f"{kind}.{table}.{column.name}.{number}"
                    facts = {"config": run_id}
                    runs = changed if table == "runs" else rows["runs"]
                    own = [
                        {**facts, **row} if column.name == "config" else {**row, **facts}
                        for row in runs
                    ]
                    yield run_id, {**rows, table: changed, "runs": own}


def _values(table: Table, name: str, type_: str, *, beyond: bool) -> list[Any]:
    nulls = [] if name in table.required else [None]
    if type_ not in _MOST:
        return [*_OTHERS[type_], *nulls]
    most = _MOST[type_]
    least = -most - 1
    if not beyond:
        most = _MOST_NS if name.endswith("_ns") else most
        least = -_MOST_NS if name == "start_ns" else 0
    return [*dict.fromkeys((least, 0, 1, most)), *nulls]


def lake_of(root: Path, runs: Mapping[str, Rows]) -> Lake:
    """A lake of these runs, committed at once."""
    lake = Lake.create(root)
    staged, entries = {}, []
    with lake.staging("test") as folder:
        for number, (run_id, rows) in enumerate(runs.items()):
            parts = {}
            for table, given in rows.items():
                schema = pa.schema(f.with_nullable(True) for f in tables()[table].part_schema)
                file = folder / f"{number}-{table}.parquet"
                named = [{"run_id": run_id, **row} for row in given]
                pq.write_table(pa.Table.from_pylist(named, schema=schema), file)
                name = f"part-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}.parquet"
                final = f"{table}/{partition_of('poison', None)}/{name}"
                staged[final], parts[table] = file, (final,)
            source = source_record(f"{run_id}.txt")
            generation = f"{number:016x}"
            entries.append(RunEntry(run_id, "all", generation, parts, (source,), OPTIONS))
        lake.commit_all([Change("all", entries, staged)])
    return lake


def figures(lake: Lake, run_ids: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of some runs in every public model.

    A poisoned run may be a plan that goes with them, and stands among them in lists of runs.
    """
    with open_warehouse(lake) as con:
        return {
            name: con.execute(
                f"SELECT COLUMNS(lambda c: c <> 'urgency') FROM {name}"
                " WHERE list_contains($1, run_id) ORDER BY ALL",
                [run_ids],
            ).fetchall()
            for name in set(catalog().public) - {"plan_vs_measured"}
            if any(column.name == "run_id" for column in catalog().columns[name])
        }


def main() -> int:
    good, bad = base_runs(), dict(poisoned(beyond=True))
    with tempfile.TemporaryDirectory() as folder:
        alone, beside = lake_of(Path(folder, "a"), good), lake_of(Path(folder, "b"), good | bad)
        build(alone)
        built = build(beside, progress=lambda text: print(text, flush=True))  # noqa: T201
        same = figures(alone, [*good]) == figures(beside, [*good])
    for failure in built.failed:
        print(f"{failure.run_id}: {failure.failed_model}: {failure.message:.100}")  # noqa: T201
    columns = Counter(failure.run_id.rpartition(".")[0] for failure in built.failed)
    print(  # noqa: T201
        f"{len(bad)} runs, {len(built.failed)} left out over {len(columns)} columns;"
        f" the others {'kept their figures' if same else 'CHANGED'}"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
