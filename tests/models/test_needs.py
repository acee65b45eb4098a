"""Which relations a SELECT needs: told from its syntax, and held against what it gives."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import ROOT
from tests.lakes import run_ingest
from tracelake.lake.store import Lake
from tracelake.models.base import create_empty_tables, quoted
from tracelake.models.batches import batch_of
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect
from tracelake.models.header import Model
from tracelake.models.needs import NeedsFinder, can_have_rows
from tracelake.schema.tables import tables

RELATIONS = ("a", "b", "c")
MACROS = (
    "CREATE TEMP MACRO total(v) AS sum(v)",
    "CREATE TEMP MACRO grand_total(v) AS total(v) + 1",
    "CREATE TEMP MACRO plus_one(v) AS v + 1",
)


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(names, n) for n in range(len(names) + 1)))


@pytest.mark.parametrize(
    ("sql", "needs"),
    [
        ("FROM a", "a"),
        ("SELECT plus_one(x) AS y FROM a WHERE x > 0", "a"),
        ("FROM a JOIN b USING (x)", "a+b"),
        ("FROM a, b, c", "a+b+c"),
        ("FROM a LEFT JOIN b USING (x)", "a"),
        ("FROM a RIGHT JOIN b USING (x)", "b"),
        ("FROM a FULL JOIN b USING (x)", "a|b"),
        ("FROM a SEMI JOIN b USING (x)", "a+b"),
        ("FROM a ANTI JOIN b ON a.x = b.x + 1", "a"),
        ("FROM a ASOF JOIN b ON a.x >= b.x", "a+b"),
        ("FROM a ASOF LEFT JOIN b ON a.x >= b.x", "a"),
        ("FROM a POSITIONAL JOIN b", "a|b"),
        ("FROM a UNION ALL FROM b", "a|b"),
        ("FROM a UNION ALL BY NAME (SELECT b.x FROM b JOIN c USING (x))", "a|b+c"),
        ("FROM a UNION ALL FROM b UNION ALL SELECT 1", "anything"),
        ("FROM a EXCEPT (SELECT x + 1 FROM b)", "a"),
        ("FROM a INTERSECT FROM b", "a|b"),  # of either: less than could be told
        ("SELECT x, count(*) AS n FROM a GROUP BY x", "a"),
        ("SELECT x, count(*) AS n FROM a GROUP BY ALL", "a"),
        ("SELECT x + 1 AS y, count(*) AS n FROM a GROUP BY ALL", "anything"),
        ("SELECT count(*) AS n FROM a GROUP BY ALL", "anything"),
        ("SELECT count(*) AS n, n FROM a GROUP BY ALL", "anything"),
        ("SELECT COUNT(*) AS n FROM a", "anything"),
        ("SELECT x, count(*) AS n FROM a GROUP BY GROUPING SETS ((x), ())", "anything"),
        ("SELECT count(*) AS n FROM a", "anything"),
        ("SELECT 1 AS y FROM a HAVING count(*) >= 0", "anything"),
        ("SELECT 1 + max(x) AS y FROM a", "anything"),
        ("SELECT 1 AS y FROM a GROUP BY ()", "anything"),
        ("SELECT 1 AS y FROM a ORDER BY count(*)", "anything"),
        ("SELECT DISTINCT ON (count(*)) 1 AS y FROM a", "anything"),
        ("SELECT total(x) AS y FROM a", "anything"),
        ("SELECT grand_total(x) AS y FROM a", "anything"),
        ("SELECT geomean(x) AS y FROM a", "anything"),  # DuckDB's own macro
        ("SELECT sum(x) OVER () AS y FROM a", "a"),
        ("SELECT sum(count(*)) OVER () AS y FROM a", "anything"),
        ("SELECT x FROM a QUALIFY row_number() OVER (ORDER BY x) = 1", "a"),
        ("WITH w AS (FROM a JOIN b USING (x)), v AS (FROM w) FROM v", "a+b"),
        ("WITH w AS (FROM a) SELECT x FROM (WITH w AS (FROM b) FROM w)", "b"),
        ("WITH w AS (SELECT count(*) AS x FROM a) FROM w JOIN b ON w.x <= b.x", "b"),
        (
            "WITH RECURSIVE r AS (FROM a UNION ALL SELECT x + 1 FROM r WHERE x < 3) FROM r",
            "a",
        ),
        ("SELECT u FROM a, unnest([x, x]) AS t(u)", "a"),
        ("FROM (VALUES (1)) AS v(x)", "anything"),
    ],
)
def test_what_a_select_needs_is_told_and_true(sql: str, needs: str) -> None:
    with connect() as con:
        for macro in MACROS:
            con.execute(macro)
        found = NeedsFinder(con).of(sql)
        told = "|".join(sorted("+".join(sorted(alternative)) for alternative in found))
        assert (told or "anything") == needs
        for empty in subsets(RELATIONS):
            for name in RELATIONS:
                none = "WHERE false" if name in empty else ""
                con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT 1 AS x {none}")
            rows = con.execute(sql).fetchall()
            if not can_have_rows(found, empty):
                assert rows == []
            elif not empty:
                assert rows  # or the cases above show nothing


def test_a_model_without_what_it_needs_has_no_rows(tmp_path: Path) -> None:
    models = catalog()
    run_ingest(ROOT / "data" / "sample", tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    snapshot = lake.snapshot()
    batch = batch_of(snapshot, sorted(snapshot.runs))
    tested = 0
    with connect() as con:
        con.execute(models.macros)
        create_empty_tables(con)
        for table in batch.parts:
            rows = batch.select(table, lake.part_files.base)
            con.execute(f"INSERT INTO {quoted(table)} {rows}")
        for model in models.models.values():
            rows_of = compute(con, model)
            for name in models.inputs[model.name]:
                if not rows_of or can_have_rows(models.needs[model.name], {name}):
                    continue
                con.execute("BEGIN")
                con.execute(f"DELETE FROM {quoted(name)}")
                found = con.execute(f"SELECT count(*) FROM ({model.sql})").fetchall()
                con.execute("ROLLBACK")
                assert found == [(0,)], f"{model.name} has rows without {name}"
                tested += 1
    assert tested > len(models.models) / 2


def test_models_that_have_no_rows_are_not_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []

    def recorded(con: duckdb.DuckDBPyConnection, model: Model, *how: Any) -> int:
        computed.append(model.name)
        return compute(con, model, *how)

    monkeypatch.setattr("tracelake.models.computing.compute", recorded)
    run_ingest(ROOT / "data" / "sample" / "optimus", tmp_path / "lake")
    assert len(build(Lake.open(tmp_path / "lake")).built) > 0
    assert {"layer_stats", "stage_balance", "run_list"} <= {*computed}
    assert {"rank_bubbles", "collective_calls", "straggler_history"}.isdisjoint(computed)
    computed.clear()
    build(Lake.create(tmp_path / "empty"))
    assert all(can_have_rows(catalog().needs[name], {*tables()}) for name in computed)
