"""Create the application that commands register with; handle interrupts, and record commands."""

from __future__ import annotations

import copy
import errno
import functools
import inspect
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo

from tracelake.base.errors import PIPE_CLOSED, TracelakeError, UsageError, exit_code_of
from tracelake.base.memory_limit import check_address_space
from tracelake.base.metrics import Measures, measuring
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


def app_of(words: Sequence[str]) -> typer.Typer:
    """Return the application for a command line; of commands it has the called one alone.

    To build all of them would take 3 to 9 % of the time of `tracelake runs`.
    """
    called = [known for known in app.registered_commands if _name_of(known) in words[:1]]
    if not called:
        return app
    alone = copy.copy(app)
    alone.registered_commands = called
    return alone


def _name_of(known: CommandInfo) -> str:
    return known.name or get_command_name(getattr(known.callback, "__name__", ""))


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


# Options that may contain a secret, such as a token in the URL of a hook.
_UNKEPT = {"post"}
# A user who can only read the lake leaves no record.
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
_P = ParamSpec("_P")
_R = TypeVar("_R")


def recorded(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a command with an option `lake` add an entry to `tracelake_runs`."""
    signature = inspect.signature(command)

    @functools.wraps(command)
    def run(*args: _P.args, **keywords: _P.kwargs) -> _R:
        started, began = datetime.now(UTC), time.perf_counter_ns()
        ended: BaseException | None = None
        with measuring() as measures:
            try:
                return command(*args, **keywords)
            except BaseException as error:
                ended = error
                raise
            finally:
                given = signature.bind(*args, **keywords).arguments
                entry = {
                    "command": command.__name__,
                    "started": started.strftime("%Y-%m-%d %H:%M:%S.%f"),
                    "duration_ns": time.perf_counter_ns() - began,
                    "exit_code": exit_code_of(ended),
                    "error": _told(ended),
                    "options": _options(given),
                }
                if not given.get("dry_run"):
                    _leave(str(given["lake"]), entry, measures)

    return run


def _leave(name: str, entry: Mapping[str, Any], measures: Measures) -> None:
    """Add the entry; a failure of that does not fail the command."""
    from tracelake import __version__
    from tracelake.lake.run_records import add_record
    from tracelake.lake.store import Lake

    host = {"version": __version__, "host": socket.gethostname(), "pid": os.getpid()}
    whole = {**entry, **host, "phases": dict(measures.phases), **measures.amounts}
    try:
        if lake := Lake.find(name):
            add_record(lake, whole)
    except (OSError, TracelakeError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        expected = isinstance(cause, OSError) and cause.errno in _READ_ONLY
        if entry["exit_code"] == 0 and not expected:  # otherwise there is a more important error
            open_console().warn(f"the lake has no record of this command: {error}")


def _told(error: BaseException | None) -> str | None:
    match error:
        case None:
            return None
        case TracelakeError():
            return error.message
        case SystemExit() | KeyboardInterrupt() | BrokenPipeError():
            return "interrupted"
    return f"{type(error).__name__}: {error}"


def _options(given: Mapping[str, object]) -> dict[str, str]:
    return {
        name: "..."
        if name in _UNKEPT
        else " ".join(map(str, value if isinstance(value, list) else [value]))
        for name, value in given.items()
        if name != "lake" and value not in (None, False, "", [])
    }
