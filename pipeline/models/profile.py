"""Record how long each model takes to compute and to write."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from tracelake.models.catalog import Catalog


@dataclass(slots=True)
class Spent:
    """Sum up what a relation took over all batches.

    Attributes:
        batches: Batches of runs that it was computed for; 1 for a model over all runs.
        compute_s: Seconds from its inputs to its rows, with the check of its key.
        write_s: Seconds to write its rows into a part file or the warehouse.
    """

    batches: int = 0
    rows: int = 0
    compute_s: float = 0.0
    write_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Hold what relations took, by name. Jobs have one each, which the command adds up."""

    spent: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))

    @contextmanager
    def computing(self, name: str) -> Iterator[Spent]:
        """Time the computation of a relation; the block may set its number of rows."""
        spent, started = self.spent[name], time.perf_counter()
        yield spent
        spent.batches += 1
        spent.compute_s += time.perf_counter() - started

    def note(self, names: Iterable[str]) -> None:
        """Count relations that had no rows without being computed."""
        for name in names:
            self.spent[name].batches += 1

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Time the writing of a relation."""
        started = time.perf_counter()
        yield
        self.spent[name].write_s += time.perf_counter() - started

    def add(self, other: Mapping[str, Spent]) -> None:
        """Add what a job took."""
        for name, more in other.items():
            spent = self.spent[name]
            spent.batches += more.batches
            spent.rows += more.rows
            spent.compute_s += more.compute_s
            spent.write_s += more.write_s

    def table(self, models: Catalog) -> pa.Table:
        """Return a row per relation, the slowest first.

        Returns:
            `relation`, `kind` (`run` or `fleet`, the scope of a model; `table`: a base table that
            models read, whose rows are not counted), `batches`, `rows`, `compute_s`, `write_s`, and
            `share` of all seconds.
        """
        kinds = {name: "fleet" if m.fleet else "run" for name, m in models.models.items()}
        total = sum(map(_seconds, self.spent.values()))
        spent_by = sorted(self.spent.items(), key=lambda item: (-_seconds(item[1]), item[0]))
        rows = [
            {
                "relation": name,
                "kind": kinds.get(name, "table"),
                "batches": spent.batches,
                "rows": spent.rows if name in kinds else None,
                "compute_s": round(spent.compute_s, 3),
                "write_s": round(spent.write_s, 3),
                "share": round(_seconds(spent) / total, 4) if total else 0.0,
            }
            for name, spent in spent_by
        ]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _seconds(spent: Spent) -> float:
    return spent.compute_s + spent.write_s


_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("relation", "kind"), pa.string()),
        **dict.fromkeys(("batches", "rows"), pa.int64()),
        **dict.fromkeys(("compute_s", "write_s", "share"), pa.float64()),
    }
)
