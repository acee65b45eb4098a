"""Define the commands that answer queries."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tracelake.base.errors import UsageError
from tracelake.base.files import read_text
from tracelake.base.memory_limit import parse_size, query_limit
from tracelake.cli import options
from tracelake.cli.app import command
from tracelake.cli.complete import complete_example, complete_format, complete_run, complete_table
from tracelake.cli.steps import check_outputs, open_console, open_lake, print_table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from tracelake.lake.store import Lake
    from tracelake.warehouse.examples import Example
    from tracelake.warehouse.statements import Parameters as Values


_LARGEST_QUERY = 10_000_000


@command(epilog='Example: tracelake query "FROM findings" --lake lake')
def query(
    lake: options.LakeName,
    sql: Annotated[
        str | None, typer.Argument(metavar="SQL", help="A query, or - to read it from stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the query from this file; - is stdin.")
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run a saved question; see `examples`.",
            autocompletion=complete_example,
        ),
    ] = None,
    parameters: options.Parameters = None,
    output_format: options.FileFormat = None,
    output: options.Output = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Cancel the query after this time."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory limit of the query, like 500MB; it spills to disk, then it fails.",
        ),
    ] = None,
) -> None:
    """Run a query (SELECT, EXPLAIN, DESCRIBE or SHOW) over tables and models."""
    from tracelake.warehouse.results import ONE_RESULT
    from tracelake.warehouse.running import run_query

    form = options.format_of_rows(output_format, output)
    limit = None if memory is None else parse_size(memory)
    opened = open_lake(lake, output)
    text, values = _read_query(opened, sql, file, example, parameters or ())
    only = ONE_RESULT.get(form)
    with query_limit(limit):
        answer = run_query(opened, text, values, timeout=timeout, memory=limit, only=only)
        print_table(answer, form, output)


@command("ask", epilog="Example: tracelake ask incidents --lake lake")
def answer(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A saved question; `examples` lists them.",
            autocompletion=complete_example,
        ),
    ],
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Ask of this run only: its label, hash or id, a unique part of one, or latest.",
            autocompletion=complete_run,
        ),
    ] = None,
    *,
    lake: options.LakeName,
    parameters: options.Parameters = None,
    output_format: options.FileFormat = None,
    output: options.Output = None,
) -> None:
    """Ask a saved question: tracelake ask incidents, tracelake ask slow_ranks job009."""
    from tracelake.warehouse.examples import example
    from tracelake.warehouse.names import resolve_run
    from tracelake.warehouse.running import run_query
    from tracelake.warehouse.statements import split_parameters
    from tracelake.warehouse.warehouse import ask as read

    form = options.format_of_rows(output_format, output)
    saved, given = example(name), split_parameters(parameters or ())
    opened = open_lake(lake, output)
    if run is not None:
        if "run" not in {parameter.name for parameter in saved.parameters}:
            raise UsageError(
                f"{name} is asked of the whole lake, not of one run",
                hint=f"tracelake ask {name}",
            )
        if "run" in given:
            raise UsageError("the run is given twice", hint="leave out --param run=")
        given["run"] = read(opened, "the run", lambda con: resolve_run(con, run))
    values = _bind(opened, saved, given) if run is None else saved.bind(given)
    (found,) = (reader.read_all() for reader in run_query(opened, saved.sql, values))
    drawn, cut = output is None and form == "table", found.num_rows == values.get("top")
    if drawn and not found.num_rows:
        typer.echo(f"No rows. {saved.question} {saved.reading}")
        return
    print_table(found, form, output)
    if drawn:
        typer.echo(f"\n{saved.question} {saved.reading}")
    if cut:
        tell = typer.echo if drawn else open_console().say
        tell(f"At most {found.num_rows} rows are shown; --param top=N shows N.")


@command(epilog="Example: tracelake examples")
def examples(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Print the SQL of this saved question; list all by default.",
            autocompletion=complete_example,
        ),
    ] = None,
    output_format: Annotated[
        options.OutputFormat | None, typer.Option("--format", help="Output format of the list.")
    ] = None,
) -> None:
    """List the saved questions that `ask` answers, or print the SQL of one."""
    from tracelake.warehouse.examples import example as saved
    from tracelake.warehouse.examples import examples_table

    if name is None:
        print_table(examples_table(), output_format or "table", None)
    elif output_format:
        raise UsageError("--format applies only to the list", hint=f"tracelake examples {name}")
    else:
        typer.echo(saved(name).sql, nl=False)


@command("sql", epilog="Example: tracelake sql --lake lake")
def shell(
    lake: options.LakeName,
    ui: Annotated[bool, typer.Option("--ui", help="Also open DuckDB's page in a browser.")] = False,
) -> None:
    """Open DuckDB's own shell on the warehouse, read-only."""
    from tracelake.warehouse.shell import open_shell

    open_shell(open_lake(lake), ui=ui)


@command(epilog="Example: tracelake describe run_summary")
def describe(
    table: Annotated[
        str | None,
        typer.Argument(help="A table or model; all by default.", autocompletion=complete_table),
    ] = None,
    output_format: options.FileFormat = None,
    output: options.Output = None,
) -> None:
    """Show tables, models and columns, with meanings and units."""
    from tracelake.models.describe import describe as describe_relations

    print_table(describe_relations(table), options.format_of_rows(output_format, output), output)


@command(epilog="Example: tracelake formats")
def formats(
    name: Annotated[
        str | None,
        typer.Argument(help="A format; all by default.", autocompletion=complete_format),
    ] = None,
    output_format: options.FileFormat = None,
    output: options.Output = None,
) -> None:
    """List the input formats, or the rejects, line kinds and faults of one."""
    from tracelake.formats import describe as describe_formats

    print_table(describe_formats(name), options.format_of_rows(output_format, output), output)


def _bind(lake: Lake, saved: Example, given: dict[str, str]) -> Values:
    """Return the values of a saved question; a run may be named in any way."""
    from tracelake.warehouse.names import resolve_run
    from tracelake.warehouse.warehouse import ask as read

    def run_id(con: DuckDBPyConnection) -> str:
        part = con.execute("FROM runs WHERE contains(run_id, $1) LIMIT 1", [given["run"]])
        return given["run"] if part.fetchone() else resolve_run(con, given["run"])

    values = saved.bind(given)
    return values | {"run": read(lake, "the run", run_id)} if given.get("run") else values


def _read_query(
    lake: Lake, sql: str | None, file: Path | None, name: str | None, parameters: Iterable[str]
) -> tuple[str, Values]:
    """Return the query and its parameters from the argument, a file or a saved question."""
    from tracelake.warehouse.examples import example
    from tracelake.warehouse.statements import read_value, split_parameters

    given = split_parameters(parameters)
    if sum(source is not None for source in (sql, file, name)) != 1:
        raise UsageError(
            "give exactly one of: a query, a file with -f, a saved question with --example",
            hint="`describe` lists tables, `examples` lists saved questions",
        )
    if name is not None:
        saved = example(name)
        return saved.sql, _bind(lake, saved, given)
    values = {key: read_value(value) for key, value in given.items()}
    if "-" in (sql, str(file)):
        return _read_stdin(), values
    if file is None:
        return str(sql), values
    return read_text(file, "the query", _LARGEST_QUERY), values


def _read_stdin() -> str:
    try:
        text = sys.stdin.read(_LARGEST_QUERY + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the query from standard input: {error}") from error
    if len(text) > _LARGEST_QUERY:
        raise UsageError("the query on standard input is too long", hint="give at most 10 MB")
    return text


@command("mcp", epilog="Example: tracelake mcp --lake lake")
def mcp(lake: options.LakeName) -> None:
    """Answer a language model's questions about the lake (Model Context Protocol, stdio)."""
    opened = open_lake(lake)
    try:
        from tracelake.output.mcp_server import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UsageError(
            "mcp needs a library that is not installed", hint="pip install 'tracelake[mcp]'"
        ) from error
    server(opened).run("stdio")


@command(epilog="Example: tracelake export lake.duckdb --lake lake")
def export(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="A file that ends in .duckdb, .sqlite or .db, or a folder with --format.",
        ),
    ],
    lake: options.LakeName,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Only this table or model; repeatable. All by default.",
            autocompletion=complete_table,
        ),
    ] = None,
    runs: options.RunNames = None,
    output_format: Annotated[
        Literal["duckdb", "sqlite", "csv", "parquet"] | None,
        typer.Option("--format", help="csv and parquet write a file per model into a folder."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Copy tables and models into one DuckDB or SQLite file, or into CSV or Parquet files."""
    from tracelake.output.export import export as write
    from tracelake.output.export import format_of
    from tracelake.warehouse.names import resolve_run
    from tracelake.warehouse.warehouse import ask

    fmt = format_of(target, output_format)
    one_file = fmt in {"duckdb", "sqlite"}
    # Of a folder, no file may be in the lake either.
    check_outputs(lake, {"TARGET": target if one_file else target / "x"})
    console, opened = open_console(quiet=quiet), open_lake(lake)
    wanted = ask(opened, "the runs", lambda con: [resolve_run(con, run) for run in runs or ()])
    with console.doing("exporting"):
        done = write(opened, target, fmt, models or (), wanted)
    console.say(done.summary())
