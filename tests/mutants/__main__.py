"""The campaign: how many small wrong changes of a room do its tests find?

Each change is made alone, in a copy of the working tree, and the tests of the room run until one
fails. Prints each change, who found it, and the share that was found. A change may be one that
no test can find, since the code does the same with it: look at those that were not found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.conftest import ROOT
from tests.corpus import corpus_folder, field_folder
from tests.mutants.edits import Edit, edits_of


class Room(NamedTuple):
    """Folders of source, and the tests that are to find a change in them."""

    sources: Sequence[str]
    tests: Sequence[str]


ROOMS = {
    "ingest": Room(
        ["pipeline/ingest"],
        [
            "tests/ingest",
            "tests/formats/nccl_debug",
            "tests/formats/test_lines.py",
            "tests/lake/test_groups.py",
            "tests/inputs/test_inputs.py",
        ],
    ),
    "lake": Room(
        ["pipeline/lake"],
        [
            "tests/lake",
            "tests/warehouse/test_retention.py",
            "tests/warehouse/test_check.py",
            "tests/storage",
        ],
    ),
    "kernels": Room(
        [
            "pipeline/kernels",
            "pipeline/formats/rank_trace",
            "pipeline/formats/optimus",
        ],
        ["tests/formats"],
    ),
    "sql": Room(["sql"], ["tests/models"]),
}
_SUFFIXES = {".py", ".sql"}
_LONGEST_SECONDS = 1200
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--count", type=int, default=25, help="changes to try")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="a line per change is added to this file")
    parser.add_argument("--again", type=Path, help="the changes of this file, by --json before")
    given = parser.parse_args()
    room = ROOMS[given.room]
    chosen = _again(given.again) if given.again else _drawn(room, given.count, given.seed)
    found = 0
    with tempfile.TemporaryDirectory(prefix="tracelake-mutants-") as folder:
        tree = _copy(Path(folder))
        if failed := _first_failure(tree, room.tests):
            print(f"{failed} fails without a change", file=sys.stderr)  # noqa: T201
            return 1
        for edit in chosen:
            test = _try(tree, edit, room.tests)
            found += bool(test)
            print(f"{edit.path}:{edit.line} {edit.kind}: {test or 'NOT FOUND'}", flush=True)  # noqa: T201
            if given.json:
                with given.json.open("a") as file:
                    file.write(json.dumps({**edit._asdict(), "found_by": test}) + "\n")
    print(f"{given.room}: {found} of {len(chosen)} found")  # noqa: T201
    return 0


def _drawn(room: Room, count: int, seed: int) -> Sequence[Edit]:
    paths = (path for folder in room.sources for path in sorted((ROOT / folder).rglob("*")))
    every = [edit for path in paths if path.suffix in _SUFFIXES for edit in edits_of(ROOT, path)]
    return Random(seed).sample(every, count)


def _again(path: Path) -> Sequence[Edit]:
    rows = map(json.loads, path.read_text().splitlines())
    return [Edit(**{name: row[name] for name in Edit._fields}) for row in rows]


def _copy(folder: Path) -> Path:
    """Copies what git knows of the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0")[:-1]:
        target = folder / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder / "tree"


def _try(tree: Path, edit: Edit, tests: Sequence[str]) -> str:
    """Returns the first test that fails with the change; empty if none does."""
    path = tree / edit.path
    text = path.read_bytes()
    path.write_bytes(edit.of(text))
    try:
        return _first_failure(tree, tests)
    finally:
        path.write_bytes(text)


def _first_failure(tree: Path, tests: Sequence[str]) -> str:
    places = {"TRACELAKE_CORPUS": corpus_folder(), "TRACELAKE_FIELD": field_folder()}
    own = {
        "PYTHONPATH": f"{tree / 'src'}",
        "PYTHONDONTWRITEBYTECODE": "1",  # of a file that changes within a second
        "XDG_CACHE_HOME": f"{tree.parent / 'cache'}",
        **{name: str(place) for name, place in places.items() if place},
    }
    scratch = tree.parent / "scratch"
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-x", "-q", f"--basetemp={scratch}", *tests],
        cwd=tree,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # with whatever a test has started
    ) as running:
        try:
            out, _ = running.communicate(timeout=_LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return "no end"
    if not running.returncode:
        return ""
    named = _FAILED.search(out)
    return named[1] if named else out[-300:]


if __name__ == "__main__":
    sys.exit(_main())
