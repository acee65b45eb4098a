"""tracelake: raw logs of distributed training into Parquet, and where the time went.

Rooms, in the only direction imports may go::

    errors -> resources -> schema -> faults -> topology -> { formats, lake }
    -> ingest -> models -> report -> cli;   scan -> formats
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tracelake")
except PackageNotFoundError:  # run from a tree that was never installed
    __version__ = "0+unknown"
