"""Define the commands that do the work: ingest, build, report, check."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from tracelake.base.errors import CheckFailedError
from tracelake.base.text import counted, printable
from tracelake.cli import options, steps
from tracelake.cli.app import command, recorded
from tracelake.nightly.gates import left_out, lost_data, parse_gates


@command(epilog="Example: tracelake run logs/ --lake lake")
@recorded
@options.grouped
def run(
    inputs: options.Inputs,
    lake: options.LakeName,
    job: options.JobOptions,
    shaping: options.IngestOptions,
    engine: options.ParseOptions,
    rates: options.RateOptions,
    quiet: options.Quiet = False,
) -> None:
    """Ingest, build and report in one command. Run it as often as you like.

    --fail-on judges the runs that arrived or changed since runs were last judged.
    """
    from tracelake.lake.home import local_root
    from tracelake.lake.losses import never, of_day
    from tracelake.models.build import losses_before
    from tracelake.nightly.job import Job

    page = str(local_root(lake) / steps.PAGE) if job.report is None else job.report
    links = rates.read_links()
    request = steps.read_request(inputs, page, job, datetime.now().astimezone())
    summary = None if request.summary is None else request.summary.path
    steps.check_outputs(
        lake, {"--report": request.page.path, "--summary": summary, "--metrics": job.metrics}
    )
    console = steps.open_console(quiet=quiet)
    with Job(lake, request, console) as work:
        gates = parse_gates(job.fail_on)
        settings, memory = shaping.read(), engine.read_memory()
        started = engine.start()
        opened = steps.make_lake(lake, inputs)
        work.begin(opened, gates)
        with started as workers:
            due = of_day(request.started.date()) if job.check else never
            losses = losses_before(opened, due)
            work.account.ingested = steps.bring_in(
                inputs, opened, settings, engine.jobs, memory, console, workers, losses=losses
            )
            built = steps.bring_up(opened, memory, console, workers)
        work.add_runs(built.failed)
        from tracelake.output.html.page import write_report

        late, path = work.late(), request.page.path
        shown = f"{lake}/{steps.PAGE}" if job.report is None else path
        written = steps.write_page(
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
            opened.small.share(steps.PAGE)
        verdicts = work.judge(shaping.max_bad_ratio, built.lost)
        if not request.show:
            steps.print_ending(opened)
            places = f"report:    {shown}\nwarehouse: {lake}/{opened.warehouse.name}"
            typer.echo(printable(places))
        for verdict in verdicts[1:]:
            console.error(verdict)
        if verdicts:
            raise verdicts[0]


@command(epilog="Example: tracelake ingest logs/ --lake lake --dry-run")
@recorded
@options.grouped
def ingest(
    inputs: options.Inputs,
    lake: options.LakeName,
    shaping: options.IngestOptions,
    engine: options.ParseOptions,
    dry_run: options.DryRun = False,
    output_format: Annotated[
        options.OutputFormat | None,
        typer.Option("--format", help="Print the result: a row per run and per skipped input."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Parse new and changed inputs into the lake's Parquet files."""
    from tracelake.lake.losses import find_missing

    settings = shaping.read()
    if dry_run:
        steps.print_dry_run(inputs, lake, settings, output_format)
        return
    memory, console = engine.read_memory(), steps.open_console(quiet=quiet)
    with engine.start() as workers:
        opened = steps.make_lake(lake, inputs)
        losses = find_missing(opened.part_files, opened.snapshot())
        done = steps.bring_in(
            inputs, opened, settings, engine.jobs, memory, console, workers, losses=losses
        )
    if output_format is not None:
        steps.print_table(done.table(), output_format, None)
    steps.judge_input(done, shaping.max_bad_ratio, console)


@command(epilog="Example: tracelake build --lake lake")
@recorded
@options.grouped
def build(
    lake: options.LakeName,
    engine: options.EngineOptions,
    full: Annotated[
        bool, typer.Option("--full", help="Compute all runs again, not only changed ones.")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Print how long each model took, the slowest first."),
    ] = False,
    output_format: Annotated[
        options.OutputFormat | None,
        typer.Option(
            "--format",
            help="Print the result: a row per run computed or deleted, or per model (--profile).",
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Build the warehouse from the lake: base tables as views, models as tables.

    --profile prints seconds of `compute_s` and `write_s` per relation, summed over batches of runs
    that are computed at once, so they add up to more than the build took.
    """
    from tracelake.models.catalog import catalog

    opened, memory = steps.open_lake(lake), engine.read_memory()
    with engine.start() as workers:
        built = steps.bring_up(opened, memory, steps.open_console(quiet=quiet), workers, full=full)
    if profile:
        steps.print_table(built.profile.table(catalog()), output_format or "table", None)
    elif output_format is not None:
        steps.print_table(built.table(), output_format, None)
    if error := left_out(built.failed):
        raise error
    if lost := lost_data(built.lost):
        raise lost


@command(epilog="Example: tracelake check --lake lake --quick")
def check(
    lake: options.LakeName,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Do not read part files in full to check that they are intact."
        ),
    ] = False,
    output_format: options.FileFormat = None,
    output: options.Output = None,
) -> None:
    """Verify a lake: files match manifests, every line is accounted for, figures add up."""
    from tracelake.warehouse.check import check_lake, findings_table

    form = options.format_of_rows(output_format, output)
    findings = check_lake(steps.open_lake(lake, output), quick=quick)
    if findings or form != "table":
        steps.print_table(findings_table(findings), form, output)
    failed = [finding for finding in findings if finding.severity == "error"]
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of the lake's checks failed",
            path=lake,
            hint="the column repair says how to fix each",
        )
    warned = f"no errors, {counted(len(findings), 'warning')}" if findings else "all checks passed"
    steps.open_console().say(f"{lake}: {warned}")
