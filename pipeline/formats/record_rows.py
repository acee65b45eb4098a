"""Make the rows of readers' lines: the columns of small runs are made for many at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tracelake.formats.many_lines import Taken
from tracelake.kernels.numbers import Longs
from tracelake.schema.tables import tables


@dataclass(frozen=True)
class RecordRows:
    """Rows of neighbouring lines of a file.

    Attributes:
        alone: Those of lines that were read alone, with file and line, by table.
        taken: Those of lines that were read with others.
    """

    source_id: int
    alone: Mapping[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    taken: list[Taken] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """Return how many rows there are by table."""
        counts = Counter({table: len(rows) for table, rows in self.alone.items()})
        for taken in self.taken:
            counts[taken.table] += len(taken.lines)
        return counts


def make(runs: Sequence[Sequence[RecordRows]]) -> dict[str, pa.RecordBatch]:
    """Return the rows of runs by table, one after the other, in order of files and lines."""
    every = [rows for run in runs for rows in run]
    alone: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    alike: dict[tuple[Any, ...], list[tuple[int, RecordRows, Taken]]] = defaultdict(list)
    for place, rows in enumerate(every):
        for table, own in rows.alone.items():
            alone[table] += ((place, row) for row in own)
        for taken in rows.taken:
            alike[taken.table, id(taken.search), *taken.own].append((place, rows, taken))
    made: dict[str, list[tuple[pa.RecordBatch, Longs]]] = defaultdict(list)
    for table, found in alone.items():
        batch = pa.RecordBatch.from_pylist(
            [row for _, row in found], tables()[table].storage_schema
        )
        made[table].append((batch, np.array([place for place, _ in found])))
    for (table, *_), some in alike.items():
        made[table].append(_alike(some))
    return {table: _in_order(batches) for table, batches in made.items()}


def _alike(some: Sequence[tuple[int, RecordRows, Taken]]) -> tuple[pa.RecordBatch, Longs]:
    """Return rows of lines that one search found, and where in order each stands."""
    first = some[0][2]
    counts = [len(taken.lines) for _, _, taken in some]
    places = np.concatenate([taken.places for _, _, taken in some])
    columns: dict[str, Any] = {
        name: values[places] for name, values in first.search.columns.items()
    }
    columns |= {
        name: [value for _, _, taken in some for value in taken.own[name]] for name in first.own
    }
    columns["source_id"] = np.repeat([rows.source_id for _, rows, _ in some], counts)
    columns["line"] = np.concatenate([taken.lines for _, _, taken in some])
    batch = tables()[first.table].batch(columns)
    return batch, np.repeat([place for place, _, _ in some], counts)


def _in_order(batches: Sequence[tuple[pa.RecordBatch, Longs]]) -> pa.RecordBatch:
    """Return the rows of batches of a table in order of their places and lines."""
    if len(batches) == 1:  # as they came
        return batches[0][0]
    every = pa.Table.from_batches([batch for batch, _ in batches])
    places = np.concatenate([places for _, places in batches])
    order = np.lexsort((every["line"].to_numpy(), places))
    (batch,) = every.take(order).combine_chunks().to_batches()
    return batch
