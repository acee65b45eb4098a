"""Run tracelake on workers that are PBS jobs: python pbs.py INPUT... --lake LAKE."""

import subprocess
import sys

from dask_jobqueue import PBSCluster

# Each of 4 jobs has 8 processes. A process has one thread and takes one batch at a time.
with PBSCluster(
    queue="cpu",
    account="monitoring",
    cores=8,
    processes=8,
    memory="24GB",
    resource_spec="select=1:ncpus=8:mem=24gb",
    walltime="04:00:00",
    interface="ib0",
    local_directory="/tmp",
    job_script_prologue=["export NUMBA_CACHE_DIR=$HOME/.cache/tracelake"],
) as cluster:
    cluster.scale(jobs=4)
    command = ["tracelake", "run", *sys.argv[1:], "--memory", "2GB"]
    engine = ["--engine", "dask", "--scheduler", cluster.scheduler_address]
    sys.exit(subprocess.call([*command, *engine]))
