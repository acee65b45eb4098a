"""The lake's record of what was done to it: an entry per command, newest last.

One file of JSON lines, replaced as a whole, so that no reader sees half an entry; the oldest
entries go when there are too many.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.lake import Lake
from pipeline.schema import Column, Table

KEPT_RECORDS = 1000
_FILE = "_run/records.jsonl"

# Amounts that commands count, in the order in which they are shown.
AMOUNTS: Mapping[str, str] = {
    "runs_found": "Runs of the input, whatever became of them.",
    "runs_written": "Runs that were parsed and committed.",
    "files_read": "Input files of the runs that were parsed.",
    "bytes_read": "Decompressed bytes of them.",
    "lines_read": "Lines of them.",
    "rows_written": "Rows of facts that were written.",
    "lines_rejected": "Lines that were not understood; they are in rejects.",
    "inputs_skipped": "Inputs that no format took; they are in skipped.",
    "runs_built": "Runs whose models were computed.",
    "runs_dropped": "Runs that left the lake, or with it the warehouse.",
    "files_removed": "Files that were removed from the lake.",
    "bytes_removed": "Bytes of them.",
    "report_bytes": "Size of the page that was written.",
}


def _column(name: str, type_: str, doc: str, unit: str | None = None) -> Column:
    return Column(name, type_, doc, unit)


@functools.cache
def records_table() -> Table:
    """The relation that queries see: a row per command that worked on the lake."""
    return Table(
        "tracelake_runs",
        "Commands that worked on the lake: what each read, wrote and left out, and how long it"
        f" took. The newest {KEPT_RECORDS:,}.",
        (
            _column("command", "VARCHAR", "Name of the command."),
            _column("started", "TIMESTAMP", "When it began, in UTC."),
            _column("duration_ns", "BIGINT", "How long it took.", "ns"),
            _column("exit_code", "BIGINT", "What it ended with; 0 is fine."),
            _column("error", "VARCHAR", "What ended it, if it did not end well."),
            _column("version", "VARCHAR", "Version of tracelake."),
            _column("host", "VARCHAR", "Where it ran."),
            _column("pid", "BIGINT", "Its process."),
            _column(
                "options",
                "MAP(VARCHAR, VARCHAR)",
                "What was given, by parameter; the command of --post is not kept.",
            ),
            _column(
                "phases",
                "MAP(VARCHAR, BIGINT)",
                "Time by phase: find, plan, parse, write, commit, build, build:<family>, report."
                " Phases of several threads add up; build contains its families.",
                "ns",
            ),
            *(
                _column(name, "BIGINT", doc, "bytes" if "bytes" in name else None)
                for name, doc in AMOUNTS.items()
            ),
        ),
    )


def add_record(lake: Lake, record: Mapping[str, Any]) -> None:
    """Adds an entry, whose keys are columns of `records_table`; what is not there is NULL.

    Raises:
        OSError: The lake cannot be written.
        UsageError: Likewise.
    """
    path = records_file(lake.root)
    entry = f"{json.dumps(record, ensure_ascii=False)}\n".encode(errors="replace")

    def add() -> None:
        before = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        lake.put(_FILE, b"".join([*before[1 - KEPT_RECORDS :], entry]))

    with lake.lock("records"):
        lake.agree(add)


def records_file(root: Path) -> Path:
    """Where a lake's entries are, once there are some."""
    return root / _FILE
