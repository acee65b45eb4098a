"""What people look at: the warehouse as one HTML page that needs nothing else."""

from pipeline.report.page import ReportResult, write_report

__all__ = ["ReportResult", "write_report"]
