"""The commands that answer questions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import app
from pipeline.cli.options import (
    Format,
    LakePath,
    Output,
    OutputFormat,
)
from pipeline.cli.steps import (
    open_lake,
    print_query,
    print_table,
)
from pipeline.errors import UsageError


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
    print_query(open_lake(lake), _read_sql(sql, file), output_format, output)


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


def _read_sql(sql: str | None, file: Path | None) -> str:
    """The query from the command line, from standard input, or from a file."""
    if (sql is None) == (file is None):
        raise UsageError("give a query, or a file with -f, and not both", hint="see `describe`")
    if file is None:
        return sys.stdin.read() if sql == "-" else str(sql)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the query: {error}", path=file) from error
