"""Share what commands need: opening a lake, reading options, their steps, printing results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tracelake.base.errors import InputError, UsageError
from tracelake.base.figures import amount
from tracelake.base.files import STDOUT
from tracelake.base.memory_limit import engine_limit
from tracelake.base.metrics import count, phase
from tracelake.base.text import counted, printable
from tracelake.cli.options import JobOptions, LogFormat, OutputFormat
from tracelake.nightly.gates import Gate, cut_short, failed_gates, failures, too_many_bad_lines

if TYPE_CHECKING:
    from tracelake.base.console import Console
    from tracelake.execution.cluster import Workers
    from tracelake.ingest.options import Options
    from tracelake.ingest.report import IngestReport
    from tracelake.lake.losses import Losses
    from tracelake.lake.store import Lake
    from tracelake.models.build import BuildResult
    from tracelake.nightly.job import Request
    from tracelake.output.html.page import ReportResult
    from tracelake.warehouse.results import Result

# Name of the report in its lake.
PAGE = "report.html"
# Format of messages on standard error; set before a command begins.
log_format: ContextVar[LogFormat] = ContextVar("log_format", default="text")
# What `--summary -` gives the summary to; a Python program takes it as a text.
print_summary: ContextVar[Callable[[str], object]] = ContextVar("print_summary", default=typer.echo)


def open_console(*, quiet: bool = False) -> Console:
    """Return the printer of messages; a command that only prints a result needs none."""
    if log_format.get() == "json":
        from tracelake.base.console import JsonConsole

        return JsonConsole(quiet=quiet)
    from tracelake.base.console import Console

    return Console(quiet=quiet)


def open_lake(lake: str, output: Path | None = None) -> Lake:
    """Return the lake of a command that reads one; refuse an unsuitable `--output` first."""
    from tracelake.lake.store import Lake

    check_outputs(lake, {"--output": output})
    return Lake.open(lake)


def make_lake(lake: str, inputs: Sequence[str]) -> Lake:
    """Return the lake of a command that brings inputs in; make it, unless one is not there."""
    from tracelake.inputs.discover import refuse_missing
    from tracelake.lake.store import Lake

    try:
        refuse_missing(inputs)
    except InputError:
        if Lake.find(lake) is None:
            raise
    return Lake.create(lake)


def check_outputs(lake: str, outputs: Mapping[str, Path | None]) -> None:
    """Refuse unsuitable files of options before work is done; see `refuse_outputs`."""
    from tracelake.base.files import refuse_outputs
    from tracelake.lake.home import local_root

    root = local_root(lake)
    refuse_outputs(outputs, root, root / PAGE)


def read_age(text: str | None, option: str = "--since") -> timedelta | None:
    """Read 30s, 90m, 24h, 7d, 2w."""
    if text is None:
        return None
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) <= 5) or unit not in units:
        hint = "give 30s, 90m, 24h, 7d or 2w; a number has at most five digits"
        raise UsageError(f"invalid {option} {text!r}", hint=hint)
    return timedelta(**{units[unit]: int(number)})


def print_table(result: Result, output_format: OutputFormat, output: Path | None) -> None:
    """Print a result in the given format, on standard output or into a file."""
    from tracelake.warehouse.results import write_result

    write_result(result, output_format, output or sys.stdout)


def read_request(inputs: Sequence[str], page: str, job: JobOptions, started: datetime) -> Request:
    """Return the settings of a job other than its work from its options."""
    from tracelake.nightly.job import Request
    from tracelake.nightly.post_command import PostCommand
    from tracelake.nightly.series import Series, filled

    age, patience = read_age(job.since), read_age(job.wait, "--wait")
    if page == "-":
        raise UsageError(
            "--report needs a file", hint="to print a report use: tracelake report -o -"
        )
    if job.metrics == STDOUT:
        raise UsageError("--metrics needs a file", hint="name one that Prometheus collects")
    pages = Series(page, started)
    printed = job.summary == "-"
    summaries = None if job.summary is None or printed else Series(job.summary, started)
    if job.keep and not any(series and series.dated for series in (pages, summaries)):
        raise UsageError(
            "--keep needs file names with a date",
            hint="put {date} or {datetime} into the names of --report or --summary",
        )
    return Request(
        inputs,
        started,
        pages,
        age,
        summaries,
        print_summary.get() if printed else None,
        job.keep,
        None if job.post is None else PostCommand.parse(job.post),
        patience or timedelta(),
        job.metrics,
        job.report_url and filled(job.report_url, started),
    )


def bring_in(
    inputs: list[str],
    lake: Lake,
    options: Options,
    jobs: int | None,
    memory: int | None,
    console: Console,
    workers: Workers | None,
    *,
    losses: Losses,
) -> IngestReport:
    """Ingest with progress, and print the result."""
    from tracelake.ingest.pipeline import ingest
    from tracelake.ingest.run_plan import Status
    from tracelake.kernels.compiled import on_message

    for part, damage in losses.parts.items():
        console.warn(f"{part} is {damage}: its input is read again if it is there")
    with console.bar() as bar, on_message(console.say):
        done = ingest(
            inputs,
            lake,
            options,
            jobs=jobs,
            memory=memory,
            workers=workers,
            progress=bar,
            losses=losses,
        )
    for outcome in done.runs:
        if outcome.status is Status.KEPT:
            console.warn(
                f"{outcome.run_id}: the lake has more of {', '.join(outcome.missing[:3])}"
                f"{' ...' if len(outcome.missing) > 3 else ''} than the input; the run stays"
                " as it is (use --replace to replace it)"
            )
        for fault, times in outcome.faults.items():
            if fault.severity in ("data_loss", "error"):
                console.warn(f"{outcome.run_id}: {fault.name} ({times}): {fault.doc}")
    for line in (*done.unreadable(), *done.notes):
        console.warn(line)
    for line in done.as_lines():
        console.say(line)
    return done


def print_dry_run(
    inputs: list[str], lake: str, options: Options, output_format: OutputFormat | None
) -> None:
    """Print what an ingest would do, a line or row per run and per skipped input."""
    import tempfile

    from tracelake.ingest.pipeline import plan
    from tracelake.ingest.report import notes_on, planned_table

    with tempfile.TemporaryDirectory() as spool:
        plans, skips = plan(inputs, lake, options, Path(spool))
    for line in notes_on(plans, options):
        open_console().warn(line)
    if output_format is not None:
        print_table(planned_table(plans, skips), output_format, None)
        return
    for planned in sorted(plans, key=lambda p: p.run_id):
        files = f"{len(planned.inputs):>6} files"
        typer.echo(f"{planned.status:<9} {planned.format.name:<14} {files}  {planned.run_id}")
    for skip in skips:
        member = f"/{skip['member']}" if skip["member"] else ""
        typer.echo(printable(f"skipped   {skip['reason']:<14} {skip['path']}{member}"))


def judge_input(ingested: IngestReport, max_bad_ratio: float, console: Console) -> None:
    """Raise an error if a parser failed, an input was cut or a run has too many bad lines."""
    from tracelake.ingest.fence import parsers_failed

    bad = cut_short(ingested.cut, ingested.too_far) or too_many_bad_lines(
        ingested.runs, max_bad_ratio
    )
    errors = [error for error in (parsers_failed(ingested.failures), bad) if error is not None]
    for error in errors[1:]:
        console.error(error)
    if errors:
        raise errors[0]


def judge_runs(lake: Lake, gates: Sequence[Gate], run_ids: Sequence[str]) -> None:
    """Raise an error if a run fails a gate; everything is written before."""
    from tracelake.warehouse.warehouse import ask

    if gates and run_ids:
        failed = ask(lake, "the gates", lambda con: failures(con, gates, run_ids))
        if failed:
            raise failed_gates(failed, len(gates), lake.name)


def bring_up(
    lake: Lake,
    memory: int | None,
    console: Console,
    workers: Workers | None = None,
    *,
    full: bool = False,
) -> BuildResult:
    """Build the warehouse with progress, and print the result."""
    from tracelake.models.build import build

    limit = None
    if memory is not None:
        limit = engine_limit(memory // (workers.per_process if workers else 1))
    with phase("build"), console.doing("building the warehouse") as on_step:
        built = build(lake, full=full, memory_limit=limit, workers=workers, progress=on_step)
    count(runs_built=len(built.built), runs_dropped=len(built.dropped))
    if built.notice:
        console.warn(built.notice)
    console.say(built.summary())
    return built


def write_page(
    console: Console, shown: str | Path, write: Callable[[], ReportResult]
) -> ReportResult:
    """Write the report and print where it is."""
    with phase("report"), console.doing("writing the report"):
        written = write()
    count(report_bytes=written.bytes)
    console.say(f"report: {counted(written.runs, 'run')}, {amount(written.bytes)}, {shown}")
    return written


def print_ending(lake: Lake) -> None:
    """Print what needs attention in a few lines; the page has the rest."""
    from tracelake.output.terminal.ending import print_ending, read_ending
    from tracelake.output.terminal.page import Page
    from tracelake.warehouse.warehouse import ask

    print_ending(*ask(lake, "the runs", read_ending), Page(sys.stdout))
