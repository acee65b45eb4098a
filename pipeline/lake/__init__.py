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
