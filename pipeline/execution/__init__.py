"""Run jobs, which are module-level functions, in other processes: an executor of Dask."""

from tracelake.execution.cluster import Workers, dask_workers
from tracelake.execution.jobs import require, work_folder

__all__ = ["Workers", "dask_workers", "require", "work_folder"]
