"""The application that commands register with, and how a command that is stopped ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.cli.options import LogFormat
from pipeline.cli.steps import log_format, speak
from pipeline.waiting import settled

INTERRUPTED = 130
# What a shell says of a program that is ended for writing to a closed pipe.
PIPE_CLOSED = 141


class _Commands(TyperGroup):
    """Ends a command whose reader has gone, or that is interrupted, in its own words."""

    def make_context(self, *given: Any, **more: Any) -> Any:
        with _ending():  # help and version are printed here
            return super().make_context(*given, **more)

    def invoke(self, ctx: Any) -> Any:
        with _ending():
            return super().invoke(ctx)


@contextmanager
def _ending() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()  # here it can still be told that it does not arrive
    except BrokenPipeError:
        # What Python writes when it ends has nowhere to go either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
    except BaseException:  # a library may have made another error of the signal's own
        exit_code = settled()
        if exit_code is None:
            raise
        speak().ended("interrupted" if exit_code == INTERRUPTED else "terminated")
        sys.exit(exit_code)


app = typer.Typer(
    name="tracelake",
    cls=_Commands,
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
    written: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar="TRACELAKE_LOG_FORMAT",
            help="How notes, progress and errors are written: json is an object per line.",
        ),
    ] = LogFormat.TEXT,
) -> None:
    del version
    log_format.set(written)
