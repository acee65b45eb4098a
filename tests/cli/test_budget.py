"""How memory is given and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.traces import trace, trace_name, write
from tracelake.base.errors import UsageError
from tracelake.base.memory_limit import (
    JOB_BYTES,
    PROCESS_BYTES,
    engine_limit,
    jobs_within,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("800MB", 800_000_000),
        ("800mb", 800_000_000),
        ("1.5GiB", 1_610_612_736),
        ("2g", 2_000_000_000),
        ("512 KiB", 524_288),
        ("700000000", 700_000_000),
        ("1T", 10**12),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1GB", "1.GB", "lots", "1e9", "60%"])
def test_what_is_no_size_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text)


def test_fewer_jobs_run_where_not_all_fit() -> None:
    assert jobs_within(PROCESS_BYTES + 3 * JOB_BYTES, 8) == 3
    assert jobs_within(PROCESS_BYTES + 3 * JOB_BYTES, 2) == 2
    assert engine_limit(PROCESS_BYTES + JOB_BYTES) == f"{JOB_BYTES}B"


@pytest.mark.parametrize("command", ["run", "ingest", "build"])
def test_too_little_memory_is_refused_before_anything_is_done(
    tracelake: Command, tmp_path: Path, command: str
) -> None:
    lake = tmp_path / "lake"
    archive = write(tmp_path / "in", {trace_name(0, world=1): trace(0)})
    assert tracelake("ingest", archive, "--lake", lake).code == 0
    files = sorted(path for path in lake.rglob("*") if path.is_file())
    inputs = [] if command == "build" else [archive]
    result = tracelake(command, *inputs, "--lake", lake, "--memory", "90MB")
    assert (result.code, "--memory 670MB" in result.err) == (UsageError.exit_code, True)
    assert sorted(path for path in lake.rglob("*") if path.is_file()) == files


def test_a_lake_is_made_within_a_limit(tracelake: Command, tmp_path: Path) -> None:
    archive = write(tmp_path / "in", {trace_name(0, world=1): trace(0)})
    lake = tmp_path / "lake"
    assert tracelake("run", archive, "--lake", lake, "--memory", "800MB").code == 0
    assert (lake / "warehouse.duckdb").is_file()
