"""Queries over a lake: what they may do, and how their results are printed."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import LakeError, TracelakeError, UsageError
from pipeline.lake import Lake
from pipeline.models import build
from pipeline.query import FORMATS, open_warehouse, run_query, write_result
from tests.tiny_lakes import commit_run, log_run


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake.create(tmp_path_factory.mktemp("query") / "lake")
    commit_run(made, "007", log_run(rejected=1))
    build(made)
    return made


def rows(lake: Lake, sql: str) -> list[dict[str, object]]:
    return [row for reader in run_query(lake, sql) for row in reader.read_all().to_pylist()]


def printed(lake: Lake, sql: str, fmt: str) -> str:
    out = io.StringIO()
    write_result(run_query(lake, sql), fmt, out)
    return out.getvalue()


# --- what a query may do -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT run_id, pp FROM runs", [{"run_id": "007", "pp": 2}]),
        ("FROM rejects SELECT text", [{"text": "x"}]),
        ("WITH a AS (SELECT 1 AS x) FROM a", [{"x": 1}]),
        ("VALUES (1)", [{"col0": 1}]),
        ("SELECT 1 AS x; SELECT 2 AS x", [{"x": 1}, {"x": 2}]),
        ("-- a comment\nSELECT 1 AS x;\n", [{"x": 1}]),
    ],
)
def test_queries_are_answered(lake: Lake, sql: str, expected: list[dict[str, object]]) -> None:
    assert rows(lake, sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE runs",
        "SHOW TABLES",
        "SUMMARIZE runs",
        "EXPLAIN FROM ops",
        "EXPLAIN ANALYZE FROM runs",
    ],
)
def test_looking_around_is_allowed(lake: Lake, sql: str) -> None:
    assert rows(lake, sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COPY (SELECT 1) TO 'x.csv'", "COPY is not for queries"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "COPY is not for queries"),
        ("/* so */ EXPLAIN ANALYZE CREATE TABLE x (i INT)", "is not for queries"),
        ("SELECT 1; SET threads = 1", "SET is not for queries"),
        ("CREATE TABLE x (i INT)", "CREATE is not for queries"),
        ("CREATE TEMP TABLE x (i INT)", "CREATE is not for queries"),
        ("ATTACH ':memory:' AS x", "ATTACH is not for queries"),
        ("INSTALL httpfs", "LOAD is not for queries"),
        ("PRAGMA database_list", "PRAGMA is not for queries"),
        ("CALL pragma_version()", "CALL is not for queries"),
        ("DELETE FROM run_summary", "DELETE is not for queries"),
        ("PIVOT run_summary ON run_id", "PIVOT must name its values"),
        ("", "the query is empty"),
        ("SELEC 1", "syntax error"),
        ("FROM nope", "nope does not exist"),
        ("SELECT CAST('x' AS INTEGER)", "Could not convert"),
        ("SELECT (1::BIGINT << 62) * 4 FROM range(3)", "Overflow"),
        ("SELECT 1 AS x; FROM reader", "reader does not exist"),  # no Python variable is in reach
    ],
)
def test_what_is_not_a_query_is_a_usage_error(lake: Lake, sql: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        rows(lake, sql)
    assert caught.value.exit_code == 2


def test_an_error_in_the_middle_of_a_result_is_a_usage_error(lake: Lake) -> None:
    late = (
        "SELECT CAST(i::VARCHAR || CASE WHEN i = 199999 THEN 'x' ELSE '' END AS INTEGER) AS n"
        " FROM range(200000) t(i)"
    )
    with pytest.raises(UsageError, match="199999x"):
        printed(lake, late, "csv")


def test_a_query_reaches_only_the_lake(lake: Lake, tmp_path: Path) -> None:
    outside = tmp_path / "outside.parquet"
    pq.write_table(pa.table({"x": [1]}), outside)
    inside = lake.root / lake.snapshot().parts("runs")[0]
    assert rows(lake, f"SELECT pp FROM read_parquet('{inside}')") == [{"pp": 2}]
    for sql in (
        f"FROM '{outside}'",
        f"FROM read_parquet('{outside}')",
        f"FROM read_parquet('{lake.root}/../{outside.name}')",
        f"FROM read_text('{outside}')",
        f"FROM glob('{tmp_path}/*')",
        f"FROM glob('{lake.root.parent}/*')",
        "FROM duckdb_secrets()",
        "FROM read_csv('https://example.org/x.csv')",
    ):
        with pytest.raises(TracelakeError):
            rows(lake, sql)


def test_a_lake_beside_with_the_same_beginning_is_outside(lake: Lake) -> None:
    beside = lake.root.parent / f"{lake.root.name}-2"
    beside.mkdir()
    pq.write_table(pa.table({"x": [1]}), beside / "x.parquet")
    with pytest.raises(UsageError, match="Permission Error"):
        rows(lake, f"FROM read_parquet('{beside}/x.parquet')")


def test_the_connection_cannot_be_opened_up(lake: Lake) -> None:
    with open_warehouse(lake) as con:
        for sql in (
            "SET enable_external_access = true",
            "SET allowed_directories = ['/']",
            "RESET lock_configuration",
        ):
            with pytest.raises(duckdb.Error):
                con.execute(sql)
        with pytest.raises(duckdb.Error, match="read-only"):
            con.execute("DELETE FROM run_summary")


def test_what_memory_does_not_take_goes_into_the_lake_and_away_again(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    build(lake)
    folders = lake.root / "_staging"
    with open_warehouse(lake) as con:
        (spill,) = con.execute("SELECT current_setting('temp_directory')").fetchone() or ("",)
        assert Path(str(spill)).parent == folders
        assert Path(str(spill)).stat().st_mode & 0o077 == 0
    del con
    assert list(folders.iterdir()) == []


def test_a_lake_that_cannot_be_written_is_queried(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    build(lake)
    (lake.root / "_staging").rmdir()
    (lake.root / "_staging").touch()
    with open_warehouse(lake) as con:
        (spill,) = con.execute("SELECT current_setting('temp_directory')").fetchone() or ("",)
        assert not Path(str(spill)).is_relative_to(lake.root)
        assert Path(str(spill)).stat().st_mode & 0o077 == 0
    del con
    assert not Path(str(spill)).exists()


def test_no_warehouse_says_build(tmp_path: Path) -> None:
    with pytest.raises(LakeError) as caught:
        run_query(Lake.create(tmp_path / "lake"), "SELECT 1")
    assert caught.value.hint == "make it with: tracelake build"


def test_a_damaged_warehouse_says_build(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    lake.warehouse.write_bytes(b"x" * 10_000)
    with pytest.raises(LakeError, match="cannot be opened") as caught:
        open_warehouse(lake)
    assert "tracelake build --full" in str(caught.value.hint)


def test_a_warehouse_of_another_version_says_build(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse)) as con:
        con.execute("CREATE TABLE run_summary (run_id VARCHAR)")
    with pytest.raises(LakeError, match="another version"):
        open_warehouse(lake)


def test_a_moved_lake_is_read_at_its_new_place(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "old")
    commit_run(lake, "a", log_run())
    build(lake)
    shutil.move(lake.root, tmp_path / "new")
    moved = Lake.open(tmp_path / "new")
    assert rows(moved, "SELECT run_id FROM runs JOIN run_summary USING (run_id)") == [
        {"run_id": "a"}
    ]


def test_a_stale_warehouse_answers_from_what_it_was_built_from(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "a", log_run(steps=3))
    build(lake)
    commit_run(lake, "a", log_run(steps=9))
    commit_run(lake, "b", log_run())
    both = (
        "SELECT max(t.step) AS last, any_value(s.steps) AS steps"
        " FROM layer_times t JOIN run_summary s USING (run_id)"
    )
    assert rows(lake, both) == [{"last": 3, "steps": 3}]


def test_a_part_that_is_gone_says_build(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "a", log_run())
    build(lake)
    (lake.root / lake.snapshot().parts("layer_times")[0]).unlink()
    with pytest.raises(LakeError, match="layer_times"):
        rows(lake, "FROM layer_times")
    assert rows(lake, "SELECT run_id FROM run_summary") == [{"run_id": "a"}]


# --- how results are printed -----------------------------------------------------------------

ODD = r"""
SELECT 'a|b' AS t, 1.5::DOUBLE AS d, 'nan'::DOUBLE AS nan, NULL::INTEGER AS n, '' AS empty,
    9007199254740993 AS big, 1::HUGEINT AS huge, 0.25::DECIMAL(4, 2) AS dec, true AS yes,
    TIMESTAMP '2025-01-02 03:04:05' AS at, TIMESTAMP_NS '2025-01-02 03:04:05.000000006' AS ns,
    DATE '2025-01-02' AS day, INTERVAL 36 HOUR AS span, '\xFF'::BLOB AS raw, [1, NULL] AS list,
    MAP {'k': 1} AS map, MAP {}::MAP(VARCHAR, INTEGER) AS no_map,
    {'s': TIMESTAMP '2025-01-02'} AS st
"""


def test_json_has_what_json_can_say(lake: Lake) -> None:
    (row,) = json.loads(printed(lake, ODD, "json"))
    assert row == {
        "t": "a|b",
        "d": 1.5,
        "nan": None,
        "n": None,
        "empty": "",
        "big": 9007199254740993,
        "huge": 1,
        "dec": 0.25,
        "yes": True,
        "at": "2025-01-02 03:04:05",
        "ns": "2025-01-02 03:04:05.000000006",
        "day": "2025-01-02",
        "span": "1 day, 12:00:00",
        "raw": "/w==",
        "list": [1, None],
        "map": {"k": 1},
        "no_map": {},
        "st": {"s": "2025-01-02 00:00:00.000000"},
    }
    assert json.loads(printed(lake, ODD, "ndjson")) == row


def test_json_of_nothing_is_an_empty_list(lake: Lake) -> None:
    assert json.loads(printed(lake, "SELECT 1 AS x WHERE false", "json")) == []
    assert printed(lake, "SELECT 1 AS x WHERE false", "ndjson") == ""


def test_csv_tells_null_from_nothing(lake: Lake) -> None:
    sql = "SELECT NULL AS n, '' AS e, 'a,\"b\"' AS q, 1.5::DOUBLE AS d, [1, 2] AS l, true AS y"
    assert printed(lake, sql, "csv") == (
        '"n","e","q","d","l","y"\n,"","a,""b""",1.5,"[1, 2]",true\n'
    )
    assert printed(lake, "SELECT 1 AS x WHERE false", "csv") == '"x"\n'


def test_csv_is_whole_over_many_batches(lake: Lake) -> None:
    lines = printed(lake, "SELECT range AS i FROM range(200000)", "csv").splitlines()
    assert list(map(int, lines[1:])) == list(range(200000))


def test_a_table_is_plain_where_nobody_watches(lake: Lake) -> None:
    sql = (
        "SELECT 'ab' AS name, 7 AS number, 0.5::DOUBLE AS d"
        " UNION ALL SELECT NULL, 1234, 2e9 ORDER BY 2"
    )
    assert printed(lake, sql, "table") == (
        "name  number             d\nab         7           0.5\n        1234  2000000000.0\n"
    )


def test_a_table_fits_its_terminal(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    write_result(
        run_query(lake, f"SELECT {', '.join(f'{i} AS column_{i}' for i in range(5))}"), "table", out
    )
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert max(map(len, drawn.splitlines())) == 40


def test_text_cannot_drive_the_terminal(lake: Lake) -> None:
    for fmt in ("table", "markdown"):
        assert "\x1b" not in printed(lake, "SELECT chr(27) || '[31m' AS x", fmt)


def test_a_long_table_says_what_it_leaves_out(lake: Lake) -> None:
    lines = printed(lake, "FROM range(10005)", "table").splitlines()
    assert len(lines) == 10002
    assert lines[-1].startswith("(5 more rows")


def test_explain_is_printed_as_drawn(lake: Lake) -> None:
    assert printed(lake, "EXPLAIN SELECT 1", "table").startswith("╭")


def test_markdown_aligns_numbers_and_escapes_bars(lake: Lake) -> None:
    assert printed(lake, "SELECT 'a|b' AS t, 1 AS n", "markdown") == (
        "| t | n |\n| --- | ---: |\n| a\\|b | 1 |\n"
    )


def test_parquet_goes_to_the_bytes_below(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    with path.open("w") as out:
        write_result(run_query(lake, "FROM step_stats"), "parquet", out)
    assert pq.read_table(path).num_rows == 3
    with path.open("w") as out, pytest.raises(UsageError, match="one result"):
        write_result(run_query(lake, "SELECT 1; SELECT 2"), "parquet", out)


def test_several_results_follow_each_other(lake: Lake) -> None:
    assert printed(lake, "SELECT 1 AS x; SELECT 2 AS y", "csv") == '"x"\n1\n\n"y"\n2\n'
    assert printed(lake, "SELECT 1 AS x; SELECT 2 AS y", "ndjson") == '{"x": 1}\n{"y": 2}\n'


def test_a_table_of_ones_own_can_be_printed() -> None:
    out = io.StringIO()
    write_result(pa.table({"x": [1]}), "ndjson", out)
    assert out.getvalue() == '{"x": 1}\n'
    with pytest.raises(UsageError, match="one of table, json"):
        write_result(pa.table({"x": [1]}), "xml", out)
    assert FORMATS == ("table", "json", "ndjson", "csv", "parquet", "markdown")
