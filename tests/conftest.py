from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.corpus import NO_CORPUS, NO_FIELD, corpus_folder, field_folder
from tests.lakes import few_models, ingest_and_build, unchanged
from tests.tiny_lakes import commit_run, log_run
from tracelake.cli import main
from tracelake.lake.store import Lake
from tracelake.models.build import build

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "data" / "sample"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles the parsers once, where several workers would each do so at the same time."""
    # A script ignores the interrupt for what it starts in the background, and tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(session.config, "workerinput") and session.config.getoption("dist") != "no":
        _compile_parsers()


def _compile_parsers() -> None:
    """Reads the sample, each format in a process of its own: that takes every kernel there is."""
    code = "from tracelake.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        for archive in sorted(path for path in SAMPLE.iterdir() if path.is_dir()):
            words = ["ingest", str(archive), "--lake", f"{folder}/{archive.name}", "--quiet"]
            running.enter_context(subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real traces, which are not part of the project."""
    folder = corpus_folder()
    if folder is None:
        pytest.skip(NO_CORPUS)
    return folder


@pytest.fixture(scope="session")
def field() -> Path:
    """Files from clusters, which are not part of the project."""
    folder = field_folder()
    if folder is None:
        pytest.skip(NO_FIELD)
    return folder


@pytest.fixture(scope="session")
def sample() -> Path:
    return SAMPLE


@pytest.fixture(scope="module")
def few() -> Iterator[None]:
    """Few models, for tests of a module that are not about models."""
    with few_models():
        yield


@pytest.fixture(scope="session")
def log_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake of the run `a`, a log of a few lines, for all that change no table of it."""
    lake = Lake.create(tmp_path_factory.mktemp("log") / "lake")
    commit_run(lake, "a", log_run())
    build(lake)
    with unchanged(lake.root):
        yield lake


@pytest.fixture(scope="session")
def sample_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The sample, ingested and built, for all that only read."""
    lake = ingest_and_build(SAMPLE, tmp_path_factory.mktemp("sample") / "lake")
    with unchanged(lake.root):
        yield lake


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def tracelake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TRACELAKE_LAKE", raising=False)
    # The process of the tests goes on.
    monkeypatch.setattr("tracelake.cli.end_if_abandoned", lambda _: None)
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["tracelake", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            signal.signal(signal.SIGTERM, before)
        assert isinstance(code, int)
        return Result(code, *capsys.readouterr())

    return run
