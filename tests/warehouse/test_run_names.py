"""A run is named by its id, by a part of it that only one run has, as `latest`, or as `RUN~1`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from tests.conftest import Command
from tests.tiny_lakes import commit_run, commit_runs, log_run
from tracelake.base.errors import UsageError
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.warehouse.names import resolve_run
from tracelake.warehouse.warehouse import open_warehouse

LABELS = {"gpt-0001": "job007", "gpt-0002": "job008", "llama": "Slurm-4711"}
DATES = {
    "gpt-0001": datetime(2024, 1, 1),
    "gpt-0002": datetime(2024, 1, 3),
    "llama-gpt-0003": None,
    "llama": datetime(2024, 1, 2),
    "latest-but-older": datetime(2023, 1, 1),
    **{f"sweep-{number}": None for number in range(10)},
}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    lake = Lake.create(tmp_path_factory.mktemp("names") / "lake")
    dated = DATES.items()
    commit_runs(
        lake, {run: log_run(steps=2, run_date=date, label=LABELS.get(run)) for run, date in dated}
    )
    build(lake)
    with open_warehouse(lake) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "run_id"),
    [
        ("gpt-0001", "gpt-0001"),
        ("llama", "llama"),  # an id, though it also begins another
        ("llama-", "llama-gpt-0003"),
        ("0003", "llama-gpt-0003"),
        ("latest", "gpt-0002"),  # the word, though a run is called like it
        ("latest-", "latest-but-older"),
        ("job007", "gpt-0001"),
        ("ob008", "gpt-0002"),  # a part of a label
        ("4711", "llama"),
        ("slurm", "llama"),
    ],
)
def test_a_run_is_found(con: duckdb.DuckDBPyConnection, text: str, run_id: str) -> None:
    assert resolve_run(con, text) == run_id


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "gpt-",
            "'gpt-' matches 2 runs",
            "use one of gpt-0002 (job008, 2024-01-03 00:00), gpt-0001 (job007, 2024-01-01 00:00)",
        ),  # not the one it is only part of
        (
            "000",
            "'000' matches 3 runs",
            "use one of gpt-0002 (job008, 2024-01-03 00:00), gpt-0001 (job007, 2024-01-01 00:00)"
            ", llama-gpt-0003",
        ),
        (
            "sweep",
            "'sweep' matches 10 runs",
            f"use one of {', '.join(f'sweep-{n}' for n in range(8))} and 2 more",
        ),
        (
            "gpt_0001",
            "no run 'gpt_0001' in the lake",
            "did you mean gpt-0001 (job007, 2024-01-01 00:00), ",
        ),
        ("%", "no run '%' in the lake", "list them with: tracelake runs"),
    ],
)
def test_what_is_not_one_run_says_which_are_close(
    con: duckdb.DuckDBPyConnection, text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_run(con, text)
    assert caught.value.message == message
    assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        ([None, None], "no run of the lake has a date, so there is no latest run"),
        ([datetime(2024, 1, 1)] * 2, "'latest' matches 2 runs"),
        ([None], None),  # the only run
    ],
)
def test_the_latest_of_several_runs_needs_a_date_of_its_own(
    dates: list[datetime | None], message: str | None
) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE runs (run_id VARCHAR, name VARCHAR, label VARCHAR, run_date TIMESTAMP)"
        )
        con.executemany("INSERT INTO runs VALUES (?, NULL, NULL, ?)", list(enumerate(dates)))
        if message is None:
            assert resolve_run(con, "latest") == "0"
            return
        with pytest.raises(UsageError, match=message) as caught:
            resolve_run(con, "latest")
        said = " (2024-01-01 00:00)" if dates[0] else ""
        assert caught.value.hint == f"use one of 0{said}, 1{said}"


def test_what_lists_and_advice_print_names_one_run(tracelake: Command, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for day in range(1, 7):
        logged = log_run(
            steps=9,
            layer_ns=2_000_000 if day > 4 else 1_000_000,
            run_date=datetime(2024, 1, day),
            complete=True,
        )
        commit_run(lake, f"train-{day}-0123abcd", logged)
    build(lake)
    listed = tracelake("runs", "--lake", lake.root, "--format", "csv")
    rows = list(csv.DictReader(listed.out.splitlines()))
    assert len(rows) == 6
    for row in rows:
        shown = tracelake("show", row["hash"], "--lake", lake.root, "--format", "json")
        assert shown.code == 0, shown.err
        assert json.loads(shown.out)["run_id"] == row["run_id"]
    with open_warehouse(lake) as con:
        advised = con.execute("SELECT advice FROM findings ORDER BY run_id").fetchall()
        with pytest.raises(UsageError) as caught:
            resolve_run(con, "train")
    # The run before the second slow one is as slow: nothing changed between them.
    for slow, (advice,) in zip((5, 6), advised, strict=True):
        command = advice.removeprefix("See what changed: tracelake ").split()
        compared = tracelake(*command, "--lake", lake.root)
        assert compared.code == 0
        assert re.findall(r"train-\d", compared.out)[:2] == ["train-4", f"train-{slow}"]
    assert "train-5-0123abcd (2024-01-05 00:00), " in (caught.value.hint or "")
