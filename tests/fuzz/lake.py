"""Damage files of a lake and look at what check, run and query then say.

    python -m tests.fuzz.lake COUNT

Each case damages one to three files, by name and seed. Then a check, a run with all inputs present
and a query must end with their answer or with an error of tracelake's. If the run says nothing,
the answers must be those of the undisturbed lake. Two small models stand for those of `sql/`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from unittest.mock import patch

import duckdb

from tests.traces import plan, write
from tracelake.base.errors import TracelakeError, next_step
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.losses import never
from tracelake.lake.store import Lake
from tracelake.models.build import build, losses_before
from tracelake.models.catalog import Catalog, load
from tracelake.models.compute import connect
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.retention import choose_runs, drop
from tracelake.warehouse.running import run_query

_MODELS = {
    "runs/plan_rows.sql": """-- Rows of a plan.
-- @grain run_id
-- @column rows BIGINT | Rows.
-- @column bytes BIGINT bytes | Sum of the bytes.
SELECT run_id, count(*) AS rows, sum(line)::BIGINT AS bytes FROM workload_passes GROUP BY run_id
""",
    "runs/all_rows.sql": """-- Runs and files of the lake.
-- @grain runs
-- @scope fleet
-- @column runs BIGINT | Runs.
-- @column rows BIGINT | Rows.
-- @column files BIGINT | Files.
-- @column losses BIGINT | Lost parts.
SELECT count(*) AS runs, sum(rows)::BIGINT AS rows, (SELECT count(*) FROM sources) AS files,
    (SELECT count(*) FROM lost) AS losses
FROM plan_rows
""",
}
_QUERIES = (
    "FROM plan_rows ORDER BY ALL",
    "FROM all_rows",
    "SELECT run_id, count(*), sum(line), min(pass) FROM workload_passes GROUP BY ALL ORDER BY ALL",
    "SELECT run_id, path, lines, duplicate_of FROM sources ORDER BY ALL",
    "SELECT path, reason FROM skipped ORDER BY ALL",
)


# --- damage ---------------------------------------------------------------------------------------


def _flip(random: Random, content: bytes, _: bytes) -> bytes:
    changed = bytearray(content or b"x")
    for _time in range(random.choice((1, 1, 4))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(random: Random, content: bytes, _: bytes) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _foreign(_: Random, __: bytes, other: bytes) -> bytes:
    return other


def _version(step: int) -> Callable[[Random, bytes, bytes], bytes]:
    def change(random: Random, content: bytes, _: bytes) -> bytes:
        try:
            value = json.loads(content)
            value["version"] += step
        except (ValueError, TypeError, KeyError, RecursionError):
            return _junk(random, content, b"")
        return json.dumps(value).encode()

    return change


def _junk(random: Random, _: bytes, __: bytes) -> bytes:
    texts = (
        b"",
        b"[]",
        b"{}",
        b"null",
        b"5",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"version": 1}',
        b"\n",
    )
    return random.choice((*texts, random.randbytes(random.randrange(3000))))


def _field(random: Random, content: bytes, _: bytes) -> bytes:
    """Put another value in the place of one inside the JSON."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # another damage may have nested it without end
        return _flip(random, content, b"")
    at = value if isinstance(value, (dict, list)) else []
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return _junk(random, content, b"")
        key = random.choice(keys)
        if isinstance(at[key], (dict, list)) and at[key] and random.random() < 0.8:
            at = at[key]
            continue
        at[key] = random.choice((None, 5, -1, "x", [], {}, [5], {"x": 5}, True, 1e9, 2**70))
        return json.dumps(value).encode()


_CHANGES = {
    "flip": _flip,
    "cut": _cut,
    "foreign": _foreign,
    "newer": _version(1),
    "older": _version(-1),
    "junk": _junk,
    "field": _field,
}
# Files of these places are damaged as often as each other.
_PLACES = ("_manifest/", "_run/", "_lock/", "warehouse", "")


def _damage(random: Random, root: Path) -> str:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    place = random.choice(_PLACES)
    inside = [p for p in files if p.relative_to(root).as_posix().startswith(place)] or files
    path, other = random.choice(inside), random.choice(files)
    # Without the list of dropped runs, or with another one, their input adds them again.
    believed = {"lose", "field", "flip"} if path.name == "_dropped" else set()
    kind = random.choice([kind for kind in (*_CHANGES, "lose", "folder") if kind not in believed])
    name = path.relative_to(root).as_posix()
    path.chmod(0o644)
    if kind in _CHANGES:
        path.write_bytes(_CHANGES[kind](random, path.read_bytes(), other.read_bytes()))
    else:
        path.unlink()
        if kind == "folder":
            (path / "inside").mkdir(parents=True)
    return f"{kind} {name}"


# --- cases ----------------------------------------------------------------------------------------


class _Reading:
    """Lends one DuckDB to all who read what a warehouse records; to start one takes 13 ms."""

    def __init__(self) -> None:
        self._kept: duckdb.DuckDBPyConnection | None = None

    @contextmanager
    def connect(self) -> Iterator[duckdb.DuckDBPyConnection]:
        con, self._kept = self._kept or connect(), None
        try:
            yield con
        finally:
            try:
                con.execute("DETACH DATABASE IF EXISTS warehouse")
                self._kept = con
            except duckdb.Error:  # an error that ends the whole DuckDB
                con.close()


class Cases:
    """Lakes that are damaged, each from one of the undisturbed lakes.

    Attributes:
        wrong: What must not be, by case.
    """

    def __init__(self, folder: Path) -> None:
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._reading = _Reading()
        self._lake = folder / "lake"
        self._archive = write(
            folder / "archive",
            {f"{n}.txt": plan(n, name=f"layer{n}") for n in range(3, 7)} | {"notes": "none"},
        )
        write(folder / "sql", dict(_MODELS))
        self._models: Catalog = load(folder / "sql")
        self._whole: list[tuple[Path, list[object]]] = []
        with self._patched():
            for together in (False, True):
                shutil.rmtree(self._lake, ignore_errors=True)
                lake = Lake.create(self._lake)
                with ExitStack() as apart:
                    if not together:
                        apart.enter_context(patch("tracelake.ingest.batches._SMALL_BYTES", 0))
                    self._run(lake)
                drop(lake, choose_runs(lake, [min(lake.snapshot().runs)]))
                self._run(lake)
                kept = folder / f"together-{together}"
                shutil.copytree(self._lake, kept)
                self._whole.append((kept, self._answers(lake)))

    def run(self, seed: int) -> None:
        """Run one case."""
        random = Random(seed)
        whole, answers = random.choice(self._whole)
        shutil.rmtree(self._lake)
        shutil.copytree(whole, self._lake)
        damage = [_damage(random, self._lake) for _ in range(random.choice((1, 1, 1, 2, 3)))]
        self.counts["cases"] += 1
        with self._patched():
            said = []
            for name, step in (("check", check_lake), ("query", self._answers), ("run", self._run)):
                found = self._step(f"{seed} {damage} {name}", step)
                if isinstance(found, str):
                    self.counts[f"{name}: error"] += 1
                if name == "run":
                    said = [found] if isinstance(found, (str, list)) and found else []
            after = self._step(f"{seed} {damage} query again", self._answers)
        if said:
            self.counts["run said what is wrong"] += 1
        elif after != answers:
            self.wrong.append(f"{seed} {damage}: other answers in silence: {after}")
        else:
            self.counts["mended in full"] += 1

    def told(self) -> str:
        """Return the figures."""
        counts = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))
        return f"{counts}, {len(self.wrong)} wrong"

    def _step(self, name: str, step: Callable[[Lake], object]) -> object:
        """Return a step's result, or the text of its error."""
        try:
            return step(Lake.open(self._lake))
        except TracelakeError as error:
            # A query that does not fit a damaged part is refused like any other.
            if error.exit_code not in (2, 3, 5) or (error.exit_code != 2 and not error.hint):
                self.wrong.append(f"{name}: exit code {error.exit_code}, no hint? {error}")
            return str(error)
        except OSError as error:
            if next_step(error) is None:
                self.wrong.append(f"{name}: {error!r}")
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not be
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.wrong.append(f"{name}: {error!r:.300} at {where.filename}:{where.lineno}")
            return repr(error)

    def _run(self, lake: Lake) -> list[object]:
        """Do the work of `run`; return what is lost."""
        losses = losses_before(lake, never)
        ingest([str(self._archive)], lake, Options(), jobs=1, losses=losses)
        return list(build(lake, models=self._models, threads=1).lost)

    @staticmethod
    def _answers(lake: Lake) -> list[object]:
        return [answer.read_all().to_pylist() for answer in run_query(lake, "; ".join(_QUERIES))]

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Let all of tracelake use the small models."""
        with ExitStack() as held:
            for module in (
                "warehouse.check",
                "models.build",
                "warehouse.statements",
            ):
                if hasattr(sys.modules[f"tracelake.{module}"], "catalog"):
                    held.enter_context(patch(f"tracelake.{module}.catalog", lambda: self._models))
            held.enter_context(patch("tracelake.warehouse.check.check_rows", lambda _: []))
            held.enter_context(patch("tracelake.models.state.connect", self._reading.connect))
            yield


def main() -> int:
    """Run as many cases as asked for, in two processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.lake", description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tracelake-fuzz-") as folder:
        cases, told, begun = Cases(Path(folder)), 0, time.monotonic()
        for number in range(given.count):
            cases.run(given.seed + number)
            for wrong in cases.wrong[told:]:
                print(wrong[:1500], flush=True)  # noqa: T201
            told = len(cases.wrong)
            if number % 200 == 199 or number == given.count - 1:
                seconds = time.monotonic() - begun
                print(f"{cases.told()}, {seconds:,.0f} s", flush=True)  # noqa: T201
    return 1 if cases.wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
