"""Keep the rows of models with a row per step or call in Parquet parts, beside the base tables.

Such relations grow with the length of a job. Whoever computes a batch of runs writes its rows, a
part per relation; the warehouse has views of the parts and a list of the runs in each. No manifest
names them: they are derived, and a warehouse that is built anew has its own.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from tracelake.lake.layout import model_folder, part_name, table_of_part
from tracelake.lake.part_files import Mark, PartFiles
from tracelake.models.base import literal, of_runs, quoted, select_parts
from tracelake.models.catalog import Catalog

# Every build adds a part per relation. So many of less than this size become one.
_SMALL_BYTES = 4 << 20
_MANY = 32

PartRuns = Mapping[str, tuple[str, ...]]
"""Part, relative to the lake -> the runs that it has rows of, and perhaps others without rows."""


class ModelPartWriter:
    """Writes rows of models as Parquet files into a folder.

    Attributes:
        staged: Final path of the part, relative to the lake's root -> file.
    """

    def __init__(self, models: Catalog, folder: Path) -> None:
        self.staged: dict[str, Path] = {}
        self._models = models
        self._folder = folder

    def write(self, con: duckdb.DuckDBPyConnection, name: str, relation: str) -> str | None:
        """Write the rows of a model in its order; without rows no file remains.

        Returns:
            The file as a relation; None without rows.
        """
        path = self._folder / f"{uuid.uuid4().hex}.parquet"
        order = ", ".join(map(quoted, self._models.models[name].order))
        ((rows,),) = con.execute(
            f"COPY (FROM {relation} ORDER BY {order}) TO {literal(str(path))}"
            " (FORMAT parquet, COMPRESSION zstd)"
        ).fetchall()
        if not rows:
            path.unlink()
            return None
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.staged[part_name(model_folder(name), digest)] = path
        return f"read_parquet({literal(str(path))})"


@dataclass(frozen=True)
class ModelParts:
    """The parts of models that a warehouse names, while it is filled.

    Attributes:
        files: Where they are.
        place: Moves staged files there; takes final paths and files.
        folder: A staging folder.
        runs: See `PartRuns`.
        marks: The state of each when it was written or verified.
    """

    models: Catalog
    files: PartFiles
    place: Callable[[Mapping[str, Path]], object]
    folder: Path
    runs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)

    def add(
        self, parts: Collection[str], staged: Mapping[str, Path], run_ids: Sequence[str]
    ) -> None:
        """Add parts with rows of these runs.

        Args:
            staged: Those that are not in place yet.
        """
        self.place(staged)
        self.runs.update(dict.fromkeys(parts, tuple(run_ids)))
        self.marks.update(self.files.marks(parts))

    def leave_out(self, con: duckdb.DuckDBPyConnection, run_ids: Collection[str]) -> None:
        """Write parts anew that have rows of these runs, without them, and merge small parts."""
        gone = frozenset(run_ids)
        by_relation = defaultdict(list)
        for part in sorted(self.runs):
            by_relation[table_of_part(part)].append(part)
        for relation, parts in by_relation.items():
            small = [part for part in parts if self.marks[part].bytes < _SMALL_BYTES]
            together = small if len(small) >= _MANY else []
            if together:
                self._rewrite(con, relation, together, gone)
            for part in parts:
                if part not in together and not gone.isdisjoint(self.runs[part]):
                    self._rewrite(con, relation, [part], gone)

    def _rewrite(
        self,
        con: duckdb.DuckDBPyConnection,
        relation: str,
        parts: Sequence[str],
        gone: frozenset[str],
    ) -> None:
        named = [run for part in parts for run in self.runs.pop(part)]
        for part in parts:
            del self.marks[part]
        left = [run for run in dict.fromkeys(named) if run not in gone]
        if left:
            rows = select_parts(self.models.table(relation), self.files.base, parts)
            writer = ModelPartWriter(self.models, self.folder)
            writer.write(con, relation, f"(SELECT * FROM ({rows}){of_runs(left)})")
            self.add(writer.staged.keys(), writer.staged, left)

    def view(self, relation: str) -> str:
        """Return SELECT of a relation for a view, which `point_views` can point elsewhere."""
        parts = [part for part in sorted(self.runs) if table_of_part(part) == relation]
        return select_parts(self.models.table(relation), self.files.base, parts, movable=True)
