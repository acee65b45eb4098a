"""Verify a lake: files against manifests, rows against line counts, figures against each other."""

from pipeline.warehouse.check.findings import Finding, findings_table
from pipeline.warehouse.check.lake import check_incremental, check_lake
from pipeline.warehouse.check.rows import checks

__all__ = ["Finding", "check_incremental", "check_lake", "checks", "findings_table"]
