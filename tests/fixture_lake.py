"""Makes a lake of this version, which later versions must open: `python -m tests.fixture_lake AT`.

AT is a folder that is not there yet, such as `/lake`: a warehouse names the place where it was
built. The lake is moved from there to `tests/fixtures/lake-<manifest>.<schema>.<warehouse>`, with
its warehouse compressed and with the answers that every later version must give.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tracelake import __version__
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.manifest import MANIFEST_VERSION
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.state import WAREHOUSE_VERSION
from tracelake.nightly.backlog import Backlog, Duty
from tracelake.schema.tables import SCHEMA_VERSION, tables
from tracelake.warehouse.running import run_query

FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = Path(__file__).parent / "formats"
VERSION = f"{MANIFEST_VERSION}.{SCHEMA_VERSION}.{WAREHOUSE_VERSION}"
INPUTS = ("rank_trace/pipelined_step", "optimus/merged_ranks", "aicb_workload/variants")
LATER_INPUT = "rank_trace/simulated_ranks"
# Answers that no later version may change; what it adds has other names.
QUESTIONS = {
    **{name: f"SELECT count(*) AS found FROM {name}" for name in sorted(tables())},
    "formats": "SELECT run_id, format FROM runs ORDER BY run_id",
    "ops_by_kind": "SELECT rank, phase, op, count(*)::BIGINT AS ops, sum(duration_ns)::BIGINT AS ns"
    " FROM ops GROUP BY ALL ORDER BY ALL",
    "summary": "SELECT run_id, steps, rejects FROM run_summary ORDER BY run_id",
}


def answers(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """What the lake answers to each question."""
    return {
        name: [row for reader in run_query(lake, sql) for row in reader.read_all().to_pylist()]
        for name, sql in QUESTIONS.items()
    }


def opened(fixture: Path, root: Path) -> Lake:
    """A copy of a kept lake with its warehouse, which is kept compressed."""
    shutil.copytree(fixture, root)
    packed = root / "warehouse.duckdb.gz"
    (root / "warehouse.duckdb").write_bytes(gzip.decompress(packed.read_bytes()))
    for path in (packed, root / "made.json"):
        path.unlink()
    return Lake.open(root)


def main(at: Path) -> None:
    """Makes the lake of this version."""
    lake = Lake.create(at)
    inputs = [str(GOLDEN / name / "input") for name in INPUTS]
    ingest(inputs[-1:], lake, Options(), jobs=1)  # its small runs share parts
    ingest(inputs, lake, Options(), jobs=1)
    record = at / "_run" / "owed.json"
    record.parent.mkdir()
    owed = Backlog.open(lake, "_run/owed.json", [Duty.PAGE], print)
    build(lake)
    owed.arrive()
    made = {
        "command": "python -m tests.fixture_lake",
        "tracelake": __version__,
        "inputs": INPUTS,
        "answers": answers(lake),
    }
    for folder in ("_lock", "_staging"):
        shutil.rmtree(at / folder)
    target = FIXTURES / f"lake-{VERSION}"
    shutil.move(at, target)
    warehouse = target / "warehouse.duckdb"
    (target / "warehouse.duckdb.gz").write_bytes(gzip.compress(warehouse.read_bytes(), mtime=0))
    warehouse.unlink()
    (target / "made.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
