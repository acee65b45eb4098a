"""Read schemas/, the one source of tables, columns and reasons; sizes of a job."""

NO_TABLES = frozenset({"columns", "reasons", "skips"})
"""Files of `schemas/` that are of no table."""
