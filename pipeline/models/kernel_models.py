"""Compute models that a kernel makes from the rows of their SELECT.

A kernel is a package of this room, named in the header of the model: `-- @kernel replay`. It has
`INPUT`, the columns of the SELECT with their types, `OUTPUT`, those of the model, and a function of
the kernel's name that takes `Columns`, as `pieces_of_steps` divides them, a number of
threads, and a folder for what should not stay in memory, and yields rows.
"""

from __future__ import annotations

import importlib
import threading
from functools import partial
from pathlib import Path
from types import ModuleType

import duckdb

from tracelake.base.errors import ContractError
from tracelake.models.base import create_empty, own, quoted
from tracelake.models.header import Model

KERNELS = ("replay",)

# A kernel uses all threads, and its arrays are what DuckDB's limit of memory does not count.
_one_at_a_time = threading.Lock()


def check_kernel(con: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Check that a model has the columns that its kernel takes and gives.

    Raises:
        ContractError: There is no such kernel, or columns differ.
    """
    kernel = _load(model)
    given = {
        name: str(type_) for name, type_, *_ in con.execute(f"DESCRIBE {model.sql}").fetchall()
    }
    if given != kernel.INPUT:
        wrong = sorted(set(given.items()) ^ set(kernel.INPUT.items()))
        raise ContractError(
            f"the SELECT does not give what kernel {model.kernel} takes: {wrong[0][0]}",
            path=model.path,
            hint=f"select {', '.join(f'{name} {type_}' for name, type_ in kernel.INPUT.items())}",
        )
    if tuple(model.declared) != kernel.OUTPUT:
        raise ContractError(
            f"the header does not declare what kernel {model.kernel} gives",
            path=model.path,
            hint=f"add -- @column for {', '.join(kernel.OUTPUT)}, in this order",
        )


def compute_by_kernel(
    con: duckdb.DuckDBPyConnection, model: Model, threads: int, folder: Path | None
) -> int:
    """Create the table of a model; the kernel is loaded only if there are rows.

    Returns:
        Number of rows.
    """
    from tracelake.models.columns import (  # noqa: PLC0415 - slow to import
        pieces_of_steps,
        read_columns,
    )

    shown = model.declared.values()
    pieces = [*pieces_of_steps(con, model.sql)]
    if not pieces:
        create_empty(con, model.name, shown)
        return 0
    kernel = getattr(_load(model), str(model.kernel))
    with _one_at_a_time:
        found = kernel(map(partial(read_columns, con), pieces), threads, folder)
        # Lists, because pyarrow imports pandas to read Python's values, which takes seconds.
        lists = [*map(list, zip(*found, strict=True))]
    columns = ", ".join(
        f"unnest(${n}::{column.type}[]) AS {quoted(column.name)}"
        for n, column in enumerate(shown, 1)
    )
    con.execute(f"CREATE OR REPLACE TABLE {own(model.name)} AS SELECT {columns}", lists)
    return len(lists[0])


def _load(model: Model) -> ModuleType:
    if model.kernel not in KERNELS:
        raise ContractError(
            f"unknown kernel {model.kernel}", path=model.path, hint=f"one of {', '.join(KERNELS)}"
        )
    return importlib.import_module(f"tracelake.models.{model.kernel}")
