"""Files of `schemas/`: what is wrong in one is said with its name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tracelake.base.errors import ContractError
from tracelake.base.figures import unit_of
from tracelake.models.catalog import catalog
from tracelake.schema import tables as schema


@pytest.fixture
def schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the schemas that is read instead of them."""
    folder = tmp_path / "schemas"
    shutil.copytree(ROOT / "schemas", folder)
    monkeypatch.setattr(schema, "resource_dir", lambda _: folder)
    schema.columns.cache_clear()
    schema.tables.cache_clear()
    yield folder
    schema.columns.cache_clear()
    schema.tables.cache_clear()


def test_names_of_columns_say_their_declared_units() -> None:
    """Figures are printed by the unit that a name says, where only the name is known."""
    relations = [
        *catalog().columns.values(),
        *(table.columns for table in schema.tables().values()),
    ]
    said = {(c.name, unit_of(c.name), c.unit) for columns in relations for c in columns}
    other = {each for each in said if each[1] and each[2] and each[1] != each[2]}
    assert not other
    assert ("step_p50_ms", "ms", "ms") in said


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("ops", '"step",', '"stride",', "unknown columns stride"),
        ("ops", "required = [", 'required = [\n    "sub_seq",', "required, but no .*: sub_seq"),
        ("ops", "columns = [", "columns = ", "not TOML"),
        ("columns", 'type = "BIGINT"', 'type = "HUGEINT"', "has type 'HUGEINT'"),
        ("columns", "rising = true", "falling = true", "not falling"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_name(
    schemas: Path, name: str, old: str, new: str, message: str
) -> None:
    file = schemas / f"{name}.toml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ContractError, match=message) as caught:
        schema.tables()
    assert caught.value.path == str(file)
