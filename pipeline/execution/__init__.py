"""Run jobs, which are module-level functions, in other processes: executors here and of Dask."""
