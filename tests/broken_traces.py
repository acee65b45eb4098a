"""Generated jobs whose traces are then changed: ranks in another order, lines that were lost."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lakes import run_ingest
from tests.simulated_calls import simulated_calls
from tests.traces import write
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.synth.archive import write_archive
from tracelake.synth.schedule import simulate
from tracelake.synth.spec import Spec
from tracelake.warehouse.warehouse import open_warehouse

Files = dict[str, list[str]]
Lost = Callable[[int, str], bool]


@dataclass(frozen=True)
class Figures:
    """The figures of one run, in a lake of several."""

    lake: Lake
    run_id: str

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query, to which every table has the rows of this run alone."""
        of_run = re.sub(r"(?<=FROM )\w+", rf"(FROM \g<0> WHERE run_id = '{self.run_id}')", sql)
        with open_warehouse(self.lake) as con:
            return con.execute(of_run).fetchall()


@functools.cache
def traces(spec: Spec) -> Files:
    """Lines of every file of the one job of a spec."""
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder), spec)
        return {
            path.name: path.read_text().splitlines(keepends=True)
            for path in sorted(Path(folder).rglob("wd*_rank*.txt"))
        }


def renumbered(files: Files, spec: Spec) -> Files:
    """The same job by --use-tp-pp-dp-mapping: tp fastest, then pp, then dp."""
    changed = {}
    for name, lines in files.items():
        rank = int(re.search(r"_rank(\d+)_", name)[1])  # type: ignore[index]
        other = in_other_order(rank, spec)
        changed[name.replace(f"_rank{rank}_", f"_rank{other}_")] = [
            line.replace(f"rank:{rank}:", f"rank:{other}:", 1) for line in lines
        ]
    return changed


def in_other_order(rank: int, spec: Spec) -> int:
    """Number by --use-tp-pp-dp-mapping of a rank in the usual order."""
    stage, place = divmod(rank, spec.tp * spec.dp)
    replica, slot = divmod(place, spec.tp)
    return (replica * spec.pp + stage) * spec.tp + slot


def numbered_steps(lines: Iterable[str]) -> list[tuple[int, str]]:
    """Every line with its step, from 1."""
    found, step = [], 1
    for line in lines:
        found.append((step, line))
        step += ":optimizer_step(" in line
    return found


def without(files: Files, rank: int, lost: Lost) -> Files:
    """The files without the lines of a rank that are lost, by step and text."""
    return {
        name: [line for step, line in numbered_steps(lines) if not lost(step, line)]
        if f"_rank{rank}_" in name
        else lines
        for name, lines in files.items()
    }


def computed(folder: Path, jobs: Mapping[Hashable, Files]) -> dict[Hashable, Figures]:
    """What `run` makes of the files of several jobs, each in one flat folder; by job.

    One lake has them all: most of a build takes as long for one run as for many.
    """
    for number, files in enumerate(jobs.values()):
        write(folder / "traces", {f"{number}/{name}": "".join(files[name]) for name in files})
    run_ingest(folder / "traces", folder / "lake")
    lake = Lake.open(folder / "lake")
    build(lake)
    with open_warehouse(lake) as con:
        named = "SELECT DISTINCT split_part(path, '/', 1), run_id FROM sources"
        ids = dict(con.execute(named).fetchall())
    return {job: Figures(lake, ids[str(number)]) for number, job in enumerate(jobs)}


def true_calls(spec: Spec) -> set[frozenset[tuple[int, int, int]]]:
    """Members (rank, line, place in it) of every call that the simulator made."""
    return {
        frozenset((m.rank, m.line, m.sub) for m in call)
        for call in simulated_calls(spec, simulate(spec, 0))
    }
