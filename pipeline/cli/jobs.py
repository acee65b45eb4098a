"""Define the commands that do the work: ingest, build, report, check."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from tracelake.base.errors import CheckFailedError
from tracelake.base.text import counted, printable
from tracelake.cli.app import command, recorded
from tracelake.cli.options import (
    DryRun,
    EngineOptions,
    FileFormat,
    IngestOptions,
    Inputs,
    JobOptions,
    LakeName,
    Output,
    OutputFormat,
    ParseOptions,
    Quiet,
    RateOptions,
    format_of_rows,
    grouped,
)
from tracelake.cli.steps import (
    PAGE,
    bring_in,
    bring_up,
    check_outputs,
    judge_input,
    open_console,
    open_lake,
    print_dry_run,
    print_ending,
    print_table,
    read_request,
    write_page,
)
from tracelake.nightly.gates import left_out, lost_data, parse_gates


@command(epilog="Example: tracelake run logs/ --lake lake")
@recorded
@grouped
def run(
    inputs: Inputs,
    lake: LakeName,
    job: JobOptions,
    shaping: IngestOptions,
    engine: ParseOptions,
    rates: RateOptions,
    quiet: Quiet = False,
) -> None:
    """Ingest, build and report in one command. Run it as often as you like.

    --fail-on judges the runs that arrived or changed since runs were last judged.
    """
    from tracelake.lake.home import local_root
    from tracelake.lake.losses import never, of_day
    from tracelake.lake.store import Lake
    from tracelake.models.build import losses_before
    from tracelake.nightly.job import Job

    page = str(local_root(lake) / PAGE) if job.report is None else job.report
    links = rates.read_links()
    request = read_request(inputs, page, job, datetime.now().astimezone())
    summary = None if request.summary is None else request.summary.path
    check_outputs(
        lake, {"--report": request.page.path, "--summary": summary, "--metrics": job.metrics}
    )
    console = open_console(quiet=quiet)
    with Job(lake, request, console) as work:
        gates = parse_gates(job.fail_on)
        options, memory = shaping.read(), engine.read_memory()
        started = engine.start()
        opened = Lake.create(lake)
        work.begin(opened, gates)
        with started as workers:
            due = of_day(request.started.date()) if job.check else never
            losses = losses_before(opened, due)
            work.account.ingested = bring_in(
                inputs, opened, options, engine.jobs, memory, console, workers, losses=losses
            )
            built = bring_up(opened, memory, console, workers)
        work.add_runs(built.failed)
        from tracelake.output.html.page import write_report

        late, path = work.late(), request.page.path
        shown = f"{lake}/{PAGE}" if job.report is None else path
        written = write_page(
            console,
            shown,
            lambda: write_report(
                opened,
                path,
                since=request.since,
                late=late,
                now=request.started,
                price=rates.gpu_hour_price,
                links=links,
            ),
        )
        work.add_page(written)
        if job.report is None:
            opened.small.share(PAGE)
        verdicts = work.judge(shaping.max_bad_ratio, built.lost)
        if not request.show:
            print_ending(opened)
            places = f"report:    {shown}\nwarehouse: {lake}/{opened.warehouse.name}"
            typer.echo(printable(places))
        for verdict in verdicts[1:]:
            console.error(verdict)
        if verdicts:
            raise verdicts[0]


@command(epilog="Example: tracelake ingest logs/ --lake lake --dry-run")
@recorded
@grouped
def ingest(
    inputs: Inputs,
    lake: LakeName,
    shaping: IngestOptions,
    engine: ParseOptions,
    dry_run: DryRun = False,
    output_format: Annotated[
        OutputFormat | None,
        typer.Option("--format", help="Print the result: a row per run and per skipped input."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Parse new and changed inputs into the lake's Parquet files."""
    from tracelake.lake.losses import find_missing
    from tracelake.lake.store import Lake

    options = shaping.read()
    if dry_run:
        print_dry_run(inputs, lake, options, output_format)
        return
    memory, console = engine.read_memory(), open_console(quiet=quiet)
    with engine.start() as workers:
        opened = Lake.create(lake)
        losses = find_missing(opened.part_files, opened.snapshot())
        done = bring_in(
            inputs, opened, options, engine.jobs, memory, console, workers, losses=losses
        )
    if output_format is not None:
        print_table(done.table(), output_format, None)
    judge_input(done, shaping.max_bad_ratio, console)


@command(epilog="Example: tracelake build --lake lake")
@recorded
@grouped
def build(
    lake: LakeName,
    engine: EngineOptions,
    full: Annotated[
        bool, typer.Option("--full", help="Compute all runs again, not only changed ones.")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Print how long each model took, the slowest first."),
    ] = False,
    output_format: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format",
            help="Print the result: a row per run computed or deleted, or per model (--profile).",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Build the warehouse from the lake: base tables as views, models as tables.

    --profile prints seconds of `compute_s` and `write_s` per relation, summed over batches of runs
    that are computed at once, so they add up to more than the build took.
    """
    from tracelake.models.catalog import catalog

    opened, memory = open_lake(lake), engine.read_memory()
    with engine.start() as workers:
        built = bring_up(opened, memory, open_console(quiet=quiet), workers, full=full)
    if profile:
        print_table(built.profile.table(catalog()), output_format or "table", None)
    elif output_format is not None:
        print_table(built.table(), output_format, None)
    if error := left_out(built.failed):
        raise error
    if lost := lost_data(built.lost):
        raise lost


@command(epilog="Example: tracelake check --lake lake --quick")
def check(
    lake: LakeName,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Do not read part files in full to check that they are intact."
        ),
    ] = False,
    output_format: FileFormat = None,
    output: Output = None,
) -> None:
    """Verify a lake: files match manifests, every line is accounted for, figures add up."""
    from tracelake.warehouse.check import check_lake, findings_table

    form = format_of_rows(output_format, output)
    findings = check_lake(open_lake(lake, output), quick=quick)
    if findings or form != "table":
        print_table(findings_table(findings), form, output)
    failed = [finding for finding in findings if finding.severity == "error"]
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of the lake's checks failed",
            path=lake,
            hint="the column repair says how to fix each",
        )
    warned = f"no errors, {counted(len(findings), 'warning')}" if findings else "all checks passed"
    open_console().say(f"{lake}: {warned}")
