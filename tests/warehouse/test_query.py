"""Queries over a lake: what they may do, and how their results are printed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT, Command
from tests.lakes import Template
from tests.tiny_lakes import commit_run, log_run
from tracelake.base.errors import LakeError, TracelakeError, UsageError
from tracelake.base.signals import listening
from tracelake.cli.complete import complete_example, complete_table
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.warehouse.results import write_result
from tracelake.warehouse.running import run_query
from tracelake.warehouse.statements import read_value
from tracelake.warehouse.warehouse import open_warehouse


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake.create(tmp_path_factory.mktemp("query") / "lake")
    commit_run(made, "007", log_run(rejected=1))
    build(made)
    return made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    made = Lake.create(tmp_path_factory.mktemp("own") / "lake")
    commit_run(made, "a", log_run(steps=3))
    build(made)
    return Template.of(made)


@pytest.fixture
def own(template: Template) -> Lake:
    """A lake that a test may change."""
    return template.again()


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
        ("COPY (SELECT 1) TO 'x.csv'", "COPY is not allowed in queries"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "COPY is not allowed in queries"),
        ("/* so */ EXPLAIN ANALYZE CREATE TABLE x (i INT)", "is not allowed in queries"),
        ("SELECT 1; SET threads = 1", "SET is not allowed in queries"),
        ("CREATE TABLE x (i INT)", "CREATE is not allowed in queries"),
        ("CREATE TEMP TABLE x (i INT)", "CREATE is not allowed in queries"),
        ("ATTACH ':memory:' AS x", "ATTACH is not allowed in queries"),
        ("INSTALL httpfs", "LOAD is not allowed in queries"),
        ("PRAGMA database_list", "PRAGMA is not allowed in queries"),
        ("CALL pragma_version()", "CALL is not allowed in queries"),
        ("DELETE FROM run_summary", "DELETE is not allowed in queries"),
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
    inside = lake.root / lake.snapshot().parts_by_table()["runs"][0]
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


def test_what_memory_does_not_take_goes_into_the_lake_and_away_again(own: Lake) -> None:
    folders = own.root / "_staging"
    with open_warehouse(own) as con:
        (spill,) = con.execute("SELECT current_setting('temp_directory')").fetchone() or ("",)
        assert Path(str(spill)).parent == folders
        assert Path(str(spill)).stat().st_mode & 0o077 == 0
    del con
    assert list(folders.iterdir()) == []


def test_a_lake_that_cannot_be_written_is_queried(own: Lake) -> None:
    (own.root / "_staging").rmdir()
    (own.root / "_staging").touch()
    with open_warehouse(own) as con:
        (spill,) = con.execute("SELECT current_setting('temp_directory')").fetchone() or ("",)
        assert not Path(str(spill)).is_relative_to(own.root)
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
    with pytest.raises(LakeError, match="is damaged") as caught:
        open_warehouse(lake)
    assert caught.value.hint == "make it anew: tracelake build"


def test_a_warehouse_of_another_version_says_build(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse)) as con:
        con.execute("CREATE TABLE run_summary (run_id VARCHAR)")
    with pytest.raises(LakeError, match="another version"):
        open_warehouse(lake)


def test_a_moved_lake_is_read_at_its_new_place(own: Lake, tmp_path: Path) -> None:
    shutil.move(own.root, tmp_path / "new")
    moved = Lake.open(tmp_path / "new")
    assert rows(moved, "SELECT run_id FROM runs JOIN run_summary USING (run_id)") == [
        {"run_id": "a"}
    ]
    assert rows(moved, "SELECT count(*) AS n FROM layer_times") == [{"n": 6}]


def test_another_program_points_the_views_of_a_copied_lake(own: Lake, tmp_path: Path) -> None:
    """Any DuckDB, also where the first lake is gone."""
    shutil.move(own.root, tmp_path / "it's new")
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{tmp_path}/it''s new/warehouse.duckdb' AS w (READ_ONLY)")
        with pytest.raises(duckdb.IOException, match=f"{own.root}/"):
            con.execute("FROM w.layer_times")
        con.execute(f"SET VARIABLE lake = '{tmp_path}/it''s new'")
        assert con.execute("SELECT count(*) FROM w.layer_times").fetchall() == [(6,)]


def test_a_stale_warehouse_answers_from_what_it_was_built_from(own: Lake) -> None:
    commit_run(own, "a", log_run(steps=9))
    commit_run(own, "b", log_run())
    both = (
        "SELECT max(t.step) AS last, any_value(s.steps) AS steps"
        " FROM layer_times t JOIN run_summary s USING (run_id)"
    )
    assert rows(own, both) == [{"last": 3, "steps": 3}]


def test_a_part_that_is_gone_says_build(own: Lake) -> None:
    (own.root / own.snapshot().parts_by_table()["layer_times"][0]).unlink()
    with pytest.raises(LakeError, match="layer_times"):
        rows(own, "FROM layer_times")
    assert rows(own, "SELECT run_id FROM run_summary") == [{"run_id": "a"}]


def test_an_answer_that_has_begun_outlives_a_build(own: Lake) -> None:
    many = "SELECT run_id, count(*) OVER () AS n FROM run_summary, range(300000)"
    (reader,) = run_query(own, many)
    first = reader.read_next_batch()
    commit_run(own, "b", log_run())
    build(own)
    rest = reader.read_all()
    assert first.num_rows + rest.num_rows == 300_000
    assert set(rest["run_id"].to_pylist()) == {"a"}
    assert len(rows(own, "FROM run_summary")) == 2


def test_a_warehouse_is_read_by_older_programs_than_the_one_that_wrote_it(lake: Lake) -> None:
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{lake.warehouse}' AS w (READ_ONLY)")
        (tags,) = con.execute(
            "SELECT tags FROM duckdb_databases() WHERE database_name = 'w'"
        ).fetchone() or ({},)
    assert tags["storage_version"].startswith("v1.3.0")


# --- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-1", -1),
        ("2.5", 2.5),
        ("1e3", 1000.0),
        ("true", True),
        ("null", None),
        ('"7"', "7"),
        ("007", "007"),
        ("2025-01-31", "2025-01-31"),
        ("it's", "it's"),
        ("", ""),
        ("[1, null]", [1, None]),
        ('["a"]', ["a"]),
        ("[]", []),
        ("nan", "nan"),
        ("NaN", "NaN"),
        ("[1", "[1"),
        ('{"a": 1}', '{"a": 1}'),
        ("9" * 39, "9" * 39),  # no integer type is as large
        ("9007199254740993", 9007199254740993),
    ],
)
def test_values_are_read_as_json_or_else_as_text(lake: Lake, text: str, value: object) -> None:
    read = read_value(text)
    assert (type(read), read) == (type(value), value)
    (reader,) = run_query(lake, "SELECT $x AS x", {"x": read})
    assert reader.read_all().to_pylist() == [{"x": value}]


def asked(tracelake: Command, lake: Lake, sql: str, *parameters: str) -> list[dict[str, Any]]:
    options = [word for text in parameters for word in ("--param", text)]
    done = tracelake("query", sql, "--lake", lake.root, "--format", "ndjson", *options)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_parameters_are_values_in_every_statement(lake: Lake, tracelake: Command) -> None:
    assert asked(tracelake, lake, "SELECT $A + $b AS x; SELECT $b AS y", "a=1", "B=2") == [
        {"x": 3},
        {"y": 2},
    ]
    quote = "'; SELECT 1 --"
    assert asked(tracelake, lake, "SELECT $x AS x", f"x={quote}") == [{"x": quote}]
    assert asked(tracelake, lake, "SELECT '$x' AS x") == [{"x": "$x"}]
    in_list = "SELECT DISTINCT step FROM layer_times WHERE step IN $steps ORDER BY step LIMIT $n"
    assert asked(tracelake, lake, in_list, "steps=[3, 1, 99]", "n=5") == [{"step": 1}, {"step": 3}]
    assert asked(tracelake, lake, "EXPLAIN SELECT $x", "x=1")
    assert asked(tracelake, lake, "DESCRIBE SELECT $x AS x", "x=a")[0]["column_type"] == "VARCHAR"


@pytest.mark.parametrize(
    ("sql", "parameters", "message", "hint"),
    [
        ("SELECT $a, $b", ["a=1"], "takes a parameter $b", "give --param b=VALUE"),
        ("SELECT $a; SELECT $c, $b", ["a=1"], "takes a parameter $b", "--param c=VALUE"),
        ("SELECT $a", ["a=1", "c=2"], "has no parameter $c", "it takes $a"),
        ("SELECT 1", ["c=2"], "has no parameter $c", "it takes none"),
        ("SELECT $a", ["a"], "'a' is not a parameter", "give name=value"),
        ("SELECT $a", ["=1"], "'=1' is not a parameter", "give name=value"),
        ("SELECT $a", ["a=1", "A=2"], "'a' is given twice", "a='[1, 2]'"),
        ("SELECT ?", [], "parameter $1 has no name", "--param name=VALUE"),
        ("SELECT $1", ["a=1"], "parameter $1 has no name", "--param name=VALUE"),
        ("SELECT $a::INTEGER", ["a=x"], "Could not convert", ""),
    ],
)
def test_parameters_that_do_not_fit_are_usage_errors(
    sql: str, parameters: list[str], message: str, hint: str, lake: Lake, tracelake: Command
) -> None:
    options = [word for text in parameters for word in ("--param", text)]
    done = tracelake("query", sql, "--lake", lake.root, *options)
    assert done.code == 2
    assert message in done.err
    assert hint in done.err
    assert done.out == ""


def test_saved_questions_are_listed_shown_and_asked(lake: Lake, tracelake: Command) -> None:
    listed = tracelake("examples", "--format", "ndjson")
    names = [json.loads(line)["name"] for line in listed.out.splitlines()]
    assert "bad_lines" in names
    shown = tracelake("examples", "bad_lines")
    assert shown.out == (ROOT / "sql" / "examples" / "bad_lines.sql").read_text()
    assert tracelake("examples", "bad_lines", "--format", "csv").code == 2

    ask = ("query", "--lake", lake.root, "--format", "ndjson", "--example", "bad_lines")
    (line,) = tracelake(*ask).out.splitlines()
    assert json.loads(line)["reason"] == "bad"
    assert tracelake(*ask, "--param", "run=007").out == f"{line}\n"
    assert tracelake(*ask, "--param", "run=latest").out == f"{line}\n"
    assert tracelake("ask", "bad_lines", *ask[1:5], "--param", "run=latest").out == f"{line}\n"
    nobody = tracelake(*ask, "--param", "run=8")
    assert (nobody.code, "no run '8' in the lake" in nobody.err) == (2, True)
    assert tracelake(*ask, "--param", "top=0").out == ""
    assert "not a UBIGINT" in tracelake(*ask, "--param", "top=x").err
    assert tracelake("query", "--lake", lake.root, "--example", "bad_line").code == 2


def test_a_shell_completes_questions_and_takes_none_for_a_table() -> None:
    assert complete_example("bad") == ["bad_lines"]
    assert complete_table("bad") == []
    assert "run_summary" in complete_table("run")


def test_a_query_comes_from_one_place(lake: Lake, tracelake: Command, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("SELECT $x AS x")
    on_lake = ("query", "--lake", lake.root, "--format", "csv")
    assert tracelake(*on_lake, "-f", file, "--param", "x=1").out == '"x"\n1\n'
    for places in ((), ("SELECT 1", "-f", file), ("-f", file, "--example", "missing")):
        done = tracelake(*on_lake, *places)
        assert (done.code, "give exactly one of" in done.err) == (2, True)


# --- limits ------------------------------------------------------------------------------------

# One whose first rows never come, and one whose rows never end.
ENDLESS = (
    "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3",
    "SELECT range AS i FROM range(1000000000000)",
)


@pytest.mark.parametrize("sql", ENDLESS)
def test_a_query_is_given_up_after_its_time(
    sql: str, lake: Lake, tracelake: Command, tmp_path: Path
) -> None:
    to_file = ("--format", "csv", "-o", tmp_path / "x.csv")
    done = tracelake("query", sql, "--lake", lake.root, "--timeout", "0.2", *to_file)
    assert done.code == 2
    assert "no answer within --timeout 0.2 s" in done.err
    assert "raise --timeout" in done.err
    assert rows(lake, "SELECT 1 AS x") == [{"x": 1}]


def test_a_query_in_time_is_answered(lake: Lake, tracelake: Command) -> None:
    done = tracelake("query", "SELECT 1 AS x", "--lake", lake.root, "--timeout", "60")
    assert (done.code, done.out) == (0, "x\n1\n")


def test_memory_is_a_limit_that_says_so(lake: Lake, tracelake: Command) -> None:
    big = ("query", "SELECT list(range) AS l FROM range(20000000)", "--lake", lake.root)
    done = tracelake(*big, "--memory", "60MB")
    assert done.code == 2
    assert "--memory is too small" in done.err
    assert "--memory" in done.err
    assert tracelake(*big, "--memory", "much").code == 2
    limit = "SELECT current_setting('memory_limit') AS m"
    done = tracelake("query", limit, "--lake", lake.root, "--memory", "64MiB")
    assert done.out.split() == ["m", "64.0", "MiB"]


def test_memory_that_does_not_suffice_may_be_spilled(lake: Lake, tracelake: Command) -> None:
    sort = "SELECT max(i) AS m FROM (SELECT hash(range) AS i FROM range(4000000) ORDER BY ALL)"
    done = tracelake("query", sort, "--lake", lake.root, "--memory", "60MB")
    assert done.code == 0


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("sql", ENDLESS)
def test_a_signal_ends_a_query(sql: str, sent: signal.Signals, code: int, lake: Lake) -> None:
    program = str(Path(sys.executable).with_name("tracelake"))
    with subprocess.Popen(
        [program, "query", f"SELECT 1; {sql}", "--lake", lake.root, "--format", "csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == '"1"\n'
        process.send_signal(sent)
        _, err = process.communicate()
    assert process.returncode == code
    assert "Traceback" not in err


# Functions that do not look whether they are interrupted.
DEAF = (
    "SELECT levenshtein(repeat('a', 400000), repeat('b', 400000))",
    "SELECT regexp_replace(repeat('a', 300000), '(.*?)b|a', 'x', 'g')",
    "SELECT len(list_distinct(range(20000000)))",
)


@pytest.mark.parametrize(("ending", "code"), [("--timeout", 2), (signal.SIGHUP, 129)])
def test_a_function_that_does_not_look_is_ended(
    ending: str | signal.Signals, code: int, lake: Lake
) -> None:
    program = str(Path(sys.executable).with_name("tracelake"))
    limit = [] if isinstance(ending, signal.Signals) else [ending, "0.5"]
    words = [program, "query", "--lake", str(lake.root), *limit]
    staging = lake.root / "_staging"
    before = set(staging.iterdir())
    for sql in DEAF[: code - 1]:
        with subprocess.Popen([*words, sql], stdout=-1, stderr=-1, text=True) as process:
            if isinstance(ending, signal.Signals):
                _until_it_computes(process, staging, before)
                process.send_signal(ending)
            began = time.monotonic()
            _, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        assert "Traceback" not in err
        assert time.monotonic() - began < 20
    assert set(staging.iterdir()) <= before


def _until_it_computes(process: subprocess.Popen[str], staging: Path, before: set[Path]) -> None:
    while not set(staging.iterdir()) - before:
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)


@pytest.mark.parametrize("sql", ENDLESS)
def test_an_interrupted_query_leaves_nothing_running(sql: str, lake: Lake) -> None:
    before = set(threading.enumerate())
    answers = run_query(lake, sql)
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    # As commands do: a shell that starts the tests in the background has them ignore the signal.
    with pytest.raises(KeyboardInterrupt), listening():
        _ = [reader.read_all() for reader in answers]
    started = set(threading.enumerate()) - before
    assert not [thread.name for thread in started if thread.name.startswith("query")]


def test_a_signal_while_the_thread_of_a_query_starts_ends_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting a thread waits for it, which on a machine with much to do takes long."""
    many_seconds = "SELECT sum(hash(range)) FROM range(20000000000)"
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("query"):
            raise KeyboardInterrupt

    before = set(threading.enumerate())
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _ = [reader.read_all() for reader in run_query(lake, many_seconds)]
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


# --- DuckDB's own shell --------------------------------------------------------------------------


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A folder with a `duckdb` that writes down its arguments, a call a line."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "duckdb"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/calls\necho "Bad: $STUB_SAYS" >&2\n'
        'exit "${STUB_EXIT:-0}"\n'
    )
    program.chmod(0o755)
    return folder


def shell(folder: Path, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("tracelake"))
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", **env}
    return subprocess.run(
        [program, "sql", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("more", [[], ["-ui"]])
def test_the_shell_opens_the_warehouse_for_reading(lake: Lake, stub: Path, more: list[str]) -> None:
    done = shell(stub, "--lake", lake.root, *(f"-{word}" for word in more))
    assert done.returncode == 0
    opened = f"-readonly {lake.warehouse}"
    assert (stub / "calls").read_text().splitlines() == [
        f"{opened} -c SELECT 1",
        " ".join([opened, *more]),
    ]


def test_without_a_shell_it_says_what_to_install(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracelake: Command
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = tracelake("sql", "--lake", lake.root)
    assert done.code == 2
    assert "pip install duckdb-cli" in done.err
    assert "tracelake query" in done.err


def test_a_shell_that_cannot_read_the_warehouse_is_not_opened(lake: Lake, stub: Path) -> None:
    done = shell(stub, "--lake", lake.root, STUB_EXIT="1", STUB_SAYS="too old")
    assert done.returncode == 2
    assert "this duckdb cannot open the warehouse: Bad: too old" in done.stderr
    assert len((stub / "calls").read_text().splitlines()) == 1


def test_a_shell_on_a_moved_lake_is_told_the_place(own: Lake, tmp_path: Path, stub: Path) -> None:
    missing = shell(stub, "--lake", Lake.create(tmp_path / "old").root)
    assert (missing.returncode, "tracelake build" in missing.stderr) == (3, True)
    shutil.move(own.root, tmp_path / "new")
    assert shell(stub, "--lake", tmp_path / "new").returncode == 0
    (_, opened) = (stub / "calls").read_text().splitlines()
    assert opened.endswith(f" -cmd SET VARIABLE lake = '{tmp_path / 'new'}'")


def test_what_the_page_says_in_python_runs(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").symlink_to(lake.root)
    monkeypatch.chdir(tmp_path)
    commit_run(lake, "traced", {"ops": [{"op": "forward_step", "duration_ns": 1}]})
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "sql.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, {})


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
        " UNION ALL SELECT NULL, 1234, 2e9 UNION ALL SELECT 'c', 5000, 999999.7 ORDER BY 2"
    )
    assert printed(lake, sql, "table") == (
        "name  number             d\nab         7           0.5\n        1234  2000000000.0\n"
        "c       5000      999999.7\n"
    )


def test_times_west_of_greenwich_have_no_zeros_behind_their_seconds() -> None:
    at = datetime(2026, 1, 1, 12, 0, 0, 500_000)
    west = pa.table({"at": pa.array([at, at.replace(microsecond=0)], pa.timestamp("us", "-05:00"))})
    out = io.StringIO()
    write_result(west, "csv", out)
    assert out.getvalue() == '"at"\n"2026-01-01 07:00:00.5-0500"\n"2026-01-01 07:00:00-0500"\n'


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
    assert max(map(len, drawn.splitlines())) <= 40
    assert "column_4  4" in drawn


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


@pytest.mark.parametrize("sql", ["SELECT INTERVAL 1 month", "SELECT [INTERVAL 1 day] AS days"])
def test_a_type_that_parquet_lacks_is_a_usage_error(
    sql: str, lake: Lake, tmp_path: Path, tracelake: Command
) -> None:
    out = tmp_path / "x.parquet"
    done = tracelake("query", sql, "--lake", lake.root, "--format", "parquet", "-o", out)
    assert done.code == 2
    assert "Parquet has no type" in done.err
    assert not out.exists()
    assert tracelake("query", sql, "--lake", lake.root, "--format", "csv").code == 0


def test_parquet_goes_to_the_bytes_below(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    with path.open("w") as out:
        write_result(run_query(lake, "FROM step_stats"), "parquet", out)
    assert pq.read_table(path).num_rows == 3


def test_several_results_follow_each_other(lake: Lake) -> None:
    assert printed(lake, "SELECT 1 AS x; SELECT 2 AS y", "csv") == '"x"\n1\n\n"y"\n2\n'
    assert printed(lake, "SELECT 1 AS x; SELECT 2 AS y", "ndjson") == '{"x": 1}\n{"y": 2}\n'


@pytest.mark.parametrize(("fmt", "what"), [("json", "JSON document"), ("parquet", "Parquet file")])
def test_a_document_has_one_result(
    lake: Lake, tmp_path: Path, tracelake: Command, fmt: str, what: str
) -> None:
    out = tmp_path / "out"
    done = tracelake(
        *("query", "SELECT 1; SELECT 2", "--format", fmt, "-o", out, "--lake", lake.root)
    )
    assert (done.code, out.exists()) == (2, False)
    assert f"a {what} can have one result only" in done.err


def test_columns_of_one_name_are_all_there(lake: Lake, tmp_path: Path, tracelake: Command) -> None:
    sql = "SELECT 1 AS a, 2 AS a, 3 AS a_1"
    named = {"a": 1, "a_1": 2, "a_1_1": 3}  # as in DuckDB's own tables
    assert rows(lake, f"FROM ({sql})") == [named]
    assert json.loads(printed(lake, sql, "json")) == [named]
    assert json.loads(printed(lake, sql, "ndjson")) == named
    out = tmp_path / "x.parquet"
    assert tracelake("query", sql, "--lake", lake.root, "-o", out).code == 0
    assert pq.read_table(out).to_pylist() == [named]


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("x.csv", (), '"x"\n1\n'),
        ("x.JSON", (), '[\n{"x": 1}\n]\n'),
        ("x.jsonl", (), '{"x": 1}\n'),
        ("x.md", (), "| x |\n| ---: |\n| 1 |\n"),
        ("x.txt", (), "x\n1\n"),
        ("x.csv", ("--format", "ndjson"), '{"x": 1}\n'),
    ],
)
def test_a_file_has_the_format_of_its_suffix(
    name: str, given: tuple[str, ...], text: str, lake: Lake, tmp_path: Path, tracelake: Command
) -> None:
    out = tmp_path / name
    done = tracelake("query", "SELECT 1 AS x", "--lake", lake.root, "-o", out, *given)
    assert (done.code, out.read_text()) == (0, text)


def test_a_suffix_that_rows_cannot_have_is_refused(
    lake: Lake, tmp_path: Path, tracelake: Command
) -> None:
    out = tmp_path / "x.xlsx"
    done = tracelake("runs", "--lake", lake.root, "-o", out)
    assert done.code == 2
    assert "rows cannot be written as .xlsx" in done.err
    assert not out.exists()


def test_a_table_of_ones_own_can_be_printed() -> None:
    out = io.StringIO()
    write_result(pa.table({"x": [1]}), "ndjson", out)
    assert out.getvalue() == '{"x": 1}\n'
