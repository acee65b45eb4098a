"""Create the application that commands register with, and handle interrupted commands."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tracelake.base.errors import PIPE_CLOSED, UsageError
from tracelake.base.memory_limit import check_address_space
from tracelake.base.signals import settled
from tracelake.cli.options import LogFormat
from tracelake.cli.steps import log_format, open_console

INTERRUPTED = 130
# What a report of a problem should name: libraries that read, compute and write.
_LIBRARIES = ("duckdb", "polars", "pyarrow", "numpy", "numba", "distributed", "obstore", "mcp")
# Characters of a command's first sentence at most.
_SENTENCE = 200
# Commands in the order of `--help`, by heading.
GROUPS: Mapping[str, Sequence[str]] = {
    "Read logs and report": ("run", "ingest", "build", "report"),
    "Look at runs": ("runs", "show", "diff", "whatif", "timeline"),
    "Ask and take out": ("ask", "examples", "query", "sql", "describe", "formats", "export", "mcp"),
    "Keep a lake": ("check", "drop", "gc"),
    "Try it": ("synth",),
}


class _Command(TyperCommand):
    """Refuses an option that takes a list and is given twice: the first list would be lost."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=[*args])
        for param, count in Counter(order).items():
            if count > 1 and (param.metavar or "").endswith(",..."):
                (name, *_) = param.opts
                raise UsageError(
                    f"{name} is given twice", hint=f"give all of it in one: {name} {param.metavar}"
                )
        return super().parse_args(ctx, args)


class _Commands(TyperGroup):
    """Lists commands in groups, and ends one with the right exit code.

    The exit code also tells that the reader of the output has gone, or that a signal arrived.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return [name for names in GROUPS.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        width = max(map(len, self.commands))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (f"{name:<{width}}", self.commands[name].get_short_help_str(_SENTENCE))
                        for name in names
                    ]
                )

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
        sys.stdout.flush()  # here a closed pipe can still be detected
    except BrokenPipeError:
        # Discard what Python writes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
    except BaseException:  # a library may have replaced the signal's exception
        exit_code = settled()
        if exit_code is None:
            raise
        open_console().ended("interrupted" if exit_code == INTERRUPTED else "terminated")
        sys.exit(exit_code)


app = typer.Typer(
    name="tracelake",
    cls=_Commands,
    help="Turn raw logs of distributed training into Parquet, and compute where the time went.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help and usage errors: drawing boxes takes longer than the rest
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
command = functools.partial(app.command, cls=_Command)
"""Registers a command: `@command(epilog="Example: ...")`."""


def _version(wanted: bool) -> None:
    if wanted:
        import platform
        from importlib.metadata import PackageNotFoundError, version

        from tracelake import __version__

        typer.echo(f"tracelake {__version__}")
        typer.echo(f"python {platform.python_version()}")
        for name in _LIBRARIES:
            try:
                typer.echo(f"{name} {version(name)}")
            except PackageNotFoundError:
                typer.echo(f"{name} is not installed")
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
            help="Format of notes, progress and errors; json prints an object per line.",
        ),
    ] = "text",
) -> None:
    del version
    log_format.set(written)
    check_address_space()
