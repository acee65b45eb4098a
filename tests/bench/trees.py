"""Generated trees of many small files, kept between runs, and how many rows they mean."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.inputs import input_of
from tests.corpus import corpus_folder
from tracelake.synth.archive import ANSWERS, write_archive
from tracelake.synth.spec import Spec

_SMALL_BYTES = 16_000
RANKS_PER_RUN = 1_000
_STAMP = re.compile(r"(?<=timestamp=)([\d.]+)")
_PAUSE_MS = 10
# Of `many_ranks`.
TENSOR_PARALLEL = 2
SLOW_RANK = 1


@dataclass(frozen=True)
class Tree:
    """A folder of inputs.

    Attributes:
        rows: Rows that its files mean by table, of single files by relation of their input.
    """

    path: Path
    files: int
    runs: int
    size_bytes: int
    rows: Mapping[str, int]

    def paths(self) -> Iterator[Path]:
        """Its input files."""
        return (path for path in self.path.rglob("*.txt"))


def rank_files(work: Path, files: int) -> Tree:
    """Rank traces of 16 KB: runs of 1,000 ranks, or of 10 where fewer files are asked for."""
    small = files < RANKS_PER_RUN
    spec = Spec(
        formats=("rank_trace",),
        seed=1,
        tp=2 if small else 8,
        pp=5,
        dp=1 if small else 25,
        micro_batches=5,
        layers=10,
        steps=1,
        noise=0.02,
        runs=1,
    )
    return _archive(work, spec, runs=max(1, files // spec.world_size))


def one_run(work: Path, ranks: int) -> Tree:
    """One run of that many ranks, a multiple of 40 unless fewer."""
    many = ranks >= 40
    spec = Spec(
        formats=("rank_trace",),
        seed=2,
        tp=8 if many else 1,
        pp=5 if many else 1,
        dp=ranks // 40 if many else ranks,
        micro_batches=5,
        layers=10,
        steps=1,
        noise=0.02,
    )
    return _archive(work, spec, runs=1)


def many_ranks(work: Path, size_bytes: int, *, small: bool) -> Tree:
    """Four runs of 64 ranks of that size together, in each of which a rank is slow.

    Args:
        small: Runs of 8 ranks and short steps instead.
    """
    spec = Spec(
        formats=("rank_trace",),
        seed=4,
        tp=TENSOR_PARALLEL,
        pp=2 if small else 4,
        dp=2 if small else 8,
        layers=4 if small else 8,
        micro_batches=4 if small else 8,
        noise=0.02,
        slow_rank=SLOW_RANK,
        steps=2,
        size_bytes=size_bytes,
    )
    return _archive(work, spec, runs=4)


def dense_trace(work: Path, size_bytes: int) -> Tree | None:
    """A real step of one rank, again and again at later times; None where there is no corpus."""
    corpus = corpus_folder()
    if corpus is None:
        return None
    (source,) = corpus.glob("seeds/000_*.txt")
    text = source.read_text(encoding="utf-8")
    steps = max(1, size_bytes // len(text))
    path = work / "inputs" / f"dense-{steps}" / source.name
    if not path.exists():
        between, times = _STAMP.split(text)[::2], [float(time) for time in _STAMP.findall(text)]
        lasts_ms = max(times) - min(times) + _PAUSE_MS
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for step in range(steps):
                shifted = [f"{time + step * lasts_ms:.2f}" for time in times]
                file.writelines(chain.from_iterable(zip(between, [*shifted, ""], strict=True)))
    return Tree(path.parent, 1, 1, path.stat().st_size, {"ops": steps * text.count("\n")})


def small_runs(work: Path, runs: int) -> Tree:
    """Runs of 4 ranks and two steps each, as a lake that has grown for long is made of."""
    spec = Spec(
        formats=("rank_trace",),
        seed=3,
        tp=2,
        pp=2,
        micro_batches=2,
        layers=4,
        steps=2,
        noise=0.02,
    )
    return _archive(work, spec, runs=runs)


def single_files(work: Path, format_name: str, files: int) -> Tree:
    """Files of 16 KB of a format whose every file is a run."""
    folder = work / "inputs" / f"{format_name}-files-{files}"
    note = folder / ANSWERS
    archive = folder / "archive"
    if not note.exists():
        source, total = input_of(format_name), Counter[str]()
        for number in range(files):
            path = archive / f"{number // 1000:03}" / f"{number:06}_{source.file_name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            pieces = list(source.pieces(_SMALL_BYTES, np.random.default_rng(number)))
            path.write_bytes(b"".join(piece.text for piece in pieces))
            for piece in pieces:
                total.update({name: len(rows) for name, rows in piece.rows.items()})
        note.write_text(json.dumps(total), encoding="utf-8")
    rows = json.loads(note.read_text(encoding="utf-8"))
    size = sum(path.stat().st_size for path in archive.rglob("*.txt"))
    return Tree(archive, files, files, size, rows)


def _archive(work: Path, spec: Spec, runs: int) -> Tree:
    facts = {**asdict(spec), "runs": runs}
    parts = (
        f"{key}{facts[key]}" for key in ("seed", "runs", "tp", "pp", "dp", "steps", "size_bytes")
    )
    folder = work / "inputs" / "-".join(["tree", *parts])
    if not (folder / ANSWERS).exists():
        write_archive(folder, Spec(**facts))
    answers: dict[str, Any] = json.loads((folder / ANSWERS).read_text(encoding="utf-8"))
    files = [file for run in answers["runs"] for file in run["files"]]
    total = Counter[str]()
    for run in answers["runs"]:
        total.update(run["rows"])
    return Tree(folder, len(files), runs, sum(file["bytes"] for file in files), dict(total))
