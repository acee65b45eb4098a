"""Write the report: the warehouse as one self-contained HTML page, or a short version."""

from tracelake.output.html.links import parse_links
from tracelake.output.html.page import ReportFormat, ReportResult, form_of, write_report

__all__ = ["ReportFormat", "ReportResult", "form_of", "parse_links", "write_report"]
