"""What happens to a job in a worker's process."""

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

from pipeline import __version__
from pipeline.errors import WorkersError
from pipeline.measures import Measures, listen, take_phases

# Whose versions decide what a part file has in it, byte for byte, and what a model computes.
_LIBRARIES = ("duckdb", "numpy", "polars", "pyarrow")


@dataclass(frozen=True, slots=True)
class Order:
    """A job on its way: one thing for distributed, which would look into tuples and lists.

    Attributes:
        versions: Of the process that has sent it.
    """

    versions: Mapping[str, str]
    job: Callable[..., Any]
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """What a job gave, and nanoseconds by phase."""

    given: Any
    phases: Mapping[str, int]


def do(order: Order) -> Done:
    """Does a job where it was sent; the worker may have come after the others were asked."""
    compare(versions(), order.versions, platform.node())
    measures = _measures()
    given = order.job(*order.args)
    return Done(given, take_phases(measures))


@functools.cache
def _measures() -> Measures:
    """Of this process, as long as it lives: jobs that run at the same time share its phases."""
    return listen()


@functools.cache
def versions() -> dict[str, str]:
    """What results depend on in this process."""
    return {
        "tracelake": __version__,
        **{name: metadata.version(name) for name in _LIBRARIES},
        "byte order": sys.byteorder,
    }


def compare(theirs: Mapping[str, str], ours: Mapping[str, str], worker: str) -> None:
    """Makes sure that a worker has the versions of the command.

    Raises:
        WorkersError: It has not.
    """
    if theirs != ours:
        name = next(name for name in ours if theirs.get(name) != ours[name])
        raise WorkersError(
            f"the worker {worker} has {name} {theirs.get(name)}, the command {ours[name]}",
            hint="install the same versions where the workers run; constraints.txt pins them",
        )


@contextmanager
def work_folder(staging: Path | None) -> Iterator[Path]:
    """A folder of its own for a job in a worker: it may be done twice, also at the same time.

    Args:
        staging: The driver's private folder, which goes with all in it when the driver ends; None
            where the worker does not see it and hands in what it made while it has its folder.

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
    """Makes sure that a worker sees what the driver sees.

    Args:
        mode: As `os.access` has it.

    Raises:
        WorkersError: It does not.
    """
    if not os.access(path, mode):
        raise WorkersError(
            f"a worker on {platform.node()} cannot use {what}",
            path=path,
            hint="workers need the inputs and the lake under the same paths, as the same user",
        )
