"""Models that are computed at once: as one after the other, also when one fails or is stopped."""

from __future__ import annotations

import _thread
import threading
import time
from pathlib import Path

import duckdb
import pytest

from tests.conftest import ROOT
from tests.lakes import run_ingest
from tests.tiny_lakes import commit_run, log_run
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import Catalog, catalog, load
from tracelake.schema.tables import tables

COUNTED = "(SELECT count(*) FROM range(params * {}) AS t(n) WHERE n % 7 = 3)"
SLOW = COUNTED.format(3_000_000)
ENDLESS = COUNTED.format(10**15)
FAILING = "CASE WHEN params = 13 THEN error('it cannot be') END"


def models_of(folder: Path, **values: str) -> Catalog:
    """Models of a row per run with these values, beside the one of failures."""
    texts = {"model_failures": catalog().models["model_failures"].sql}
    for name, value in values.items():
        texts[name] = (
            "-- A value of a run.\n-- @grain run_id\n-- @column number HUGEINT | The value.\n"
            f"SELECT run_id, ({value})::HUGEINT AS number FROM runs\n"
        )
    for name, text in texts.items():
        path = folder / "a" / f"{name}.sql"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load(folder)


def test_models_at_once_give_what_one_after_the_other_gives(tmp_path: Path) -> None:
    run_ingest(ROOT / "data" / "sample", tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    found = []
    for threads in (1, 5):
        build(lake, full=True, threads=threads)
        with duckdb.connect(str(lake.warehouse), read_only=True) as con:
            relations = {*catalog().public, *tables()}
            found.append(
                {name: con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in relations}
            )
    assert found[1] == found[0]
    assert len([rows for rows in found[0].values() if rows]) > 40


def test_of_several_models_that_fail_the_first_in_order_is_told(tmp_path: Path) -> None:
    """The others fail long before it does."""
    models = models_of(
        tmp_path / "sql", a=f"coalesce({FAILING}, {SLOW})", b=FAILING, c=FAILING, d=FAILING
    )
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "good", log_run(params=1))
    commit_run(lake, "bad", log_run(params=13))
    for threads in (1, 4):
        built = build(lake, full=True, threads=threads, models=models)
        assert [(run.run_id, run.failed_model) for run in built.failed] == [("bad", "a")]


def test_models_are_stopped_with_the_build(tmp_path: Path) -> None:
    models = models_of(tmp_path / "sql", a="run_id = 'x'", b=f"params + {ENDLESS}", c="params")
    lake = Lake.create(tmp_path / "lake")
    commit_run(lake, "r", log_run(params=1))
    started = time.monotonic()

    def interrupt(said: str) -> None:
        if said.startswith("computing"):
            threading.Timer(0.5, _thread.interrupt_main).start()

    with pytest.raises(KeyboardInterrupt):
        build(lake, threads=2, models=models, progress=interrupt)
    assert 0.5 <= time.monotonic() - started < 30
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("models")]
    assert not lake.warehouse.exists()
