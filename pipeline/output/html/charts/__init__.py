"""Define the charts of the page: Vega-Lite specs, drawn by the browser."""

from tracelake.output.html.charts.kind import Kind, Series
from tracelake.output.html.charts.series import KINDS, read_series
from tracelake.output.html.charts.vega import library, picture, spec

__all__ = ["KINDS", "Kind", "Series", "library", "picture", "read_series", "spec"]
