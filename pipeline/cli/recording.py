"""Add a command to its lake's record, however it ends."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tracelake.base.errors import TracelakeError, exit_code_of
from tracelake.base.metrics import measuring
from tracelake.cli.steps import open_console

if TYPE_CHECKING:
    from tracelake.base.metrics import Measures

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
    """Return options that were given, as text."""
    return {
        name: "..."
        if name in _UNKEPT
        else " ".join(map(str, value if isinstance(value, list) else [value]))
        for name, value in given.items()
        if name != "lake" and value not in (None, False, "", [])
    }
