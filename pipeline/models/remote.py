"""Compute models per run with workers in other processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracelake.base.errors import RowsError, WorkersError
from tracelake.base.signals import wait_for_one
from tracelake.base.text import counted
from tracelake.execution import Workers, work_folder
from tracelake.lake import STAGING, Snapshot, part_files_at
from tracelake.models.base import copy_of, engine_errors, literal, quoted
from tracelake.models.batches import Batch, halves
from tracelake.models.catalog import Catalog, catalog
from tracelake.models.compute import connect
from tracelake.models.computing import Computing
from tracelake.models.parts import PartWriter
from tracelake.schema.tables import tables


@dataclass(frozen=True, slots=True)
class Computed:
    """What a worker has computed of a batch.

    Attributes:
        rows: Name in the warehouse -> file of its rows, relative to the lake, for the driver to
            insert and to remove.
        parts: Parts with rows of models, by their final path; see `PartWriter`.
        staged: Those that the driver has to move there.
    """

    rows: Mapping[str, str]
    parts: Sequence[str]
    staged: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Job:
    """The part of a job that is the same for all batches.

    Attributes:
        base: Directory or URI of the lake.
        older: Parts of an earlier version of the schemas.
        models: Hash of the models that are to be computed.
        memory_limit: Memory limit of a job, as DuckDB spells it.
        folder: The command's private folder, below the lake's directory.
    """

    base: str
    older: frozenset[str]
    models: str
    memory_limit: str
    folder: Path


def computed_elsewhere(
    workers: Workers, job: Job, snapshot: Snapshot, pending: Iterable[Batch]
) -> Generator[tuple[Batch, Computed | RowsError]]:
    """Yield batches in order with their rows.

    A batch that fails on its rows is computed by halves; what fails alone comes with its error.

    Raises:
        WorkersError: A batch was not computed.
    """

    def send(batch: Batch) -> tuple[Batch, Future[Any]]:
        return batch, workers.submit(compute_sent, job, batch)

    sent = deque(map(send, pending))
    try:
        while sent:
            batch, future = sent.popleft()
            wait_for_one([future])
            try:
                found = future.result()
            except WorkersError as error:
                raise WorkersError(
                    f"{counted(len(batch.run_ids), 'run')} could not be computed,"
                    f" {batch.run_ids[0]} among them: {error.message}",
                    path=error.path,
                    hint=error.hint,
                ) from error
            if isinstance(found, RowsError) and len(batch.run_ids) > 1:
                sent.extendleft(reversed([send(half) for half in halves(snapshot, batch)]))
                continue
            yield batch, found
    finally:
        for _, future in sent:
            future.cancel()


def compute_sent(job: Job, batch: Batch) -> Computed | RowsError:
    """Compute a batch in a worker's process, on one thread; return the error of its rows, if any.

    Raises:
        ContractError: See `compute`.
        LakeError: See `engine_errors`.
        WorkersError: The worker has other models, or does not see the lake.
    """
    models = catalog()
    if models.hash != job.models:
        raise WorkersError("a worker has other models", hint="install the same tracelake there")
    shown = _selects(models)
    files: dict[str, Path] = {}
    part_files = part_files_at(job.base)
    with (
        work_folder(job.folder if part_files.local else None) as folder,
        engine_errors("the models"),
        connect(
            temp_directory=str(folder / "spill"),
            memory_limit=job.memory_limit,
            preserve_insertion_order=False,
            threads=1,
        ) as con,
    ):
        writer = PartWriter(con, models, folder)

        def keep(name: str, relation: str) -> None:
            if name in models.in_parts:
                writer.write(name, relation)
                return
            files[name] = folder / f"{name}.parquet"
            con.execute(
                f"COPY (SELECT {shown[name]} FROM {relation}) TO {literal(str(files[name]))}"
                " (FORMAT parquet, COMPRESSION lz4)"
            )

        part_files.mount(con)
        con.execute(models.macros)
        try:
            Computing(con, job.base, models, keep).batch(batch, job.older)
        except RowsError as error:
            return error
        if part_files.local:
            own = folder.relative_to(job.base).as_posix()
        else:
            own = f"{STAGING}/{job.folder.name}/{folder.name}"
        named = {f"{own}/{name}.parquet": path for name, path in files.items()}
        part_files.hand_in(named)
        staged = part_files.hand_in(writer.staged)
    rows = {name: f"{own}/{name}.parquet" for name in files}
    return Computed(rows, list(writer.staged), staged)


def _selects(models: Catalog) -> dict[str, str]:
    """Return columns with the types of the warehouse, by name there."""
    columns = {
        **{name: models.columns[name] for name in models.in_warehouse},
        **{copy_of(name): tables()[name].columns for name in models.copied},
    }
    return {
        name: ", ".join(f"{quoted(c.name)}::{c.type} AS {quoted(c.name)}" for c in shown)
        for name, shown in columns.items()
    }
