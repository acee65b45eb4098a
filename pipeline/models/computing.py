"""Compute models, several at once, and pass on the relations that are stored."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import duckdb

from tracelake.base.metrics import phase
from tracelake.base.signals import stop_all, wait_for_one
from tracelake.models.base import (
    copy_of,
    create_empty,
    ddl,
    engine_errors,
    literal,
    nothing,
    own,
    quoted,
    select_parts,
)
from tracelake.models.batches import Batch
from tracelake.models.catalog import Catalog
from tracelake.models.compute import Database, check_keys, compute
from tracelake.models.failures import FAILURES, IDENTITY, Failure, add_failures
from tracelake.models.header import Model
from tracelake.models.needs import ANYTHING, Needs, can_have_rows
from tracelake.models.profile import Profile
from tracelake.schema.tables import PARTITION_KEY, tables


class Agenda:
    """Models in the order in which they are begun, each when its inputs are there.

    DuckDB plans a model in milliseconds whatever its rows, so those are left out that cannot have
    any, because a relation that they need has none. Threads may share an agenda.

    Attributes:
        left_out: Models that have no rows without being computed.
    """

    def __init__(
        self,
        models: Sequence[str],
        inputs: Mapping[str, frozenset[str]],
        needs: Mapping[str, Needs],
        given: Mapping[str, str],
        without_rows: Collection[str],
    ) -> None:
        """Plan the computation of models.

        Args:
            inputs: Per model, the relations that it reads.
            needs: Per model, the relations without whose rows it has none.
            given: Relations that were made for them -> TABLE or VIEW.
            without_rows: Relations that have no rows.
        """
        self.left_out: list[str] = []
        self._inputs = inputs
        self._needs = needs
        self._waiting = {name: set(inputs[name]).intersection(models) for name in models}
        self._readers: dict[str, set[str]] = defaultdict(set)
        for model in models:
            for name in inputs[model]:
                self._readers[name].add(model)
        self._there = dict(given)
        self._empty = {*without_rows}
        self._lock = threading.Lock()
        self._leave_out(models)

    def next(self) -> str | None:
        """Return the next model whose inputs are there; None if there is none now."""
        with self._lock:
            name = next((name for name, missing in self._waiting.items() if not missing), None)
            if name:
                del self._waiting[name]
            return name

    def cancel(self, models: Collection[str]) -> None:
        """Take models off that are not begun yet."""
        with self._lock:
            for name in models:
                self._waiting.pop(name, None)

    def add(self, model: str, rows: int, kind: str = "TABLE") -> list[tuple[str, str]]:
        """Note that a model was computed, as a TABLE or a VIEW.

        Returns:
            The relations that no other model reads, and whether each is a TABLE or a VIEW.
        """
        with self._lock:
            self._there[model] = kind
            self._end(model)
            if not rows:
                self._empty.add(model)
                self._leave_out(self._readers[model])
            done = [name for name in self._there if not self._readers[name]]
            return [(name, self._there.pop(name)) for name in done]

    def left(self) -> list[tuple[str, str]]:
        """Return the relations that are there, and whether each is a TABLE or a VIEW."""
        with self._lock:
            return [*self._there.items()]

    def _end(self, model: str) -> None:
        """Let the readers of a model begin, and its inputs go."""
        for reader in self._readers[model] & self._waiting.keys():
            self._waiting[reader].discard(model)
        for name in self._inputs[model]:
            self._readers[name].discard(model)

    def _leave_out(self, models: Collection[str]) -> None:
        """Leave those of some models out that cannot have rows, and then those that need them."""
        pending = [*models]
        while pending:
            name = pending.pop()
            if name in self._waiting and not can_have_rows(self._needs[name], self._empty):
                del self._waiting[name]
                self.left_out.append(name)
                self._empty.add(name)
                pending.extend(self._readers[name])
                self._end(name)


Keep = Callable[[duckdb.DuckDBPyConnection, str, str], str | None]
"""Takes a connection that nothing else uses meanwhile, the name in the warehouse, and the relation
with its rows; returns the part that has them, as a relation, if it is kept in one."""


@dataclass(frozen=True)
class Computing:
    """Computes models in a database; see `connect_several`.

    Attributes:
        base: Directory or URI of the lake.
        keep: Called with every relation whose rows are kept, while it exists, if it has rows.
        threads: What a kernel, and the models of a large batch, may use.
        profile: Gets the times of relations.
    """

    database: Database
    base: str
    models: Catalog
    keep: Keep
    threads: int
    profile: Profile = field(default_factory=Profile)

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The connection for what is not computed at once."""
        return self.database.con

    def batch(self, batch: Batch) -> None:
        """Compute all models per run of a batch, and read what the warehouse copies."""
        if batch.large:  # threads without a model of their own help the others
            self.con.execute(f"SET threads = {self.threads}")
        models, tables_read = self._per_run()
        read = {name for name in tables_read if batch.parts[name]}
        kinds = {}
        empty = tables_read - read
        self.con.execute("DROP SCHEMA memory.typed CASCADE; CREATE SCHEMA memory.typed")
        enums = self._enums(batch, read)
        if PARTITION_KEY in enums:
            self._type_blank({PARTITION_KEY: enums[PARTITION_KEY]})
        for name in read:
            select = batch.select(name, self.base, enums)
            kinds[name] = "TABLE" if name in batch.small else "VIEW"
            with self.profile.computing(name):
                made = self.con.execute(f"CREATE {kinds[name]} {own(name)} AS {select}")
                if name in batch.small and made.fetchall() == [(0,)]:
                    empty.add(name)
        for name in read.intersection(self.models.copied):
            with self.profile.writing(name):
                self.keep(self.con, copy_of(name), own(name))
        runs_are = enums.get(PARTITION_KEY, "VARCHAR")
        self.all(models, kinds, empty, streamed=runs_are if batch.large else None)

    def left_out(self, batch: Batch, failures: Sequence[Failure]) -> None:
        """Compute all models of runs without their data: of a run they get its identity alone.

        Args:
            failures: Why the runs of the batch are left out.
        """
        models, read = self._per_run()
        for name in self.models.copied:
            self.keep(self.con, copy_of(name), f"({batch.select(name, self.base)})")
        create_empty(self.con, "runs", tables()["runs"].columns)
        known = batch.select("runs", self.base)
        shown = ", ".join(IDENTITY)
        self.con.execute(f"INSERT INTO {own('runs')} ({shown}) SELECT {shown} FROM ({known})")
        self.all(models, {"runs": "TABLE"}, read - {"runs"}, failures)

    def clear(self) -> None:
        """Drop the relations of a computation that failed."""
        for kind in ("view", "table"):
            found = self.con.execute(
                f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE database_name = 'memory'"
                " AND schema_name = 'main' AND NOT internal"
            ).fetchall()
            for (name,) in found:
                self.con.execute(f"DROP {kind} {own(name)}")

    def all(
        self,
        models: Sequence[Model],
        given: Mapping[str, str],
        without_rows: Collection[str],
        failures: Sequence[Failure] = (),
        *,
        streamed: str | None = None,
    ) -> None:
        """Compute models, as many at once as there are connections.

        Args:
            given: Relations that they read -> TABLE or VIEW; like the models' own they are dropped
                when no other model reads them.
            without_rows: Relations that are known to have no rows.
            failures: Rows of `model_failures`.
            streamed: If given, rows that are kept in parts never lie in memory, and models read
                them there; it is the type of their runs, which a file does not know.

        Raises:
            TracelakeError: See `compute`; of several that fail, the first in order.
        """
        by_name = {model.name: model for model in models}
        order = [*by_name]
        needs = {**self.models.needs, **({FAILURES: ANYTHING} if failures else {})}
        agenda = Agenda(order, self.models.inputs, needs, given, without_rows)
        idle = [*self.database.cons]
        running: dict[Future[None], tuple[str, duckdb.DuckDBPyConnection]] = {}
        failed: dict[str, BaseException] = {}
        with ThreadPoolExecutor(len(self.database.cons), thread_name_prefix="models") as pool:
            try:
                while True:
                    while idle and (name := agenda.next()):
                        con = idle.pop()
                        job = pool.submit(self._one, con, by_name[name], agenda, failures, streamed)
                        running[job] = name, con
                    if not running:
                        break
                    for job in wait_for_one(running):
                        name, con = running.pop(job)
                        idle.append(con)
                        if error := job.exception():
                            failed[name] = error
                            agenda.cancel(order[order.index(name) :])
            except BaseException:
                stop_all(running, self._interrupt)
                raise
        if failed:
            raise failed[min(failed, key=order.index)]
        self.profile.note(agenda.left_out)
        for name, kind in agenda.left():
            self.con.execute(f"DROP {kind} {own(name)}")

    def _interrupt(self) -> None:
        for con in self.database.cons:
            con.interrupt()

    def _one(
        self,
        con: duckdb.DuckDBPyConnection,
        model: Model,
        agenda: Agenda,
        failures: Sequence[Failure],
        streamed: str | None,
    ) -> None:
        """Compute a model, keep its rows, and drop what no other model reads."""
        kind = "TABLE"
        computing = partial(compute, con, model, self.threads, self.database.folder)
        if streamed and model.name in self.models.in_parts and model.kernel is None:
            kind = "VIEW"
            computing = partial(self._written, con, model, streamed)
        with phase(f"build:{model.path.parent.name}"):
            with self.profile.computing(model.name) as spent:
                rows = self.database.memory.within(con, model.name, computing)
                spent.rows += rows
            if failures and model.name == FAILURES:
                add_failures(con, failures)
                rows += len(failures)
            if rows and model.name in self.models.stored and kind == "TABLE":
                with self.profile.writing(model.name):
                    keeping = partial(self.keep, con, model.name, own(model.name))
                    self.database.memory.within(con, model.name, keeping)
        for name, kept in agenda.add(model.name, rows, kind):
            con.execute(f"DROP {kept} {own(name)}")

    def _written(self, con: duckdb.DuckDBPyConnection, model: Model, runs_are: str) -> int:
        """Write the rows of a model as they are computed, and create a view of what is written.

        Returns:
            Number of rows.
        """
        name, key = own(model.name), quoted(PARTITION_KEY)
        none = nothing({column.name: column.type for column in self.models.columns[model.name]})
        with engine_errors(model.name, model.path):
            part = self.keep(con, model.name, f"({model.sql})")
            con.execute(
                f"CREATE OR REPLACE VIEW {name} AS"
                f" SELECT * REPLACE ({key}::{runs_are} AS {key}) FROM {part or f'({none})'}"
            )
            ((rows,),) = con.execute(f"SELECT count(*) FROM {name}").fetchall()
        check_keys(con, model, rows)
        return int(rows)

    def _type_blank(self, types: Mapping[str, str]) -> None:
        """Put tables before those of the blank file whose columns have other types.

        A run that is a text in one relation would be one in all that are made with it.
        """
        models, read = self._per_run()
        shown = {name: tables()[name].columns for name in read}
        shown |= {model.name: self.models.columns[model.name] for model in models}
        self.con.execute(
            ";".join(
                f"CREATE TABLE memory.typed.{quoted(name)} ({ddl(columns, types)})"
                for name, columns in shown.items()
            )
        )

    def _enums(self, batch: Batch, read: Collection[str]) -> dict[str, str]:
        """Create ENUM types for runs and for columns with few distinct texts.

        DuckDB hashes, sorts and stores a number per row then instead of a text.

        Args:
            read: Tables whose columns may get the types.

        Returns:
            Column -> its type; none for a batch of which that costs more than it saves.
        """
        if not batch.coded:
            return {}
        texts: dict[str, set[str | None]] = {PARTITION_KEY: {*batch.coded}}
        for name in sorted(read):
            if few := [column.name for column in tables()[name].columns if column.dictionary]:
                lists = ", ".join(f"list(DISTINCT {quoted(column)})" for column in few)
                # Also of rows of other runs: a text without a number is dear to cast.
                rows = select_parts(tables()[name], self.base, batch.parts[name], batch.older)
                distinct = f"SELECT DISTINCT {', '.join(map(quoted, few))} FROM ({rows})"
                (found,) = self.con.execute(f"SELECT {lists} FROM ({distinct})").fetchall()
                for column, listed in zip(few, found, strict=True):
                    texts.setdefault(column, set()).update(listed or ())
        enums = {}
        for name, several in texts.items():
            if values := sorted(text for text in several if text is not None):
                enums[name] = own(f"_{name}")
                self.con.execute(
                    f"CREATE OR REPLACE TYPE {enums[name]} AS ENUM"
                    f" ({', '.join(map(literal, values))})"
                )
        return enums

    def _per_run(self) -> tuple[Sequence[Model], set[str]]:
        """Return the models per run, and the base tables that they or the warehouse need."""
        models = self.models.per_run
        read = {*self.models.copied, *(i for m in models for i in self.models.inputs[m.name])}
        return models, read & tables().keys()
