"""The main job on real traces, asked through the command: what a first user sees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.lakes import run_ingest, statuses

LOG = "tp1_dp1_pp8_mbs1_gbs32-faf2f671"
MEASURED = "wd8_tp2_pp4_numl40_bs2_gpt2bpetokenizer-1c236eeb"
Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def lake(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "lake"
    done = subprocess.run(
        [Path(sys.executable).with_name("tracelake"), "run", corpus, "--lake", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def ask(lake: Path, tracelake: Command) -> Ask:
    """Asks the lake through the command."""

    def answer(sql: str) -> list[dict[str, Any]]:
        done = tracelake("query", sql, "--lake", lake, "--format", "json")
        assert done.code == 0, done.err
        found: list[dict[str, Any]] = json.loads(done.out)
        return found

    return answer


def test_every_file_is_a_run_without_a_reject(
    lake: Path, corpus: Path, ask: Ask, tracelake: Command
) -> None:
    files = {p.relative_to(corpus).as_posix() for p in corpus.rglob("*") if p.is_file()}
    assert {row["path"] for row in ask("SELECT path FROM sources")} == files - {"INDEX.md"}
    assert ask("FROM rejects") == []
    assert ask("SELECT path, reason FROM skipped") == [{"path": "INDEX.md", "reason": "no_format"}]
    faults = ask("SELECT name, path FROM faults JOIN sources USING (run_id, source_id)")
    assert [fault["name"] for fault in faults] == ["row_count_mismatch"]
    assert "L65B-M1-C05" in faults[0]["path"]
    assert tracelake("check", "--lake", lake)[:2] == (0, "")


def test_a_second_run_changes_nothing(lake: Path, corpus: Path) -> None:
    assert set(statuses(run_ingest(corpus, lake))) == {"unchanged"}


def test_the_published_bubble_ratios(ask: Ask) -> None:
    sql = f"""
        SELECT rank, round(bubble_ratio, 3) AS bubble, round(p2p_recv_ms / window_ms, 3) AS waiting
        FROM rank_bubbles WHERE run_id = '{MEASURED}' AND rank % 2 = 0 ORDER BY rank
    """
    assert [(r["rank"], r["bubble"], r["waiting"]) for r in ask(sql)] == [
        (0, 0.828, 0.827),
        (2, 0.830, 0.713),
        (4, 0.828, 0.596),
        (6, 0.517, 0.169),
    ]


def test_the_pipeline_log_is_complete(ask: Ask) -> None:
    sql = f"""
        SELECT step, count(*) AS n, count(DISTINCT rank) AS ranks,
            count(*) FILTER (attribution = 'merged') AS merged
        FROM layer_times WHERE run_id = '{LOG}' GROUP BY step ORDER BY step
    """
    steps = ask(sql)
    assert [(s["step"], s["n"], s["ranks"]) for s in steps] == [(i, 25, 8) for i in range(1, 21)]
    # Ranks 0 and 3 wrote on the same lines in step 2, three layers each.
    assert [s["merged"] for s in steps] == [0, 6] + [0] * 18
    (progress,) = ask(f"SELECT count(*) AS n FROM train_steps WHERE run_id = '{LOG}'")
    assert progress == {"n": 20}


@pytest.mark.parametrize(("seed", "rows"), [("003", 172), ("004", 557)])
def test_workload_plans_have_their_rows_and_totals(
    ask: Ask, corpus: Path, seed: str, rows: int
) -> None:
    (path,) = (corpus / "seeds").glob(f"{seed}_*")
    wanted: Counter[tuple[str, str]] = Counter()
    for line in path.read_text().splitlines()[2:]:
        fields = line.split()
        for pass_name, at in (("forward", 3), ("input_grad", 6), ("weight_grad", 9)):
            if fields[at] not in ("NONE", "BROADCAST"):
                wanted[pass_name, fields[at]] += int(fields[at + 1])
    sql = f"""
        SELECT pass, raw_comm, sum(bytes)::BIGINT AS bytes, max("row") AS "rows"
        FROM workload_passes WHERE run_id LIKE '{seed}_%' AND collective IS NOT NULL GROUP BY ALL
    """
    found = ask(sql)
    assert {(r["pass"], r["raw_comm"]): r["bytes"] for r in found} == dict(wanted)
    counted = (
        f"SELECT count(DISTINCT \"row\") AS n FROM workload_passes WHERE run_id LIKE '{seed}_%'"
    )
    assert ask(counted) == [{"n": rows}]


def test_single_rank_files_are_incomplete_and_say_what_that_costs(ask: Ask) -> None:
    sql = """
        SELECT r.run_id[:3] AS seed, r.complete, c.not_computable
        FROM runs AS r JOIN coverage AS c USING (run_id) WHERE r.run_id[:3] IN ('000', '001')
        ORDER BY seed
    """
    dense, simulated = ask(sql)
    assert (dense["complete"], simulated["complete"]) == (False, False)
    assert "rank_bubbles.bubble_ratio: topology_unknown" in dense["not_computable"]
    assert "straggler_ranks.slowdown: no_peer" in dense["not_computable"]
    assert "rank_bubbles.bubble_ratio: simulated" in simulated["not_computable"]
