"""Run jobs, which are module-level functions, in other processes: executors here and of Dask."""

from tracelake.execution.cluster import Workers, dask_workers
from tracelake.execution.jobs import require, work_folder
from tracelake.execution.processes import Processes

__all__ = ["Processes", "Workers", "dask_workers", "require", "work_folder"]
