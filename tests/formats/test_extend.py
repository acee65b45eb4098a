"""The example of docs/extend.md works as it is printed, in the package and beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.conftest import ROOT
from tests.inputs.test_inputs import ACCOUNTED
from tests.lakes import rows
from tests.line_formats import printed_files, printed_input
from tracelake.base.errors import ContractError
from tracelake.formats import formats
from tracelake.schema.format_names import format_names


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the page's files in it, and an archive of its input."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copy(ROOT / "pyproject.toml", root)
    for folder in ("pipeline", "sql", "schemas"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copytree(ROOT / "src", root / "src", symlinks=True)
    files = printed_files()
    assert set(files) == {"pipeline/formats/step_lines.py", "sql/runs/step_rate.sql"}
    for name, content in files.items():
        (root / name).write_text(content, encoding="utf-8")
    (root / "logs").mkdir()
    (root / "logs" / "job.steps").write_text(
        f"{printed_input()}step=3 ms=800.0 loss=10.1\n\noops\n"
    )
    return root


def tracelake(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from tracelake.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


def test_the_format_and_the_model_are_used_at_once(checkout: Path) -> None:
    done = tracelake(checkout, "run", "logs", "--lake", "lake", "--max-bad-ratio", "0.5")
    assert done.returncode == 0, done.stderr
    lake = checkout / "lake"
    assert rows(lake, "train_steps", "step, step_time_ns, loss, line", "ORDER BY step") == [
        (1, 812_500_000, 10.71, 2),
        (2, 796_000_000, 10.42, 3),
        (3, 800_000_000, 10.1, 4),
    ]
    offset = (checkout / "logs" / "job.steps").read_bytes().index(b"oops")
    found = "line, byte_offset, reason, text"
    assert rows(lake, "rejects", found) == [(6, offset, "not_a_step", "oops")]
    # A step is the one that the line names, and the first is warm-up.
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        steps = con.sql("SELECT step, step_ms, warmup FROM step_stats ORDER BY step").fetchall()
        assert steps == [(1, 812.5, True), (2, 796.0, False), (3, 800.0, False)]
        rates = con.sql("SELECT steps, steps_per_hour FROM step_rate").fetchall()
        assert rates == [(2, 3.6e6 / 798.0)]
    assert tracelake(checkout, "check", "--lake", "lake").returncode == 0
    assert "Steps per hour" in (lake / "report.html").read_text()
    assert "step_lines" in tracelake(checkout, "formats").stdout


def test_the_example_is_written_as_the_rest_is(checkout: Path) -> None:
    example = checkout / "pipeline" / "formats" / "step_lines.py"
    settings = ["--config", str(ROOT / "pyproject.toml"), "--ignore", "D"]
    for command in (["check", *settings], ["format", "--check", *settings[:2]]):
        ruff = [sys.executable, "-m", "ruff", *command, str(example)]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


# --- in a distribution of its own -------------------------------------------------------------


def installed(site: Path, target: str, code: str = "") -> str:
    """A distribution `my-steps` with this format; the printed one has another name in it."""
    printed = printed_files()["pipeline/formats/step_lines.py"].replace("step_lines", "my_lines")
    (site / "my_steps.py").write_text(code or printed)
    info = site / "my_steps-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-steps\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tracelake.formats]\n{target}\n")
    return str(site)


def with_path(site: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    code = "from tracelake.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_format_of_another_distribution_is_used(tmp_path: Path) -> None:
    """On files with other line ends, a byte order mark, a value that overflows, and a cut."""
    (tmp_path / "site").mkdir()
    site = installed(tmp_path / "site", "my_lines = my_steps:FORMAT")
    (tmp_path / "logs").mkdir()
    text = printed_input().encode() + b"step=99999999999 ms=1\nstep=4 ms=1.0000001\n"
    whole = text.replace(b"\n", b"\r\n")
    (tmp_path / "logs" / "a.steps").write_bytes(text)
    (tmp_path / "logs" / "b.steps").write_bytes(b"\xef\xbb\xbf" + whole)
    (tmp_path / "logs" / "c.steps").write_bytes(whole[: whole.index(b" loss=10.42")])
    lake = tmp_path / "lake"
    done = with_path(site, "ingest", tmp_path / "logs", "--lake", lake, "--max-bad-ratio", "0.9")
    assert done.returncode == 0, done.stderr
    found = "regexp_extract(run_id, '^.'), step, step_time_ns, loss, line"
    first, second = (1, 812_500_000, 10.71, 2), (2, 796_000_000, 10.42, 3)
    assert rows(lake, "train_steps", found, "ORDER BY ALL") == [
        *(("a", *first), ("a", *second), ("b", *first), ("b", *second), ("c", *first)),
    ]
    offset = text.index(b"step=9")
    found = "regexp_extract(run_id, '^.'), line, byte_offset, reason"
    assert rows(lake, "rejects", found, "ORDER BY ALL") == [
        ("a", 4, offset, "bad_value"),
        ("a", 5, offset + 22, "bad_value"),
        ("b", 4, 3 + offset + 3, "bad_value"),
        ("b", 5, 3 + offset + 3 + 23, "bad_value"),
    ]
    assert rows(lake, "faults", "regexp_extract(run_id, '^.'), name, line", "ORDER BY ALL") == [
        ("b", "byte_order_mark", 1),
        ("c", "unfinished", 3),
    ]
    assert rows(lake, "sources", f"count(*) FILTER (NOT ({ACCOUNTED}))") == [(0,)]


_READING = """
from tracelake.formats import RunFacts
from tracelake.formats.lines import Context, LineFormat, Record

def format_of(number, row):
    class Reader:
        def __init__(self, facts):
            pass
        def read(self, text):
            return [("train_steps", row)]
        def finish(self):
            return RunFacts()

    return LineFormat(
        name=f"rows_{number}", doc="Steps.", heading=f"# rows {number}", tables=("train_steps",),
        reader=Reader, lines=(Record(r"step=.*"), Context(r"#.*")),
    )
"""
# What a reader makes of each line, and whether its column can hold that.
_HELD = {
    '{"step": 1}': True,
    '{"step": 2.0}': True,
    '{"loss": 1.0}': False,
    '{"step": None}': False,
    '{"step": 1.5}': False,
}


def test_a_row_that_its_table_cannot_hold_stops_no_other_run(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    made = [*_HELD, '{"step": 1, "losss": 2.0}']
    code = "".join(f"ROWS_{n} = format_of({n}, {row})\n" for n, row in enumerate(made))
    entries = (f"rows_{n} = my_steps:ROWS_{n}" for n in range(len(made)))
    site = installed(tmp_path / "site", "\n".join(entries), _READING + code)
    (tmp_path / "logs").mkdir()
    for number in range(len(made)):
        text = f"# rows {number}\nstep=1\nstep=2\n"
        (tmp_path / "logs" / f"{number}.steps").write_text(text)
    shutil.copy(next((ROOT / "data/sample").rglob("*gpus.txt")), tmp_path / "logs")
    lake = tmp_path / "lake"
    done = with_path(site, "ingest", tmp_path / "logs", "--lake", lake)
    assert done.returncode == 3
    for said in (
        "2 of its lines rejected",
        "table train_steps has no column losss",
        "because the reader of the format in my-steps failed",
        "report it to its makers",
    ):
        assert said in done.stderr
    held = [f"rows_{number}" for number in range(len(_HELD))]
    assert rows(lake, "runs", "format", "ORDER BY ALL") == [(n,) for n in ("aicb_workload", *held)]
    found = rows(lake, "rejects", "run_id[1], reason", "ORDER BY ALL")
    refused = [str(number) for number, right in enumerate(_HELD.values()) if not right]
    assert found == [(number, "bad_value") for number in refused for _ in range(2)]


_NAMED = """
from tracelake.formats import FileFacts, Format, one_run_per_file

FORMAT = Format(
    name={!r}, doc="", version=1, tables=({!r},),
    facts=FileFacts, group=one_run_per_file, parser=print,
)
"""
_BREAKING = """
def broken(number, **changed):
    found = format_of(number, {"step": 1})
    for name, value in changed.items():
        object.__setattr__(found, name, value)
    return found

def drained(table, **columns):
    def drain(self):
        import pyarrow as pa
        return {table: iter([pa.RecordBatch.from_pydict(columns)])}

    class Parser:
        def __init__(self, run, ledger):
            self.ledger, self.sources = ledger, run.sources
        def feed(self, chunk):
            pass
        def finish(self):
            return RunFacts()

    Parser.drain = drain
    return Parser

def facts(path, head):
    from tracelake.formats import FileFacts
    return FileFacts(path, path, stamp="2026-01-01")

def without_step():
    from tracelake.schema.tables import tables
    kept = tables()["train_steps"]
    def drain(self):
        yielded = kept.batch({"source_id": [0], "line": [1]})
        return {"train_steps": [yielded]}
    made = drained("train_steps")
    made.drain = drain
    return made
"""
# What formats give that no lake can hold, and what is said of it.
_BROKEN = {
    "facts=facts": "facts() gave FileFacts",
    "facts=lambda path, head: None": "facts() gave None",
    "group=lambda files, gap: list(files)": "AttributeError: ",
    "group=lambda files, gap: [files[:1]]": "group() put a file into no run, or into several",
    "group=lambda files, gap: [files, files[:1]]": "group() put a file into no run, or",
    'parser=drained("nope")': "rows of nope, which is none of the format's tables",
    'parser=drained("train_steps", step=[1])': "the columns of the rows are not those of",
    "parser=without_step()": "rows of train_steps without step",
    'lines=(Row("train_steps", r"step=(?P<step>[0-9]+)(?= )"),)': "polars cannot use the",
}


@pytest.mark.parametrize("change", _BROKEN)
def test_what_a_format_gives_wrongly_costs_its_own_runs(change: str, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    code = f"{_READING}{_BREAKING}from tracelake.formats.lines import Row\n"
    made = f"ROWS = broken(0, {change})\n"
    site = installed(tmp_path / "site", "rows_0 = my_steps:ROWS", code + made)
    (tmp_path / "logs").mkdir()
    for name in "ab":
        (tmp_path / "logs" / f"{name}.steps").write_text(f"# rows 0\nstep=1 {name}\n")
    shutil.copy(next((ROOT / "data/sample").rglob("*gpus.txt")), tmp_path / "logs")
    lake = tmp_path / "lake"
    done = with_path(site, "ingest", tmp_path / "logs", "--lake", lake)
    assert done.returncode == 3, done.stderr
    assert "because the reader of the format in my-steps failed" in done.stderr
    assert _BROKEN[change] in done.stderr
    assert rows(lake, "runs", "format") == [("aicb_workload",)]


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("my_lines = my_stepz:FORMAT", "", "ModuleNotFoundError: No module named 'my_stepz'"),
        ("my_lines = my_steps:FORMATS", "", "AttributeError: "),
        ("my_lines = my_steps:FORMAT", "1 / 0", "ZeroDivisionError: division by zero"),
        ("steps = my_steps:FORMAT", "", "is not a Format with name='steps'"),
        ("optimus = my_steps:FORMAT", "", "there is another format of this name"),
        ("a/b = my_steps:FORMAT", _NAMED.format("a/b", "train_steps"), "other signs than letters"),
        ("a = my_steps:FORMAT", _NAMED.format("a", "runs"), "no format fills runs; tracelake does"),
        ("a = my_steps:FORMAT", "raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
    ],
)
def test_an_entry_point_that_is_broken_is_named(
    target: str, code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, target, code))
    monkeypatch.delitem(sys.modules, "my_steps", raising=False)
    name, _, value = target.partition(" = ")
    assert name in format_names()
    with pytest.raises(ContractError) as raised:
        formats.__wrapped__()
    assert raised.value.message.startswith(f"format {name} of the entry point {value}")
    assert said in raised.value.message
    assert raised.value.hint == "repair or uninstall the distribution my-steps"
    assert raised.value.exit_code == 4
