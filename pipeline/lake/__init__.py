"""Store a lake: layout, manifests, commits, and every access to its files.

Layout::

    LAKE/<table>/format=<format>/month=<YYYY-MM>/part-<content hash>.parquet
    LAKE/<model>/runs_packed/part-<content hash>.parquet          named by the warehouse alone
    LAKE/_manifest/<group>.json      which part files are committed
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
from tracelake.lake.layout import (
    SKIPPED_PARTITION,
    UNPARTITIONED,
    model_folder,
    names_runs,
    part_name,
    partition_in,
    partition_of,
    run_of,
    table_of,
)
from tracelake.lake.leftovers import Leftover, leftovers, remove_leftovers
from tracelake.lake.losses import (
    DAMAGED,
    MISSING,
    Losses,
    find_losses,
    find_missing,
    lost_table,
    never,
    of_day,
    verify,
)
from tracelake.lake.manifest import (
    Change,
    RunEntry,
    RunsOf,
    Snapshot,
    content_in,
    generation_of,
    group_name,
    label_of,
)
from tracelake.lake.part_files import Mark, PartFiles
from tracelake.lake.store import Lake
from tracelake.lake.work import STAGING

__all__ = [
    "DAMAGED",
    "MISSING",
    "SKIPPED_PARTITION",
    "STAGING",
    "UNPARTITIONED",
    "Change",
    "Lake",
    "Leftover",
    "Losses",
    "Mark",
    "PartFiles",
    "RunEntry",
    "RunsOf",
    "Snapshot",
    "content_in",
    "drop_runs",
    "dropped_runs",
    "find_losses",
    "find_missing",
    "full_name",
    "generation_of",
    "group_name",
    "label_of",
    "leftovers",
    "local_root",
    "lost_table",
    "model_folder",
    "names_runs",
    "never",
    "of_day",
    "part_files_at",
    "part_name",
    "partition_in",
    "partition_of",
    "real_name",
    "remove_leftovers",
    "run_of",
    "table_of",
    "verify",
]
