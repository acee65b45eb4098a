"""Points between two effects of a command, and what is done to the process there.

The product knows nothing of this: its functions that change files, and the steps of a build, are
replaced in a process that has been forked for the purpose.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tracelake.base import files
from tracelake.schema.tables import tables

KILL = "kill"
TORN = "torn"  # killed in the middle of a write
REFUSALS = {"full": errno.ENOSPC, "broken": errno.EIO}
SIGNALS = {"terminated": signal.SIGTERM, "interrupted": signal.SIGINT}

# Function -> which of its arguments is the path that changes.
_EFFECTS = {
    "append": 0,
    "replace": 1,
    "link": 1,
    "remove": 0,
    "make_folder": 0,
    "remove_folder": 0,
    "remove_tree": 0,
    "sync": 0,
}
_STEPS = {
    "tracelake.models.computing": ("compute",),
    "tracelake.models.fill": ("write_state",),
    "tracelake.models.build": ("_copy",),
}


class Strike(NamedTuple):
    """What is done to a process, and where."""

    what: str
    point: str
    occurrence: int = 1


class Points:
    """Counts the points that a process comes to, and strikes at one of them.

    Args:
        told: Where the points are written, a line each; None for nowhere.
    """

    def __init__(self, lake: Path, strike: Strike | None, told: Path | None = None) -> None:
        self._lake = lake
        self._strike = strike
        self._told = told
        self._seen: Counter[str] = Counter()

    def install(self) -> None:
        """Puts itself before every effect of this process."""
        for name, place in _EFFECTS.items():
            _replace_everywhere(getattr(files, name), self._before(name, place))
        for module, names in _STEPS.items():
            for name in names:
                original = getattr(sys.modules[module], name)
                setattr(sys.modules[module], name, self._step(name, original))
        for name in ("write", "close"):
            setattr(files.NewFile, name, self._method(name, getattr(files.NewFile, name)))

    def _before(self, name: str, place: int) -> Callable[..., Any]:
        original = getattr(files, name)

        def effect(*given: Any, **more: Any) -> Any:
            self._reach(f"{name} {self._place(given[place])}", given[place])
            return original(*given, **more)

        return effect

    def _step(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(con: Any, *given: Any) -> Any:
            subject = getattr(given[0], "name", "") if name == "compute" else ""
            self._reach(f"{name} {subject}".strip(), self._lake)
            return original(con, *given)

        return step

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(file: files.NewFile, *given: Any) -> Any:
            point = f"{name} {self._place(file.path)}"
            strike = self._reach(point, file.path)
            if strike == TORN:
                original(file, bytes(given[0])[: len(given[0]) // 2])
                file._file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return original(file, *given)

        return method

    def _reach(self, point: str, path: Any) -> str | None:
        self._seen[point] += 1
        if self._told:
            with self._told.open("a") as told:
                told.write(f"{point}\n")
        strike = self._strike
        if strike is None or (strike.point, strike.occurrence) != (point, self._seen[point]):
            return None
        if strike.what == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if strike.what in SIGNALS:
            os.kill(os.getpid(), SIGNALS[strike.what])
        if strike.what in REFUSALS:
            code = REFUSALS[strike.what]
            raise OSError(code, os.strerror(code), str(path))
        return strike.what

    def _place(self, path: Any) -> str:
        """A path without what differs from run to run and day to day."""
        if not isinstance(path, Path):  # several that are brought to the disk together
            return "+".join(sorted({self._place(one) for one in path}))
        if not path.is_relative_to(self._lake):
            return "elsewhere"
        parts = path.relative_to(self._lake).parts or ("lake",)
        if parts[0] in tables():
            return "/".join(("TABLE", "RUN", "part")[: len(parts)])
        if parts[0] == "_manifest" and path.suffix in (".json", ".tmp"):
            return f"_manifest/GROUP{path.suffix}"
        if parts[0] == "_staging":
            return "_staging"
        return re.sub(r"\d+|[0-9a-f]{8,}", "N", "/".join(parts))


def _replace_everywhere(original: object, other: object) -> None:
    """Wherever a module of the package has a function under a name of its own."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "tracelake":
            for known, value in list(vars(module).items()):
                if value is original:
                    setattr(module, known, other)
