"""A lake's story: a new archive, which grows and changes, is merged, and changes again."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pkgutil
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import finalize

import tracelake
from tests.crash.effects import Points, Strike
from tracelake.base.errors import TracelakeError
from tracelake.cli import main
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.output.html.page import write_report
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec
from tracelake.warehouse.warehouse import ask, open_warehouse

FORMATS = ("optimus", "rank_trace")
_SMALL: dict[str, Any] = {
    "tp": 1,
    "pp": 2,
    "steps": 1,
    "micro_batches": 2,
    "layers": 2,
}
# What happens in these stages; in those before, an archive is read that is new, or has changed.
_MERGED, _CHANGED_AGAIN = 2, 3
_AGREE = """
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM run_summary),
    (SELECT sum(row_lines) FROM sources), (SELECT sum(total_ns) FROM layer_times),
    (SELECT count(*) FROM ops), (SELECT string_agg(run_id, ' ' ORDER BY run_id) FROM run_summary)
"""


@dataclass
class Ended:
    """How a process ended."""

    code: int
    said: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclass
class Story:
    """Archives, a lake at one place, and what it holds when nothing happens.

    Attributes:
        formats: Of what is in the archives; each after the first makes every build dearer.
        whole: By stage, what a lake is equal to when all went well.
        answers: By stage, what a reader may be told.
        seconds: By stage, how long the command takes.
        points: By stage, the points that it comes to, in order.
    """

    folder: Path
    formats: Sequence[str] = FORMATS
    whole: list[dict[str, str]] = field(default_factory=list)
    answers: list[set[tuple[Any, ...]]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    points: list[list[str]] = field(default_factory=list)

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def report(self) -> Path:
        return self.lake / "report.html"

    @property
    def stages(self) -> range:
        return range(4)

    def begin(self) -> None:
        """Writes the archives and lets both stages happen undisturbed."""
        for name in pkgutil.walk_packages(tracelake.__path__, "tracelake."):
            if not name.name.endswith("__main__"):
                importlib.import_module(name.name)
        first, second = self._archive(0), self._archive(1)
        write_archive(first, Spec(formats=tuple(self.formats), **_SMALL, log_steps=3))
        shutil.copytree(first, second)
        write_archive(
            self.folder / "other", Spec(formats=("optimus",), **_SMALL, log_steps=4, seed=7)
        )
        shutil.copytree(self.folder / "other" / "optimus", second / "more")
        self._grow(second)
        last = self._archive(_CHANGED_AGAIN)
        shutil.copytree(second, last)
        self._grow(last)
        warm = Lake.create(self.folder / "warm")
        ingest([str(second)], warm, Options(), jobs=1)
        build(warm)
        write_report(warm, warm.root / "report.html")
        answers: set[tuple[Any, ...]] = set()
        for stage in self.stages:
            told = self.folder / "points"
            told.unlink(missing_ok=True)
            began = time.monotonic()
            ended = self.finish(self.start(stage, told=told))
            assert ended.code == 0, ended.said
            self.seconds.append(time.monotonic() - began)
            self.points.append(told.read_text().splitlines())
            self.settle()
            self.whole.append(self.content())
            answers = answers | {_answer(self.lake)}
            self.answers.append(answers)
            shutil.copytree(self.lake, self._saved(stage), symlinks=True)

    def reset(self, stage: int) -> None:
        """The lake as it is when the stage begins."""
        shutil.rmtree(self.lake, ignore_errors=True)
        if stage:
            shutil.copytree(self._saved(stage - 1), self.lake, symlinks=True)

    def start(self, stage: int, strike: Strike | None = None, told: Path | None = None) -> int:
        """Begins the stage's command in a fork, which has imported all and compiled all."""
        words = ["run", str(self._archive(stage)), "--jobs", "1"]
        if stage == _MERGED:
            words = ["build"]
        with patch("tracelake.lake.rewriting._SMALL_GROUPS", 1 if stage == _MERGED else 16):
            return self._fork([*words, "--lake", str(self.lake), "--quiet"], strike, told)

    def settle(self) -> None:
        """A build that finds nothing new: what a process that was killed has left goes."""
        ended = self.finish(self._fork(["build", "--lake", str(self.lake), "--quiet"], None, None))
        assert ended.code == 0, ended.said

    def finish(self, process: int) -> Ended:
        _, status = os.waitpid(process, 0)
        said = (self.folder / "said").read_text(errors="replace")
        return Ended(os.waitstatus_to_exitcode(status), said)

    def content(self) -> dict[str, str]:
        """Names of files, manifests, and every row of every relation.

        The report apart, and parts of models: which runs share one depends on the builds.
        """
        found = {}
        apart = ("_run/", "_lock/", "report.html", *(f"{name}/" for name in catalog().in_parts))
        for path in sorted(self.lake.rglob("*")):
            name = path.relative_to(self.lake).as_posix()
            if path.is_file() and not name.startswith(apart):
                manifest = name.startswith("_manifest/")
                found[name] = _digest(path.read_bytes()) if manifest else ""
        with open_warehouse(Lake.open(self.lake)) as con:
            names = con.execute(
                "SELECT table_name FROM information_schema.tables"
                # Dates of part files, and sums over them and over the rows that are compared here.
                " WHERE table_catalog = 'warehouse'"
                " AND table_name NOT IN ('_build_marks', '_build_parts', '_build_sums')"
                " ORDER BY ALL"
            ).fetchall()
            for (name,) in names:
                rows = con.execute(f'FROM warehouse.main."{name}" ORDER BY ALL').fetchall()
                found[f"rows of {name}"] = f"{len(rows)} {_digest(repr(rows).encode())}"
        return found

    def judge(self, stage: int) -> list[str]:
        """What is wrong with a lake after the same command has been given again."""
        self.settle()
        now, whole = self.content(), self.whole[stage]
        wrong = [f"differs: {name}" for name in now.keys() | whole.keys()
                 if now.get(name) != whole.get(name)]  # fmt: skip
        wrong += [f"left: {path}" for path in left_over(self.folder)]
        page = self.report.read_bytes() if self.report.exists() else b""
        if not page.rstrip().endswith(b"</html>"):
            wrong.append("no report")
        return wrong

    @contextlib.contextmanager
    def reader(self, stage: int) -> Iterator[Path]:
        """Another process asks all the time; the file has a dot per answer, and what was wrong."""
        heard = self.folder / "heard"
        heard.unlink(missing_ok=True)
        process = os.fork()
        if not process:
            _read_on(self.lake, self.answers[stage], heard)
        try:
            yield heard
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    def _fork(self, words: list[str], strike: Strike | None, told: Path | None) -> int:
        process = os.fork()
        if process:
            return process
        code = 70
        try:
            said = os.open(self.folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - the process ends with it
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            Points(self.lake, strike, told).install()
            sys.argv = ["tracelake", *words]
            code = _code_of_main()
        except BaseException:
            (self.folder / "said").write_text(traceback.format_exc())
            raise
        finally:
            os._exit(code)

    def _grow(self, archive: Path) -> None:
        """Files go on, and with them their runs."""
        for name in self.formats:
            grown = sorted((archive / name).rglob("*.txt"))[0]
            text = grown.read_text()
            grown.write_text(text + "".join(text.splitlines(keepends=True)[-40:]))

    def _archive(self, stage: int) -> Path:
        return self.folder / f"archive{stage}"

    def _saved(self, stage: int) -> Path:
        return self.folder / f"saved{stage}"


def left_over(folder: Path) -> list[Path]:
    """Files of work that has ended, and staging folders."""
    return [*folder.rglob("*.tmp"), *folder.rglob("_staging/*"), *folder.rglob("_loose.*")]


def _code_of_main() -> int:
    code = 0
    finalize._registry.clear()  # type: ignore[attr-defined]  # what the parent has to end
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finalize._exitfunc()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _read_on(lake: Path, allowed: set[tuple[Any, ...]], heard: Path) -> None:
    with heard.open("w") as told:
        while True:
            if (lake / "warehouse.duckdb").exists():
                try:
                    answer = _answer(lake)
                    told.write("." if answer in allowed else f"\nunknown {answer}\n")
                except (TracelakeError, OSError, RuntimeError) as error:
                    told.write(f"\nfailed {error!r}\n")
                told.flush()
            time.sleep(0.25)


def _answer(lake: Path) -> tuple[Any, ...]:
    found: tuple[Any, ...]
    (found,) = ask(Lake.open(lake), "the answer", lambda con: con.execute(_AGREE).fetchall())
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
