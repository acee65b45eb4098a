"""Turn inputs into committed runs: discover, sniff, group into runs, parse, commit."""

from tracelake.ingest.fence import parsers_failed
from tracelake.ingest.hosts import Hosts, read_hosts
from tracelake.ingest.options import Options
from tracelake.ingest.parse import Progress
from tracelake.ingest.pipeline import ingest, plan
from tracelake.ingest.report import IngestReport, notes_on, planned_table
from tracelake.ingest.run_plan import Status
from tracelake.ingest.run_result import RunResult
from tracelake.inputs.expand import DecompressionLimit

__all__ = [
    "DecompressionLimit",
    "Hosts",
    "IngestReport",
    "Options",
    "Progress",
    "RunResult",
    "Status",
    "ingest",
    "notes_on",
    "parsers_failed",
    "plan",
    "planned_table",
    "read_hosts",
]
