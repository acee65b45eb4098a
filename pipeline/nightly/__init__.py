"""Make `run` a job for a scheduler: one at a time, with a backlog, gates and a summary."""
