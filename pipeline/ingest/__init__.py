"""Turn inputs into committed runs: discover, sniff, group into runs, parse, commit."""

from pipeline.ingest.executors import Progress
from pipeline.ingest.host_map import Hosts, read_hosts
from pipeline.ingest.options import Options
from pipeline.ingest.outcome import IngestReport, RunOutcome, planned_table, unplaced
from pipeline.ingest.plan import Status
from pipeline.ingest.runner import ingest, plan
from pipeline.inputs.expand import DecompressionLimit

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
