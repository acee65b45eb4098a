"""A log that is overwritten by the next execution of a job is a new run; one that grows is not."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.lakes import ingest_and_build, rows, run_ingest, statuses
from tests.traces import write
from tracelake.warehouse.warehouse import open_warehouse

NAME = "job/train.log"
LONG = 400  # steps whose records take more than 64 KiB


def log(day: int, ms: float, steps: int = 20, *, dated: bool = True) -> str:
    """A log whose first 4 KiB, and more, are the arguments of the job."""
    arguments = [f"  some_argument_{i:03d} ................ value{i}" for i in range(119)]
    arguments.append("  world_size ................ 8")
    records = [
        (f" [2024-03-{day:02d} 02:{i // 60:02d}:{i % 60:02d}]" if dated else "")
        + f" iteration {i:8d}/{steps:8d} | consumed samples: {i * 32:12d} |"
        f" elapsed time per iteration (ms): {ms + i % 5:.1f} | global batch size:    32 |"
        f" lm loss: {day}.9E+00 |"
        for i in range(1, steps + 1)
    ]
    return "".join(f"{line}\n" for line in [*arguments, *records])


def first_steps(text: str, steps: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: 120 + steps])


def test_a_log_that_every_night_overwrites_has_a_history(tmp_path: Path) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "in"
    for day in range(1, 6):
        write(archive, {NAME: log(day, 500)})
        assert statuses(run_ingest(archive, lake)) == ["new"]
    write(archive, {NAME: log(6, 700)})
    with open_warehouse(ingest_and_build(archive, lake)) as con:
        history = con.execute("SELECT verdict FROM run_history ORDER BY run_date").fetchall()
    assert history == [("not_comparable",)] * 3 + [("ok",)] * 2 + [("regressed",)]
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]


@pytest.mark.parametrize("steps", [20, LONG])
@pytest.mark.parametrize("dated", [True, False])
def test_an_overwritten_log_is_a_new_run_and_stays_one_while_it_grows(
    steps: int, dated: bool, tmp_path: Path
) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "in"
    old, new = (log(day, ms, steps, dated=dated) for day, ms in ((1, 500), (2, 510)))
    for part in (first_steps(old, 5), old):
        (first,) = run_ingest(write(archive, {NAME: part}), lake).runs
    ids: list[str] = []
    for done in (steps - 3, steps - 1, steps):
        ids += run_ingest(write(archive, {NAME: first_steps(new, done)}), lake).changed
    assert len(set(ids)) == 1
    assert set(ids) != {first.run_id}
    assert rows(lake, "train_steps", "run_id, count(*)", "GROUP BY run_id ORDER BY run_id") == (
        sorted([(first.run_id, steps), (ids[0], steps)])
    )
    assert statuses(run_ingest(archive, lake, verify=True)) == ["unchanged"]


def test_a_new_execution_that_ended_early_does_not_pass_for_a_cut_log(tmp_path: Path) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "in"
    run_ingest(write(archive, {NAME: log(1, 500)}), lake)
    assert statuses(run_ingest(write(archive, {NAME: log(2, 500, steps=3)}), lake)) == ["new"]
    cut = first_steps(log(2, 500, steps=3), 2)
    assert statuses(run_ingest(write(archive, {NAME: cut}), lake)) == ["kept"]


def test_an_overwritten_log_in_a_compressed_file_is_a_new_run_too(tmp_path: Path) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "in"
    for day in (1, 2):
        packed = gzip.compress(log(day, 500).encode())
        assert statuses(run_ingest(write(archive, {f"{NAME}.gz": packed}), lake)) == ["new"]
    assert rows(lake, "runs", "count(*)") == [(2,)]


@pytest.mark.parametrize("grown", [False, True])
def test_a_rotated_log_stays_one_run_though_its_name_is_taken(grown: bool, tmp_path: Path) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "in"
    path = archive / NAME
    for day in range(1, 5):
        for number in (2, 1):
            older = path.with_name(f"train.log.{number - 1}") if number > 1 else path
            if older.exists():
                os.replace(older, path.with_name(f"train.log.{number}"))
        text = log(day, 500)
        write(archive, {NAME: first_steps(text, 15) if grown else text})
        run_ingest(archive, lake)
        with path.open("a") as stream:  # between the two nights, as the writer has it open
            stream.write(text.removeprefix(path.read_text()))
    with open_warehouse(ingest_and_build(archive, lake)) as con:
        found = con.execute("SELECT count(*) FROM train_steps GROUP BY run_id").fetchall()
        copies = con.execute("SELECT count(*) FROM sources WHERE duplicate_of IS NOT NULL")
        assert copies.fetchall() == [(0,)]
    assert found == [(20,)] * 4


def test_a_rotated_log_stays_one_run_though_it_is_compressed(tmp_path: Path) -> None:
    """`train.log` becomes `train.log.1.gz`, and another job writes under its name."""
    lake, archive = tmp_path / "lake", tmp_path / "in"
    (first,) = run_ingest(write(archive, {NAME: first_steps(log(1, 500), 15)}), lake).runs
    packed = gzip.compress(log(1, 500).encode())
    rotated = write(archive, {f"{NAME}.1.gz": packed, NAME: log(2, 500)})
    assert statuses(run_ingest(rotated, lake)) == ["new", "updated"]
    os.replace(archive / f"{NAME}.1.gz", archive / f"{NAME}.2.gz")
    assert statuses(run_ingest(archive, lake)) == ["unchanged", "updated"]
    steps = rows(lake, "train_steps", "run_id, count(*)", "GROUP BY run_id")
    assert len(steps) == 2
    assert (first.run_id, 20) in steps


@pytest.mark.parametrize("name", ["other/train.log", "job/backup.log.gz"])
def test_a_longer_copy_of_a_log_does_not_take_its_place(name: str, tmp_path: Path) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "in"
    run_ingest(write(archive, {NAME: first_steps(log(1, 500), 15)}), lake)
    whole = log(1, 500).encode()
    content = gzip.compress(whole) if name.endswith(".gz") else whole
    assert statuses(run_ingest(write(archive, {name: content}), lake)) == ["new", "unchanged"]
    assert statuses(run_ingest(archive, lake)) == ["unchanged", "unchanged"]


def test_a_log_that_grows_beyond_its_copy_is_read_beside_it(tmp_path: Path) -> None:
    """A log of another job begins alike, so runs are named by their whole content."""
    lake, archive = tmp_path / "lake", tmp_path / "in"
    begun = first_steps(log(1, 500), 15)
    logs = {"a/train.log": begun, "b/train.log": begun, "c/train.log": log(2, 500)}
    assert statuses(run_ingest(write(archive, logs), lake)) == ["new", "new"]
    run_ingest(write(archive, {"a/train.log": log(1, 500)}), lake)
    steps = rows(lake, "train_steps", "count(*)", "GROUP BY run_id ORDER BY ALL")
    assert steps == [(15,), (20,), (20,)]
    assert statuses(run_ingest(archive, lake)) == ["unchanged"] * 3


def test_logs_without_dates_have_those_of_their_folders(tmp_path: Path) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "in"
    nights = {f"2024-03-{day:02d}/a/train.log": log(day, 500, dated=False) for day in range(1, 6)}
    last = {"20240306-021500/train.log": log(6, 700, dated=False)}
    with open_warehouse(ingest_and_build(write(archive, {**nights, **last}), lake)) as con:
        history = con.execute("SELECT verdict FROM run_history ORDER BY run_date").fetchall()
    assert [verdict for (verdict,) in history] == ["not_comparable"] * 3 + ["ok"] * 2 + [
        "regressed"
    ]
    dates = rows(lake, "runs", "run_date::VARCHAR, date_source", "ORDER BY run_date DESC LIMIT 2")
    assert dates == [("2024-03-06 02:15:00", "name"), ("2024-03-05 00:00:00", "name")]
