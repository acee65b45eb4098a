"""Generated command lines: each ends with a documented exit code and an error that says why.

The campaign is run by hand: `python -m tests.fuzz.options COUNT`. It runs the commands in this
process, on a lake of three runs. Values are right in half of the lines, so that commands do their
work, and wrong in every way in the others.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import types
import typing
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from typer.main import get_command

from tests.report_lakes import trace_run
from tests.tiny_lakes import commit_run, log_run
from tests.traces import plan, trace, trace_name, write
from tracelake.cli import app, main
from tracelake.formats import formats
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.nightly.gates import GATES
from tracelake.warehouse.examples import examples

# Exit code 4 is for headers and schemas, which no option changes.
EXPECTED = {0, 2, 3, 5}
_SECONDS = 30.0
# DuckDB's shell would take the place of this process.
_LEFT_OUT = {"sql"}
# Starting a cluster takes long; addresses would be looked up.
_NOT_GIVEN = {"engine", "scheduler", "workers"}

_WORDS = (
    *("", " ", "-", "--", "0", "-1", "1", "a", "A" * 300, "x" * 5000, "é", "\u202e", "🙂" * 70),
    *("a\nb", "\x1b[2J", "\udcff", "%s", "{}", "{date}", "$x", "*", "[", "(?P<a", "..", "~", "a=b"),
    *(
        "latest",
        "latest~1",
        "run",
        "a,b",
        ",",
        "=",
        "null",
        "nan",
        "NaN",
        "inf",
        "1e309",
        "\u0661",
        "0x1",
    ),
    *("'", '"', "\\", ";", "tp=2", "tp=0", "tp=1,tp=2", "zz=1", "7d", "1h", "0s", "99999w", "-1d"),
)
_NUMBERS = (
    *(
        "0",
        "1",
        "2",
        "-1",
        "3.5",
        "007",
        "+1",
        "1e3",
        "nan",
        "inf",
        "-inf",
        "",
        "x",
        "\uff11",
        " 1",
    ),
    *(str(2**p + n) for p in (31, 32, 63, 64) for n in (-1, 0, 1)),
    *("9" * 40, "1" * 5000, "0.0", "-0.0", "1e-320", "1e308", "1e400"),
)
_SIZES = ("0", "1B", "1kB", "60MB", "700MB", "2GiB", "1e9", "-1MB", "99999999TB", "1000x", "0x")
_SQL = (
    *("SELECT 1", "FROM runs", "", ";", "SELEC", "SELECT $x", "SELECT ?", "DROP TABLE runs", "-"),
    *("SELECT 1; SELECT 2", "FROM nope", "SELECT '\udcff'", "EXPLAIN SELECT 1", "SHOW TABLES"),
    *("SELECT NULL", "SELECT 1/0", "SELECT error('x')", "(" * 500, "SELECT " + "-" * 500 + "1"),
    *("SELECT DATE '9999-12-31'", "SELECT 'a'::BLOB", "SELECT {'a': [1]}", "SELECT 'nan'::DOUBLE"),
    *("SELECT INTERVAL 1 month", "SELECT MAP {1: 2}", "SELECT 1 AS x, 2 AS x", "SELECT ''", "--"),
)
_PATHS = (
    *("", ".", "..", "/", "-", "x", "file", "folder", "folder/x", "file/x", "missing/x", "link"),
    *("LAKE", "LAKE/warehouse.duckdb", "LAKE/report.html", "LAKE/_run/x", "loop", "dangling"),
    *("ftp://h/x", "s3:///", "x" * 300, "a/" * 300 + "x", "é", "\udcff", "a\nb", "{date}", "~"),
    *("{day}.html", "x.gz", "x.md", "x.eml", "q.sql", "hosts.csv", "plan.txt", "*.txt", "[", "**"),
)
_TEXTS = {
    "fail_on": ("incomplete", "regression,straggler", "nope", "incomplete,incomplete"),
    "post": ("true", "false", "no-such-program", "'unclosed", "cat"),
    "run_pattern": ("(?P<run>a)", "(?P<rank>.*)", "(", "[[:alpha:]](?P<run>x)", "(?P<x>a)"),
    "given": ("tp=2,pp=4", "tp=99999999999999999999", "world_size=2147483648", "tp=-1"),
    "max_expand": _SIZES,
    "memory": _SIZES,
    "since": ("7d", "0s", "1", "99999w", "999999w"),
    "older_than": ("7d", "0s", "1", "99999w"),
    "wait": ("1h", "0s", "1", "99999w"),
    "sql": _SQL,
    "sort": ("run_id", "nope", "steps"),
    "input_format": ("optimus", "aicb_workload", "nope"),
    "trace_format": ("optimus", "nope"),
    "form": ("html", "markdown", "mail", "pdf"),
    "example": ("slow_ranks", "nope"),
    "table": ("runs", "nope"),
    "steps": ("1", "1-2", "2-1", "-", "1-", "99999999999999999999"),
    "ranks": ("0", "0-3", "x", "99999999999999999999"),
    "formats": ("optimus", "nope"),
}
_RELATIONS = ("runs", "sources", *catalog().public)
# Of these a query takes exactly one.
_ONE_OF_QUERY = ("sql", "file", "example")
_OUTPUTS = ("x", "new/x", "file", "link", "-", "{date}.txt")
_PAGES = ("x.html", "x.md", "x.eml", "{date}.html", "file")
# What lets a command do its work, by option or argument.
_RIGHT: dict[str, Sequence[str]] = {
    "inputs": ("plan.txt", "traces", "*.txt", "folder", "."),
    "run": ("a", "b", "t", "latest", "a~1"),
    "other": ("a", "b", "t", "latest"),
    "runs": ("a", "b", "t", "latest"),
    "lake": ("LAKE",),
    "output": (*_OUTPUTS, *_PAGES, "x.json"),
    "report": _PAGES,
    "summary": (*_OUTPUTS, "x.json"),
    "metrics": ("x.prom", *_OUTPUTS),
    "drawing": ("x.svg", "x.png", "x"),
    "target": ("x.duckdb", "x.sqlite", "x.db", "new", "file"),
    "directory": ("new", "new/x"),
    "file": ("q.sql",),
    "sql": (
        "SELECT 1",
        "FROM runs",
        "SELECT 1; SELECT 2",
        "FROM findings",
        "SELECT $run",
        *_SQL[9:],
    ),
    "example": tuple(examples()),
    "name": (*examples(), *formats()),
    "table": _RELATIONS,
    "models": _RELATIONS,
    "parameters": ("top=5", "run=a", "rank=0", "top=0", "top=-1"),
    "since": ("7d", "99w", "1h"),
    "older_than": ("7d", "1h", "9999w"),
    "wait": ("1s", "0s"),
    "fail_on": ("regression,straggler", "incomplete", ",".join(GATES)),
    "post": ("true", "false", "cat"),
    "report_url": ("https://x/{date}", "x"),
    "hosts": ("hosts.csv",),
    "fabric": ("ib", "x y"),
    "given": ("tp=2", "tp=1,pp=2,world_size=2", "dp=2"),
    "run_pattern": ("(?P<run>[a-z]+)", "rank(?P<rank>[0-9]+)", "(?P<host>t)"),
    "max_expand": ("1GB", "1MB", "10kB", "2GiB"),
    "memory": ("700MB", "2GiB"),
    "max_bad_ratio": ("0", "0.5", "1"),
    "timeout": ("5", "0.5"),
    "links": ("nvlink=450,ib=50", "ib=0.5"),
    "input_format": ("rank_trace", "aicb_workload", "nccl_tests"),
    "trace_format": ("rank_trace", "optimus", "training_log"),
    "form": ("html", "markdown", "mail"),
    "sort": ("run_id", "bubble", "step_ms", "steps"),
    "steps": ("1", "1-2", "2", "2-"),
    "ranks": ("0", "0-1", "1-"),
    "formats": ("rank_trace", "optimus", "aicb_workload"),
    "fixes": (
        "rank=0",
        "rank=2",
        "stage=0",
        "kind=all_reduce:tp",
        "split=even",
        "micro-batches=16",
    ),
    "scales": ("forward=0.9", "backward=2", "all_reduce=0", "forward=0"),
    "slow_collective": ("all_reduce", "all_gather"),
}
_NAMES_OF_PATHS = {"lake", "report", "summary", "output", "inputs", "directory"}
_NAMES_OF_RUNS = {"run", "other", "runs"}


@dataclass(frozen=True)
class _Option:
    """A parameter of a command: the names of its option, none for an argument, and its type."""

    name: str
    flags: Sequence[str]
    type: Any
    several: bool


def _commands() -> dict[str, list[_Option]]:
    found = {}
    for command in app.registered_commands:
        called = command.callback
        assert called is not None
        name = command.name or called.__name__
        if name in _LEFT_OUT:
            continue
        hints = typing.get_type_hints(called, include_extras=True)
        hints.pop("return", None)
        flags = {
            str(one.name): ()
            if one.param_type_name == "argument"
            else (*one.opts, *one.secondary_opts)
            for one in _APPLICATION.commands[name].params  # type: ignore[attr-defined]
        }
        found[name] = [
            _option(key, flags[key], hint) for key, hint in hints.items() if key not in _NOT_GIVEN
        ]
    return found


def _option(name: str, flags: Sequence[str], hint: Any) -> _Option:
    type_, _ = typing.get_args(hint)
    several = False
    if isinstance(type_, types.UnionType):
        type_ = next(t for t in typing.get_args(type_) if t is not type(None))
    if typing.get_origin(type_) is list:
        (type_,), several = typing.get_args(type_), True
    return _Option(name, flags, type_, several)


_APPLICATION = get_command(app)
COMMANDS = _commands()


# Commands that take long if their options are right, given a third as often.
_SLOW = {"run", "build", "check", "compact", "drop", "export", "report"}
# Commands that take milliseconds also if their options are right.
QUICK = ("query", "examples", "describe", "formats", "runs", "show", "diff", "timeline", "gc")


def words(random: Random, commands: Sequence[str]) -> list[str]:
    """Returns a command line, in which LAKE stands for the lake."""
    name = random.choices(commands, [1 if one in _SLOW else 3 for one in commands])[0]
    line, arguments = [name], list[str]()
    wrong = random.choice((0.0, 0.0, 0.05, 1.0, 1.0))
    share = random.choice((0.1, 0.3, 0.6))
    left_out = _left_out(random, name) if wrong < 1 else set[str]()
    for option in COMMANDS[name]:
        if option.name in left_out:
            continue
        needed = not option.flags or option.name in {"lake", "output"}
        if random.random() > (1 - wrong / 10 if needed or option.name in _ONE_OF_QUERY else share):
            continue
        for _ in range(random.choice((1, 1, 2, 3)) if option.several else 1):
            if option.type is bool:
                line += [random.choice(option.flags)]
                continue
            value = (_value if random.random() < wrong else _right_value)(random, name, option)
            if not option.flags:
                arguments.append(value)
                continue
            flag = random.choice(option.flags)
            joined = f"{flag}={value}" if flag.startswith("--") else f"{flag}{value}"
            line += random.choice(([flag, value], [joined]))
    if random.random() < 0.1:
        line = ["--log-format", random.choice(("json", "text")), *line]
    if random.random() < 0.03 * wrong:
        line.append(random.choice(("--nope", "-z", "--lake", "extra", "--help")))
    if random.random() < 1 - 0.1 * wrong:
        arguments = ["--", *arguments] if arguments else []
    return [*line, *arguments]


def _left_out(random: Random, command: str) -> set[str]:
    """Options that exclude the one that is given."""
    if command != "query":
        return set()
    return set(_ONE_OF_QUERY) - {random.choice(_ONE_OF_QUERY)}


def _right_value(random: Random, command: str, option: _Option) -> str:
    if option.name in _RIGHT:
        return random.choice(_RIGHT[option.name])
    if option.type in {int, float}:
        return random.choice(("0", "1", "2", "4"))
    return _value(random, command, option)


def _value(random: Random, command: str, option: _Option) -> str:  # noqa: PLR0911
    if option.name == "lake" and random.random() < 0.8:
        return "LAKE"
    if random.random() < 0.04:
        return random.choice(_WORDS)
    if typing.get_origin(option.type) is typing.Literal:
        return str(random.choice(typing.get_args(option.type)))
    if option.type in {int, float}:
        # A synthetic archive is as large as it is asked to be.
        return random.choice(_NUMBERS[: 7 if command == "synth" else None])
    if option.name in _TEXTS and random.random() < 0.85:
        return random.choice(_TEXTS[option.name])
    if option.name in _NAMES_OF_RUNS and random.random() < 0.8:
        return random.choice(("a", "b", "latest", "a~1", "latest~9", "nobody"))
    if option.type is Path or option.name in _NAMES_OF_PATHS:
        path = random.choice(_PATHS)
        # As an input it is every file of the machine.
        return "LAKE" if path == "/" and option.name == "inputs" else path
    return random.choice(_WORDS)


class Place:
    """A folder with a lake and files that command lines name; the working folder while entered."""

    def __init__(self, folder: Path) -> None:
        self._kept = folder / "kept"
        self.folder = folder / "work"
        self._kept.mkdir()
        self._add_files(self._kept)
        lake = Lake.create(self._kept / "lake")
        # With its inputs in the lake, a job has little to build.
        ingest([str(self._kept)], lake, Options())
        for day, run_id in enumerate(("a", "b"), start=1):
            commit_run(lake, run_id, log_run(config="c", run_date=datetime(2025, 1, day)))
        commit_run(lake, "t", trace_run(run_date=datetime(2025, 1, 3)))
        build(lake)
        self.folder.mkdir()
        self.again()

    def again(self) -> None:
        """Makes everything as it was."""
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder, symlinks=True)

    @staticmethod
    def _add_files(folder: Path) -> None:
        (folder / "folder").mkdir()
        texts = {"file": "x\n", "q.sql": "FROM runs\n", "hosts.csv": "rank,host\n0,n\n"}
        for name, text in {**texts, "plan.txt": plan(3)}.items():
            (folder / name).write_text(text)
        traces = {trace_name(rank): trace(rank, steps=3) for rank in range(2)}
        write(folder / "traces", traces)
        for name, target in {"link": "file", "loop": "loop", "dangling": "gone"}.items():
            (folder / name).symlink_to(target)

    def run(self, line: list[str]) -> tuple[int, str]:
        """Runs a command line, and returns its exit code and what it says on standard error."""
        given = [word.replace("LAKE", str(self.folder / "lake")) for word in line]
        streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape") for _ in range(3)]
        code: object = 0
        before, terminated = os.getcwd(), signal.getsignal(signal.SIGTERM)
        os.chdir(self.folder)
        try:
            with (
                mock.patch.multiple(sys, stdin=streams[0], stdout=streams[1], stderr=streams[2]),
                mock.patch.object(sys, "argv", ["tracelake", *given]),
                mock.patch("tracelake.cli.end_if_abandoned"),
            ):
                main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            os.chdir(before)
            signal.signal(signal.SIGTERM, terminated)
        assert isinstance(code, int)
        streams[2].flush()
        return code, streams[2].buffer.getvalue().decode("utf-8", "replace")


def problem(code: int, err: str, seconds: float) -> str | None:
    """Returns what is wrong with how a command line ended."""
    if "Traceback" in err or "a bug in tracelake" in err:
        return next((text for text in err.splitlines() if "a bug" in text), "Traceback")
    if "Warning" in err:
        return "a warning of Python"
    if code not in EXPECTED:
        return f"exit code {code}"
    if code and not err.strip():
        return f"exit code {code} without a word"
    return f"{seconds:.0f} s" if seconds > _SECONDS else None


def campaign(
    place: Place, count: int, seed: int, commands: Sequence[str] = tuple(COMMANDS)
) -> Iterator[tuple[list[str], int, str | None]]:
    """Yields generated command lines, each with its exit code and what is wrong."""
    for number in range(count):
        line = words(Random(f"{seed}/{number}"), commands)
        began = time.monotonic()
        code, err = place.run(line)
        yield line, code, problem(code, err, time.monotonic() - began)
        if {"drop", "run", "ingest", "compact", "synth"}.intersection(line[:3]) or len(
            os.listdir(place.folder)
        ) > 12:
            place.again()


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.options", description=__doc__)
    parser.add_argument("count", type=int, help="command lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="only commands that take little time")
    given = parser.parse_args()
    commands = QUICK if given.quick else tuple(COMMANDS)
    codes: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for line, code, wrong in campaign(Place(Path(folder)), given.count, given.seed, commands):
            codes[code] += 1
            if wrong:
                kinds[wrong[:120]] += 1
                if kinds[wrong[:120]] == 1:
                    shown = shlex.join(line).encode(errors="backslashreplace").decode()
                    print(f"{wrong:.300}: {shown:.400}", flush=True)  # noqa: T201
            if codes.total() % 500 == 0:
                print(  # noqa: T201
                    f"{codes.total():,} command lines in {time.monotonic() - began:,.0f} s, exit"
                    f" codes {dict(sorted(codes.items()))}, {kinds.total()} failures",
                    flush=True,
                )
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(_main())
