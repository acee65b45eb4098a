"""Imports go in one direction, along the line of rooms that the package begins with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracelake
from tests.conftest import ROOT

ROOMS = [
    room.strip()
    for line in (tracelake.__doc__ or "").splitlines()
    if "→" in line
    for room in line.split("→")
    if room.strip()
]


def modules() -> list[Path]:
    return sorted((ROOT / "pipeline").glob("*/**/*.py"))


def room(path: Path) -> str:
    return path.relative_to(ROOT / "pipeline").parts[0]


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "tracelake" and rest not in ("", "__version__"):
                yield rest.split(".")[0]


def test_every_room_stands_on_the_line() -> None:
    assert len(ROOMS) == len(set(ROOMS))
    assert {room(path) for path in modules()} == set(ROOMS)
    top = {path.name for path in (ROOT / "pipeline").glob("*.py")}
    assert top == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_go_only_to_the_left(path: Path) -> None:
    place = ROOMS.index(room(path))
    assert {name for name in imported_rooms(path) if ROOMS.index(name) > place} == set()


def test_tests_are_in_the_folder_of_a_room_or_concern_several() -> None:
    tests = ROOT / "tests"
    folders = {path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")}
    assert folders <= set(ROOMS)
    assert folders


FORMATS = [path.parent for path in (ROOT / "pipeline" / "formats").glob("*/__init__.py")]


@pytest.mark.parametrize("folder", FORMATS, ids=lambda p: p.name)
def test_a_format_imports_no_other_format(folder: Path) -> None:
    others = {f"tracelake.formats.{other.name}" for other in FORMATS if other != folder}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not any(f"{node.module}.".startswith(f"{other}.") for other in others), path


SOURCES = sorted(path for folder in ("pipeline", "tests") for path in (ROOT / folder).rglob("*.py"))


def test_no_module_is_exempt_from_strict_typing() -> None:
    exempt = re.compile(r"^\s*# *(mypy:|type: *ignore *($|#))", re.MULTILINE)
    assert [path for path in SOURCES if exempt.search(path.read_text())] == []
