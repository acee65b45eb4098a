"""Numbers at the edges of their types: none ends a job, and each costs its own run at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.fuzz.jobs import campaign
from tests.poison import base_runs, figures, lake_of, poisoned
from tests.traces import plan, trace, trace_name, write
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.warehouse.warehouse import open_warehouse

MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("tp=99999999999999999999", "tp is too large"),
        ("world_size=2147483648", "world_size is too large"),
        ("tp=" + "9" * 5000, "tp is too large"),
        ("tp=4,pp=4,dp=4,world_size=3", "tp x dp x pp is 64 ranks, more than world_size 3"),
        ("tp=00", "positive whole number"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_any_work(
    tracelake: Command, tmp_path: Path, sizes: str, said: str
) -> None:
    result = tracelake("run", tmp_path, "--lake", tmp_path / "lake", "--set", sizes)
    assert (result.code, said in result.err) == (2, True), result.err
    assert not (tmp_path / "lake").exists()


def test_a_run_pattern_gives_sizes_that_can_be(tracelake: Command, tmp_path: Path) -> None:
    for number in ("0", "99999999999"):
        write(tmp_path / number, {f"tp{number}/{trace_name(0)}": trace(0)})
        given = ("--run-pattern", r"tp(?P<tp>\d+)/", "--lake", tmp_path / "lake")
        result = tracelake("ingest", tmp_path / number, *given)
        assert (result.code, "is out of range" in result.err) == (2, True), result.err


def test_inputs_with_numbers_that_cannot_be_end_no_job(tracelake: Command, tmp_path: Path) -> None:
    many = plan(3).replace("4096", str(MOST)).replace("200", "922337203685477580")
    files = {
        f"good/{trace_name(0)}": trace(0, steps=3),
        f"good/{trace_name(1)}": trace(1, steps=3),
        "few/wd3_tp4_pp4_numl4_bs1_Tok_rank0_20250102000000.txt": trace(0),
        "large/wd999999999_tp1_pp999999999_numl4_bs1_Tok_rank0_20250102000001.txt": trace(0),
        "sent.txt": plan().replace("ga: 1", f"ga: 1 pp_comm: {MOST + 1}").replace("pp: 1", "pp: 2"),
        "nan.txt": plan().replace("ga: 1", "ga: 1 pp_comm: nan").replace("pp: 1", "pp: 2"),
        "many.txt": many,
        "stages.txt": plan().replace("pp: 1", "pp: 65536 vpp: 65536"),
    }
    write(tmp_path / "in", files)
    lake = tmp_path / "lake"
    result = tracelake("run", tmp_path / "in", "--lake", lake, "--quiet")
    assert (result.code, result.err) == (0, "")
    with open_warehouse(Lake.open(lake)) as con:
        rows = con.execute(
            "SELECT DISTINCT split_part(run_id, '-', 1), reason FROM abstentions"
            " WHERE reason = 'out_of_range' ORDER BY ALL"
        ).fetchall()
        assert rows == [
            ("many", "out_of_range"),
            ("stages", "out_of_range"),
            ("wd999999999_tp1_pp999999999_numl4_bs1_tok", "out_of_range"),
        ]
        large = con.execute("SELECT run_id, reason FROM workload_comm WHERE bytes IS NULL")
        assert [(run[:5], reason) for run, reason in large.fetchall()] == [
            ("many-", "out_of_range")
        ]


def test_a_poisoned_column_changes_no_other_run(tmp_path: Path) -> None:
    """One extreme in eight; `python -m tests.poison` has all."""
    good, bad = base_runs(), dict(list(poisoned(beyond=False))[::8])
    alone, beside = lake_of(tmp_path / "alone", good), lake_of(tmp_path / "beside", good | bad)
    build(alone)
    assert build(beside).failed == ()
    assert figures(alone, [*good]) == figures(beside, [*good])


def test_mutated_files_end_no_job_and_change_no_other_run() -> None:
    """A part of `python -m tests.fuzz.jobs`."""
    done = campaign(100, seed=0)
    assert done.runs > 25
    assert (done.failed, done.changed) == ([], 0)
