"""The lake on disk: layout, manifests, commit, and the one place that touches its files.

Layout::

    LAKE/<table>/run_id=<id>/part-<content hash>.parquet
    LAKE/_manifest/<group>.json      what is committed; the truth about everything else
    LAKE/_manifest/_loose            part files that the next sweep looks at
    LAKE/_staging/<purpose>-*/       work in progress
    LAKE/_run/                       lock and record of the nightly job
    LAKE/warehouse.duckdb            built from the above

A commit moves immutable part files in and then replaces one manifest atomically: readers follow
manifests, so they see a group before or after, never between. Only this room moves, replaces and
removes part files and manifests; others write in the staging folder it gives them.
"""

from pipeline.lake.manifest import RunEntry, Snapshot, part_folder
from pipeline.lake.store import Lake

__all__ = ["Lake", "RunEntry", "Snapshot", "part_folder"]
