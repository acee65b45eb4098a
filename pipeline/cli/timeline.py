"""Define the `timeline` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tracelake.cli.app import app
from tracelake.cli.options import LakeName, Quiet, RunName
from tracelake.cli.steps import open_console, open_lake


@app.command(epilog="Example: tracelake timeline latest --lake lake -o trace.json.gz")
def timeline(
    run: RunName,
    lake: LakeName,
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
    quiet: Quiet = False,
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
