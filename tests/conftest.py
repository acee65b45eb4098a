from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real traces, which are not part of the project."""
    named = os.environ.get("TRACELAKE_CORPUS")
    folder = Path(named) if named else ROOT.parent / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip("no corpus: set TRACELAKE_CORPUS to a folder of real traces")
    return folder


@pytest.fixture(scope="session")
def sample() -> Path:
    return ROOT / "data" / "sample"
