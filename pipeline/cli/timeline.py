"""Define the `timeline` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tracelake.cli.app import app
from tracelake.cli.complete import complete_run
from tracelake.cli.options import LakeName, Quiet
from tracelake.cli.steps import open_lake, speak


@app.command(epilog="Example: tracelake timeline latest --lake lake -o trace.json.gz")
def timeline(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run id, a unique part of one, or latest.",
            autocompletion=complete_run,
        ),
    ],
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
    from tracelake.output.chrome_trace import parse_span, write_timeline

    voice, opened = speak(quiet=quiet), open_lake(lake, Path(output))
    done = write_timeline(
        opened,
        run,
        sys.stdout.buffer if output == "-" else Path(output),
        steps=None if steps is None else parse_span(steps, "--step"),
        ranks=[parse_span(text, "--rank") for text in ranks or ()],
    )
    for note in done.notes:
        voice.warn(note)
    voice.say(done.told())
