"""Options that several commands take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline import topology
from pipeline.cli.complete import complete_format
from pipeline.gates import GATES

MAX_BAD_RATIO = 0.01
RUN_GAP_SECONDS = 60.0
MAX_EXPAND = "1000x"


class OutputFormat(StrEnum):
    """How a table is printed."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"
    MARKDOWN = "markdown"


class LogFormat(StrEnum):
    """How notes, progress and errors are written."""

    TEXT = "text"
    JSON = "json"


class EngineName(StrEnum):
    """Where jobs run."""

    LOCAL = "local"
    DASK = "dask"


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Files, directories, globs, archives (.tar, .tar.gz, .tar.zst, .zip), all by path or"
        " URI (s3://bucket/logs), or - for stdin.",
    ),
]
LakeName = Annotated[
    str,
    typer.Option(
        "--lake",
        envvar="TRACELAKE_LAKE",
        metavar="LAKE",
        help="Directory of the lake, or a URI: s3://bucket/lake, gs://..., abfs://...",
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
RunPattern = Annotated[
    str | None,
    typer.Option(
        "--run-pattern",
        metavar="REGEX",
        help="On the relative path; groups run, rank, host, device, tp, ... override names.",
    ),
]
HostsFile = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        metavar="FILE",
        help="CSV of where each rank ran: rank, host, and perhaps device and run (a path glob).",
    ),
]
Given = Annotated[
    str,
    typer.Option(
        "--set",
        metavar="K=V,...",
        help=f"Topology the input does not carry: {', '.join(topology.KEYS)}.",
    ),
]
RunGap = Annotated[
    float,
    typer.Option(
        "--run-gap", metavar="SECONDS", min=0, help="A later date in a name starts a new run."
    ),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Let an input with fewer ranks or lines replace its run.")
]
Verify = Annotated[bool, typer.Option("--verify", help="Read inputs whose date did not change.")]
MaxExpand = Annotated[
    str,
    typer.Option(
        "--max-expand",
        metavar="LIMIT",
        help="How far a compressed input may expand: a multiple of what lies on disk, 1000x, though"
        " always to 1 GB; or a size, 50GB. What goes further is cut: exit with 3.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Runs parsed at once in this process; one per processor."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Stay below this, like 800MB, in each process: fewer jobs at once, and models spill to"
        " disk.",
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        envvar="TRACELAKE_ENGINE",
        help="Where runs are parsed and computed: threads of this process, or a Dask cluster"
        " (tracelake[dask]).",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        envvar="TRACELAKE_SCHEDULER",
        metavar="ADDRESS",
        help="The Dask cluster to use, like tcp://node1:8786.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Processes of a Dask cluster of its own on this machine; one per processor.",
    ),
]
BadRatio = Annotated[
    float,
    typer.Option(
        "--max-bad-ratio", min=0, max=1, help="Exit with 3 when a run has more bad lines than this."
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on",
        metavar="NAME,...",
        help="Exit with 5 when a run fails one of "
        f"{', '.join(f'{gate.name} ({gate.doc})' for gate in GATES.values())}.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings and errors.")]
Format = Annotated[OutputFormat, typer.Option("--format", help="How to print the result.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write to this file instead of stdout.")
]
