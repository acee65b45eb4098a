"""Describe what a check found, and how to repair it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tracelake.base import text
from tracelake.warehouse.values import COUNT, TEXT, table_from

SHOWN = 3
BUILD = "tracelake build"
BUILD_FULL = "tracelake build --full"
COLLECT = "tracelake gc"
some = partial(text.some, most=SHOWN)


@dataclass(frozen=True, slots=True)
class Finding:
    """Describes one thing that a check found.

    Attributes:
        check: Name of the check.
        severity: error or warning.
        message: What is wrong, with an example.
        rows: How many rows, files or runs it concerns.
        repair: The command that repairs it, or why there is none.
    """

    check: str
    severity: str
    message: str
    rows: int
    repair: str


def findings_table(findings: Iterable[Finding]) -> pa.Table:
    """Return findings as a table: severity, check, rows, message, repair."""
    return table_from(findings, severity=TEXT, check=TEXT, rows=COUNT, message=TEXT, repair=TEXT)


def error(check: str, message: str, rows: int, repair: str) -> Finding:
    """Return a finding of severity error."""
    return Finding(check, "error", message, rows, repair)


def drop(run_ids: Iterable[str]) -> str:
    """Return the command that removes runs so that their input can add them again."""
    return f"tracelake drop --forget {' '.join(sorted(run_ids))}"
