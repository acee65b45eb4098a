"""What input, queries and other users of the machine must not be able to do."""

from __future__ import annotations

import ast
import email
import email.policy
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT, Command
from tests.tiny_lakes import commit_run, log_run
from tests.traces import plan
from tracelake.base.disk_cache import DiskCache
from tracelake.base.errors import TracelakeError, UsageError
from tracelake.base.files import beside, put
from tracelake.base.text import json_text, printable
from tracelake.ingest.identity import slug
from tracelake.lake.store import Lake
from tracelake.models.base import described, literal, quoted
from tracelake.models.build import build
from tracelake.models.compute import connect
from tracelake.warehouse.running import run_query
from tracelake.warehouse.statements import read_statements
from tracelake.warehouse.warehouse import open_warehouse

# --- queries --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(log_lake: Lake) -> Lake:
    return log_lake


def ask(lake: Lake, sql: str) -> list[dict[str, object]]:
    return [row for reader in run_query(lake, sql) for row in reader.read_all().to_pylist()]


def files(lake: Lake) -> dict[str, bytes]:
    """Every file of the lake and beside it, but locks and what a query spills."""
    found = (Path(folder, name) for folder, _, names in os.walk(lake.root.parent) for name in names)
    return {
        str(path): path.read_bytes()
        for path in sorted(found)
        if not {"_staging", "_lock"} & set(path.parts)
    }


STATEMENTS = """
COPY runs TO 'LAKE/runs/x.csv'
COPY (SELECT 1) TO '/dev/stdout'
COPY runs FROM 'LAKE/runs/x.csv'
COPY FROM DATABASE warehouse TO memory
EXPORT DATABASE 'LAKE/runs/x'
IMPORT DATABASE 'LAKE/runs/x'
ATTACH 'LAKE/runs/x.duckdb'
DETACH warehouse
USE memory
CREATE TABLE x AS SELECT 1
CREATE TEMP TABLE x AS SELECT 1
CREATE VIEW x AS SELECT 1
CREATE MACRO x() AS 1
CREATE SEQUENCE x
CREATE SECRET x (TYPE s3)
CREATE PERSISTENT SECRET x (TYPE s3)
DROP VIEW runs
ALTER TABLE run_summary ADD COLUMN x INTEGER
COMMENT ON VIEW runs IS 'x'
INSERT INTO run_summary SELECT * FROM run_summary
UPDATE run_summary SET steps = 0
DELETE FROM run_summary
TRUNCATE run_summary
MERGE INTO run_summary USING runs ON true WHEN MATCHED THEN DELETE
PRAGMA enable_profiling
PRAGMA database_list
SET threads = 1
SET VARIABLE x = 1
RESET threads
CALL pragma_version()
CALL enable_logging()
PREPARE x AS SELECT 1
EXECUTE x
BEGIN
CHECKPOINT
FORCE CHECKPOINT warehouse
VACUUM
ANALYZE
INSTALL httpfs
LOAD httpfs
LOAD 'LAKE/runs/x.duckdb_extension'
UPDATE EXTENSIONS
EXPLAIN COPY runs TO 'LAKE/runs/x.csv'
EXPLAIN ANALYZE COPY runs TO 'LAKE/runs/x.csv'
EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1
EXPLAIN (FORMAT json, ANALYZE) COPY runs TO 'LAKE/runs/x.csv'
/* EXPLAIN SELECT 1 -- */ EXPLAIN ANALYZE COPY runs TO 'LAKE/runs/x.csv'
EXPLAIN ANALYZE (WITH x AS (COPY runs TO 'LAKE/runs/) SELECT 1 --') SELECT 1)
EXPLAIN ANALYZE WITH x AS (COPY runs TO 'LAKE/runs/x.csv') SELECT 1
SELECT 1; COPY runs TO 'LAKE/runs/x.csv'
SELECT 1; /* ; */ SET threads = 1; SELECT 2
WITH x AS (COPY runs TO 'LAKE/runs/x.csv') SELECT 1
WITH x AS MATERIALIZED (COPY runs TO 'LAKE/runs/x.parquet') FROM x
SELECT (WITH x AS (COPY runs TO 'LAKE/runs/x.csv') SELECT 1)
SELECT 1 UNION ALL (WITH x AS (COPY runs TO 'LAKE/runs/x.csv') SELECT 1)
FROM runs WHERE EXISTS (WITH x AS (COPY runs TO 'LAKE/runs/x.csv') SELECT 1)
SUMMARIZE (WITH x AS (COPY runs TO 'LAKE/runs/x.csv') SELECT 1)
WITH x AS (INSERT INTO run_summary FROM run_summary RETURNING *) FROM x
WITH x AS (UPDATE run_summary SET steps = 0 RETURNING *) FROM x
WITH x AS (DELETE FROM run_summary RETURNING *) FROM x
""".strip().splitlines()

FUNCTIONS = """
FROM read_text('LAKE/runs/x')
FROM read_blob('LAKE/warehouse.duckdb')
FROM read_csv('LAKE/runs/x.csv')
FROM read_json('LAKE/_manifest/a.json')
FROM sniff_csv('LAKE/_manifest/a.json')
FROM read_duckdb('LAKE/warehouse.duckdb', table_name := '_build')
FROM READ_TEXT('LAKE/runs/x')
FROM system.main.read_text('LAKE/runs/x')
FROM query('SELECT 42')
FROM query('COPY runs TO ''LAKE/runs/x.csv''')
FROM query_table('runs')
FROM json_execute_serialized_sql(json_serialize_sql('SELECT 42'))
FROM enable_logging('QueryLog', storage := 'file', storage_path := 'LAKE/runs')
FROM enable_profiling(save_location := 'LAKE/runs/x.json')
FROM truncate_duckdb_logs()
FROM checkpoint('warehouse')
FROM create_external_resource('x')
FROM which_secret('s3://a/b', 's3')
FROM duckdb_secrets()
FROM duckdb_extensions()
FROM pandas_scan(1)
FROM arrow_scan(1, 1, 1)
FROM arrow_scan_dumb(1, 1, 1)
FROM python_map_function(1)
SELECT (SELECT count(*) FROM read_text('LAKE/runs/x'))
FROM runs JOIN read_text('LAKE/runs/x') ON true
WITH x AS (FROM read_text('LAKE/runs/x')) FROM x
DESCRIBE FROM read_text('LAKE/runs/x')
SUMMARIZE FROM read_text('LAKE/runs/x')
""".strip().splitlines()

OUTSIDE = """
FROM 'BESIDE/x.parquet'
FROM "BESIDE/x.parquet"
FROM read_parquet('BESIDE/x.parquet')
FROM read_parquet(['LAKE/runs/../../x.parquet'])
FROM read_parquet('LAKE/runs/../../x.parquet')
FROM parquet_metadata('BESIDE/x.parquet')
FROM parquet_schema('BESIDE/x.parquet')
FROM parquet_kv_metadata('/etc/*')
FROM glob('/etc/*')
FROM glob('BESIDE/*')
FROM glob('LAKE/_manifest/*')
FROM glob('LAKE/*')
FROM 'LAKE/_manifest/a.json'
DESCRIBE 'LAKE/_manifest/a.json'
FROM 'LAKE/_run/x.csv'
FROM 'https://example.org/x.parquet'
FROM 's3://example/x.parquet'
FROM read_parquet('https://example.org/x.parquet')
FROM glob('http://169.254.169.254/*')
SELECT getenv('HOME')
FROM lake
FROM reader
""".strip().splitlines()


def meant(sql: str, lake: Lake) -> str:
    return sql.replace("LAKE", str(lake.root)).replace("BESIDE", str(lake.root.parent))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_query_cannot_write(lake: Lake, sql: str) -> None:
    before = files(lake)
    with pytest.raises(UsageError):
        ask(lake, meant(sql, lake))
    assert files(lake) == before


@pytest.mark.parametrize("sql", FUNCTIONS)
def test_a_query_has_only_functions_that_read_tables(lake: Lake, sql: str) -> None:
    before = files(lake)
    with pytest.raises(UsageError, match=r"\(\) is not allowed in queries"):
        ask(lake, meant(sql, lake))
    assert files(lake) == before


@pytest.mark.parametrize("sql", OUTSIDE)
def test_a_query_reaches_no_file_but_those_of_tables(lake: Lake, sql: str) -> None:
    ask(lake, "SELECT 1")
    duckdb.execute("COPY (SELECT 42 AS x) TO $1", [str(lake.root.parent / "x.parquet")])
    with pytest.raises(TracelakeError, match=r"Permission Error|does not exist|extension"):
        ask(lake, meant(sql, lake))


def test_every_table_function_of_this_duckdb_is_judged(lake: Lake) -> None:
    """A function that a later DuckDB brings is refused until somebody has looked at it."""
    refused = set()
    with open_warehouse(lake) as con:
        names = con.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions()"
            " WHERE function_type IN ('table', 'table_macro')"
        ).fetchall()
        for (name,) in names:
            try:
                read_statements(con, f"FROM {quoted(name)}()", {})
            except UsageError as error:
                if "is not allowed in queries" in error.message:
                    refused.add(name)
    allowed = {name for (name,) in names} - refused
    assert {"range", "unnest", "read_parquet", "duckdb_columns"} <= allowed
    suspicious = re.compile(
        "python|pandas|arrow|read_(?!parquet)|(en|dis)able|secret|resource|query|exec"
    )
    assert {name for name in allowed if suspicious.search(name)} == set()


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) FROM n",
        "SELECT 1 UNION SELECT 2",
        "WITH x AS MATERIALIZED (FROM runs) SELECT * FROM x, range(2)",
        "SELECT unnest([1, 2]) AS x",
        "PIVOT layer_times ON stage IN (0, 1) USING count(*)",
        "FROM duckdb_columns() WHERE table_name = 'runs'",
        "EXPLAIN (FORMAT json) FROM runs",
        "EXPLAIN ANALYZE WITH x AS (FROM runs) FROM x",
        "SHOW ALL TABLES",
        "FROM 'LAKE/runs/*/*/*.parquet'",
        "FROM glob('LAKE/runs/*/*/*')",
    ],
)
def test_a_query_that_reads_is_answered(lake: Lake, sql: str) -> None:
    assert ask(lake, meant(sql, lake))


def test_no_connection_finds_tables_among_python_variables() -> None:
    numbers = pa.table({"x": [42]})
    with connect() as con, pytest.raises(duckdb.CatalogException):
        con.sql("FROM numbers")
    assert numbers.num_rows == 1


# --- names and texts from input -----------------------------------------------------------------

HOSTILE = (
    "../../x",
    "/etc/passwd",
    "a\0b",
    "x" * 300,
    "..",
    ".",
    "",
    "-",
    "~",
    "$(id)",
    "a'b\"c;--",
)
NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*")


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=300))
@example("../../x")
@example("é" * 300)
@example("\u202egnp.exe")
def test_a_run_id_is_a_plain_file_name(text: str) -> None:
    name = slug(text)
    assert NAME.fullmatch(name)
    assert len(name) <= 111
    assert Path("lake", name).resolve().parent == Path("lake").resolve()


@settings(deadline=None, max_examples=50)
@given(st.text())
@example("a'b")
@example('a"b')
def test_texts_and_names_are_quoted_in_sql(text: str) -> None:
    text = text.replace("\0", "").encode(errors="ignore").decode()
    with connect() as con:
        (found,) = con.execute(f"SELECT {literal(text)}").fetchall()[0]
        assert found == text
        if text:
            described = con.execute(f"SELECT 1 AS {quoted(text)}").description
            assert described is not None
            assert described[0][0] == text


@pytest.mark.parametrize("text", ["'; DROP TABLE t; --", "$$", '"', "$tracelake", "\u202e"])
def test_comments_are_quoted(text: str) -> None:
    with connect() as con:
        con.execute("CREATE TABLE t (x INTEGER)")
        con.execute(";".join(described("TABLE", '"t"', text, ())))
        assert con.execute("SELECT comment FROM duckdb_tables()").fetchall() == [(text,)]


DRIVES = "\x1b[31m\x07\x9b2J\u202e"
EVIL = f"{DRIVES}<script>alert(1)</script>'\"; DROP TABLE x"
# What moves a terminal's cursor, rings its bell, or turns text around.
DRIVING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Screen(io.TextIOWrapper):
    """Standard output that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


@pytest.fixture(scope="module")
def evil_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose every text that comes from input is hostile, under a hostile name."""
    lake = Lake.create(tmp_path_factory.mktemp("evil") / "la\nBcc: x@example.org\x1b[2Jke")
    facts = dict.fromkeys(("name", "config", "model"), EVIL)
    rows = {name: [dict(row) for row in given] for name, given in log_run(rejected=3).items()}
    rows["runs"][0] |= {**facts, "attributes": [(EVIL, EVIL)]}
    rows["sources"][0] |= {"path": EVIL, "host": EVIL, "member": EVIL}
    for row in rows["rejects"]:
        row |= {"reason": EVIL, "text": EVIL}
    for row in rows["layer_times"]:
        row |= {"layer": EVIL + row["layer"]}
    commit_run(lake, "a", rows)
    build(lake)
    return lake


COMMANDS: list[list[str]] = [
    ["runs"],
    ["runs", "--format", "json"],
    ["runs", "--format", "csv"],
    ["show", "a"],
    ["show", "a", "--format", "json"],
    ["check"],
    *(["query", "FROM runs; FROM rejects; FROM sources", "--format", fmt]
      for fmt in ("table", "json", "ndjson", "csv", "markdown")),
    ["query", "FROM layer_stats"],
    ["query", "SELECT 1 AS \"\x1b[2J\u202e\""],
    ["query", "SELECT error('\x1b[2J\u202e')"],
    ["query", "\x1b[2J"],
    ["show", "\x1b[2J"],
    ["describe", "\x1b[2J"],
    ["examples", "\x1b[2J"],
    ["formats", "\x1b[2J"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=repr)
@pytest.mark.parametrize("terminal", [True, False])
def test_no_command_lets_a_text_drive_the_terminal(
    evil_lake: Lake,
    words: list[str],
    terminal: bool,
    tracelake: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    monkeypatch.setenv("TRACELAKE_LAKE", str(evil_lake.root))
    on_lake = [] if words[0] in {"describe", "examples", "formats"} else ["--lake", evil_lake.root]
    if terminal:
        monkeypatch.setattr(sys, "stdout", screen)
    result = tracelake(*words, *on_lake)
    shown = screen.shown() if terminal else result.out
    assert shown or result.err
    assert not DRIVING.search(COLOURS.sub("", result.err)), result.err
    if terminal or "csv" not in words:
        assert "\x1b[31m\x07" not in shown
        assert not DRIVING.search(COLOURS.sub("", shown)), shown


def test_names_of_inputs_do_not_drive_the_terminal(tmp_path: Path, tracelake: Command) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / f"{DRIVES}.txt").write_text("nothing that a format takes\n")
    (folder / f"plan{DRIVES}.txt").write_text(plan(2))
    for words in (["--dry-run"], [], ["--format", "json"]):
        result = tracelake("ingest", folder, "--lake", tmp_path / "lake", *words)
        assert result.code == 0, result.err
        assert not DRIVING.search(result.out + result.err)
    assert [name[:11] for name in Lake.open(tmp_path / "lake").snapshot().runs] == ["plan-31m-2j"]


@pytest.mark.parametrize("name", ["page.html", "page.md", "page.eml"])
def test_a_report_has_no_hostile_text_and_no_header_of_the_input(
    evil_lake: Lake, name: str, tmp_path: Path, tracelake: Command
) -> None:
    page = tmp_path / name
    result = tracelake("report", "--lake", evil_lake.root, "--output", page)
    assert result.code == 0, result.err
    content = page.read_bytes()
    assert b"<script>alert" not in content
    if name.endswith(".eml"):
        mail = email.message_from_bytes(content, policy=email.policy.SMTP)
        assert mail["Bcc"] is None
        assert "Bcc" in mail["Subject"]
        assert not DRIVING.search(mail["Subject"])
        bodies = [
            part.get_content() for part in mail.walk() if part.get_content_type() == "text/html"
        ]
        assert len(bodies) == 2
        assert not any("<script>alert" in body for body in bodies)
    else:
        assert not DRIVING.search(content.decode())


@settings(deadline=None)
@given(st.text())
@example(DRIVES)
@example("\u2028\u061c\ufeff")
def test_printed_json_is_the_same_value(text: str) -> None:
    text = text.encode(errors="ignore").decode()
    printed = json_text({text: text})
    assert json.loads(printed) == {text: text}
    assert not DRIVING.search(printed)
    assert not DRIVING.search(printable(text).replace("\n", ""))


# --- other users of the machine -----------------------------------------------------------------


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_the_lake_follows_the_umask_and_staging_is_private(
    tmp_path: Path, tracelake: Command
) -> None:
    source = tmp_path / "plan.txt"
    source.write_text(plan(2))
    root = tmp_path / "lake"
    assert tracelake("run", source, "--lake", root).code == 0
    for path in root.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o027, path
    with Lake.open(root).staging("x") as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_planted_beside_an_output_is_not_followed(tmp_path: Path) -> None:
    victim, page = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("precious")
    with beside(page) as there:
        there.write_text("page")
    there.symlink_to(victim)
    with pytest.raises(UsageError, match="cannot write"):
        put(page, b"page again")
    assert victim.read_text() == "precious"
    assert page.read_text() == "page"


VERSION = "0123456789abcdef"


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o757])
def test_nothing_is_kept_where_others_may_write(tmp_path: Path, mode: int) -> None:
    kept = DiskCache("kernels", VERSION, [tmp_path])
    kept.write("a", b"one")
    folder = tmp_path / f"kernels-{VERSION}"
    folder.chmod(mode)
    assert kept.read("a") is None
    kept.write("a", b"two")
    assert kept.trouble == f"{tmp_path}: others can write there"
    folder.chmod(0o755)
    assert kept.read("a") == b"one"


def test_nothing_is_read_from_a_file_that_others_may_write_or_point_elsewhere(
    tmp_path: Path,
) -> None:
    kept = DiskCache("kernels", VERSION, [tmp_path])
    kept.write("a", b"one")
    file = tmp_path / f"kernels-{VERSION}" / "a"
    assert stat.S_IMODE(file.stat().st_mode) & 0o022 == 0
    file.chmod(0o666)
    assert kept.read("a") is None
    file.chmod(0o644)
    assert kept.read("a") == b"one"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert kept.read("a") is None
    file.unlink()
    os.mkfifo(file)
    assert kept.read("a") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_nothing_is_read_that_belongs_to_another_user(tmp_path: Path) -> None:
    kept = DiskCache("kernels", VERSION, [tmp_path])
    kept.write("a", b"one")
    os.chown(tmp_path / f"kernels-{VERSION}", 12345, 12345)
    assert kept.read("a") is None


@pytest.mark.usefixtures("umask")
def test_a_permissive_umask_does_not_open_what_is_kept(tmp_path: Path) -> None:
    os.umask(0)
    kept = DiskCache("kernels", VERSION, [tmp_path / "new"])
    kept.write("a", b"one")
    assert kept.read("a") == b"one"


# --- code -----------------------------------------------------------------------------------------

RUNS_TEXT = {"eval", "exec", "compile", "__import__", "system", "popen"}
UNPACKS_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code"}


def modules() -> list[Path]:
    return sorted((ROOT / "pipeline").rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_module_runs_text_or_unpickles(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        where = f"{path.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & UNPACKS_CODE, where
        elif isinstance(node, ast.ImportFrom):
            assert str(node.module).split(".")[0] not in UNPACKS_CODE, where
            assert "serialize" not in str(node.module), where  # numba's is a pickle
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                assert called.id not in RUNS_TEXT, where
            elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                assert (called.value.id, called.attr) not in {("os", "system"), ("os", "popen")}
            shell = [k.value for k in node.keywords if k.arg == "shell"]
            assert not shell, where
        elif isinstance(node, ast.Constant):
            assert node.value != "mktemp", where
