"""The commands that read inputs and lakes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import app
from pipeline.cli.options import (
    MAX_BAD_RATIO,
    RUN_GAP_SECONDS,
    BadRatio,
    FailOn,
    Format,
    Given,
    HostsFile,
    InputFormat,
    Inputs,
    Jobs,
    LakePath,
    Memory,
    Output,
    OutputFormat,
    Quiet,
    Replace,
    RunGap,
    RunPattern,
    Verify,
)
from pipeline.cli.steps import (
    RUNS_SQL,
    bring_in,
    bring_up,
    judge_bad_lines,
    judge_runs,
    open_lake,
    print_dry_run,
    print_headline,
    print_query,
    print_table,
    read_age,
    read_memory,
    read_options,
    read_sql,
    speak,
    write_page,
)
from pipeline.errors import CheckFailedError
from pipeline.gates import parse_gates


@app.command()
def run(
    inputs: Inputs,
    lake: LakePath,
    report: Annotated[
        Path | None, typer.Option("--report", help="Where the page goes; LAKE/report.html.")
    ] = None,
    max_bad_ratio: BadRatio = MAX_BAD_RATIO,
    input_format: InputFormat = None,
    run_pattern: RunPattern = None,
    hosts: HostsFile = None,
    given: Given = "",
    run_gap: RunGap = RUN_GAP_SECONDS,
    replace: Replace = False,
    verify: Verify = False,
    jobs: Jobs = None,
    memory: Memory = None,
    fail_on: FailOn = "",
    quiet: Quiet = False,
) -> None:
    """Ingest, build and report: the main job. Run it again as often as you like.

    --fail-on judges the runs that this command adds or changes.
    """
    gates = parse_gates(fail_on)
    options = read_options(input_format, run_pattern, hosts, given, run_gap, replace, verify)
    limit, voice = read_memory(memory), speak(quiet=quiet)
    opened, ingested = bring_in(inputs, lake, options, jobs, limit, voice)
    bring_up(opened, limit, voice)
    page = report or lake / "report.html"
    write_page(opened, page, voice)
    print_headline(opened)
    typer.echo(f"report:    {page}\nwarehouse: {lake / opened.warehouse.name}")
    judge_bad_lines(ingested, max_bad_ratio)
    judge_runs(opened, gates, ingested.changed)


@app.command()
def ingest(
    inputs: Inputs,
    lake: LakePath,
    max_bad_ratio: BadRatio = MAX_BAD_RATIO,
    input_format: InputFormat = None,
    run_pattern: RunPattern = None,
    hosts: HostsFile = None,
    given: Given = "",
    run_gap: RunGap = RUN_GAP_SECONDS,
    replace: Replace = False,
    verify: Verify = False,
    jobs: Jobs = None,
    memory: Memory = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and write nothing.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Bring a lake's Parquet up to date with its inputs."""
    options = read_options(input_format, run_pattern, hosts, given, run_gap, replace, verify)
    if dry_run:
        print_dry_run(inputs, lake, options)
        return
    limit, voice = read_memory(memory), speak(quiet=quiet)
    _, ingested = bring_in(inputs, lake, options, jobs, limit, voice)
    judge_bad_lines(ingested, max_bad_ratio)


@app.command()
def build(
    lake: LakePath,
    full: Annotated[
        bool, typer.Option("--full", help="Compute every run again, not only changed ones.")
    ] = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Build the warehouse from the lake: base tables as views, models as tables."""
    bring_up(open_lake(lake), read_memory(memory), speak(quiet=quiet), full=full)


@app.command()
def query(
    lake: LakePath,
    sql: Annotated[
        str | None, typer.Argument(metavar="SQL", help="A query, or - to read it from stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the query here.")] = None,
    output_format: Format = OutputFormat.TABLE,
    output: Output = None,
) -> None:
    """Answer a query: SELECT, EXPLAIN, DESCRIBE or SHOW, over tables and models."""
    print_query(open_lake(lake), read_sql(sql, file), output_format, output)


@app.command()
def report(
    lake: LakePath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="AGE", help="Only runs dated within 90m, 24h, 7d, ..."),
    ] = None,
    runs: Annotated[
        list[str] | None, typer.Option("--run", metavar="ID", help="Only this run; repeatable.")
    ] = None,
    fail_on: FailOn = "",
    quiet: Quiet = False,
) -> None:
    """Write the report: one HTML page that opens anywhere.

    --fail-on judges the runs of the page.
    """
    gates, opened, voice = parse_gates(fail_on), open_lake(lake), speak(quiet=quiet)
    judged = write_page(opened, output, voice, runs=runs, since=read_age(since))
    judge_runs(opened, gates, judged)


@app.command()
def runs(lake: LakePath, output_format: Format = OutputFormat.TABLE, output: Output = None) -> None:
    """List the runs with their headline figures."""
    print_query(open_lake(lake), RUNS_SQL, output_format, output)


@app.command()
def describe(
    table: Annotated[str | None, typer.Argument(help="A table or model; all by default.")] = None,
    output_format: Format = OutputFormat.TABLE,
    output: Output = None,
) -> None:
    """Say what tables and models there are, and what each column means, in which unit."""
    from pipeline.models import describe as describe_relations

    print_table(describe_relations(table), output_format, output)


@app.command()
def formats(
    name: Annotated[str | None, typer.Argument(help="A format; all by default.")] = None,
    output_format: Format = OutputFormat.TABLE,
    output: Output = None,
) -> None:
    """List the trace formats, or the reasons, kinds and faults of one."""
    from pipeline.formats import describe as describe_formats

    print_table(describe_formats(name), output_format, output)


@app.command()
def check(
    lake: LakePath, output_format: Format = OutputFormat.TABLE, output: Output = None
) -> None:
    """Verify a lake: files against manifests, every line accounted for, figures that add up."""
    from pipeline.check import check_lake, findings_table

    findings = check_lake(open_lake(lake))
    if findings:
        print_table(findings_table(findings), output_format, output)
    failed = [finding for finding in findings if finding.severity == "error"]
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of the lake's checks failed", path=lake, hint="see the findings above"
        )
    speak().say(f"{lake}: all checks passed")
