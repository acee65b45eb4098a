"""Run jobs in other processes: the workers of a Dask cluster.

distributed assigns jobs to workers, repeats lost ones and transports data. This package joins or
starts a cluster and reports its errors.
"""

from tracelake.execution.cluster import dask_workers
from tracelake.execution.jobs import require, work_folder
from tracelake.execution.workers import Workers

__all__ = ["Workers", "dask_workers", "require", "work_folder"]
