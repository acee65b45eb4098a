"""Open a DuckDB connection, and compute a model on it as declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb

from tracelake.base.errors import RowsError
from tracelake.models.base import engine_errors, literal, own, quoted
from tracelake.models.header import Model
from tracelake.models.kernel_models import compute_by_kernel
from tracelake.models.memory import MemoryLimit

Connections = Sequence[duckdb.DuckDBPyConnection]

# Models that are computed at once. More would hold more relations in memory, and wait for others.
_AT_ONCE = 4
# Rows whose key is checked in Python.
_FEW = 1_000
# DuckDB calls a database by its file, and one in memory so: see `own`.
_FILE = "memory"


@dataclass(frozen=True)
class Database:
    """A database that lasts as long as its connections.

    Attributes:
        cons: Connections, each for one thread at a time: a model is computed on each at once.
        memory: How much it may use before it spills.
        folder: Holds what kernels do not keep in memory.
    """

    cons: Connections
    memory: MemoryLimit
    folder: Path

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The connection for what is not computed at once."""
        return self.cons[0]


def connect(folder: Path | None = None, /, **config: str | int | bool) -> duckdb.DuckDBPyConnection:
    """Return an empty DuckDB without extensions, access to Python variables or progress bars.

    A division by zero gives NULL, as it did before DuckDB 2.0. In a child process such as a worker,
    DuckDB would assume that it is interactive.

    Args:
        folder: Holds its file, where relations are compressed to a tenth of their size and leave
            memory without being spilled; None for a database in memory.
        config: As `duckdb.connect` takes it.
    """
    alone = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "error_on_division_by_zero": False,
    }
    con = duckdb.connect(str(folder / _FILE if folder else ":memory:"), config={**alone, **config})
    _hide_progress(con)
    return con


@contextmanager
def connect_several(
    threads: int, blank: Path, memory_limit: str, share: int | None, *, in_file: bool
) -> Iterator[Database]:
    """Yield a database with several connections, for models that are computed at once.

    DuckDB plans a model in one thread, and computes a small one in little more: the threads are
    used best by a model each.

    Args:
        threads: Threads that work at once, in all of them together.
        blank: A file with the macros, and with an empty table for every relation that the database
            itself does not have; see `write_blank`.
        memory_limit: The highest, as DuckDB spells it; what is over it is spilled beside that file.
        share: See `MemoryLimit`.
        in_file: Keep relations in a file beside the blank one.
    """
    several = min(threads, _AT_ONCE)
    folder = blank.parent
    with ExitStack() as stack:
        if in_file:
            stack.callback((folder / _FILE).unlink)
        con = connect(
            folder if in_file else None,
            threads=threads - several + 1,
            memory_limit=memory_limit,
            temp_directory=str(folder / "spill"),
            preserve_insertion_order=False,
        )
        cons = [stack.enter_context(con)]
        # Of a zone that only the C library knows, such as TZ=CST-8, DuckDB takes UTC.
        offset = datetime.now().astimezone().strftime("%z")
        cons[0].execute(f"SET GLOBAL TimeZone = 'GMT{offset[:3]}:{offset[3:5]}'")
        for _ in range(several - 1):
            cons.append(stack.enter_context(cons[0].cursor()))
            _hide_progress(cons[-1])
        cons[0].execute(f"ATTACH {literal(str(blank))} AS blank (READ_ONLY)")
        cons[0].execute("CREATE SCHEMA memory.typed")  # for blank relations with other types
        for con in cons:
            con.execute("SET search_path = 'memory.main,memory.typed,blank.main'")
        yield Database(cons, MemoryLimit(cons[0], share), folder)


def _hide_progress(con: duckdb.DuckDBPyConnection) -> None:
    # In a notebook without ipywidgets it is off, and DuckDB refuses to set it.
    ((shown,),) = con.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    if shown:
        con.execute("SET enable_progress_bar = false")


def compute(
    con: duckdb.DuckDBPyConnection, model: Model, threads: int = 1, folder: Path | None = None
) -> int:
    """Compute a model as a table of its name and check its key.

    Its inputs must exist under their plain names, and the macros must be defined.

    Args:
        threads: What a kernel may use.
        folder: Holds what a kernel does not keep in memory; None for a temporary one.

    Returns:
        Number of rows.

    Raises:
        RowsError: The SQL fails on these rows, or the key is not unique or has NULL.
        ContractError: The SQL is wrong.
        LakeError: A part file cannot be read.
        ShortMemoryError: Memory is too small; the same call may be made again.
    """
    name = own(model.name)
    with engine_errors(model.name, model.path):
        if model.kernel is None:
            made = con.execute(f"CREATE OR REPLACE TABLE {name} AS {model.sql}").fetchall()
            rows = int(made[0][0])
        else:
            rows = compute_by_kernel(con, model, threads, folder)
    check_keys(con, model, rows)
    return rows


def check_keys(con: duckdb.DuckDBPyConnection, model: Model, rows: int) -> None:
    """Check the key of a model that is computed.

    Raises:
        RowsError: It is not unique or has NULL.
    """
    if not rows:
        return
    name = own(model.name)
    keys = ", ".join(quoted(key) for key in model.grain)
    required = [key for key in model.grain if key not in model.nullable]
    if rows <= _FEW:  # to plan the GROUP BY takes several times as long
        places = [n for n, key in enumerate(model.grain) if key in required]
        given = con.execute(f"SELECT {keys} FROM {name}").fetchall()
        if len({repr(key) for key in given if all(key[n] is not None for n in places)}) == rows:
            return
    has_null = " OR ".join(f"{quoted(key)} IS NULL" for key in required)
    # Keys with unlike hashes are unlike, and numbers take half the time and memory to compare.
    if con.execute(
        f"SELECT count(*) FILTER ({has_null}), count(DISTINCT hash({keys})) FROM {name}"
    ).fetchall() == [(0, rows)]:
        return
    by_grain = f"SELECT {keys}, count(*) AS _rows FROM {name} GROUP BY ALL"
    nulls, most = con.execute(
        f"SELECT coalesce(sum(_rows) FILTER ({has_null}), 0), max(_rows) FROM ({by_grain})"
    ).fetchall()[0]
    if nulls:
        raise RowsError(
            f"{nulls} rows have NULL in the grain ({', '.join(model.grain)})",
            subject=model.name,
            path=model.path,
        )
    if most > 1:
        twice = con.execute(f"{by_grain} HAVING _rows > 1 ORDER BY ALL LIMIT 1").fetchall()[0]
        shown = ", ".join(f"{k}={v}" for k, v in zip(model.grain, twice, strict=False))
        raise RowsError(
            f"{twice[-1]} rows have the grain {shown}", subject=model.name, path=model.path
        )
