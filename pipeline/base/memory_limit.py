"""Limit the memory of a process, and divide it among the jobs that run at once."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracelake.base.errors import RefusedError, UsageError

# What an ingest takes, measured by tests/bench/memory.py: the process with its libraries, and each
# run that is parsed at the same time (two chunks, rows of a row group on their way to Parquet).
PROCESS_BYTES = 300_000_000
JOB_BYTES = 370_000_000
# What DuckDB gets at first, without --memory. The process holds also what is being written and
# replayed: with four runs of 250 MB 1.0 GB in all.
FIRST_ENGINE_BYTES = 550_000_000

# What a query may allocate beyond its --memory: threads, libraries that are loaded late, and the
# rows that are being printed.
QUERY_HEAD_BYTES = 200_000_000
# Libraries reserve address space that they never use: with less some of them crash in an ingest.
LEAST_ADDRESS_SPACE = 4_000_000_000
_MOST = 10**18
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Return bytes of a size: 800MB, 1.5GiB, 2g.

    Raises:
        UsageError: It is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a size", hint="give 800MB, 1.5GiB or 4GB")
    number, unit, binary = found.groups()
    size = float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()]
    if size > _MOST:
        raise UsageError(f"{text!r} is larger than any memory or disk", hint="give a smaller size")
    return int(size)


def processors() -> int:
    """Return processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def jobs_within(memory: int, wanted: int) -> int:
    """Return how many of the wanted jobs of an ingest may run at the same time.

    Args:
        memory: Bytes for the whole process.

    Raises:
        UsageError: Not even one.
    """
    return min(wanted, _beside_process(memory) // JOB_BYTES)


def engine_limit(memory: int) -> str:
    """Return the part of the process's memory that DuckDB may use, as DuckDB spells it.

    Raises:
        UsageError: Too little to build with.
    """
    return f"{_beside_process(memory)}B"


def _beside_process(memory: int) -> int:
    least = PROCESS_BYTES + JOB_BYTES
    if memory < least:
        raise UsageError(
            f"--memory is too small: {memory / 1e6:.0f} MB",
            hint=f"give --memory {least // 1_000_000}MB or more",
        )
    return memory - PROCESS_BYTES


def check_address_space() -> None:
    """Make sure that a limit of the shell leaves the libraries the address space they reserve.

    Raises:
        RefusedError: It does not.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        raise RefusedError(
            f"the address space is limited to {limit / 1e6:,.0f} MB (ulimit -v)",
            hint=f"raise it to {LEAST_ADDRESS_SPACE // 1_000_000:,} MB or more; to limit memory,"
            " use --memory or a control group",
        )


@contextmanager
def query_limit(memory: int | None) -> Iterator[None]:
    """Let this process allocate `memory` and a fixed amount more than it has now.

    So memory is bounded that DuckDB does not count, such as that of functions on long texts. Only
    Linux has this limit.

    Raises:
        UsageError: Python needed more.
    """
    if memory is None or sys.platform != "linux":
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [limit for limit in (before, hard) if limit != resource.RLIM_INFINITY]
    limit = min(_allocated() + memory + QUERY_HEAD_BYTES, *bounds, _MOST)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    except MemoryError as error:
        raise UsageError(
            "--memory is too small for the query", hint="raise --memory, or query fewer rows"
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _allocated() -> int:
    """Return the bytes that count for RLIMIT_DATA."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^VmData:\s*(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
