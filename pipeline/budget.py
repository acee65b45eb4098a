"""Divide the memory that a command may use among the jobs that run at once."""

from __future__ import annotations

import os
import re
import sys

from pipeline.errors import UsageError

# What an ingest takes, measured by tests/bench/memory.py: the process with its libraries, and each
# run that is parsed at the same time (two chunks, rows of a row group on their way to Parquet).
PROCESS_BYTES = 300_000_000
JOB_BYTES = 370_000_000

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
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
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])


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
