"""Define the `export` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tracelake.cli.app import app
from tracelake.cli.complete import complete_table
from tracelake.cli.options import LakeName, Quiet, RunNames
from tracelake.cli.steps import check_outputs, open_console, open_lake


@app.command(epilog="Example: tracelake export lake.duckdb --lake lake")
def export(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="A file that ends in .duckdb, .sqlite or .db, or a folder with --format.",
        ),
    ],
    lake: LakeName,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Only this table or model; repeatable. All by default.",
            autocompletion=complete_table,
        ),
    ] = None,
    runs: RunNames = None,
    output_format: Annotated[
        Literal["duckdb", "sqlite", "csv", "parquet"] | None,
        typer.Option("--format", help="csv and parquet write a file per model into a folder."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Copy tables and models into one DuckDB or SQLite file, or into CSV or Parquet files."""
    from tracelake.output.export.export import export as write
    from tracelake.output.export.export import format_of
    from tracelake.warehouse.names import resolve_run
    from tracelake.warehouse.reopening import ask

    fmt = format_of(target, output_format)
    one_file = fmt in {"duckdb", "sqlite"}
    # Of a folder, no file may be in the lake either.
    check_outputs(lake, {"TARGET": target if one_file else target / "x"})
    console, opened = open_console(quiet=quiet), open_lake(lake)
    wanted = ask(opened, "the runs", lambda con: [resolve_run(con, run) for run in runs or ()])
    with console.doing("exporting"):
        done = write(opened, target, fmt, models or (), wanted)
    console.say(done.summary())
