"""Compute batches of runs at once, in threads of this process or in workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from tracelake.base.errors import RowsError, WorkersError
from tracelake.base.signals import stop_all, wait_for_one
from tracelake.base.text import counted
from tracelake.execution.jobs import work_folder
from tracelake.lake.home import part_files_at
from tracelake.lake.manifest import Snapshot
from tracelake.lake.work import STAGING
from tracelake.models.base import copy_of, engine_errors, literal, quoted
from tracelake.models.batches import Batch, halves
from tracelake.models.catalog import Catalog, catalog
from tracelake.models.compute import Connections, connect_several
from tracelake.models.computing import Computing
from tracelake.models.parts import ModelPartWriter
from tracelake.models.profile import Profile, Spent
from tracelake.models.relations import write_blank
from tracelake.schema.tables import tables


@dataclass(frozen=True, slots=True)
class Computed:
    """Name what a worker has computed of a batch.

    Attributes:
        rows: Name in the warehouse -> file of its rows, by path or URI, for the driver to insert.
        uploaded: Those files by their names in the store, for the driver to remove; none if the
            driver finds them on its own disk.
        parts: Parts with rows of models, by their final path; see `ModelPartWriter`.
        staged: Those that the driver has to move there.
        spent: What each relation took.
    """

    rows: Mapping[str, str]
    uploaded: Sequence[str]
    parts: Sequence[str]
    staged: Mapping[str, Path]
    spent: Mapping[str, Spent]


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The part of a job that is the same for all batches.

    Attributes:
        base: Directory or URI of the lake.
        models: Hash of the models that are to be computed.
        memory_limit: Memory limit of a job, as DuckDB spells it.
        share: How many jobs share what the process has at first; see `MemoryLimit`.
        threads: Threads of a job.
        folder: The command's private folder, below the lake's directory or its copy.
        here: Whether the command's own process does the job, and so finds files of that folder.
    """

    base: str
    models: str
    memory_limit: str
    share: int | None
    threads: int
    folder: Path
    here: bool


class Running:
    """The connections of jobs in threads of this process, which can be told to end."""

    def __init__(self) -> None:
        self._connections: set[duckdb.DuckDBPyConnection] = set()
        self._ended = False

    @contextmanager
    def joined(self, cons: Connections) -> Iterator[None]:
        """Hold connections among them."""
        self._connections.update(cons)
        try:
            yield
        finally:
            self._connections.difference_update(cons)

    def go_on(self) -> None:
        """Raise an error in a job that was told to end.

        Raises:
            CancelledError: It was.
        """
        if self._ended:
            raise CancelledError

    def end(self) -> None:
        """Tell all jobs to end, and interrupt their statements."""
        self._ended = True
        for con in list(self._connections):
            con.interrupt()


@contextmanager
def threads(
    models: Catalog, settings: JobSettings, width: int
) -> Iterator[Callable[[Batch], Future[Any]]]:
    """Yield a function that submits a batch to threads of this process."""
    running = Running()
    sent: list[Future[Any]] = []

    def submit(batch: Batch) -> Future[Any]:
        sent.append(pool.submit(compute_batch, models, settings, batch, running))
        return sent[-1]

    with ThreadPoolExecutor(width, thread_name_prefix="models") as pool:
        try:
            yield submit
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all(sent, running.end)
            raise


def computed(
    submit: Callable[[Batch], Future[Any]], snapshot: Snapshot, pending: Iterable[Batch]
) -> Generator[tuple[Batch, Computed | RowsError]]:
    """Yield batches in order with their rows, which jobs compute at once.

    A batch that fails on its rows is computed by halves; what fails alone comes with its error.

    Args:
        submit: Submits a batch to an executor.

    Raises:
        WorkersError: A batch was not computed.
    """

    def send(batch: Batch) -> tuple[Batch, Future[Any]]:
        return batch, submit(batch)

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


def compute_sent(settings: JobSettings, batch: Batch) -> Computed | RowsError:
    """Compute a batch in a worker's process; see `compute_batch`.

    Raises:
        WorkersError: The worker has other models, or does not see the lake.
    """
    models = catalog()
    if models.hash != settings.models:
        raise WorkersError("a worker has other models", hint="install the same tracelake there")
    return compute_batch(models, settings, batch, Running())


def compute_batch(
    models: Catalog, settings: JobSettings, batch: Batch, running: Running
) -> Computed | RowsError:
    """Compute a batch on a connection of its own; return the error of its rows, if any.

    Raises:
        CancelledError: It was told to end.
        ContractError: See `compute`.
        LakeError: See `engine_errors`.
        WorkersError: The worker does not see the lake.
    """
    shown = _selects(models)
    files: dict[str, Path] = {}
    part_files = part_files_at(settings.base)
    shared = settings.here or part_files.local
    with (
        work_folder(settings.folder if shared else None) as folder,
        engine_errors("the models"),
        connect_several(
            settings.threads,
            write_blank(folder, models),
            settings.memory_limit,
            settings.share,
            in_file=batch.in_file,
        ) as database,
        running.joined(database.cons),
    ):
        writer = ModelPartWriter(models, folder)
        profile = Profile()

        def keep(con: duckdb.DuckDBPyConnection, name: str, relation: str) -> str | None:
            running.go_on()
            if name in models.in_parts:
                return writer.write(con, name, relation)
            files[name] = folder / f"{name}.parquet"
            con.execute(
                f"COPY (SELECT {shown[name]} FROM {relation}) TO {literal(str(files[name]))}"
                " (FORMAT parquet, COMPRESSION lz4)"
            )
            return None

        part_files.mount(database.con)
        try:
            Computing(database, settings.base, models, keep, settings.threads, profile).batch(batch)
        except RowsError as error:
            return error
        base, uploaded = str(folder), dict[str, Path]()
        if not shared:
            own = f"{STAGING}/{settings.folder.name}/{folder.name}"
            base = f"{settings.base}/{own}"
            uploaded = {f"{own}/{path.name}": path for path in files.values()}
            part_files.hand_in(uploaded)
        staged = writer.staged if settings.here else part_files.hand_in(writer.staged)
    rows = {name: f"{base}/{path.name}" for name, path in files.items()}
    return Computed(rows, list(uploaded), list(writer.staged), staged, profile.spent)


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
