"""Verify a lake: files against manifests, rows against line counts, figures against each other."""

from tracelake.warehouse.check.findings import Finding, findings_table
from tracelake.warehouse.check.lake import check_lake
from tracelake.warehouse.check.rows import checks

__all__ = ["Finding", "check_lake", "checks", "findings_table"]
