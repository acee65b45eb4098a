"""Damage to what a lake keeps: it is said, mended, or left out; nothing else is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from pipeline.lake import Lake
from pipeline.models import build
from pipeline.models.state import examined
from tests.conftest import Command
from tests.lakes import Template
from tests.tiny_lakes import commit_run, log_run

_ROWS = "SELECT run_id, count(*) AS steps FROM step_stats GROUP BY ALL ORDER BY ALL"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    lake = Lake.create(tmp_path_factory.mktemp("damage") / "lake")
    commit_run(lake, "a", log_run())
    commit_run(lake, "b", log_run(steps=4))
    build(lake)
    return Template.of(lake)


@pytest.fixture
def lake(template: Template) -> Lake:
    return template.again()


# --- the warehouse --------------------------------------------------------------------------------


def _bytes(path: Path, offset: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(4)
        file.seek(offset)
        file.write(bytes(byte ^ 0xFF for byte in old))


def _half(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size // 2)


def _sql(path: Path, statement: str) -> None:
    path.chmod(0o644)
    with duckdb.connect(str(path)) as con:
        con.execute(statement)


def _folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


DAMAGE: dict[str, tuple[Callable[[Path], None], bool]] = {
    "half of it": (_half, True),
    "middle": (lambda path: _bytes(path, path.stat().st_size // 2), False),
    "table missing": (lambda path: _sql(path, "DROP TABLE run_summary"), True),
    "rows removed": (lambda path: _sql(path, "DELETE FROM run_summary"), False),
    "folder": (_folder, True),
    "stray log": (lambda path: path.with_name(f"{path.name}.wal").touch(), False),
}


@pytest.mark.parametrize(("damage", "refused"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_warehouse_is_made_anew(
    lake: Lake, tracelake: Command, damage: Callable[[Path], None], refused: bool
) -> None:
    whole = tracelake("query", _ROWS, "--lake", lake.root).out
    damage(lake.warehouse)
    checked = tracelake("check", "--lake", lake.root)
    assert (checked.code, "warehouse" in checked.out) == (5, True), checked
    if refused:
        for command in (["query", _ROWS], ["runs"], ["report", "-o", lake.root / "page.html"]):
            asked = tracelake(*command, "--lake", lake.root)
            assert asked.code == 3, asked
            assert f"tracelake build --lake {lake.root}" in asked.err
    built = tracelake("build", "--lake", lake.root, "-q")
    assert built.code == 0, built
    assert "built again" in built.err
    assert tracelake("query", _ROWS, "--lake", lake.root).out == whole
    assert examined(lake.warehouse)[1] is None
