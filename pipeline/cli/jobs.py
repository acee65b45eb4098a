"""The commands that do the work: from inputs to a lake, its warehouse and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import app
from pipeline.cli.job_steps import (
    bring_in,
    bring_up,
    judge_bad_lines,
    judge_runs,
    print_dry_run,
    print_headline,
    read_options,
    write_page,
)
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
    open_lake,
    print_table,
    read_memory,
    speak,
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
