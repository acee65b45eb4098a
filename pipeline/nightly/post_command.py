"""Run the command of `--post` at the end of a job."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tracelake.base.errors import UsageError

SECONDS = 60
_STDERR = 2


@dataclass(frozen=True, slots=True)
class PostCommand:
    """A program with its arguments; it is started without a shell."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split a command line as a shell would; do nothing else that a shell does.

        Raises:
            UsageError: It cannot be split, or there is no such program.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"--post {text!r}: {error}") from error
        if not words:
            raise UsageError("--post names no program")
        if shutil.which(words[0]) is None:
            if Path(words[0]).is_file():
                raise UsageError(
                    f"--post: {words[0]!r} cannot be executed", hint=f"chmod +x {words[0]}"
                )
            raise UsageError(
                f"--post: no program {words[0]!r}",
                hint="give its absolute path: a scheduler's PATH is short",
            )
        return cls(tuple(words))

    def call(self, text: str, exit_code: int) -> str | None:
        """Run the command, with its output on standard error.

        Args:
            text: The text for its standard input.
            exit_code: Exit code of the job, for the environment variable TRACELAKE_EXIT_CODE.

        Returns:
            A description of the failure, or None.
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
                process.communicate(text, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return f"took longer than {SECONDS} s"
            finally:
                if process.poll() is None:  # and all its child processes
                    os.killpg(process.pid, signal.SIGKILL)
        return f"ended with {process.returncode}" if process.returncode else None
