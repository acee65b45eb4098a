"""Run a job in a worker's process."""

from __future__ import annotations

import functools
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tracelake import __version__
from tracelake.base.errors import WorkersError
from tracelake.base.metrics import Measures, listen, take_phases

# Their versions determine the bytes of part files and the results of models.
_LIBRARIES = ("duckdb", "numpy", "polars", "pyarrow")


@dataclass(frozen=True, slots=True)
class Order:
    """A job to send, as one opaque object, because distributed would search tuples and lists.

    Attributes:
        versions: Versions in the process that sent it.
    """

    versions: Mapping[str, str]
    job: Callable[..., Any]
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a job, and nanoseconds by phase."""

    given: Any
    phases: Mapping[str, int]


def do(order: Order) -> Done:
    """Run a job after a check of versions; the worker may have joined late."""
    compare(versions(), order.versions, platform.node())
    measures = _measures()
    given = order.job(*order.args)
    return Done(given, take_phases(measures))


@functools.cache
def _measures() -> Measures:
    """Return the measures of this process; jobs that run at the same time share them."""
    return listen()


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that results depend on in this process."""
    return {
        "tracelake": __version__,
        **{name: metadata.version(name) for name in _LIBRARIES},
        "byte order": sys.byteorder,
    }


def compare(theirs: Mapping[str, str], ours: Mapping[str, str], worker: str) -> None:
    """Make sure that a worker has the versions of the command.

    Raises:
        WorkersError: A version differs.
    """
    if theirs != ours:
        name = next(name for name in ours if theirs.get(name) != ours[name])
        raise WorkersError(
            f"the worker {worker} has {name} {theirs.get(name)}, the command {ours[name]}",
            hint="install the same versions where the workers run; constraints.txt pins them",
        )


@contextmanager
def work_folder(staging: Path | None) -> Iterator[Path]:
    """Yield a private folder for a job in a worker; the job may run twice, also at the same time.

    Args:
        staging: The command's private folder, which is removed when the command ends; None if the
            worker does not see it and puts its results into the store itself.

    Raises:
        WorkersError: The worker does not see it.
    """
    if staging is None:
        with tempfile.TemporaryDirectory(prefix="tracelake-batch-") as folder:
            yield Path(folder)
        return
    require(staging, os.W_OK, "the lake")
    yield Path(tempfile.mkdtemp(prefix="batch-", dir=staging))


def require(path: Path, mode: int, what: str) -> None:
    """Make sure that a worker sees the same path as the command.

    Args:
        mode: The mode of `os.access`.

    Raises:
        WorkersError: It does not.
    """
    if not os.access(path, mode):
        raise WorkersError(
            f"a worker on {platform.node()} cannot use {what}",
            path=path,
            hint="workers need the inputs and the lake under the same paths, as the same user",
        )
