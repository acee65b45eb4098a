"""Run jobs in other processes: the workers of a Dask cluster.

distributed assigns jobs to workers, repeats lost ones and transports data. This package joins or
starts a cluster and reports its errors.
"""

from pipeline.engine.cluster import dask_workers
from pipeline.engine.jobs import require, work_folder
from pipeline.engine.workers import Workers

__all__ = ["Workers", "dask_workers", "require", "work_folder"]
