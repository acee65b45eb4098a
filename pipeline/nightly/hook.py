"""The command that is told how a job ended."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import Self

from pipeline.errors import UsageError

SECONDS = 60
_STDERR = 2


@dataclass(frozen=True, slots=True)
class Hook:
    """A program with its arguments; no shell comes between."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Splits a command line as a shell would, and does no more of what a shell does.

        Raises:
            UsageError: It does not split, or there is no such program.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--post {text!r}: {error}") from error
        if not words:
            raise UsageError("--post names no program")
        if shutil.which(words[0]) is None:
            raise UsageError(
                f"--post: no program {words[0]!r}",
                hint="name it with its whole path: a scheduler's PATH is short",
            )
        return cls(tuple(words))

    def call(self, told: str, exit_code: int) -> str | None:
        """Runs the command, with what it prints on standard error.

        Args:
            told: Its standard input.
            exit_code: Of the job, as TRACELAKE_EXIT_CODE in the environment.

        Returns:
            What went wrong, if anything did.
        """
        environment = {**os.environ, "TRACELAKE_EXIT_CODE": str(exit_code)}
        try:
            process = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                stdout=_STDERR,
                env=environment,
                encoding="utf-8",
                start_new_session=True,
            )
        except OSError as error:
            return f"could not be started: {error.strerror}"
        with process:
            try:
                process.communicate(told, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return f"took longer than {SECONDS} s"
            finally:
                if process.poll() is None:  # with all that it has started
                    os.killpg(process.pid, signal.SIGKILL)
        return f"ended with {process.returncode}" if process.returncode else None
