"""Turn inputs into committed runs: discover, sniff, group into runs, parse, commit."""

from tracelake.ingest.executors import Progress
from tracelake.ingest.host_map import Hosts, read_hosts
from tracelake.ingest.options import Options
from tracelake.ingest.outcome import IngestReport, RunOutcome, planned_table, unplaced
from tracelake.ingest.plan import Status
from tracelake.ingest.runner import ingest, plan
from tracelake.inputs.expand import DecompressionLimit

__all__ = [
    "DecompressionLimit",
    "Hosts",
    "IngestReport",
    "Options",
    "Progress",
    "RunOutcome",
    "Status",
    "ingest",
    "plan",
    "planned_table",
    "read_hosts",
    "unplaced",
]
