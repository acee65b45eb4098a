from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.cli import main
from tests.corpus import NO_CORPUS, corpus_folder

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real traces, which are not part of the project."""
    folder = corpus_folder()
    if folder is None:
        pytest.skip(NO_CORPUS)
    return folder


@pytest.fixture(scope="session")
def sample() -> Path:
    return ROOT / "data" / "sample"


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
