"""Traces in another order of ranks, or without some lines: a figure is right or has a reason."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest

from tests.broken_traces import (
    Figures,
    Files,
    computed,
    in_other_order,
    numbered_steps,
    renumbered,
    traces,
    true_calls,
    without,
)
from tests.lakes import few_models
from tracelake.synth.spec import Spec

SPEC = Spec(
    formats=("rank_trace",),
    tp=1,
    pp=2,
    dp=2,
    layers=2,
    micro_batches=4,
    steps=3,
    hidden=64,
    sequence=128,
    noise=0.05,
    busbw_gbps=0.5,
)
DATA_PARALLEL = replace(SPEC, pp=1, dp=4)
PIPELINE = replace(SPEC, pp=4, dp=1, layers=4, micro_batches=6)
TENSOR = replace(PIPELINE, tp=2)
ORDERED = {"tp1_pp2_dp2": SPEC, "tp2_pp3_dp2": replace(SPEC, tp=2, pp=3, layers=3)}
THREE_REPLICAS = replace(SPEC, dp=3)
SHIFTED = {"pp2_dp2": SPEC, "dp4": DATA_PARALLEL, "pp4": PIPELINE}
LOST_STEPS = (1, 2)
# Text of rank 3 that is about another stage then.
OTHER_STAGES = {
    "two_stages_of_a_rank": ":forward_step(stage_id=1",
    "uneven_stages": "stage_id=1",
}
# Job, rank, operation of a lost line, and how many calls it may cost.
LOST_LINES = [
    (PIPELINE, 1, "send_forward", 1),
    (PIPELINE, 1, "recv_forward", 1),
    (PIPELINE, 2, "send_backward", 1),
    (PIPELINE, 2, "recv_backward", 1),
    (TENSOR, 3, "forward_step", 8),
    (TENSOR, 3, "backward_step", 8),
    (replace(TENSOR, pp=1), 1, "forward_step", 16),
    (replace(TENSOR, experts=2), 3, "get_batch", 8),
]
BATCHES = (0, 3, 5)


def lost_line(spec: Spec, rank: int, op: str, batch: int) -> str:
    """How the lost line begins."""
    return f"rank:{rank}:{op}(stage_id={rank // spec.tp},batch_id={batch},"


def without_step(spec: Spec, number: int) -> Files:
    return without(traces(spec), 1, lambda step, _: step == number)


def without_line(spec: Spec, rank: int, gone: str) -> Files:
    return without(traces(spec), rank, lambda step, line: step == 2 and line.startswith(gone))


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[Hashable, Figures]:
    """Figures of every job below, in one lake."""
    jobs: dict[Hashable, Files] = {}
    for spec in ORDERED.values():
        jobs["usual", spec] = traces(spec)
        jobs["renumbered", spec] = renumbered(traces(spec), spec)
    files = renumbered(traces(THREE_REPLICAS), THREE_REPLICAS)
    jobs["rank missing"] = {n: lines for n, lines in files.items() if "_rank3_" not in n}
    for text in OTHER_STAGES.values():
        jobs[text] = {
            name: [line.replace(text, text[:-1] + "0") for line in lines]
            if "_rank3_" in name
            else lines
            for name, lines in traces(SPEC).items()
        }
    for spec in SHIFTED.values():
        for lost in LOST_STEPS:
            jobs[spec, lost] = without_step(spec, lost)
    jobs["joined"] = without(
        traces(DATA_PARALLEL),
        1,
        lambda step, line: step == 2 and ("_allreduce(" in line or "optimizer" in line),
    )
    jobs["no end"] = without(traces(SPEC), 1, lambda step, line: step == 2 and "optimizer_" in line)
    for spec, rank, op, _ in LOST_LINES:
        for batch in BATCHES:
            gone = lost_line(spec, rank, op, batch)
            jobs[gone, spec] = without_line(spec, rank, gone)
    with few_models("collective_bandwidth", "stage_bubbles", "clock_offsets", "coverage"):
        return computed(tmp_path_factory.mktemp("broken"), jobs)


@pytest.mark.parametrize("spec", ORDERED.values(), ids=ORDERED)
def test_ranks_in_the_order_that_the_stages_tell(
    figures: dict[Hashable, Figures], spec: Spec
) -> None:
    told, again = figures["usual", spec], figures["renumbered", spec]
    for sql in (
        "SELECT step, step_ms, busiest_stage FROM step_stats ORDER BY ALL",
        "SELECT calls, matched_calls, not_computable, partly, contradictions FROM coverage",
        "SELECT collective, group_kind, size_bytes, calls, matched_calls, busbw_p50_gbps"
        " FROM collective_bandwidth ORDER BY ALL",
        "SELECT step, stage, bubble_ratio FROM stage_bubbles WHERE basis = 'measured' ORDER BY ALL",
    ):
        assert again.rows(sql) == told.rows(sql)
    assert set(again.rows("SELECT clock, offset_ms, uncertainty_ms FROM clock_offsets")) == {
        ("*", 0.0, 0.0)
    }
    by_rank = "SELECT rank, step, window_ns, compute_ns, p2p_recv_wait_ms, in_op_wait_ms"
    sql = f"{by_rank} FROM rank_bubbles ORDER BY ALL"
    moved = sorted((in_other_order(rank, spec), *row) for rank, *row in told.rows(sql))
    assert again.rows(sql) == moved
    groups = again.rows(
        "SELECT DISTINCT list(rank ORDER BY rank) FROM collective_calls"
        " WHERE group_kind = 'dp' GROUP BY call"
    )
    assert {tuple(ranks) for (ranks,) in groups} == {
        tuple(sorted(in_other_order(rank, spec) for rank in spec.group("dp", first)))
        for first in range(spec.world_size)
    }


def test_with_a_rank_missing_the_order_of_the_others_counts(
    figures: dict[Hashable, Figures],
) -> None:
    found = figures["rank missing"]
    calls = found.rows(
        "SELECT DISTINCT list(rank ORDER BY rank) FROM collective_calls"
        " WHERE matched AND group_kind IN ('dp', 'pp') GROUP BY call, group_kind ORDER BY ALL"
    )
    # Stage 0 is of ranks 0, 2, 4; stage 1 lacks rank 3, and so do rank 2's messages.
    assert calls == [([0, 1],), ([0, 2, 4],), ([4, 5],)]
    assert found.rows("SELECT missing_ranks, contradictions FROM coverage") == [([3], [])]
    ((hints,),) = found.rows("SELECT list_concat(hints, partly_hints) FROM coverage")
    assert "add the files of rank 3" in hints


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ("two_stages_of_a_rank", "rank 3: prints stages 0, 1"),
        ("uneven_stages", "stage 0: 3 ranks print it, world_size / pp is 2"),
    ],
)
def test_stages_that_contradict_give_no_groups(
    figures: dict[Hashable, Figures], changed: str, sentence: str
) -> None:
    found = figures[OTHER_STAGES[changed]]
    ((contradictions, missing, hints),) = found.rows(
        "SELECT contradictions, not_computable, hints FROM coverage"
    )
    assert sentence in contradictions
    assert "rank_bubbles.bubble_ratio: stages_contradict" in missing
    assert "give --set tp=N,pp=N,world_size=N that fit the printed stages" in hints
    assert found.rows(
        "SELECT DISTINCT matched, reason, skew_reason FROM collective_calls"
        " WHERE collective = 'recv'"
    ) == [(False, "stages_contradict", "stages_contradict")]
    assert set(found.rows("SELECT clock FROM clock_offsets")) == {("*",)}
    assert found.rows("SELECT count(*) FROM step_stats WHERE step_ms IS NULL") == [(0,)]


@pytest.mark.parametrize("spec", SHIFTED.values(), ids=SHIFTED)
@pytest.mark.parametrize("lost_step", LOST_STEPS)
def test_a_lost_step_is_no_clock(
    figures: dict[Hashable, Figures], spec: Spec, lost_step: int
) -> None:
    found = figures[spec, lost_step]
    assert set(found.rows("SELECT clock, offset_ms, drift_ppm FROM clock_offsets")) == {
        ("*", 0.0, 0.0)
    }
    ((contradictions, missing, partly, hints),) = found.rows(
        "SELECT contradictions, not_computable, partly, list_concat(hints, partly_hints)"
        " FROM coverage"
    )
    assert contradictions == [
        f"rank 1: its step {lost_step} ran beside step {lost_step + 1} of rank 0"
    ]
    abstained = missing if lost_step == 1 else partly
    assert any(text.startswith("step_stats.step_ms: step_shifted") for text in abstained)
    assert (
        f"add the lines before step {lost_step} of rank 1, or trace all ranks over the same steps"
        in hints
    )
    steps = found.rows("SELECT step, step_ms IS NOT NULL, reason FROM step_stats ORDER BY step")
    assert steps == [
        (step, step < lost_step, None if step < lost_step else "step_shifted") for step in (1, 2, 3)
    ]
    assert found.rows("SELECT complete FROM runs") == [(False,)]


def test_steps_that_join_are_named_after_the_rank_that_lost_lines(
    figures: dict[Hashable, Figures],
) -> None:
    found = figures["joined"]
    ((contradictions, hints),) = found.rows(
        "SELECT contradictions, list_concat(hints, partly_hints) FROM coverage"
    )
    assert contradictions == ["rank 1: its step 2 ran beside steps 2-3 of rank 0"]
    assert {hint for hint in hints if hint} >= {
        "add the lines before step 2 of rank 1, or trace all ranks over the same steps"
    }
    assert not [hint for hint in hints if hint and "ingest again" in hint]


def test_a_step_without_its_end_makes_a_run_incomplete(figures: dict[Hashable, Figures]) -> None:
    found = figures["no end"]
    assert found.rows("SELECT complete FROM runs") == [(False,)]
    assert found.rows("SELECT step, reason FROM step_stats ORDER BY step") == [
        (1, None),
        (2, "step_unfinished"),
        (3, None),
    ]
    ((hints,),) = found.rows("SELECT partly_hints FROM coverage")
    assert hints == ["ingest again when step 2 of rank 1 is whole"]


@pytest.mark.parametrize(("spec", "rank", "op", "most"), LOST_LINES)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_lost_line_unpairs_its_own_calls_only(
    figures: dict[Hashable, Figures], spec: Spec, rank: int, op: str, most: int, batch: int
) -> None:
    files = traces(spec)
    gone = lost_line(spec, rank, op, batch)
    kept = {
        r: [
            number
            for number, (step, line) in enumerate(numbered_steps(lines), start=1)
            if not (step == 2 and line.startswith(gone))
        ]
        for r, lines in enumerate(files[name] for name in sorted(files, key=_rank))
    }
    calls = figures[gone, spec].rows(
        "SELECT list((rank, line, coalesce(sub_seq, 0))) FROM collective_calls"
        " WHERE matched AND group_size > 1 GROUP BY call"
    )
    truth = {call for call in true_calls(spec) if len(call) > 1}
    matched = {
        frozenset((r, kept[r][line - 1], sub) for r, line, sub in members) for (members,) in calls
    }
    assert matched <= truth
    assert len(truth - matched) <= most


def _rank(name: str) -> int:
    return int(name.split("_rank")[1].split("_", maxsplit=1)[0])
