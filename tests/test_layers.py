"""Imports go in one direction: each package may import only the packages before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Package -> the other packages it may import; `pipeline` itself only has the version.
FOUNDATION = ["errors", "files", "text", "resources", "schema", "faults", "topology"]
ALLOWED: dict[str, list[str]] = {
    "text": [],
    "drawing": [],
    "moving": [],
    "waiting": [],
    "files": ["errors"],
    "kept": [],
    "errors": [],
    "measures": [],
    "budget": ["errors"],
    "engine": ["budget", "errors", "measures", "waiting"],
    "resources": ["errors"],
    "schema": ["errors", "resources"],
    "faults": ["errors", "resources", "schema"],
    "topology": ["errors"],
    "scan": ["errors", "kept", "resources", "schema"],
    "format_names": [],
    "formats": [*FOUNDATION, "format_names", "scan"],
    "stores": ["errors"],
    "lake": [*FOUNDATION, "stores"],
    "records": ["errors", "files", "lake", "schema"],
    "batches": [],
    "parts": ["batches", "files", "lake", "measures", "schema"],
    "packing": ["batches", "errors", "files", "lake", "parts", "schema"],
    "duplicates": ["files", "lake", "packing", "parts", "schema"],
    "ingest": [
        *FOUNDATION,
        *("budget", "duplicates", "engine", "formats", "lake", "measures", "parts", "scan"),
        *("stores", "waiting"),
    ],
    "models": [*FOUNDATION, "engine", "kept", "lake", "measures", "packing", "records", "waiting"],
    "query": [*FOUNDATION, "drawing", "lake", "models", "records", "waiting"],
    "check": [*FOUNDATION, "lake", "models", "query"],
    "retention": [*FOUNDATION, "duplicates", "lake", "models", "query"],
    "report": [*FOUNDATION, "kept", "lake", "models", "query"],
    "gates": FOUNDATION,
    "nightly": [*FOUNDATION, "lake", "ingest", "models", "query", "report", "gates"],
    "terminal": [*FOUNDATION, "drawing", "gates", "models", "query"],
    "synth": ["errors", "resources", "topology"],
    "timeline": [*FOUNDATION, "lake", "models", "query"],
}
TOP = {"cli", "console", "console_json", "__init__", "__main__"}


def modules() -> list[Path]:
    return sorted((ROOT / "pipeline").rglob("*.py"))


def room(path: Path) -> str:
    inside = path.relative_to(ROOT / "pipeline")
    return inside.parts[0].removesuffix(".py")


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
            if package == "pipeline" and rest:
                yield rest.split(".")[0]


def test_every_room_is_listed() -> None:
    assert {room(path) for path in modules()} - TOP == set(ALLOWED)


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_go_one_way(path: Path) -> None:
    if room(path) in TOP:
        return
    allowed = {room(path), "__version__", *ALLOWED[room(path)]}
    assert set(imported_rooms(path)) <= allowed
