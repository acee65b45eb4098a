"""Models per run computed by workers in other processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.engine import Workers, folder_of_attempt
from pipeline.errors import WorkersError
from pipeline.models.base import copy_of, engine_errors, literal, quoted
from pipeline.models.batches import Batch
from pipeline.models.catalog import Catalog, catalog
from pipeline.models.compute import connect
from pipeline.models.computing import Computing
from pipeline.schema import tables
from pipeline.text import counted


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for all batches.

    Attributes:
        root: Of the lake.
        older: Parts of an earlier version of the schemas.
        models: Hash of the models that are to be computed.
        memory_limit: Of a job, in DuckDB's spelling.
        folder: The driver's private one, on the lake's filesystem.
    """

    root: Path
    older: frozenset[str]
    models: str
    memory_limit: str
    folder: Path


def computed_elsewhere(
    workers: Workers, job: Job, pending: Iterable[Batch]
) -> Generator[tuple[Batch, Mapping[str, Path]]]:
    """Batches in their order with Parquet files of their rows, by name in the warehouse.

    Raises:
        WorkersError: A batch was not computed.
    """
    sent = deque((batch, workers.submit(compute_sent, job, batch)) for batch in pending)
    try:
        while sent:
            batch, future = sent.popleft()
            workers.wait([future])
            try:
                rows = workers.result(future)
            except WorkersError as error:
                raise WorkersError(
                    f"{counted(len(batch.run_ids), 'run')} could not be computed,"
                    f" {batch.run_ids[0]} among them: {error.message}",
                    path=error.path,
                    hint=error.hint,
                ) from error
            yield batch, rows
    finally:
        for _, future in sent:
            future.cancel()


def compute_sent(job: Job, batch: Batch) -> dict[str, Path]:
    """Computes a batch in a worker's process, on one thread: all that a worker does for a build.

    Raises:
        ContractError: See `compute`.
        LakeError: See `engine_errors`.
        WorkersError: The worker has other models, or does not see the lake.
    """
    models = catalog()
    if models.hash != job.models:
        raise WorkersError("a worker has other models", hint="install the same tracelake there")
    folder = folder_of_attempt(job.folder)
    shown = _selects(models)
    files: dict[str, Path] = {}
    with (
        engine_errors("the models"),
        connect(
            temp_directory=str(folder / "spill"),
            memory_limit=job.memory_limit,
            preserve_insertion_order=False,
            threads=1,
        ) as con,
    ):

        def keep(name: str, relation: str, grain: Sequence[str]) -> None:
            del grain  # rows are put in order when they are inserted
            files[name] = folder / f"{name}.parquet"
            con.execute(
                f"COPY (SELECT {shown[name]} FROM {relation}) TO {literal(str(files[name]))}"
                " (FORMAT parquet, COMPRESSION lz4)"
            )

        con.execute(models.macros)
        Computing(con, job.root, models, keep).batch(batch, job.older)
    return files


def _selects(models: Catalog) -> dict[str, str]:
    """Columns with the types that the warehouse has them in, by name there."""
    columns = {
        **{name: models.columns[name] for name in models.stored},
        **{copy_of(name): tables()[name].columns for name in models.copied},
    }
    return {
        name: ", ".join(f"{quoted(c.name)}::{c.type} AS {quoted(c.name)}" for c in shown)
        for name, shown in columns.items()
    }
