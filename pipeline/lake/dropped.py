"""Store which runs were dropped, so that their input does not add them again."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tracelake.lake.manifest import Change, RunEntry
from tracelake.lake.shapes import dropped_damage, read_versioned
from tracelake.lake.store import Lake

DROPPED_VERSION = 1
# No suffix: files that end in .json are manifests of groups.
_FILE = "_manifest/_dropped"


def dropped_runs(lake: Lake) -> dict[str, RunEntry]:
    """Return dropped runs by id, with their sources and without part files.

    A run that is committed is not dropped, even if this list has it.

    Raises:
        LakeError: The record is damaged or was written by a newer tracelake.
    """
    found = _read(lake.root / _FILE)
    live = lake.snapshot().runs if found else {}
    return {
        run_id: RunEntry.from_json("", run_id, {"parts": {}, **entry})
        for run_id, entry in sorted(found.items())
        if run_id not in live
    }


def drop_runs(lake: Lake, entries: Collection[RunEntry], *, remember: bool) -> None:
    """Remove runs from the manifests; the next sweep removes their part files.

    The list is on disk before the first manifest changes. If the process dies between, the run is
    still committed and so not dropped: the same call again completes the work.

    Args:
        remember: Store their inputs; otherwise remove them from the list, also of runs dropped
            before.
    """

    def forget_or_remember() -> None:
        before = _read(lake.root / _FILE)
        gone = {entry.run_id for entry in entries}
        now = {run_id: entry for run_id, entry in before.items() if run_id not in gone}
        if remember:
            now |= {entry.run_id: _remembered(entry) for entry in entries}
        if now != before:
            content = json.dumps({"version": DROPPED_VERSION, "runs": now})
            lake.small.put(_FILE, f"{content}\n".encode())

    with lake.lock("dropped"):
        lake.agree(forget_or_remember)
        groups = {entry.run_id: entry.group for entry in entries if entry.group}
        if groups:
            lake.commit_all([Change(min(groups.values()), (), {}, groups.keys())])


def _remembered(entry: RunEntry) -> dict[str, Any]:
    return {name: value for name, value in entry.to_json().items() if name != "parts"}


def _read(path: Path) -> dict[str, Any]:
    content = read_versioned(
        path,
        "the list of dropped runs",
        [DROPPED_VERSION],
        "delete it: the next ingest adds the runs again whose input still exists",
        dropped_damage,
    )
    return dict(content["runs"]) if content else {}
