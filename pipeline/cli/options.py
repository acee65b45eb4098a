"""Define options: those that several commands share, and groups of them as dataclasses.

An option of a group stands here once, with its default and help. `grouped` gives a command the
options of the dataclasses that it takes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from tracelake.base.errors import UsageError
from tracelake.base.files import STDOUT
from tracelake.base.memory_limit import jobs_within, parse_size
from tracelake.base.text import name_lake
from tracelake.cli.complete import complete_format, complete_run
from tracelake.nightly.gates import GATES
from tracelake.schema import topology

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelake.execution.cluster import Workers
    from tracelake.ingest.options import Options

_R = TypeVar("_R")


OutputFormat = Literal["table", "json", "ndjson", "csv", "parquet", "markdown"]
LogFormat = Literal["text", "json"]
EngineName = Literal["local", "dask"]

_SUFFIXES: dict[str, OutputFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".md": "markdown",
}
# Suffixes of files that would not be what their name says.
_OTHERS = frozenset({".duckdb", ".gz", ".html", ".pdf", ".sqlite", ".xlsx", ".zip", ".zst"})


def format_of_rows(given: OutputFormat | None, output: Path | None) -> OutputFormat:
    """Return the format given, else that of the file's suffix, else a table.

    Raises:
        UsageError: The suffix is that of another format.
    """
    if given is not None or output is None:
        return given or "table"
    suffix = output.suffix.lower()
    if suffix in _OTHERS:
        raise UsageError(
            f"rows cannot be written as {suffix}",
            hint=f"use {', '.join(_SUFFIXES)} or .txt, or give --format",
        )
    return _SUFFIXES.get(suffix, "table")


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Files, directories, globs or archives (.tar, .tar.gz, .tar.zst, .zip), by path or"
        " URI (s3://bucket/logs), or - for stdin.",
    ),
]


def _typed(ctx: typer.Context, value: str) -> str:
    """Let the next command name the lake again if this one did."""
    source = ctx.get_parameter_source("lake")
    # A command that is parsed alone, as by a test of the docs, is not run.
    known: Mapping[str, Any] = getattr(ctx.find_root().command, "commands", {})
    if known and source is not None and source.name == "COMMANDLINE":
        name_lake(value)
    return value


LakeName = Annotated[
    str,
    typer.Option(
        callback=_typed,
        envvar="TRACELAKE_LAKE",
        metavar="LAKE",
        help="Directory or URI of the lake: s3://bucket/lake, gs://..., abfs://...",
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        metavar="NAME,...",
        help="Exit with 5 if a run fails one of "
        f"{', '.join(f'{gate.name} ({gate.doc})' for gate in GATES.values())}."
        " Findings of regression are called regressed, those of drift drifted.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]
Format = Annotated[OutputFormat, typer.Option("--format", help="Output format.")]
FileFormat = Annotated[
    OutputFormat | None,
    typer.Option("--format", help="Output format; default: by the suffix of --output, else table."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        callback=lambda value: None if value == STDOUT else value,
        help="Write to this file instead of stdout (-).",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="AGE", help="Only runs with a date in the last 90m, 24h, 7d, ..."),
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's label, hash or id, a unique part of one, or latest; RUN~1 is the run before"
        " it of its config.",
        autocompletion=complete_run,
    ),
]
RunNames = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        metavar="RUN",
        help="Only this run, as in `show`; repeatable.",
        autocompletion=complete_run,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="K=V", help="Set parameter K, in SQL $K, of the query; repeatable."
    ),
]


def option(
    default: Any, meaning: str, *, flag: str | None = None, metavar: str | None = None, **more: Any
) -> Any:
    """Define a field of a group as an option, named like the field unless a flag is given."""
    more |= {"metavar": metavar, "help": meaning}
    return field(default=default, metadata={"flag": flag, "option": more})


@dataclass(frozen=True)
class IngestOptions:
    """Decide how inputs become runs."""

    max_bad_ratio: float = option(
        0.01, "Exit with 3 if a larger share of a run's lines is bad.", min=0, max=1
    )
    input_format: str | None = option(
        None, "Read every input as this format; see `formats`.", autocompletion=complete_format
    )
    run_pattern: str | None = option(
        None,
        "Regular expression on the relative path; its groups run, rank, host, device, tp,"
        " ... override the names.",
        metavar="REGEX",
    )
    hosts: Path | None = option(
        None,
        "CSV file with the host of each rank: rank, host[, device][, run] (run: path glob).",
        metavar="FILE",
    )
    fabric: str | None = option(
        None,
        "Network that these jobs and bandwidth tests ran on: jobs are compared with tests of"
        " the same name where hosts do not tell.",
        metavar="NAME",
    )
    given: str = option(
        "",
        f"Topology that the input does not give, or gives wrongly: {', '.join(topology.KEYS)}.",
        flag="--set",
        metavar="K=V,...",
    )
    run_gap: float = option(
        60.0,
        "A date in a name later than this after the one before starts a new run.",
        metavar="SECONDS",
        min=0,
    )
    replace: bool = option(False, "Replace a run even if its input now has fewer ranks or lines.")
    verify: bool = option(False, "Also read inputs whose modification time did not change.")
    max_expand: str = option(
        "1000x",
        "How far a compressed input may expand: a multiple of its size, like 1000x (1 GB"
        " is always allowed), or a size, like 50GB. A larger input is cut and the exit"
        " code is 3.",
        metavar="LIMIT",
    )

    def read(self) -> Options:
        """Return the settings of an ingest."""
        from tracelake.ingest.hosts import read_hosts
        from tracelake.ingest.options import Options
        from tracelake.inputs.expand import DecompressionLimit

        return Options(
            input_format=self.input_format,
            run_pattern=self.run_pattern,
            given=topology.parse_set(self.given),
            run_gap_seconds=self.run_gap,
            replace=self.replace,
            verify=self.verify,
            hosts=None if self.hosts is None else read_hosts(self.hosts),
            max_expand=DecompressionLimit.parse(self.max_expand),
            fabric=self.fabric,
        )


@dataclass(frozen=True)
class MemoryOptions:
    """Bound the memory of a command."""

    memory: str | None = option(
        None,
        "Memory limit of each process, like 800MB: fewer jobs run at once, and models"
        " spill to disk.",
        metavar="SIZE",
    )

    def read_memory(self) -> int | None:
        """Return the limit in bytes; raise an error at once if it is too small."""
        if self.memory is None:
            return None
        memory = parse_size(self.memory)
        jobs_within(memory, 1)
        return memory


@dataclass(frozen=True)
class EngineOptions(MemoryOptions):
    """Choose what does the work."""

    engine: EngineName = option(
        "local",
        "What parses and computes runs: this machine (local), or a Dask cluster (tracelake[dask]).",
        envvar="TRACELAKE_ENGINE",
    )
    scheduler: str | None = option(
        None,
        "Address of a Dask cluster, like tcp://node1:8786; without it one is started here.",
        envvar="TRACELAKE_SCHEDULER",
        metavar="ADDRESS",
    )
    workers: int | None = option(
        None,
        "Processes of the Dask cluster that is started on this machine; by default one"
        " per processor.",
        metavar="N",
        min=1,
    )

    def start(self) -> AbstractContextManager[Workers | None]:
        """Return the workers that `--engine` names; None for this command alone."""
        if self.engine == "local":
            given = "--scheduler" if self.scheduler else "--workers" if self.workers else None
            if given:
                raise UsageError(f"{given} needs --engine dask", hint="add --engine dask")
            return nullcontext()
        if self.scheduler and self.workers:
            raise UsageError(
                "--scheduler and --workers exclude each other",
                hint="give the address of a cluster, or the number of local workers",
            )
        from tracelake.execution.cluster import dask_workers

        return dask_workers(self.scheduler, self.workers)


@dataclass(frozen=True)
class ParseOptions(EngineOptions):
    """Choose what does the work of an ingest."""

    jobs: int | None = option(
        None, "Runs to parse at once on this machine; by default one per processor.", min=1
    )

    def start(self) -> AbstractContextManager[Workers | None]:
        """See `EngineOptions`."""
        started = super().start()
        if self.jobs is not None and self.engine != "local":
            raise UsageError(
                "--jobs is for --engine local",
                hint="use --workers for the number of local workers",
            )
        return started


@dataclass(frozen=True)
class RateOptions:
    """Give rates that the report compares figures with."""

    gpu_hour_price: float | None = option(
        None,
        "Price of a GPU hour: the report then gives costs in money too.",
        metavar="PRICE",
        min=0,
    )
    links: str | None = option(
        None,
        "Rated speed of links, like nvlink=450,ib=50, or a file of such lines: the report"
        " compares bus bandwidth with it.",
        metavar="NAME=GB/S,...",
    )

    def read_links(self) -> Mapping[str, float] | None:
        """Return the rated speeds of `--links`."""
        if self.links is None:
            return None
        from tracelake.output.html.links import parse_links

        return parse_links(self.links)


@dataclass(frozen=True)
class JobOptions:
    """Choose what a nightly job writes and judges, and whom it tells."""

    report: str | None = option(
        None,
        "File of the report; default LAKE/report.html. {date}, {datetime}: the start.",
        metavar="FILE",
    )
    since: str | None = option(
        None,
        "Report only runs dated in the last 90m, 24h, 7d, ..., and runs that arrived"
        " since the last such report.",
        metavar="AGE",
    )
    fail_on: FailOn = ""
    summary: str | None = option(
        None,
        "Write a JSON summary of work and findings, also after a failure; - prints it"
        " instead of the table. {date} and {datetime} as in --report.",
        metavar="FILE",
    )
    post: str | None = option(
        None,
        "Run this command at the end, also after a failure; its stdin is the summary.",
        metavar="COMMAND",
    )
    metrics: Path | None = option(
        None,
        "Write figures for Prometheus, also after a failure: a file that ends in .prom in"
        " the folder of node_exporter's textfile collector.",
        metavar="FILE",
    )
    report_url: str | None = option(
        None,
        "Where people find the report, for messages. {date} and {datetime} as in --report.",
        metavar="URL",
    )
    keep: int | None = option(
        None, "Delete all but the N newest reports and summaries.", metavar="N", min=1
    )
    check: bool = option(
        False,
        "Also verify the content of one part file in 31, of another share every day; what"
        " is damaged is read again from its input.",
    )
    wait: str = option("1h", "How long to wait for another run on the lake to end.", metavar="TIME")


def grouped(command: Callable[..., _R]) -> Callable[..., _R]:
    """Replace each parameter that is a dataclass by its fields: an option of the command each."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: k for name, k in hints.items() if is_dataclass(k)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters.extend(_options(groups[name]))
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(kind=kind, annotation=hints[name]))

    @functools.wraps(command)
    def run(**given: Any) -> _R:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        return command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _options(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for one in fields(group):
        annotation = hints[one.name]
        if "option" in one.metadata:
            flag = one.metadata["flag"] or f"--{one.name.replace('_', '-')}"
            annotation = Annotated[annotation, typer.Option(flag, **one.metadata["option"])]
        yield inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=annotation,
        )
