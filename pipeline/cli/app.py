"""The application that commands register with."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="tracelake",
    help="Raw logs of distributed training into Parquet, and where the time went.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help and usage errors: drawing boxes takes longer than the rest
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from pipeline import __version__

        typer.echo(f"tracelake {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
