"""Generated inputs of stated size: one module per large format, each ending in `INPUT`.

An input draws its times from a seeded generator: no block of text repeats as a whole, so what is
written is as hard to compress as a real trace. Beside the text it says which rows the text means;
their fingerprint is the reference that every candidate's answer is held against.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.parsing import large_formats
from tracelake.base.errors import ContractError

Integers = npt.NDArray[np.int64]
Fingerprint = dict[str, dict[str, int]]

_SEED = 20240923


@dataclass(frozen=True)
class Piece:
    """Whole lines of an input, and the rows they mean by relation."""

    text: bytes
    rows: Mapping[str, pa.Table]


@dataclass(frozen=True)
class Relation:
    """What is compared: the rows of a kind that every candidate must give.

    Attributes:
        name: Folder of Parquet files that a peer writes.
        key: Columns that tell rows apart.
        columns: Name -> DuckDB type; a candidate's column is cast to it.
        ours: Query over the lake's tables that gives these columns.
    """

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, str]
    ours: str

    def fingerprint(self, connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, int]:
        """Rows, and per column the sum of the hashes of (key, value): independent of the order."""
        typed = {name: f'CAST("{name}" AS {kind})' for name, kind in self.columns.items()}
        key = ", ".join(typed[name] for name in self.key)
        sums = ", ".join(f"coalesce(sum(hash({key}, {value})), 0)" for value in typed.values())
        row = connection.execute(f"SELECT count(*), {sums} FROM {relation}").fetchall()[0]
        return dict(zip(("rows", *typed), map(int, row), strict=True))

    def differing(
        self, connection: duckdb.DuckDBPyConnection, relation: str, expected: Mapping[str, int]
    ) -> list[str]:
        """Columns, or `rows`, in which an answer is not the expected one."""
        found = self.fingerprint(connection, relation)
        return [name for name, value in found.items() if expected[name] != value]


@dataclass(frozen=True)
class BenchInput:
    """How to make one file of a format.

    Attributes:
        pieces: Yields an input of at least so many bytes, from a generator of random numbers.
    """

    file_name: str
    pieces: Callable[[int, np.random.Generator], Iterator[Piece]]
    relations: tuple[Relation, ...]


@dataclass(frozen=True)
class Prepared:
    """An input on disk; `expected` is the fingerprint of its rows."""

    format: str
    path: Path
    size_bytes: int
    lines: int
    expected: Fingerprint


def repeated(values: Sequence[object], times: int, kind: pa.DataType | None = None) -> pa.Array:
    """A column that says those values over and over; texts unless another type is given."""
    index = np.tile(np.arange(len(values)), times)
    return pa.array(values, kind or pa.string()).take(pa.array(index))


def inputs() -> dict[str, BenchInput]:
    """The input of every large format.

    Raises:
        ContractError: A format has none.
    """
    return {name: input_of(name) for name in large_formats()}


def input_of(name: str) -> BenchInput:
    """The input of a format.

    Raises:
        ContractError: It has none.
    """
    found: BenchInput = _module_of(name).INPUT
    return found


def prepare(work: Path, name: str, size_bytes: int) -> Prepared:
    """Writes a format's input of that size below `work`, or takes it as it stands there."""
    module = _module_of(name)
    source: BenchInput = module.INPUT
    code = hashlib.sha256(_code(module)).hexdigest()[:12]
    folder = work / "inputs" / f"{name}-{size_bytes}-{code}"
    note = folder / "expected.json"
    path = folder / "archive" / source.file_name
    if not note.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines, expected = write_text(path, source, size_bytes, np.random.default_rng(_SEED))
        unfinished = note.with_suffix(".part")
        said = {"lines": lines, "expected": expected}
        unfinished.write_text(json.dumps(said), encoding="utf-8")
        os.replace(unfinished, note)
    said = json.loads(note.read_text(encoding="utf-8"))
    return Prepared(name, path, path.stat().st_size, said["lines"], said["expected"])


def write_text(
    path: Path, source: BenchInput, size_bytes: int, random: np.random.Generator
) -> tuple[int, Fingerprint]:
    """Writes one file; its lines and the fingerprint of its rows."""
    expected: Fingerprint = {}
    lines = 0
    connection = duckdb.connect()
    with path.open("wb") as file:
        for piece in source.pieces(size_bytes, random):
            file.write(piece.text)
            lines += piece.text.count(b"\n")
            for relation in source.relations:
                if relation.name not in piece.rows:
                    continue
                connection.register("piece", piece.rows[relation.name])
                total = expected.setdefault(relation.name, {})
                for column, value in relation.fingerprint(connection, "piece").items():
                    total[column] = total.get(column, 0) + value
    return lines, expected


def _code(module: ModuleType) -> bytes:
    """What an input depends on: its module, and this one."""
    return b"".join(Path(str(one)).read_bytes() for one in (module.__file__, __file__))


def _module_of(name: str) -> ModuleType:
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        raise ContractError(
            f"no bench input for format {name}",
            hint=f"add tests/bench/inputs/{name}.py that ends in INPUT = BenchInput(...), and"
            f" tests/bench/peers/{name}.py that ends in PEERS",
        )
    return importlib.import_module(f"{__name__}.{name}")
