"""Record what was done to a lake: an entry per command, newest last.

One file of JSON lines, replaced as a whole, so that no reader sees half an entry; the oldest
entries go when there are too many.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracelake.lake.store import Lake
from tracelake.schema.tables import Column, Table

KEPT_RECORDS = 1000
_FILE = "_run/records.jsonl"

# Amounts that commands count, in the order in which they are shown.
AMOUNTS: Mapping[str, str] = {
    "runs_found": "Runs of the input, whatever their status.",
    "runs_written": "Runs that were parsed and committed.",
    "files_read": "Input files of the runs that were parsed.",
    "bytes_read": "Decompressed bytes of these files.",
    "lines_read": "Lines of these files.",
    "rows_written": "Rows that were written.",
    "lines_rejected": "Rejected lines; they are in rejects.",
    "inputs_skipped": "Skipped inputs; they are in skipped.",
    "runs_built": "Runs whose models were computed.",
    "runs_dropped": "Runs that were deleted from the lake and the warehouse.",
    "files_removed": "Files that were removed from the lake.",
    "bytes_removed": "Bytes of these files.",
    "report_bytes": "Size of the report that was written.",
}


@functools.cache
def records_table() -> Table:
    """Return the relation that queries see: a row per command that worked on the lake."""
    return Table(
        "tracelake_runs",
        "Commands that worked on the lake: what each read, wrote and skipped, and how long it"
        f" took. The newest {KEPT_RECORDS:,}.",
        (
            Column("command", "VARCHAR", "Name of the command."),
            Column("started", "TIMESTAMP", "Start time, in UTC."),
            Column("duration_ns", "BIGINT", "Duration of the command.", "ns"),
            Column("exit_code", "BIGINT", "Exit code; 0 is success."),
            Column("error", "VARCHAR", "Error that ended it; NULL after a success."),
            Column("version", "VARCHAR", "Version of tracelake."),
            Column("host", "VARCHAR", "Host on which it ran."),
            Column("pid", "BIGINT", "Process id."),
            Column(
                "options",
                "MAP(VARCHAR, VARCHAR)",
                "Options given, by name; the command of --post is not stored.",
            ),
            Column(
                "phases",
                "MAP(VARCHAR, BIGINT)",
                "Time by phase: find, plan, parse, write, commit, build, build:<family>, report."
                " Phases of several threads add up; build contains its families.",
                "ns",
            ),
            *(
                Column(name, "BIGINT", doc, "bytes" if "bytes" in name else None)
                for name, doc in AMOUNTS.items()
            ),
        ),
    )


def add_record(lake: Lake, record: Mapping[str, Any]) -> None:
    """Add an entry, whose keys are columns of `records_table`; missing keys are NULL.

    Raises:
        OSError: The lake cannot be written.
        UsageError: Likewise.
    """
    path = records_file(lake.root)
    entry = f"{json.dumps(record, ensure_ascii=False)}\n".encode(errors="replace")

    def add() -> None:
        before = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        lake.small.put(_FILE, b"".join([*before[1 - KEPT_RECORDS :], entry]))

    with lake.lock("records"):
        lake.agree(add)


def records_file(root: Path) -> Path:
    """Return the file of a lake's entries."""
    return root / _FILE
