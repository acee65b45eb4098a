"""Define the commands that do the work: ingest, build, report, check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracelake.base.errors import CheckFailedError
from tracelake.base.text import printable
from tracelake.cli.app import app
from tracelake.cli.job_steps import (
    bring_in,
    bring_up,
    judge_input,
    print_dry_run,
    print_ending,
    read_links,
    read_options,
    read_request,
    write_page,
)
from tracelake.cli.options import (
    MAX_BAD_RATIO,
    MAX_EXPAND,
    RUN_GAP_SECONDS,
    BadRatio,
    Engine,
    EngineName,
    Fabric,
    FailOn,
    Format,
    Given,
    GpuHourPrice,
    HostsFile,
    InputFormat,
    Inputs,
    Jobs,
    LakeName,
    LinkSpeeds,
    MaxExpand,
    Memory,
    Output,
    OutputFormat,
    Quiet,
    Replace,
    RunGap,
    RunPattern,
    Scheduler,
    Verify,
    Workers,
)
from tracelake.cli.recording import recorded
from tracelake.cli.steps import (
    PAGE,
    check_outputs,
    open_lake,
    print_table,
    read_engine,
    read_memory,
    speak,
)
from tracelake.nightly.gates import left_out, lost_data, parse_gates


@app.command(epilog="Example: tracelake run logs/ --lake lake")
@recorded
def run(
    inputs: Inputs,
    lake: LakeName,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="File of the report; default LAKE/report.html. {date}, {datetime}: the start.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="AGE",
            help="Report only runs dated in the last 90m, 24h, 7d, ..., and runs that arrived since"
            " the last such report.",
        ),
    ] = None,
    max_bad_ratio: BadRatio = MAX_BAD_RATIO,
    input_format: InputFormat = None,
    run_pattern: RunPattern = None,
    hosts: HostsFile = None,
    fabric: Fabric = None,
    given: Given = "",
    run_gap: RunGap = RUN_GAP_SECONDS,
    replace: Replace = False,
    verify: Verify = False,
    max_expand: MaxExpand = MAX_EXPAND,
    jobs: Jobs = None,
    memory: Memory = None,
    engine: Engine = EngineName.LOCAL,
    scheduler: Scheduler = None,
    workers: Workers = None,
    fail_on: FailOn = "",
    summary: Annotated[
        str | None,
        typer.Option(
            "--summary",
            metavar="FILE",
            help="Write a JSON summary of work and findings, also after a failure; - prints it"
            " instead of the table. {date} and {datetime} as in --report.",
        ),
    ] = None,
    post: Annotated[
        str | None,
        typer.Option(
            "--post",
            metavar="COMMAND",
            help="Run this command at the end, also after a failure; its stdin is the summary.",
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics",
            metavar="FILE",
            help="Write figures for Prometheus, also after a failure: a file that ends in .prom in"
            " the folder of node_exporter's textfile collector.",
        ),
    ] = None,
    report_url: Annotated[
        str | None,
        typer.Option(
            "--report-url",
            metavar="URL",
            help="Where people find the report, for messages. {date} and {datetime} as in"
            " --report.",
        ),
    ] = None,
    price: GpuHourPrice = None,
    links: LinkSpeeds = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="N", min=1, help="Delete all but the N newest reports and summaries."
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also verify the content of one part file in 31, of another share every day; what"
            " is damaged is read again from its input.",
        ),
    ] = False,
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="TIME", help="How long to wait for another run on the lake to end."
        ),
    ] = "1h",
    quiet: Quiet = False,
) -> None:
    """Ingest, build and report in one command. Run it as often as you like.

    --fail-on judges the runs that arrived or changed since runs were last judged.
    """
    from tracelake.lake import Lake, local_root, never, of_day
    from tracelake.models import losses_before
    from tracelake.nightly.job import Job

    page = str(local_root(lake) / PAGE) if report is None else report
    speeds = read_links(links)
    request = read_request(inputs, page, since, summary, keep, post, wait, metrics, report_url)
    accounts = None if request.summary is None else request.summary.path
    check_outputs(
        lake, {"--report": request.page.path, "--summary": accounts, "--metrics": metrics}
    )
    voice = speak(quiet=quiet)
    with Job(lake, request, voice) as job:
        gates = parse_gates(fail_on)
        options = read_options(
            input_format, run_pattern, hosts, fabric, given, run_gap, replace, verify, max_expand
        )
        limit, asked = read_memory(memory), read_engine(engine, scheduler, workers, jobs)
        opened = Lake.create(lake)
        job.begin(opened, gated=bool(gates))
        with asked as crew:
            due = of_day(request.started.date()) if check else never
            losses = losses_before(opened, due)
            job.account.ingested = bring_in(
                inputs, opened, options, jobs, limit, voice, crew, losses=losses
            )
            built = bring_up(opened, limit, voice, crew)
        job.add_runs(opened, built.failed)
        late, path = job.late(opened), request.page.path
        written = write_page(
            opened,
            path,
            voice,
            since=request.since,
            late=late,
            now=request.started,
            price=price,
            links=speeds,
        )
        job.add_page(opened, written)
        if report is None:
            opened.share(PAGE)
        verdicts = job.judge(opened, gates, max_bad_ratio, built.lost)
        if not request.show:
            print_ending(opened, lake)
            shown = f"{lake}/{PAGE}" if report is None else path
            places = f"report:    {shown}\nwarehouse: {lake}/{opened.warehouse.name}"
            typer.echo(printable(places))
        for verdict in verdicts[1:]:
            voice.error(verdict)
        if verdicts:
            raise verdicts[0]


@app.command(epilog="Example: tracelake ingest logs/ --lake lake --dry-run")
@recorded
def ingest(
    inputs: Inputs,
    lake: LakeName,
    max_bad_ratio: BadRatio = MAX_BAD_RATIO,
    input_format: InputFormat = None,
    run_pattern: RunPattern = None,
    hosts: HostsFile = None,
    fabric: Fabric = None,
    given: Given = "",
    run_gap: RunGap = RUN_GAP_SECONDS,
    replace: Replace = False,
    verify: Verify = False,
    max_expand: MaxExpand = MAX_EXPAND,
    jobs: Jobs = None,
    memory: Memory = None,
    engine: Engine = EngineName.LOCAL,
    scheduler: Scheduler = None,
    workers: Workers = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    output_format: Annotated[
        OutputFormat | None,
        typer.Option("--format", help="Print the result: a row per run and per skipped input."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Parse new and changed inputs into the lake's Parquet files."""
    from tracelake.lake import Lake, find_missing

    options = read_options(
        input_format, run_pattern, hosts, fabric, given, run_gap, replace, verify, max_expand
    )
    if dry_run:
        print_dry_run(inputs, lake, options, output_format)
        return
    limit, voice = read_memory(memory), speak(quiet=quiet)
    with read_engine(engine, scheduler, workers, jobs) as crew:
        opened = Lake.create(lake)
        losses = find_missing(opened.part_files, opened.snapshot())
        done = bring_in(inputs, opened, options, jobs, limit, voice, crew, losses=losses)
    if output_format is not None:
        print_table(done.table(), output_format, None)
    judge_input(done, max_bad_ratio)


@app.command(epilog="Example: tracelake build --lake lake")
@recorded
def build(
    lake: LakeName,
    full: Annotated[
        bool, typer.Option("--full", help="Compute all runs again, not only changed ones.")
    ] = False,
    memory: Memory = None,
    engine: Engine = EngineName.LOCAL,
    scheduler: Scheduler = None,
    workers: Workers = None,
    output_format: Annotated[
        OutputFormat | None,
        typer.Option("--format", help="Print the result: a row per run computed or deleted."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Build the warehouse from the lake: base tables as views, models as tables."""
    opened, limit = open_lake(lake), read_memory(memory)
    with read_engine(engine, scheduler, workers) as crew:
        built = bring_up(opened, limit, speak(quiet=quiet), crew, full=full)
    if output_format is not None:
        print_table(built.table(), output_format, None)
    if error := left_out(built.failed):
        raise error
    if lost := lost_data(built.lost):
        raise lost


@app.command(epilog="Example: tracelake check --lake lake --quick")
def check(
    lake: LakeName,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Do not read part files in full to check that they are intact."
        ),
    ] = False,
    output_format: Format = OutputFormat.TABLE,
    output: Output = None,
) -> None:
    """Verify a lake: files match manifests, every line is accounted for, figures add up."""
    from tracelake.warehouse.check import check_lake, findings_table

    findings = check_lake(open_lake(lake, output), quick=quick)
    if findings or output_format is not OutputFormat.TABLE:
        print_table(findings_table(findings), output_format, output)
    failed = [finding for finding in findings if finding.severity == "error"]
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of the lake's checks failed",
            path=lake,
            hint="the column repair says how to fix each",
        )
    speak().say(f"{lake}: all checks passed")
