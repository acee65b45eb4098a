"""`build --profile`: what each model took, whatever computes it."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.lakes import few_models
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake
from tracelake.models.catalog import catalog


@pytest.fixture(scope="module")
def ingested(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the sample's runs, not built."""
    lake = tmp_path_factory.mktemp("profile") / "lake"
    ingest([str(sample)], Lake.create(str(lake)), Options())
    return lake


@pytest.fixture
def lake(ingested: Path, tmp_path: Path) -> Path:
    """A lake to build."""
    return shutil.copytree(ingested, tmp_path / "lake")


def profile_of(tracelake: Command, lake: Path, *options: str) -> dict[str, dict[str, Any]]:
    done = tracelake("build", "--lake", lake, "--full", "--profile", "--format", "json", *options)
    assert done.code == 0
    return {row["relation"]: row for row in json.loads(done.out)}


def test_every_model_has_a_row_with_its_rows(tracelake: Command, lake: Path) -> None:
    found = profile_of(tracelake, lake)
    models = catalog().models
    assert {name for name, row in found.items() if row["kind"] != "table"} == models.keys()
    assert all((found[m.name]["kind"] == "fleet") == m.fleet for m in models.values())
    assert found["comms"]["kind"] == "table"
    assert found["comms"]["rows"] is None
    for name in ("collective_calls", "run_summary", "run_list"):
        count = f"SELECT count(*) FROM {name}"
        counted = tracelake("query", "--lake", lake, "--format", "csv", count)
        assert found[name]["rows"] == int(counted.out.split()[1]) > 0
    assert found["collective_calls"]["write_s"] > 0
    assert found["_comm_matches"]["write_s"] == 0
    assert all(row["compute_s"] >= 0 for row in found.values())
    assert sum(row["share"] for row in found.values()) == pytest.approx(1, abs=0.05)
    times = [row["compute_s"] + row["write_s"] for row in found.values()]
    assert all(a >= b - 0.002 for a, b in itertools.pairwise(times))  # they are rounded
    current = tracelake("build", "--lake", lake, "--profile")
    assert current.out.split() == list(next(iter(found.values())))


def test_batches_that_are_computed_at_once_add_up(
    tracelake: Command, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with few_models("collective_calls", "layer_steps", "run_list"):
        alone = profile_of(tracelake, lake, "--memory", "1GB")  # one batch
        # One is of several formats.
        monkeypatch.setattr("tracelake.models.batches._BATCH_BYTES", 260_000)
        several = profile_of(tracelake, lake)
    assert several["collective_calls"]["batches"] == 3
    assert alone["collective_calls"]["batches"] == 1
    assert several["run_list"]["batches"] == 1
    assert {name: row["rows"] for name, row in several.items()} == {
        name: row["rows"] for name, row in alone.items()
    }
