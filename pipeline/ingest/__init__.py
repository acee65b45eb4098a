"""Turn inputs into committed runs: discover, sniff, group into runs, parse, commit."""

from pipeline.ingest.crews import Progress
from pipeline.ingest.expand import Expansion
from pipeline.ingest.options import Options
from pipeline.ingest.outcome import IngestReport, RunOutcome, planned_table, unplaced
from pipeline.ingest.places import Hosts, read_hosts
from pipeline.ingest.plan import Status
from pipeline.ingest.runner import ingest, plan

__all__ = [
    "Expansion",
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
