"""Write a run as a Chrome trace, for Perfetto and chrome://tracing."""

from tracelake.output.chrome_trace.selection import parse_span
from tracelake.output.chrome_trace.trace import Timeline, write_timeline

__all__ = ["Timeline", "parse_span", "write_timeline"]
