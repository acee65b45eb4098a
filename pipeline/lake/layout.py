"""Name the part files of a lake, relative to its root."""

from __future__ import annotations

import re
from datetime import datetime

from tracelake.schema.tables import PARTITION_KEY, tables

# Models have no partitions; neither had packs, which earlier versions made of many small runs.
UNPARTITIONED = "runs_packed"
# Of a run that says no date.
_UNDATED = "undated"
# Hive's own spelling of NULL in a partition folder: the rows of `skipped` belong to no run.
SKIPPED_PARTITION = f"{PARTITION_KEY}=__HIVE_DEFAULT_PARTITION__"

_FOLDER = rf"{PARTITION_KEY}=[^/\0]+|{UNPARTITIONED}|format=[^/\0]+/month=[^/\0]+"
_PART = re.compile(rf"(\w+)/({_FOLDER})/[^/\0]+\.parquet")


def partition_of(format_name: str, run_date: datetime | None) -> str:
    """Return the folder of a run's parts below that of a table."""
    month = f"{run_date:%Y-%m}" if run_date else _UNDATED
    return f"format={format_name}/month={month}"


def model_folder(model: str) -> str:
    """Return the folder of a model's parts."""
    return f"{model}/{UNPARTITIONED}"


def run_of(part: str) -> str:
    """Return the run of a part whose rows do not name it."""
    return partition_in(part).removeprefix(f"{PARTITION_KEY}=")


def run_folder(table: str, run_id: str) -> str:
    """Return the folder in which earlier versions kept the parts of a run."""
    return f"{table}/{PARTITION_KEY}={run_id}"


def part_name(folder: str, digest: str) -> str:
    """Return the name of a part whose content has this SHA-256, hex."""
    return f"{folder}/part-{digest[:20]}.parquet"


def table_of_part(part: str) -> str:
    """Return the relation of a part's rows."""
    return part.partition("/")[0]


def partition_in(part: str) -> str:
    """Return the folder of a part below that of its relation."""
    return part.partition("/")[2].rpartition("/")[0]


def names_runs(part: str) -> bool:
    """Return whether the rows of a part name their run; else its folder does."""
    return not part.split("/")[1].startswith(f"{PARTITION_KEY}=")


def is_folder_of_parts(name: str) -> bool:
    """Return whether a folder of a relation can have parts, at any depth."""
    return name == UNPARTITIONED or name.startswith((f"{PARTITION_KEY}=", "format="))


def is_part_name(name: str) -> bool:
    """Return whether a part file can have this name, whatever it is of."""
    return bool(_PART.fullmatch(name))


def is_part(name: str) -> bool:
    """Return whether a part file of a base table can have this name."""
    found = _PART.fullmatch(name)
    return bool(found and found[1] in tables())
