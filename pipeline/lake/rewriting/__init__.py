"""Read the rows of parts run by run, and write parts anew."""

from tracelake.lake.rewriting.groups import tidy
from tracelake.lake.rewriting.rows import rows_of_runs

__all__ = ["rows_of_runs", "tidy"]
