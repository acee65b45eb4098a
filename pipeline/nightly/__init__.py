"""Make `run` a job for a scheduler: one at a time, with a backlog and a summary."""

from pipeline.nightly.hook import Hook
from pipeline.nightly.job import Job, Request
from pipeline.nightly.series import Series

__all__ = ["Hook", "Job", "Request", "Series"]
