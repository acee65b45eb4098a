"""Read `schemas/*.toml`: tables and columns, and what derives from them."""

from __future__ import annotations

import functools
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tracelake.base.errors import ContractError
from tracelake.base.resources import resource_dir
from tracelake.schema import NO_TABLES

PARTITION_KEY = "run_id"
METADATA_KEY = b"tracelake"

_ARROW: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us"),
    "BIGINT[]": pa.list_(pa.int64()),
    "VARCHAR[]": pa.list_(pa.string()),
    "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
    "MAP(VARCHAR, BIGINT)": pa.map_(pa.string(), pa.int64()),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the lake: one name, one type, one meaning, in every table that has it.

    Attributes:
        dictionary: The column has few distinct texts; parsers give codes and names.
        rising: The integers grow from row to row of a file, so they are stored as differences.
    """

    name: str
    type: str
    doc: str
    unit: str | None = None
    dictionary: bool = False
    rising: bool = False

    @property
    def storage_type(self) -> pa.DataType:
        """Type that parsers produce and Parquet stores."""
        return pa.dictionary(pa.int32(), pa.string()) if self.dictionary else _ARROW[self.type]

    @property
    def comment(self) -> str:
        """Doc with its unit, as shown in catalogs."""
        return f"{self.doc} Unit: {self.unit}." if self.unit else self.doc


@dataclass(frozen=True)
class Table:
    """A base table of the lake.

    Attributes:
        required: Columns that are never NULL: Parquet stores no mark per value for them.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    required: frozenset[str] = frozenset()

    @property
    def stored(self) -> tuple[Column, ...]:
        """Columns that a parser gives: all but the run id."""
        return tuple(c for c in self.columns if c.name != PARTITION_KEY)

    @functools.cached_property
    def storage_schema(self) -> pa.Schema:
        """Arrow schema of rows without their run: units per field, and a hash of the table.

        A small part is mostly footer, and every reader of a lake of small runs reads them all: what
        the columns mean is in the warehouse.
        """
        fields = [
            pa.field(
                c.name,
                c.storage_type,
                nullable=c.name not in self.required,
                metadata={"unit": c.unit} if c.unit else None,
            )
            for c in self.stored
        ]
        described = {"table": self.name, "schema_version": SCHEMA_VERSION, "schema": self.hash}
        return pa.schema(fields, metadata={METADATA_KEY: json.dumps(described).encode()})

    @functools.cached_property
    def hash(self) -> str:
        """Hash that changes with any column, type, doc or required column."""
        described = (self.name, self.doc, sorted(self.required), self.columns)
        return hashlib.sha256(repr(described).encode()).hexdigest()[:16]

    @functools.cached_property
    def storage_types(self) -> Mapping[str, pa.DataType]:
        """Types of `storage_schema` by column, in order; a schema makes its fields at each use."""
        return {field.name: field.type for field in self.storage_schema}

    def batch(self, columns: Mapping[str, Any]) -> pa.RecordBatch:
        """Return rows of `storage_schema` from columns; one that is not named is NULL."""
        rows = len(columns["line"])
        arrays = [
            pa.array(columns[name], kind) if name in columns else pa.nulls(rows, kind)
            for name, kind in self.storage_types.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.storage_schema)

    def holds(self, row: Mapping[str, object]) -> bool:
        """Return whether the columns can hold a row that a reader made of a line.

        It has a value for each column that is never NULL, but for file and line, which its caller
        knows. Whole numbers fit, and a column of them gets no other numbers.

        Raises:
            KeyError: The table has no such column.
        """
        if not row.keys() <= self.storage_types.keys():
            strange = row.keys() - self.storage_types.keys()
            raise KeyError(f"table {self.name} has no column {min(strange)}")
        for name in self._owed:
            if row.get(name) is None:
                return False
        limits = self._limits
        for name, value in row.items():
            if isinstance(value, int):
                limit = limits.get(name, 1 << 63)
                if not -limit <= value < limit:
                    return False
            elif isinstance(value, float) and name in limits and not value.is_integer():
                return False
        return True

    @functools.cached_property
    def _owed(self) -> frozenset[str]:
        """Columns that every row of a line needs a value for."""
        return self.required - {"source_id", "line"}

    @functools.cached_property
    def _limits(self) -> Mapping[str, int]:
        """Columns of whole numbers, and the least number that is too large for each."""
        types = self.storage_types.items()
        return {
            name: 1 << (kind.bit_width - 1) for name, kind in types if pa.types.is_integer(kind)
        }

    @functools.cached_property
    def part_schema(self) -> pa.Schema:
        """Arrow schema of a part file whose rows name their run: it comes first.

        It has the type that readers give to the key of a folder, so that both make one column, and
        is never NULL, so that they cannot take it for a column that other files merely lack.
        """
        key = pa.field(PARTITION_KEY, pa.string(), nullable=False)
        return pa.schema([key, *self.storage_schema], metadata=self.storage_schema.metadata)

    @functools.cached_property
    def rewritten_schema(self) -> pa.Schema:
        """Arrow schema of a part of rows that the lake had: earlier versions lack some columns."""
        key, *fields = self.part_schema
        nullable = [field.with_nullable(True) for field in fields]
        return pa.schema([key, *nullable], metadata=self.part_schema.metadata)


# Raise this when part files of earlier versions would be read wrongly.
SCHEMA_VERSION = 3


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"not TOML: {error}", path=path) from error


def _column(path: Path, name: str, entry: Mapping[str, Any]) -> Column:
    unknown = set(entry) - {"type", "unit", "doc", "dictionary", "rising"}
    if unknown or "type" not in entry or not entry.get("doc"):
        raise ContractError(
            f"column {name} needs type and doc and takes unit, dictionary and rising"
            + (f", not {', '.join(sorted(unknown))}" if unknown else ""),
            path=path,
        )
    if entry["type"] not in _ARROW:
        raise ContractError(
            f"column {name} has type {entry['type']!r}",
            path=path,
            hint=f"one of {', '.join(_ARROW)}",
        )
    return Column(name=name, **entry)


@functools.cache
def columns() -> Mapping[str, Column]:
    """Return every declared column by name.

    Raises:
        ContractError: `columns.toml` breaks its own form.
    """
    path = resource_dir("schemas") / "columns.toml"
    return {name: _column(path, name, entry) for name, entry in _load(path).items()}


@functools.cache
def tables() -> Mapping[str, Table]:
    """Return every base table by name, in alphabetical order.

    Raises:
        ContractError: A table names a column that `columns.toml` does not declare, or requires one
            that it does not have.
    """
    known = columns()
    found = {}
    for path in sorted(resource_dir("schemas").glob("*.toml")):
        if path.stem in NO_TABLES:
            continue
        entry = _load(path)
        missing = [name for name in entry["columns"] if name not in known]
        if missing:
            raise ContractError(
                f"unknown columns {', '.join(missing)}",
                path=path,
                hint="declare them in schemas/columns.toml",
            )
        required = frozenset(entry.get("required", ()))
        if strange := required.difference(entry["columns"]):
            raise ContractError(
                f"required, but no columns of the table: {', '.join(sorted(strange))}",
                path=path,
                hint="name them in columns too",
            )
        found[path.stem] = Table(
            path.stem, entry["doc"], tuple(known[name] for name in entry["columns"]), required
        )
    return found


@functools.cache
def reasons() -> Mapping[str, str]:
    """Return every name that a `reason` of a model can take, with its doc.

    Raises:
        ContractError: `reasons.toml` breaks its own form.
    """
    path = resource_dir("schemas") / "reasons.toml"
    found = _load(path)
    for name, doc in found.items():
        if not isinstance(doc, str) or not doc:
            raise ContractError(f"reason {name} needs a doc", path=path)
    return found


class SkipReason(NamedTuple):
    """Why an input is skipped.

    Attributes:
        files: What such inputs are called; `{s}` is the s of several.
        next: What to do where nothing is usable; None where the list of formats may tell.
    """

    doc: str
    files: str
    next: str | None = None


@functools.cache
def skip_reasons() -> Mapping[str, SkipReason]:
    """Return every value of `skipped.reason`, in the order in which commands name them."""
    path = resource_dir("schemas") / "skips.toml"
    return {name: SkipReason(**entry) for name, entry in _load(path).items()}


@functools.cache
def schema_hash() -> str:
    """Return a hash that changes with any table."""
    hashes = " ".join(table.hash for table in tables().values())
    return hashlib.sha256(hashes.encode()).hexdigest()[:16]
