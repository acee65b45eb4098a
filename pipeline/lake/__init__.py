"""Store a lake: layout, manifests, commits, and every access to its files.

Layout::

    LAKE/<table>/run_id=<id>/part-<content hash>.parquet
    LAKE/<table>/runs_packed/part-<content hash>.parquet          rows of many runs
    LAKE/<model>/runs_packed/part-<content hash>.parquet          named by the warehouse alone
    LAKE/_manifest/<group>.json      which part files are committed
    LAKE/_manifest/_packs.json       runs whose rows are in packs, not in parts of their own
    LAKE/_manifest/_loose            part files that the next sweep checks
    LAKE/_manifest/_dropped          runs that were dropped, so that ingest skips them
    LAKE/_staging/<purpose>-*/       work in progress
    LAKE/_run/                       lock and record of the nightly job
    LAKE/warehouse.duckdb            built from the above

A commit moves immutable part files in and then replaces one manifest atomically: readers follow
manifests, so they see a group before or after, never between. Only this package moves, replaces and
removes part files and manifests; others write in the staging folder that it gives them.
"""

from tracelake.lake.dropped import drop_runs, dropped_runs
from tracelake.lake.home import full_name, local_root, part_files_at, real_name
from tracelake.lake.leftovers import Leftover, leftovers, remove_leftovers, unlisted_parts
from tracelake.lake.losses import (
    DAMAGED,
    MISSING,
    Losses,
    find_losses,
    find_missing,
    never,
    of_day,
    verify,
)
from tracelake.lake.manifest import (
    Change,
    RunEntry,
    Snapshot,
    generation_of,
    label_of,
    part_folder,
)
from tracelake.lake.packs import Packs, is_pack, pack_folder
from tracelake.lake.part_files import Mark, PartFiles
from tracelake.lake.store import Lake
from tracelake.lake.work import STAGING

__all__ = [
    "DAMAGED",
    "MISSING",
    "STAGING",
    "Change",
    "Lake",
    "Leftover",
    "Losses",
    "Mark",
    "Packs",
    "PartFiles",
    "RunEntry",
    "Snapshot",
    "drop_runs",
    "dropped_runs",
    "find_losses",
    "find_missing",
    "full_name",
    "generation_of",
    "is_pack",
    "label_of",
    "leftovers",
    "local_root",
    "never",
    "of_day",
    "pack_folder",
    "part_files_at",
    "part_folder",
    "real_name",
    "remove_leftovers",
    "unlisted_parts",
    "verify",
]
