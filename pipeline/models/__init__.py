"""Read models from `sql/`, build them into the warehouse, and check them against their headers."""

from tracelake.models.base import create_empty_tables
from tracelake.models.build import BuildResult, build, losses_before
from tracelake.models.catalog import Catalog, catalog, load
from tracelake.models.compute import compute, connect
from tracelake.models.describe import describe, relation_columns
from tracelake.models.failures import Failure
from tracelake.models.header import Model

__all__ = [
    "BuildResult",
    "Catalog",
    "Failure",
    "Model",
    "build",
    "catalog",
    "compute",
    "connect",
    "create_empty_tables",
    "describe",
    "load",
    "losses_before",
    "relation_columns",
]
