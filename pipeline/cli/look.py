"""Define the commands that show what is in a lake."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tracelake.base.errors import UsageError
from tracelake.base.text import json_text
from tracelake.cli import options
from tracelake.cli.app import command, recorded
from tracelake.cli.complete import complete_format, complete_run
from tracelake.cli.steps import (
    PAGE,
    check_outputs,
    judge_runs,
    open_console,
    open_lake,
    print_table,
    read_age,
    write_page,
)
from tracelake.nightly.gates import parse_gates
from tracelake.schema.format_names import format_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

    from tracelake.output.terminal.page import Page


AsDocument = Annotated[Literal["table", "json"], typer.Option("--format", help="Output format.")]


@command(epilog="Example: tracelake runs --lake lake --since 7d --attention")
def runs(
    lake: options.LakeName,
    since: options.Since = None,
    trace_format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only runs of this format; see `formats`.",
            autocompletion=complete_format,
        ),
    ] = None,
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Only runs with findings or tests of slow links, and their kinds."
        ),
    ] = False,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Sort by this column: largest number or newest date first, text from A.",
        ),
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of runs.")] = None,
    output_format: options.FileFormat = None,
    output: options.Output = None,
) -> None:
    """List runs with their main figures."""
    from tracelake.output.terminal.page import Page
    from tracelake.output.terminal.runs import draw_runs, runs_sql
    from tracelake.warehouse.running import run_query

    form = options.format_of_rows(output_format, output)
    age = read_age(since)
    after = None if age is None else datetime.now().replace(microsecond=0) - age
    if trace_format is not None and trace_format not in format_names():
        known = ", ".join(format_names())
        raise UsageError(f"unknown format {trace_format!r}", hint=f"use one of {known}")
    opened = open_lake(lake, output)
    listed = runs_sql(
        after=after,
        trace_format=trace_format,
        attention=attention,
        sort=sort,
        reverse=reverse,
        limit=limit,
    )
    answers = run_query(opened, listed)
    if output is None and form == "table":
        for answer in answers:
            draw_runs(answer, Page(sys.stdout))
    else:
        print_table(answers, form, output)


@command(epilog="Example: tracelake show latest --lake lake")
def show(run: options.RunName, lake: options.LakeName, output_format: AsDocument = "table") -> None:
    """Show one run: where the time went, and what is missing."""
    from tracelake.output.terminal.facts import read_run
    from tracelake.output.terminal.show import print_run
    from tracelake.warehouse.names import resolve_run
    from tracelake.warehouse.warehouse import ask

    document = ask(open_lake(lake), "the run", lambda con: read_run(con, resolve_run(con, run)))
    print_document(document, output_format, print_run)


@command(epilog="Example: tracelake diff latest~1 latest --lake lake")
def diff(
    run: options.RunName,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[AFTER]",
            help="Compare RUN with this one, the earlier by date as before; by default RUN with the"
            " one before it of its config.",
            autocompletion=complete_run,
        ),
    ] = None,
    *,
    lake: options.LakeName,
    output_format: AsDocument = "table",
) -> None:
    """Compare two runs and show what changed."""
    from tracelake.output.terminal.changes import read_changes
    from tracelake.output.terminal.diff import print_changes
    from tracelake.warehouse.names import resolve_run, run_before
    from tracelake.warehouse.warehouse import ask

    def compare(con: DuckDBPyConnection) -> dict[str, Any]:
        one = resolve_run(con, run)
        if other is None:
            hint = "give both runs: tracelake diff BEFORE AFTER; list them with: tracelake runs"
            pair = run_before(con, one, hint=hint), one
        else:
            pair = one, resolve_run(con, other)
        if pair[0] == pair[1]:
            raise UsageError("both names are the same run", hint="name another run")
        return read_changes(con, *pair)

    document = ask(open_lake(lake), "the runs", compare)
    print_document(document, output_format, print_changes)


def print_document(
    document: dict[str, Any],
    output_format: Literal["table", "json"],
    draw: Callable[[dict[str, Any], Page], None],
) -> None:
    """Print a document: drawn for people, or as JSON."""
    from tracelake.output.terminal.page import Page

    if output_format == "json":
        typer.echo(json_text(document, indent=2))
    else:
        draw(document, Page(sys.stdout))


@command(epilog="Example: tracelake report --lake lake --since 7d -o week.html")
@recorded
@options.grouped
def report(
    lake: options.LakeName,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; - for stdout. Default: LAKE/report.html."
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="html, markdown (with a folder of pictures) or mail (text, pictures, HTML page"
            " attached); default: by the suffix (.md, .eml), else html.",
        ),
    ] = None,
    pictures: Annotated[
        Literal["png", "svg"],
        typer.Option(help="File type of the pictures of markdown."),
    ] = "png",
    since: options.Since = None,
    runs: options.RunNames = None,
    *,
    rates: options.RateOptions,
    fail_on: options.FailOn = "",
    quiet: options.Quiet = False,
) -> None:
    """Write the report: one HTML page, or a short version as Markdown or mail.

    --fail-on judges the runs in the report.
    """
    from tracelake.lake.home import local_root
    from tracelake.output.html.page import ReportFormat, form_of, write_report

    other = output is None and form_of(form, Path(PAGE)) is not ReportFormat.HTML
    if output is None and (runs or since or other):
        raise UsageError(
            "--output is missing: LAKE/report.html is the HTML page of all runs",
            hint="name a file: -o week.html, -o week.md or -o week.eml",
        )
    links = rates.read_links()
    gates = parse_gates(fail_on)
    opened, console = open_lake(lake, output), open_console(quiet=quiet)
    page = output or local_root(lake) / PAGE
    try:
        written = write_page(
            console,
            output or f"{lake}/{PAGE}",
            lambda: write_report(
                opened,
                page,
                runs=runs or None,
                since=read_age(since),
                form=form_of(form, page),
                pictures=pictures,
                price=rates.gpu_hour_price,
                links=links,
            ),
        )
    except UsageError as error:
        if output is None and error.path == str(page):
            error.hint = f"name a file elsewhere: -o {PAGE}"
        raise
    if output is None:
        opened.small.share(PAGE)
    judge_runs(opened, gates, written.run_ids)


@command(epilog="Example: tracelake timeline latest --lake lake -o trace.json.gz")
def timeline(
    run: options.RunName,
    lake: options.LakeName,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write, compressed if it ends in .gz; - for stdout.",
        ),
    ],
    steps: Annotated[
        str | None,
        typer.Option("--step", "--steps", metavar="N|A-B", help="Only these steps."),
    ] = None,
    ranks: Annotated[
        list[str] | None,
        typer.Option("--rank", metavar="N|A-B", help="Only these ranks; repeatable."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Write a run as a Chrome trace for Perfetto or chrome://tracing."""
    from tracelake.output.chrome_trace.selection import parse_span
    from tracelake.output.chrome_trace.trace import write_timeline

    console, opened = open_console(quiet=quiet), open_lake(lake, Path(output))
    done = write_timeline(
        opened,
        run,
        sys.stdout.buffer if output == "-" else Path(output),
        steps=None if steps is None else parse_span(steps, "--step"),
        ranks=[parse_span(text, "--rank") for text in ranks or ()],
    )
    for note in done.notes:
        console.warn(note)
    console.say(done.summary())


@command(epilog="Example: tracelake whatif latest --lake lake --fix rank=7")
def whatif(
    run: options.RunName,
    lake: options.LakeName,
    fixes: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="WHAT",
            help="Give it the speed of its peers: rank=7, stage=3, kind=all_reduce:tp; or"
            " split=even, or micro-batches=16. Repeatable.",
        ),
    ] = None,
    scales: Annotated[
        list[str] | None,
        typer.Option(
            "--scale",
            metavar="KIND=FACTOR",
            help="Let a kind of operation take FACTOR times as long: forward=0.9. Repeatable.",
        ),
    ] = None,
    output_format: AsDocument = "table",
    drawing: Annotated[
        Path | None,
        typer.Option("--draw", metavar="FILE", help="Draw the step, before and after, as SVG."),
    ] = None,
) -> None:
    """Show what a run would have taken with equal peers, or with what you change."""
    from tracelake.output.terminal.whatif import print_whatif
    from tracelake.warehouse.whatif import answer, read_fix, read_scale

    changes = [*map(read_fix, fixes or ()), *map(read_scale, scales or ())]
    if drawing is not None and not changes:
        raise UsageError("--draw without a change", hint="give --fix or --scale")
    if drawing is not None and drawing.suffix.lower() not in {"", ".svg"}:
        raise UsageError(
            f"the picture cannot be written as {drawing.suffix}",
            hint="name a file that ends in .svg",
        )
    check_outputs(lake, {"--draw": drawing})
    document, replayed = answer(open_lake(lake), run, changes)
    print_document(document, output_format, print_whatif)
    if drawing is not None and replayed is not None:
        from tracelake.base import files
        from tracelake.output.whatif_drawing import draw_step

        asked = " and ".join(document["question"]["changes"])
        files.put_output(drawing, draw_step(replayed, asked).encode())
