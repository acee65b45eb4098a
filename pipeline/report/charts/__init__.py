"""Define the charts of the page: Vega-Lite specs made with Altair, drawn by the browser."""

from pipeline.report.charts.kind import Kind, Series
from pipeline.report.charts.series import KINDS, read_series
from pipeline.report.charts.vega import library, picture, spec

__all__ = ["KINDS", "Kind", "Series", "library", "picture", "read_series", "spec"]
