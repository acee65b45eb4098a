"""The commands that show what is in a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import app
from pipeline.cli.job_steps import (
    RUNS_SQL,
    judge_runs,
    write_page,
)
from pipeline.cli.options import (
    FailOn,
    Format,
    LakePath,
    Output,
    OutputFormat,
    Quiet,
)
from pipeline.cli.steps import (
    open_lake,
    print_query,
    read_age,
    speak,
)
from pipeline.gates import parse_gates


@app.command()
def runs(lake: LakePath, output_format: Format = OutputFormat.TABLE, output: Output = None) -> None:
    """List the runs with their headline figures."""
    print_query(open_lake(lake), RUNS_SQL, output_format, output)


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
