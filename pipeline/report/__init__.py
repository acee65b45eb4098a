"""What people look at: the warehouse as one HTML page that needs nothing else, or in short."""

from pipeline.report.page import ReportFormat, ReportResult, form_of, write_report

__all__ = ["ReportFormat", "ReportResult", "form_of", "write_report"]
