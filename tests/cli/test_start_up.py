"""What a command does before its work: what it imports, and where compiled code comes from."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.main import get_group

from tests.conftest import ROOT, Command
from tests.lakes import ingest_and_build
from tests.traces import plan, trace, trace_name, write
from tracelake.base.disk_cache import DiskCache, places
from tracelake.cli import app
from tracelake.kernels.object_code import ObjectCode

VERSION, OTHER = "0123456789abcdef", "fedcba9876543210"
DAY = 86_400

# Takes longer to import than to print a page of help.
HEAVY = {
    *("duckdb", "isal", "jinja2", "llvmlite", "numba", "numpy", "pandas", "polars"),
    *(
        "pyarrow",
        "pyarrow.compute",
        "pydantic",
        "rich",
        "vl_convert",
        "asyncio",
        "email",
        "http",
        "multiprocessing",
    ),
}
# Typer itself reads the options of a command with pydantic, which looks for plugins.
TYPER = {"pydantic", "email"}
COMMANDS = list(get_group(app).commands)
IMPORTED = """
import json, sys
from tracelake.cli import main

for arguments in json.loads(sys.argv.pop()):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def python(
    script: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )


def imported(*commands: list[str]) -> set[str]:
    names: list[str] = json.loads(python(IMPORTED, json.dumps(commands)).stderr.splitlines()[-1])
    return HEAVY & {*names, *(name.partition(".")[0] for name in names)}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    ranks = {f"job/{trace_name(r)}": trace(r, steps=2) for r in range(2)}
    return write(tmp_path / "archive", {**ranks, "plan.txt": plan(2)})


def test_help_and_version_import_nothing_heavy() -> None:
    assert "ingest" in COMMANDS
    assert imported(["--help"]) == set()
    assert imported(*([name, "--help"] for name in COMMANDS)) <= TYPER
    assert imported(["--version"]) <= {"email"}  # the form of a package's metadata


def test_the_command_is_a_module_too() -> None:
    words = [sys.executable, "-m", "tracelake", "synth", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: python -m tracelake synth [OPTIONS] {directory}")


def test_a_command_imports_only_what_its_work_takes(archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ingest_and_build(archive / "plan.txt", lake)
    on_lake = ["--lake", str(lake)]
    parsers, drawing = {"numba", "llvmlite", "isal"}, {"jinja2", "vl_convert", "polars"}
    asked = imported(["query", "SELECT 1", *on_lake])
    assert not asked & (parsers | drawing | {"pyarrow.compute"})
    drawing.add("rich")  # which draws tables
    assert not imported(["build", *on_lake]) & (parsers | drawing)
    unchanged = imported(["ingest", str(archive / "plan.txt"), *on_lake])
    assert not unchanged & (drawing | {"duckdb", "llvmlite", "numba", "pyarrow.compute"})
    parsed = imported(["ingest", str(archive), "--lake", str(tmp_path / "another")])
    assert not parsed & (drawing | {"duckdb", "numba"})


def test_a_second_process_compiles_nothing(
    tracelake: Command, archive: Path, sample: Path, tmp_path: Path
) -> None:
    inputs = [str(archive), str(sample / "optimus")]
    assert tracelake("ingest", *inputs, "--lake", tmp_path / "first").code == 0
    script = """
from numba.core import event
from tracelake.cli import main

with event.install_recorder("numba:run_pass") as recorder:
    try:
        main()
    except SystemExit as end:
        assert not end.code
print([e.data["qualname"] for _, e in recorder.buffer])
"""
    compiled = python(script, "ingest", *inputs, "--lake", str(tmp_path / "second"))
    assert "compiling" not in compiled.stderr
    assert compiled.stdout == "[]\n"


# A kernel of its own: the parsers' take seconds to compile.
KERNEL = """
import sys
from tracelake.kernels.compiled import kernel, on_message

@kernel
def added(a, b):
    return a + b

with on_message(print):
    print(added(1, 2), added(2, 2), added(1.5, 2.0))
"""
COMPILING = "compiling the parsers for this machine on first use: 2 to 20 s per format"


def run_kernel(cache: Path) -> list[str]:
    return python(KERNEL, environment={"NUMBA_CACHE_DIR": str(cache)}).stdout.splitlines()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process leaves that had to compile."""
    folder = tmp_path_factory.mktemp("compiled")
    assert run_kernel(folder) == [COMPILING, "3 4 3.5"]
    return folder


@pytest.fixture
def cache(compiled: Path, tmp_path: Path) -> Path:
    return shutil.copytree(compiled, tmp_path / "cache")


def test_compiled_code_is_kept_for_the_next_process(cache: Path) -> None:
    assert run_kernel(cache) == ["3 4 3.5"]


def test_damaged_code_is_compiled_again_and_put_right(cache: Path) -> None:
    short, changed = sorted(cache.glob("kernels-*/*added-*"))
    short.write_bytes(short.read_bytes()[:1000])
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    changed.write_bytes(content)
    assert run_kernel(cache) == [COMPILING, "3 4 3.5"]
    assert run_kernel(cache) == ["3 4 3.5"]


def test_code_that_needs_what_this_process_lacks_is_compiled_again(cache: Path) -> None:
    for path in cache.glob("kernels-*/*added-*"):
        code = (
            ObjectCode.unpacked(path.read_bytes()[32:])._replace(needs=("numba_of_old",)).packed()
        )
        path.write_bytes(hashlib.sha256(code).digest() + code)
    assert run_kernel(cache) == [COMPILING, "3 4 3.5"]
    assert run_kernel(cache) == ["3 4 3.5"]


# Every kind of argument, and what a kernel ends with: the second process runs kept code.
KINDS = """
from typing import NamedTuple

import numpy as np
from tracelake.kernels.compiled import kernel

class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray

class Other(NamedTuple):
    second: np.ndarray
    first: np.ndarray

@kernel
def first(values):
    return values[0], values[1]

@kernel
def first_of(pair):
    return pair.first[0]

@kernel
def half(a, b):
    return a // b

numbers = np.arange(4, 10)
fixed = numbers.copy()
fixed.flags.writeable = False
records = np.array([(7, 8), (9, 10)], [("a", "u1"), ("b", "<i8")])
arrays = [numbers, fixed, numbers[::2], numbers[::-1], numbers.astype("i4"), numbers / 8]
arrays += [(-numbers).view("u8"), records["b"]]
for array in arrays:
    print(*first(array))
one, two = numbers[:1], numbers[1:2]
print(first_of(Pair(one, two)), first_of(Other(one, two)), first_of(Pair(one.astype("i2"), two)))
print(half(7, 2), half(np.int64(7), True), half(7.0, 2))
for wrong in ((1, 0), ("7", 2), (1 << 64, 2), ([1], 2)):
    try:
        half(*wrong)
    except (ArithmeticError, TypeError) as error:
        print(type(error).__name__)
"""


def test_kept_code_is_that_of_the_types_of_its_arguments(tmp_path: Path) -> None:
    said = [
        *("4 5", "4 5", "4 6", "9 8", "4 5", "0.5 0.625"),
        *("18446744073709551612 18446744073709551611", "8 10", "4 5 4", "3 7 3.0"),
        *("ZeroDivisionError", "TypeError", "OverflowError", "TypeError"),
    ]
    for _ in range(2):
        done = python(KINDS, environment={"NUMBA_CACHE_DIR": str(tmp_path)})
        assert done.stdout.splitlines() == said


def test_where_nothing_can_be_kept_an_ingest_compiles_and_says_why(
    archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    cache = tmp_path / "file" / "cache"
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from tracelake.cli import main; main()"),
            *("ingest", archive / "plan.txt", "--lake", tmp_path / "lake"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    unkept = (
        f"compiled parsers cannot be cached, every start compiles them: {cache}: Not a directory"
    )
    assert said[:2] == [COMPILING, unkept]
    assert said.count(COMPILING) == said.count(unkept) == 1
    assert "1 run: 1 new" in said


def test_a_result_is_read_back_by_name_and_version(tmp_path: Path) -> None:
    kept = DiskCache("proofs", VERSION, [tmp_path])
    kept.write("a", b"one")
    kept.write("a", b"two")
    kept.write("b", b"")
    assert kept.trouble is None
    again = DiskCache("proofs", VERSION, [tmp_path])
    assert [again.read(name) for name in "abc"] == [b"two", b"", None]
    assert DiskCache("proofs", OTHER, [tmp_path]).read("a") is None


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"\0" * 10_000], ids=len)
def test_a_damaged_result_is_none(tmp_path: Path, damage: bytes) -> None:
    kept = DiskCache("proofs", VERSION, [tmp_path])
    kept.write("a", b"one")
    (tmp_path / f"proofs-{VERSION}" / "a").write_bytes(damage)
    assert kept.read("a") is None
    kept.write("a", b"one")
    assert kept.read("a") == b"one"


def test_results_go_to_the_first_folder_that_takes_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    below_file, fine = tmp_path / "file" / "cache", tmp_path / "new" / "cache"
    kept = DiskCache("proofs", VERSION, [below_file, fine])
    kept.write("a", b"one")
    assert (kept.read("a"), kept.trouble) == (b"one", None)
    assert (fine / f"proofs-{VERSION}" / "a").is_file()
    nowhere = DiskCache("proofs", VERSION, [below_file])
    nowhere.write("a", b"one")
    assert (nowhere.read("a"), nowhere.trouble) == (None, f"{below_file}: Not a directory")


def test_results_are_read_from_every_folder(tmp_path: Path) -> None:
    brought, own = tmp_path / "brought", tmp_path / "own"
    for folder, result in ((brought, b"brought"), (own, b"own")):
        DiskCache("proofs", VERSION, [folder]).write(folder.name, result)
    kept = DiskCache("proofs", VERSION, [brought, own])
    assert (kept.read("brought"), kept.read("own")) == (b"brought", b"own")


def test_a_folder_that_vanishes_costs_what_was_in_it(tmp_path: Path) -> None:
    kept = DiskCache("proofs", VERSION, [tmp_path])
    kept.write("a", b"one")
    (tmp_path / f"proofs-{VERSION}").rename(tmp_path / "elsewhere")
    assert kept.read("a") is None
    kept.write("a", b"one")
    assert (kept.read("a"), kept.trouble) == (b"one", None)


def test_a_result_that_does_not_fit_leaves_the_old_one_and_no_half(tmp_path: Path) -> None:
    kept = DiskCache("proofs", VERSION, [tmp_path])
    kept.write("a", b"one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as if the disk were full
    try:
        kept.write("a", bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept.trouble == f"{tmp_path}: File too large"
    assert kept.read("a") == b"one"
    assert [p.name for p in (tmp_path / f"proofs-{VERSION}").iterdir()] == ["a"]


def test_readers_and_writers_at_once_see_whole_results(tmp_path: Path) -> None:
    results = [bytes([i]) * 100_000 for i in range(4)]

    def write_and_read(result: bytes) -> set[bytes | None]:
        kept = DiskCache("proofs", VERSION, [tmp_path])
        seen = set()
        for _ in range(50):
            kept.write("a", result)
            seen.add(kept.read("a"))
        assert kept.trouble is None
        return seen

    with ThreadPoolExecutor(4) as pool:
        seen = set().union(*pool.map(write_and_read, results))
    assert seen <= set(results)


def test_versions_that_no_one_used_for_30_days_are_removed(tmp_path: Path) -> None:
    now = time.time()
    ages = {
        f"proofs-{OTHER}": 31,
        f"proofs-{OTHER[::-1]}": 31,
        "proofs-1111111111111111": 29,
        "others-2222222222222222": 31,
        "proofs-of-the-user": 31,
    }
    for name, days in ages.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"")
        os.utime(tmp_path / name, (now - days * DAY, now - days * DAY))
    used = DiskCache("proofs", OTHER[::-1], [tmp_path])
    assert used.read("a") is None  # damaged: of no use to anyone
    DiskCache("proofs", VERSION, [tmp_path]).write("a", b"one")
    assert {path.name for path in tmp_path.iterdir()} == {
        f"proofs-{VERSION}",
        *(name for name in ages if ages[name] < 30 or name.startswith("others")),
        "proofs-of-the-user",
    }


def test_reading_keeps_a_version_in_use(tmp_path: Path) -> None:
    DiskCache("proofs", VERSION, [tmp_path]).write("a", b"one")
    folder = tmp_path / f"proofs-{VERSION}"
    os.utime(folder, (0, 0))
    assert DiskCache("proofs", VERSION, [tmp_path]).read("a") == b"one"
    DiskCache("proofs", OTHER, [tmp_path]).write("b", b"two")
    assert DiskCache("proofs", VERSION, [tmp_path]).read("a") == b"one"


def test_places_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    beside = ROOT / "pipeline" / "__pycache__"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert places() == [beside, tmp_path / ".cache" / "tracelake"]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says its specification
    assert places() == [beside, tmp_path / ".cache" / "tracelake"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert places() == [beside, tmp_path / "xdg" / "tracelake"]
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "asked"))
    assert places() == [tmp_path / "asked"]


def test_a_user_without_a_home_has_places_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert places() == [ROOT / "pipeline" / "__pycache__"]
