"""Define options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracelake.cli.complete import complete_format
from tracelake.nightly.gates import GATES
from tracelake.schema import topology

MAX_BAD_RATIO = 0.01
RUN_GAP_SECONDS = 60.0
MAX_EXPAND = "1000x"


class OutputFormat(StrEnum):
    """Format of a printed table."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"
    MARKDOWN = "markdown"


class LogFormat(StrEnum):
    """Format of notes, progress and errors."""

    TEXT = "text"
    JSON = "json"


class EngineName(StrEnum):
    """The engine that runs jobs."""

    LOCAL = "local"
    DASK = "dask"


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Files, directories, globs or archives (.tar, .tar.gz, .tar.zst, .zip), by path or"
        " URI (s3://bucket/logs), or - for stdin.",
    ),
]
LakeName = Annotated[
    str,
    typer.Option(
        "--lake",
        envvar="TRACELAKE_LAKE",
        metavar="LAKE",
        help="Directory or URI of the lake: s3://bucket/lake, gs://..., abfs://...",
    ),
]
InputFormat = Annotated[
    str | None,
    typer.Option(
        "--input-format",
        help="Read every input as this format; see `formats`.",
        autocompletion=complete_format,
    ),
]
GpuHourPrice = Annotated[
    float | None,
    typer.Option(
        "--gpu-hour-price",
        metavar="PRICE",
        min=0,
        help="Price of a GPU hour: the report then gives costs in money too.",
    ),
]
LinkSpeeds = Annotated[
    str | None,
    typer.Option(
        "--links",
        metavar="NAME=GB/S,...",
        help="Rated speed of links, like nvlink=450,ib=50, or a file of such lines: the report"
        " compares bus bandwidth with it.",
    ),
]
RunPattern = Annotated[
    str | None,
    typer.Option(
        "--run-pattern",
        metavar="REGEX",
        help="Regular expression on the relative path; its groups run, rank, host, device, tp, ..."
        " override the names.",
    ),
]
HostsFile = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        metavar="FILE",
        help="CSV file with the host of each rank: rank, host[, device][, run] (run: path glob).",
    ),
]
Fabric = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="NAME",
        help="Network that these jobs and bandwidth tests ran on: jobs are compared with tests of"
        " the same name where hosts do not tell.",
    ),
]
Given = Annotated[
    str,
    typer.Option(
        "--set",
        metavar="K=V,...",
        help=f"Topology that the input does not give: {', '.join(topology.KEYS)}.",
    ),
]
RunGap = Annotated[
    float,
    typer.Option(
        "--run-gap",
        metavar="SECONDS",
        min=0,
        help="A date in a name later than this after the one before starts a new run.",
    ),
]
Replace = Annotated[
    bool,
    typer.Option("--replace", help="Replace a run even if its input now has fewer ranks or lines."),
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Also read inputs whose modification time did not change.")
]
MaxExpand = Annotated[
    str,
    typer.Option(
        "--max-expand",
        metavar="LIMIT",
        help="How far a compressed input may expand: a multiple of its size, like 1000x (1 GB is"
        " always allowed), or a size, like 50GB. A larger input is cut and the exit code is 3.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, help="Runs to parse at once in this process; by default one per processor."
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory limit of each process, like 800MB: fewer jobs run at once, and models spill to"
        " disk.",
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        envvar="TRACELAKE_ENGINE",
        help="What parses and computes runs: threads of this process (local), or a Dask cluster"
        " (tracelake[dask]).",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        envvar="TRACELAKE_SCHEDULER",
        metavar="ADDRESS",
        help="Address of a Dask cluster, like tcp://node1:8786; without it one is started here.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Processes of the Dask cluster that is started on this machine; by default one per"
        " processor.",
    ),
]
BadRatio = Annotated[
    float,
    typer.Option(
        "--max-bad-ratio",
        min=0,
        max=1,
        help="Exit with 3 if a larger share of a run's lines is bad.",
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on",
        metavar="NAME,...",
        help="Exit with 5 if a run fails one of "
        f"{', '.join(f'{gate.name} ({gate.doc})' for gate in GATES.values())}.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]
Format = Annotated[OutputFormat, typer.Option("--format", help="Output format.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write to this file instead of stdout.")
]
