"""Write a run as a Chrome trace, for Perfetto and chrome://tracing."""

from pipeline.timeline.selection import parse_span
from pipeline.timeline.trace import Timeline, write_timeline

__all__ = ["Timeline", "parse_span", "write_timeline"]
