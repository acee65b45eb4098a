"""Traces of MegaScan: the bubble of an interleaved pipeline, counted by another reader."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest

from tests.conftest import Command
from tests.golden_cases import GOLDEN
from tests.lakes import ingest_and_build, rows
from tests.parsing import parse
from tests.traces import write


def bubbles(path: Path) -> dict[tuple[int, int], float]:
    """Idle part of the passes' window by iteration and rank, from the events as they stand."""
    begun: dict[int, int] = {}
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in json.loads(path.read_text()):
        if event["ph"] == "B":
            begun[event["pid"]] = event["ts"]
        elif event["ph"] == "E":
            place = event["args"]["iteration"], event["pid"]
            spans[place].append((begun[event["pid"]], event["ts"]))
    found = {}
    for (step, rank), mine in spans.items():
        all_ranks = [span for (other, _), own in spans.items() if other == step for span in own]
        window = max(end for _, end in all_ranks) - min(start for start, _ in all_ranks)
        found[step, rank] = 1 - sum(end - start for start, end in mine) / window
    return found


def test_interleaved_bubble_beside_theory(field: Path, tmp_path: Path) -> None:
    (path,) = (field / "megascan").glob("*.json")
    lake = ingest_and_build(path.parent, tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        sizes = con.execute(
            "SELECT world_size, pp, vpp, micro_batches, complete, count(DISTINCT step)"
            " FROM runs JOIN ops USING (run_id) GROUP BY ALL"
        ).fetchall()
        assert sizes == [(4, 4, 4, 8, True, 20)]
        measured = con.execute(
            "SELECT step, stage, bubble_ratio FROM stage_bubbles WHERE basis = 'measured'"
        ).fetchall()
        assert {(step, stage): ratio for step, stage, ratio in measured} == pytest.approx(
            bubbles(path)
        )
        theory = con.execute("SELECT DISTINCT theory_bubble_ratio FROM stage_bubbles").fetchall()
        assert theory == [(pytest.approx(3 / (4 * 8 + 3)),)]
        assert con.execute("SELECT count(*) FROM faults").fetchone() == (0,)
        # The messages between passes are not traced: they last until the pass begins.
        run = con.execute(
            "SELECT round(s_peer, 3), round(s_balance, 3), cause, replay_error_ratio, reason,"
            " delay_ratio < 0.01 FROM whatif_runs"
        ).fetchall()
        assert run == [(0.956, 1.132, "stage_split", 0.0, "one_peer", True)]


@pytest.mark.parametrize("late", ["9223372036854775807", "9999999999999999.999", "1e400"])
def test_an_event_later_than_a_column_holds_is_rejected(
    tracelake: Command, tmp_path: Path, late: str
) -> None:
    times = ["0", "1", "2", "3", late]
    names = ["iteration begin", "forward", "forward", "backward", "backward"]
    events = [
        f'{{"name": "{name}", "ph": "{kind}", "ts": {at}, "pid": 0, "tid": 0,'
        ' "args": {"iteration": 0}}'
        for name, kind, at in zip(names, "iBEBE", times, strict=True)
    ]
    archive = write(tmp_path / "archive", {"trace.json": f"[{', '.join(events)}]"})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 3
    assert rows(tmp_path / "lake", "ops", "op, duration_ns") == [("forward_step", 1000)]
    assert rows(tmp_path / "lake", "rejects", "reason") == [("not_an_event",)]


def test_names_may_have_any_letters() -> None:
    path = GOLDEN / "megascan/variants/input/data-1-pipeline-2-tensor-1-pp-aggregated.json"
    for said, name in (("vorwärts", "vorwärts"), (r"f\ud800", r"f\ud800")):
        text = path.read_text().replace('"forward"', f'"{said}"')
        found = parse("megascan", {path.name: text.encode()}).only
        assert name in {row["op"] for row in found.rows("ops")}


def test_passes_of_one_line_and_time_may_say_different_places() -> None:
    """The order of passes must not compare a place with none."""
    marks = [("iteration begin", "i", ""), *(("forward", kind, "") for kind in "BEB")]
    marks.append(("forward", "E", ', "pp_rank": 0'))
    events = (
        f'{{"name": "{name}", "ph": "{kind}", "ts": 1, "pid": 0, "tid": 0,'
        f' "args": {{"iteration": 0{place}}}}}'
        for name, kind, place in marks
    )
    found = parse("megascan", {"trace.json": f"[{', '.join(events)}]".encode()}).only
    assert [row.get("stage") for row in found.rows("ops")] == [None, 0]


def test_a_rank_that_lacks_a_step_makes_the_run_incomplete() -> None:
    def events(ranks_of_step: dict[int, list[int]]) -> bytes:
        found = [
            {"name": name, "ph": kind, "ts": 100 * step + at, "pid": rank, "tid": 0, "args": args}
            for step, ranks in ranks_of_step.items()
            for rank in ranks
            for name, kind, at, args in (
                ("forward", "B", 1, {"iteration": step}),
                (
                    "forward",
                    "E",
                    2,
                    {"iteration": step, "pp_rank": 0, "microbatch": 0, "model_chunk": 0},
                ),
            )
        ]
        return json.dumps(found).encode()

    for steps, ended in (({1: [0, 1], 2: [0, 1]}, True), ({1: [0, 1], 2: [0]}, False)):
        run = parse("megascan", {"a.json": events(steps)}).only
        assert run.facts.ended is ended
        assert len(run.rows("ops")) == sum(map(len, steps.values()))
