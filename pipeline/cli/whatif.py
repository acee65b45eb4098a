"""Define the `whatif` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracelake.base.errors import UsageError
from tracelake.cli.app import app
from tracelake.cli.look import AsDocument, print_document
from tracelake.cli.options import LakeName, RunName
from tracelake.cli.steps import open_lake


@app.command(epilog="Example: tracelake whatif latest --lake lake --fix rank=7")
def whatif(
    run: RunName,
    lake: LakeName,
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
    document, replayed = answer(open_lake(lake, drawing), run, changes)
    print_document(document, output_format, print_whatif)
    if drawing is not None and replayed is not None:
        from tracelake.base import files
        from tracelake.output.whatif_drawing import draw_step

        asked = " and ".join(document["question"]["changes"])
        files.put_output(drawing, draw_step(replayed, asked).encode())
