"""Where jobs run when it is not in this process: workers of a Dask cluster.

Who gives a worker which job, again if it is lost, is distributed's affair, and so is all that they
say to each other. Here a cluster is joined or started, and what goes wrong in it is told.
"""

from pipeline.engine.cluster import dask_workers
from pipeline.engine.jobs import require, work_folder
from pipeline.engine.workers import Workers

__all__ = ["Workers", "dask_workers", "require", "work_folder"]
