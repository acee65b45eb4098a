"""Where the real traces are, which are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

NO_CORPUS = "no corpus: set TRACELAKE_CORPUS to a folder of real traces"
_BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"


def corpus_folder() -> Path | None:
    """The folder TRACELAKE_CORPUS names, else shared/corpus beside the project, if it is there."""
    folder = Path(os.environ.get("TRACELAKE_CORPUS") or _BESIDE)
    return folder if folder.is_dir() else None


NO_FIELD = "no field files: set TRACELAKE_FIELD to a folder of files from clusters"
_FIELD = _BESIDE.parent / "field"


def field_folder() -> Path | None:
    """The folder TRACELAKE_FIELD names, else shared/field beside the project, if it is there."""
    folder = Path(os.environ.get("TRACELAKE_FIELD") or _FIELD)
    return folder if folder.is_dir() else None
