"""Read schemas/, the one source of tables, columns and reasons; sizes of a job."""
