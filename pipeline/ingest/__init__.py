"""From inputs to committed runs: discover, sniff, group into runs, parse, commit."""

from pipeline.ingest.find import Options
from pipeline.ingest.outcome import IngestReport, RunOutcome
from pipeline.ingest.plan import Status
from pipeline.ingest.runner import Progress, ingest, plan

__all__ = ["IngestReport", "Options", "Progress", "RunOutcome", "Status", "ingest", "plan"]
