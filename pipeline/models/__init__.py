"""Read models from `sql/`, build them into the warehouse, and check them against their headers."""

from pipeline.models.base import create_empty_tables
from pipeline.models.build import BuildResult, build, losses_before
from pipeline.models.catalog import Catalog, catalog, load
from pipeline.models.compute import compute, connect
from pipeline.models.describe import describe, relation_columns
from pipeline.models.failures import Failure
from pipeline.models.header import Model

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
