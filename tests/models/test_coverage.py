"""Every reason has a remedy, or is known to have none."""

from __future__ import annotations

import pytest

from tests.model_cases import PipeTable, insert
from tracelake.models.base import create_empty_tables
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect
from tracelake.schema.tables import reasons

# Reasons that nothing in a run's input changes: the figure would mean nothing, the clocks do not
# tell it, the tracer prints no more, or the model is one of several runs.
WITHOUT_REMEDY = {
    "group_of_one",
    "declared_size",
    "overlaps_compute",
    "forward_modules_only",
    "interleaved_schedule",
    "fewer_layers_than_stages",
    "below_clock_resolution",
    "below_clock_uncertainty",
    "phases_not_named",
    "not_timed",
    "size_unknown",
    "replay_error",
    "delays",
    "no_slowdown",
    "stages_differ",
    "unknown_operation",
    "out_of_range",
    "not_in_plan",
    "not_measured",
    "few_runs",
    "figure_missing",
    "run_undated",
    "config_unknown",
    "run_incomplete",
    "no_pipeline",
    "coarse_calls",
    "duplicate",
    "hosts_unknown",
    "not_tested",
    "size_not_tested",
}
# A trace of two ranks that says no sizes, one of rank 1 of four, a log of stages 0 and 2 of three.
RUNS = """
run_id | world_size | pp
trace  | NULL       | NULL
known  | 4          | 2
log    | 6          | 3
"""
OPS = """
run_id | rank | stage | step | seq | op           | category | start_ns | end_ns | duration_ns
trace  | 1    | NULL  | 1    | 1   | forward_step | compute  | 0        | 10     | 10
trace  | 2    | NULL  | 1    | 1   | forward_step | compute  | 0        | 10     | 10
known  | 1    | 0     | 1    | 1   | forward_step | compute  | 0        | 10     | 10
"""
LAYER_TIMES = """
run_id | rank | stage | step | layer | total_ns
log    | 0    | 0     | 2    | a     | 1000
log    | 4    | 2     | 2    | b     | 1000
"""


@pytest.fixture(scope="module")
def remedies() -> dict[tuple[str, str], str | None]:
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        for table, text in (("runs", RUNS), ("ops", OPS), ("layer_times", LAYER_TIMES)):
            insert(con, table, PipeTable.parse(text))
        for model in catalog().upstream(["_remedies"]):
            compute(con, model)
        rows = con.execute("SELECT run_id, reason, remedy FROM _remedies").fetchall()
    return {(run_id, reason): remedy for run_id, reason, remedy in rows}


def test_every_reason_is_judged_for_every_run(
    remedies: dict[tuple[str, str], str | None],
) -> None:
    assert remedies.keys() == {(run, r) for run in ("trace", "known", "log") for r in reasons()}


def test_every_other_reason_has_a_remedy_in_some_run(
    remedies: dict[tuple[str, str], str | None],
) -> None:
    assert {r for (_, r), remedy in remedies.items() if remedy} == reasons().keys() - WITHOUT_REMEDY


@pytest.mark.parametrize(
    ("run_id", "reason", "remedy"),
    [
        ("known", "stages_missing", "add the files of stage 1 (ranks 2-3)"),
        ("log", "stages_missing", "print the layer times of stage 1"),
        ("trace", "stages_missing", "trace all stages over the same steps"),
        ("known", "peer_not_seen", "add the files of ranks 0, 2-3"),
        ("trace", "peer_not_seen", "give --set tp=N,pp=N,world_size=N"),
        ("known", "no_peer", "add the files of rank 0"),
        ("trace", "no_peer", "add the files of the other ranks of the stage"),
        ("known", "topology_unknown", "give --set pp=N,world_size=N"),
        ("known", "group_size_unknown", "give --set tp=N"),
        ("known", "world_size_unknown", None),
    ],
)
def test_a_remedy_speaks_of_the_run(
    remedies: dict[tuple[str, str], str | None], run_id: str, reason: str, remedy: str | None
) -> None:
    assert remedies[run_id, reason] == remedy
