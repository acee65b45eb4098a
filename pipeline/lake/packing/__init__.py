"""Merge small parts of many runs into packs, and keep packs correct when runs are removed."""

from tracelake.lake.packing.compact import compact, compaction_table
from tracelake.lake.packing.rows import rows_of_runs
from tracelake.lake.packing.steps import Packed, rewrite_packs

__all__ = ["Packed", "compact", "compaction_table", "rewrite_packs", "rows_of_runs"]
