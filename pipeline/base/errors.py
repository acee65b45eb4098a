"""Define errors that a user can act on: what happened, where, and what to do next."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

# Exit code that a shell reports for a program that wrote to a closed pipe.
PIPE_CLOSED = 141
# No space, no memory, no file handles left, or a broken disk.
REFUSED = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
    }
)

# Something else is in the place of a file or folder, or this user may not touch it.
_OBSTACLES = frozenset(
    {
        *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP),
        *(errno.EACCES, errno.EPERM),
    }
)


class TracelakeError(Exception):
    """Base of every expected failure.

    Attributes:
        message: What is wrong, one sentence without the location.
        path: File or directory it is about.
        line: Line of that file, from 1.
        hint: What to do next.
        exit_code: Exit code of the process when this error ends it.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else str(path)
        self.line = line
        self.hint = hint

    @property
    def location(self) -> str | None:
        """`path`, or `path:line`."""
        if self.path is None or self.line is None:
            return self.path
        return f"{self.path}:{self.line}"

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        then = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.message}{then}"


class UsageError(TracelakeError):
    """The command line is wrong."""

    exit_code = 2


class InputError(TracelakeError):
    """Nothing usable in the input, or more bad lines than allowed."""

    exit_code = 3


class LakeError(InputError):
    """The lake cannot be opened, locked or written."""


class ShortMemoryError(LakeError):
    """A computation needs more memory than it may use."""


class ChangedError(LakeError):
    """Another machine changed the lake first; the commit must be computed again."""


class StoreError(InputError):
    """An object store fails, even after several attempts."""


class RefusedError(InputError):
    """The operating system refused a request: no space, no memory, a broken disk."""


class WorkersError(InputError):
    """Workers in other processes are lost, or lack something that this process has."""


class ContractError(TracelakeError):
    """A schema or a model breaks its own declaration."""

    exit_code = 4


class RowsError(ContractError):
    """A SELECT fails on the rows that it reads.

    Attributes:
        subject: The model that fails.
    """

    def __init__(self, message: str, *, subject: str = "", path: str | Path | None = None) -> None:
        super().__init__(message, path=path)
        self.subject = subject


class CheckFailedError(TracelakeError):
    """The work is done, but a check or a gate failed."""

    exit_code = 5


def too_new(
    done: str, versioned: str, version: int, known: int, path: str | Path | None
) -> LakeError:
    """Return the error for a file that a newer tracelake has written.

    Args:
        done: What that tracelake did.
        versioned: What has the version, with its verb.
        known: The latest version that this tracelake reads.
    """
    return LakeError(
        f"a newer tracelake {done}: {versioned} {version}, this tracelake knows {known}",
        path=path,
        hint="use that tracelake, or a newer one",
    )


def is_refusal(error: BaseException) -> bool:
    """Return whether the error comes from the system's limits, such as a full disk."""
    return isinstance(error, OSError) and error.errno in REFUSED


def next_step(error: OSError) -> str | None:
    """Return what to do about an error of the system that is not a bug; None for any other."""
    if error.errno in _OBSTACLES and error.filename is not None:
        return "move what is there out of the way, or let this user read and write; then run again"
    if is_refusal(error):
        return advice_on(error)
    return None


def advice_on(error: OSError) -> str:
    """Return what to do about an error of `is_refusal`."""
    match error.errno:
        case errno.EROFS:
            return "the file system is read-only: mount it writable, or write elsewhere"
        case errno.EIO:
            return "check the disk"
        case errno.ENOMEM:
            return "free memory or raise the limit, then run the command again"
        case errno.EMFILE | errno.ENFILE:
            return "raise the limit of open files (ulimit -n), then run the command again"
    return "free space or raise the limit, then run the command again"


def expected(error: BaseException) -> TracelakeError | None:
    """Return an error as one that says what to do next; None for a bug."""
    match error:
        case TracelakeError():
            return error
        case MemoryError():
            advice = "free memory, raise the limit (ulimit), or read less at once"
            refused = RefusedError("not enough memory", hint=advice)
        case OSError() if hint := next_step(error):
            path = None if error.filename is None else os.fsdecode(error.filename)
            refused = RefusedError(error.strerror or str(error), path=path, hint=hint)
        case _:
            return None
    refused.__cause__ = error
    return refused


def exit_code_of(error: BaseException | None) -> int:
    """Return the exit code of a process that this error ends."""
    match error:
        case None:
            return 0
        case SystemExit(code=int(code)):
            return code
        case KeyboardInterrupt():
            return 130
        case BrokenPipeError():
            return PIPE_CLOSED
    return (expected(error) or TracelakeError).exit_code


def unknown(what: str, name: str, known: Iterable[str], hint: str) -> UsageError:
    """Return the error for a name that does not exist; it suggests a similar one, else the hint."""
    import difflib  # noqa: PLC0415 - few commands need it

    near = difflib.get_close_matches(name, list(known), n=1)
    return UsageError(f"{what} {name!r}", hint=f"did you mean {near[0]}?" if near else hint)
