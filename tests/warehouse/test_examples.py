"""Saved questions: each answers on every lake, and answers what is known to be so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests import questions
from tests.conftest import ROOT
from tests.lakes import run_ingest
from tracelake.base.errors import ContractError, UsageError
from tracelake.formats.ledger import Severity
from tracelake.lake.store import Lake
from tracelake.models.base import ddl, quoted
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.models.describe import relation_columns
from tracelake.schema.tables import tables
from tracelake.warehouse.examples import TOPICS, example, examples, examples_table, read_example
from tracelake.warehouse.headline import WINDOW_PARTS
from tracelake.warehouse.running import run_query
from tracelake.warehouse.warehouse import open_warehouse

NAMES = tuple(examples())
Row = dict[str, Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return questions.sample_lake(tmp_path_factory.mktemp("examples") / "lake")


@pytest.fixture(scope="module")
def con(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_warehouse(lake) as opened:
        yield opened


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake.create(tmp_path_factory.mktemp("empty") / "lake")
    build(made)
    return made


@pytest.fixture(scope="module")
def real(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("real") / "lake"
    run_ingest(corpus, folder)
    made = Lake.open(folder)
    build(made)
    with open_warehouse(made) as opened:
        yield opened


@pytest.fixture(scope="module")
def answers(sample: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((sample / "answers.json").read_text())
    return truth


def ask(con: duckdb.DuckDBPyConnection, name: str, **given: str) -> list[Row]:
    asked = example(name)
    rows: list[Row] = con.sql(asked.sql, params=asked.bind(given)).to_arrow_table().to_pylist()
    return rows


def ask_all(con: duckdb.DuckDBPyConnection, name: str, **given: str) -> list[Row]:
    top = {"top": "1000"} if "top" in example(name).bind({}) else {}
    return ask(con, name, **top, **given)


def rounded(rows: list[Row]) -> list[Row]:
    """Sums of fractions end in other digits where other rows were beside them."""
    return [
        {name: float(f"{v:.9g}") if isinstance(v, float) else v for name, v in row.items()}
        for row in rows
    ]


def job(answers: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (run for run in answers["runs"] if run["name"] == name)
    return dict(found)


JOB000 = "8c53c861"
JOB001 = "173a3a41"
LOG001 = "b707a239"


# --- every one of them -------------------------------------------------------------------------


def test_questions_cover_every_topic() -> None:
    listed = examples_table().to_pylist()
    assert [row["name"] for row in listed] == list(NAMES)
    assert list(dict.fromkeys(row["topic"] for row in listed)) == list(TOPICS)
    assert {"name": "passed_over", "topic": "input", "parameters": "top"}.items() <= next(
        row for row in listed if row["name"] == "passed_over"
    ).items()


def test_the_page_is_generated(lake: Lake) -> None:
    shown = (ROOT / questions.PAGE).read_text(encoding="utf-8")
    assert shown == questions.page(lake), "run: make docs"


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_lake_has_the_same_columns_and_no_rows(name: str, lake: Lake, empty: Lake) -> None:
    asked = example(name)
    (full,) = run_query(lake, asked.sql, asked.bind({}))
    (nothing,) = run_query(empty, asked.sql, asked.bind({}))
    assert nothing.schema == full.schema
    assert nothing.read_all().num_rows == 0


@pytest.mark.parametrize("name", NAMES)
def test_real_traces_are_answered(name: str, real: duckdb.DuckDBPyConnection) -> None:
    asked = example(name)
    # Nothing of theirs is in the traces.
    with_rows = {"plan_gaps", "bad_lines", "what_changed", "slow_timers"}
    assert bool(ask(real, name)) == (name not in with_rows), asked.question


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_query(name: str, con: duckdb.DuckDBPyConnection) -> None:
    asked = example(name)
    (statement,) = con.extract_statements(asked.sql)
    assert statement.named_parameters == {p.name for p in asked.parameters}
    for parameter, value in {"run": "no such run", "config": "none", "since": "2999-01-01"}.items():
        if parameter in statement.named_parameters:
            assert ask(con, name, **{parameter: value}) == []
    if "top" in statement.named_parameters:
        assert len(ask(con, name, top="1")) <= 1
    if "run" in statement.named_parameters:
        assert {row["run_id"][-8:] for row in ask(con, name, run=JOB001)} <= {JOB001}


@pytest.mark.parametrize("name", [n for n in NAMES if "run" in example(n).bind({})])
def test_a_run_is_chosen_by_its_id(name: str, con: duckdb.DuckDBPyConnection) -> None:
    every = ask_all(con, name)
    for run in {row["run_id"] for row in every}:
        chosen = [row for row in every if row["run_id"] == run]
        assert rounded(ask_all(con, name, run=run)) == rounded(chosen)


OVER_RUNS = ("config_change", "gpu_hours")


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in NAMES
        if "since" in example(n).bind({}) and n not in {*OVER_RUNS, "incidents", "trend"}
    ],
)
def test_runs_are_chosen_by_date(name: str, con: duckdb.DuckDBPyConnection) -> None:
    found = con.sql("SELECT run_id FROM runs WHERE run_date >= '2024-01-09'").fetchall()
    late = {run_id for (run_id,) in found}
    assert late
    kept = [row for row in ask_all(con, name) if row["run_id"] in late]
    assert rounded(ask_all(con, name, since="2024-01-09")) == rounded(kept)


@pytest.mark.parametrize("name", OVER_RUNS)
def test_figures_over_runs_are_of_those_since_a_date(
    name: str, con: duckdb.DuckDBPyConnection
) -> None:
    assert {row["runs"] for row in ask(con, name)} == {2}
    assert {row["runs"] for row in ask(con, name, since="2024-01-09")} == {1}


def test_a_trend_needs_two_runs_since_a_date(con: duckdb.DuckDBPyConnection) -> None:
    assert {row["runs"] for row in ask(con, "trend")} == {2}
    assert ask(con, "trend", since="2024-01-09") == []


def test_a_trend_over_two_runs_is_their_difference(con: duckdb.DuckDBPyConnection) -> None:
    (slower,) = (row for row in ask(con, "trend") if row["config"].startswith("format=rank_trace"))
    assert [slower["first_ms"], slower["last_ms"]] == pytest.approx([187.58, 201.855])
    assert slower["change_ratio"] == pytest.approx(201.855 / 187.58 - 1)


# --- what is known of data/sample ---------------------------------------------------------------


def test_the_slow_rank_is_found(con: duckdb.DuckDBPyConnection, answers: dict[str, Any]) -> None:
    truth = job(answers, "job001")
    rank = truth["slow_rank"]
    known = truth["ranks"][rank]
    (row,) = ask(con, "slow_ranks")
    assert (row["run_id"][-8:], row["rank"], row["verdict"]) == (JOB001, rank, "straggler")
    assert row["slowdown"] == pytest.approx(known["slowdown"])
    assert row["time_lost_ms"] == pytest.approx(known["lost_ns"] / 1e6)

    (finding,) = ask(con, "attention")
    assert (finding["kind"], finding["severity"]) == ("straggler", "critical")
    assert finding["evidence"] == row["evidence"]
    (incident,) = ask(con, "incidents")
    assert (incident["subject"], incident["open"]) == (f"rank {rank}", True)

    (place,) = ask(con, "slow_places")
    assert (place["subject"], place["slow_runs"], place["runs"]) == (f"rank {rank}", 1, 2)
    assert place["slow_since"] == place["slow_until"] == datetime(2024, 1, 9, 6, 0, 7)

    ops = ask(con, "slow_ops")
    assert {(op["rank"], op["op"]) for op in ops} == {
        (rank, "forward_step"),
        (rank, "backward_step"),
    }
    assert sum(op["excess_ms"] for op in ops) == pytest.approx(row["time_lost_ms"], rel=0.01)


def test_what_it_cost_is_of_all_ranks_and_both_runs(
    con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    truth = job(answers, "job001")
    steps_ns = sum(
        step["step_ns"]
        for name in ("job000", "job001")
        for step in job(answers, name)["step_times"]
    )
    lost_ns = truth["ranks"][truth["slow_rank"]]["lost_ns"]
    (row,) = ask(con, "gpu_hours")
    assert (row["runs"], row["compared"], row["runs_with_slow_ranks"]) == (2, 2, 1)
    assert row["gpu_hours_lost"] == pytest.approx(8 * lost_ns / 3.6e12)
    assert row["lost_ratio"] == pytest.approx(lost_ns / steps_ns)


MEASURED = (
    "bubble_causes",
    "collective_time",
    "hidden_communication",
    "idle_phases",
    "time_shares",
)


@pytest.mark.parametrize("name", MEASURED)
def test_only_ranks_that_ran_together_are_measured(
    name: str, con: duckdb.DuckDBPyConnection
) -> None:
    assert {row["run_id"][-8:] for row in ask(con, name)} == {JOB000, JOB001}


def test_stages_of_logs_are_compared_by_what_their_layers_print(
    con: duckdb.DuckDBPyConnection,
) -> None:
    rows = ask(con, "slowest_stage")
    reasons = {row["run_id"][-8:]: row["reason"] for row in rows}
    assert (reasons.pop(JOB000), reasons.pop(JOB001)) == (None, None)
    assert {*reasons.values()} == {"forward_modules_only"}


def test_who_waits_waits_for_the_slow_rank(
    con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    first = ask(con, "last_to_arrive")[0]
    twin = [s for s in job(answers, "job001")["rank_steps"] if s["rank"] == 3]
    assert (first["run_id"][-8:], first["rank"], first["group_kind"]) == (JOB001, 2, "tp")
    assert first["last_ratio"] == 1
    waited = sum(s["in_op_wait_ns"] for s in twin) / 1e6
    assert first["waited_ms"] == pytest.approx(waited, rel=0.01)


@pytest.mark.parametrize(("name", "run"), [("job000", JOB000), ("job001", JOB001)])
def test_the_parts_of_a_stage_are_those_of_its_ranks(
    name: str, run: str, con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    parts = {
        "compute": "compute_ns",
        "data": "data_ns",
        "comm": "in_op_comm_ns",
        "recv": "p2p_recv_ns",
        "send": "p2p_send_ns",
        "finalize": "finalize_ns",
        "other_step": "other_step_ns",
        "gap": "gap_ns",
    }
    rows = ask(con, "time_shares", run=run)
    assert len(rows) == 2
    for row in rows:
        steps = [s for s in job(answers, name)["rank_steps"] if s["stage"] == row["stage"]]
        window = sum(s["window_ns"] for s in steps)
        for part, column in {**parts, "wait": "in_op_wait_ns"}.items():
            assert row[part] == pytest.approx(sum(s[column] for s in steps) / window), part
        assert sum(row[part] for part in parts) == pytest.approx(1)


@pytest.mark.parametrize(("name", "run"), [("job000", JOB000), ("job001", JOB001)])
def test_the_bubble_is_theory_and_what_else(
    name: str, run: str, con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    truth = job(answers, name)
    (row,) = ask(con, "bubble_causes", run=run)
    stages = [s["bubble_ratio"] for s in truth["stage_bubbles"]]
    assert row["measured"] == pytest.approx(sum(stages) / len(stages))
    assert row["theory"] == pytest.approx(truth["theory"]["bubble_ratio"])
    total = row["theory"] + float(row["uneven"]) + float(row["rest"])
    assert total == pytest.approx(row["measured"], abs=2e-6)
    waits = [s["bubble_with_wait_ratio"] - s["bubble_ratio"] for s in truth["rank_steps"]]
    assert row["twin_wait"] == pytest.approx(sum(waits) / len(waits))

    phases = ask(con, "idle_phases", run=run)
    for stage in (0, 1):
        of_ranks = [s["bubble_ratio"] for s in truth["rank_steps"] if s["stage"] == stage]
        of_phases = [p["bubble_ratio"] for p in phases if p["stage"] == stage]
        assert len(of_phases) == 3
        assert sum(of_phases) == pytest.approx(sum(of_ranks) / len(of_ranks))


def test_uneven_stages_come_from_the_slow_rank(con: duckdb.DuckDBPyConnection) -> None:
    clean, slow = (ask(con, "bubble_causes", run=run)[0] for run in (JOB000, JOB001))
    assert clean["uneven"] < 0.001
    assert slow["uneven"] > 0.02
    slowest = ask(con, "slowest_stage", run=JOB001)[0]
    assert (slowest["stage"], slowest["busiest_steps"]) == (0, 4)


@pytest.mark.parametrize(("name", "run"), [("job000", JOB000), ("job001", JOB001)])
def test_hidden_communication_is_that_of_asynchronous_calls(
    name: str, run: str, con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    steps = job(answers, name)["rank_steps"]
    comm, hidden, window = (
        sum(s[column] for s in steps)
        for column in ("in_op_comm_ns", "in_op_overlap_ns", "window_ns")
    )
    (row,) = ask(con, "hidden_communication", run=run)
    assert row["comm_ms"] == pytest.approx(comm / len(steps) / 1e6)
    assert row["overlapped_ratio"] == pytest.approx(hidden / comm)
    assert row["exposed_ratio"] == pytest.approx((comm - hidden) / window)


def test_time_of_communication_adds_up(
    con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    rows = ask(con, "collective_time", run=JOB001)
    assert sum(row["share_ratio"] for row in rows) == pytest.approx(1)
    receives = next(row for row in rows if row["collective"] == "recv")
    steps = job(answers, "job001")["rank_steps"]
    assert receives["calls_per_step"] == 2
    assert receives["ms_per_step"] == pytest.approx(
        sum(s["p2p_recv_ns"] for s in steps) / len(steps) / 1e6, rel=0.05
    )


def test_the_slow_layer_makes_the_worst_step(
    con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    truth = job(answers, "20240109_060007_TP2_DP1_PP2_MBS1_GBS2_log")
    layer, step = str(truth["slow_layer"]), truth["slow_layer_step"]
    (odd,) = ask(con, "odd_layers")
    assert (odd["run_id"][-8:], odd["layer"], odd["step"]) == (LOG001, layer, step)
    worst = ask(con, "worst_steps")[0]
    assert (worst["run_id"][-8:], worst["step"], worst["outlier"]) == (LOG001, step, True)
    assert (worst["odd_layer"], worst["slow_rank"]) == (layer, None)
    (spike,) = ask(con, "loss_spikes")
    assert (spike["step"], spike["slow_step"], spike["loss_jump"]) == (step, True, False)
    spread = ask(con, "step_spread")[0]
    assert (spread["run_id"][-8:], spread["steps"], spread["outliers"]) == (LOG001, 7, 1)


def test_needed_bandwidth_is_the_plans_bytes_over_its_compute(
    con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    truth = job(answers, "gpt_megatron_tp2_pp2_mbs1_8gpus")
    compute = {p["pass"]: p["compute_ns"] for p in truth["passes"]}
    rows = ask(con, "plan_bandwidth", run="gpt_megatron")
    found = {(r["pass"], r["collective"], r["group_kind"]): r["needed_gbps"] for r in rows}
    for traffic in truth["traffic"]:
        if traffic["bytes"]:
            key = (traffic["pass"], traffic["collective"], traffic["group_kind"])
            assert found[key] in (None, pytest.approx(traffic["bytes"] / compute[key[0]]))
    assert any(found.values())


def test_everything_that_was_read_is_counted(
    con: duckdb.DuckDBPyConnection, answers: dict[str, Any]
) -> None:
    rows = {row["run_id"][-8:]: row for row in ask(con, "volumes")}
    for name, run in (("job000", JOB000), ("job001", JOB001)):
        truth = job(answers, name)
        row = rows[run]
        assert row["files"] == len(truth["files"])
        assert row["megabytes"] == pytest.approx(sum(f["bytes"] for f in truth["files"]) / 1e6)
        assert row["lines"] == sum(f["lines"] for f in truth["files"])
        assert row["rows"] == sum(truth["rows"].values())
    for row in rows.values():
        parts = ("row_lines", "context_lines", "irrelevant", "rejected")
        assert row["lines"] == sum(row[part] for part in parts)
    assert ask(con, "passed_over") == [
        {"reason": "no_format", "path": "answers.json", "member": None}
    ]


# --- what a few rows say -------------------------------------------------------------------------

Given = Mapping[str, list[Row]]


@pytest.fixture(scope="module")
def relations() -> Iterator[duckdb.DuckDBPyConnection]:
    """Every table and model, empty."""
    with duckdb.connect() as con:
        for name in (*tables(), *catalog().public):
            con.execute(f"CREATE TABLE {quoted(name)} ({ddl(relation_columns(name))})")
        yield con


def answer(
    con: duckdb.DuckDBPyConnection, name: str, given: Given, **values: str
) -> list[tuple[Any, ...]]:
    """Rows of the answer where tables and models have these rows; what is not named is NULL."""
    asked = example(name)
    con.execute("BEGIN")
    for relation, rows in given.items():
        for row in rows:
            shown, marks = ", ".join(map(quoted, row)), ", ".join("?" * len(row))
            con.execute(
                f"INSERT INTO {quoted(relation)} ({shown}) VALUES ({marks})", list(row.values())
            )
    found = con.sql(asked.sql, params=asked.bind(values)).fetchall()
    con.execute("ROLLBACK")
    return found


def test_attention_lists_the_most_severe_first(relations: duckdb.DuckDBPyConnection) -> None:
    given: Given = {
        "runs": [{"run_id": "a", "run_date": "2025-01-01"}, {"run_id": "b"}],
        "findings": [
            {"run_id": "a", "kind": "suspect", "severity": "warning", "level": 2, "evidence": "s"},
            {"run_id": "a", "kind": "regressed", "severity": "notice", "level": 3, "evidence": "n"},
            {
                "run_id": "b",
                "kind": "straggler",
                "severity": "critical",
                "level": 1,
                "evidence": "t",
            },
            {
                "run_id": "a",
                "kind": "recurring",
                "severity": "critical",
                "level": 1,
                "evidence": "r",
                "cost_gpu_hours": 2.0,
            },
            {"kind": "unreadable", "severity": "critical", "level": 1, "evidence": "u"},
        ],
    }
    found = [(row[1], row[2], row[5]) for row in answer(relations, "attention", given)]
    assert found == [
        ("recurring", "a", "r"),
        ("straggler", "b", "t"),
        ("unreadable", None, "u"),
        ("suspect", "a", "s"),
        ("regressed", "a", "n"),
    ]
    later = answer(relations, "attention", given, since="2025-01-02")
    assert [row[1] for row in later] == ["unreadable"]


def test_a_file_that_cannot_be_read_is_listed_once_with_its_own_next_step(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    other = [{"path": f"a{n:02}.pt", "reason": "no_format"} for n in range(30)]
    given: Given = {
        "skipped": [
            *other,
            {"path": ".x", "reason": "hidden"},
            {"path": "b.zst", "reason": "unreadable"},
            {"path": "z.log", "reason": "nested_archive"},
            {"path": "c.log", "reason": "empty"},
        ],
        "findings": [
            {"kind": "rejects", "subject": "lines", "run_id": "r", "level": 2, "advice": "Read."},
            {"kind": "data_lost", "subject": "d.gz", "run_id": "r", "level": 1, "advice": "See."},
            {"kind": "unreadable", "subject": "b.zst", "level": 1, "advice": "Copy it."},
        ],
    }
    found = answer(relations, "unreadable", given)
    assert [(row[0], row[3]) for row in found[:6]] == [
        ("d.gz", "See."),
        ("b.zst", "Copy it."),
        ("c.log", "Wait until it is written, or copy it again."),
        ("z.log", "Extract it."),
        (".x", "Rename it without the dot, if it is a log."),
        ("a00.pt", "If it is a log, see tracelake formats."),
    ]
    assert len(found) == 20


def test_a_change_of_configuration_is_compared_with_the_one_before(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    sizes = {"dp": 1, "micro_batch_size": 2, "world_size": 8}
    old = {"format": "f", "config": "f tp=1 dp=8", "micro_batches": 4, **sizes}
    new = {"format": "f", "config": "f tp=2 dp=8", "micro_batches": 8, **sizes}
    given: Given = {
        "runs": [
            {"run_id": "a", "run_date": "2025-01-01", **old},
            {"run_id": "b", "run_date": "2025-01-02", **old},
            {"run_id": "c", "run_date": "2025-01-03", **new},
            {"run_id": "copy", "run_date": "2025-01-03", **new},
            {"run_id": "undated", **new},
            {"run_id": "unknown", "run_date": "2025-01-03", **new},
            {
                "run_id": "other",
                "run_date": "2025-01-03",
                **new,
                "world_size": 16,
                "config": "f dp=16",
            },
        ],
        "run_summary": [
            {"run_id": run, "step_p50_ms": ms}
            for run, ms in (("a", 10), ("b", 30), ("c", 50), ("copy", 9), ("undated", 9))
        ]
        + [{"run_id": "other", "step_p50_ms": 5}, {"run_id": "unknown", "step_p50_ms": 5}],
        "run_history": [
            {"run_id": "a", "config": old["config"]},
            {"run_id": "b", "config": old["config"]},
            {"run_id": "c", "config": new["config"]},
            {"run_id": "undated", "config": new["config"]},
            {"run_id": "other", "config": "f dp=16"},
            {"run_id": "unknown", "run_date": "2025-01-03"},
            {"run_id": "copy", "config": new["config"], "reason": "duplicate"},
        ],
    }
    day = datetime(2025, 1, 1), datetime(2025, 1, 3)
    samples = (1000 * 8 / 10 + 1000 * 8 / 30) / 2
    assert answer(relations, "config_change", given) == [
        ("f", None, 8, day[0], 2, 20.0, None, pytest.approx(samples), None),
        ("f", None, 8, day[1], 1, 50.0, 1.5, pytest.approx(320), ["tp=2"]),
        ("f", None, 16, day[1], 1, 5.0, None, pytest.approx(3200), None),
    ]


def test_two_jobs_side_by_side_are_no_change_of_configuration(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    nights = {"a": (1, 2, 6), "a tried": (3, 4), "b": (1, 2, 3, 4, 5, 6)}
    ids = {f"{config} {day}": (config, day) for config, days in nights.items() for day in days}
    given: Given = {
        "runs": [
            {"run_id": run, "format": "f", "config": config, "run_date": f"2025-01-0{day}"}
            for run, (config, day) in ids.items()
        ],
        "run_summary": [
            {"run_id": run, "step_p50_ms": 5 if config == "b" else 10 * len(config)}
            for run, (config, _) in ids.items()
        ],
        "run_history": [{"run_id": run, "config": config} for run, (config, _) in ids.items()],
    }
    found = answer(relations, "config_change", given)
    assert [(row[5], row[6], row[8]) for row in found] == [
        (10.0, None, None),
        (5.0, None, None),
        (70.0, 6.0, ["tried"]),
    ]


def test_regressions_come_first_and_plans_not_at_all(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    given: Given = {
        "run_history": [
            {"run_id": "a", "verdict": "ok", "run_date": "2025-01-03"},
            {"run_id": "b", "verdict": "regressed", "run_date": "2025-01-01"},
            {"run_id": "c", "verdict": "not_comparable", "reason": "run_undated"},
            {"run_id": "plan", "verdict": "not_comparable", "reason": "figure_missing"},
        ]
    }
    assert [row[0] for row in answer(relations, "regressions", given)] == ["b", "a", "c"]


def test_the_one_that_is_slow_most_often_comes_first(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    given: Given = {
        "straggler_history": [
            {
                "subject": "host h",
                "config": "x tp=2",
                "verdict": "recurring",
                "slow_runs": 2,
                "runs": 3,
                "slow_run_ids": ["c", "a"],
                "since": "2025-01-01",
            },
            {"subject": "rank 1", "slow_runs": 1, "runs": 1, "slow_run_ids": ["undated"]},
            {"subject": "rank 2", "slow_runs": 0, "runs": 3, "slow_run_ids": []},
        ],
        "runs": [
            {"run_id": "a", "run_date": "2025-01-01"},
            {"run_id": "c", "run_date": "2025-01-03"},
            {"run_id": "undated"},
        ],
    }
    rows = answer(relations, "slow_places", given)
    assert [row[0] for row in rows] == ["host h", "rank 1"]
    assert rows[0][4:6] == (datetime(2025, 1, 1), datetime(2025, 1, 3))
    assert rows[1][4:6] == (None, None)
    assert [row[0] for row in answer(relations, "slow_places", given, config="tp=2")] == ["host h"]


def call(number: int, ranks: list[int], **facts: Any) -> list[Row]:
    shared = {"run_id": "r", "call": str(number), "step": 1, "matched": True, **facts}
    return [{**shared, "rank": rank} for rank in ranks]


def test_a_slow_group_stands_out_among_its_like(relations: duckdb.DuckDBPyConnection) -> None:
    kind = {"collective": "all_reduce", "group_kind": "tp", "size_bytes": 8, "time_ms": 1.0}
    calls = [
        *call(1, [0, 1], busbw_gbps=8.0, **kind),
        *call(2, [2, 3], busbw_gbps=8.0, **kind),
        *call(3, [4, 5], busbw_gbps=2.0, **kind),
        *call(4, [4, 5], busbw_gbps=1.0, **{**kind, "time_ms": 0.05}),  # too short for the clock
        *call(5, [4, 5], **kind),  # no bandwidth
        *call(6, [0], busbw_gbps=1.0, **{**kind, "matched": False}),
        *call(7, [6, 7], busbw_gbps=1.0, **{**kind, "size_bytes": 16}),  # nothing to compare with
    ]
    rows = answer(relations, "slow_groups", {"collective_calls": calls})
    assert [(row[4], row[5], row[7]) for row in rows] == [
        ([4, 5], 1, 0.25),
        ([0, 1], 1, 1.0),
        ([2, 3], 1, 1.0),
        ([6, 7], 1, 1.0),
    ]


def message(number: int, sender: int, receiver: int, gbps: float | None) -> list[Row]:
    shared = {"size_bytes": 8, "algbw_gbps": gbps}
    return [
        *call(number, [sender], collective="send", **shared),
        *call(number, [receiver], collective="recv", **shared),
    ]


def test_a_slow_link_is_a_sender_and_a_receiver(relations: duckdb.DuckDBPyConnection) -> None:
    calls = [
        *message(1, 0, 1, 8.0),
        *message(2, 1, 0, 2.0),
        *message(3, 1, 0, 4.0),
        *message(4, 1, 0, None),
        *message(5, 2, 3, 8.0),
    ]
    given: Given = {
        "collective_calls": calls,
        "sources": [{"run_id": "r", "rank": 1, "host": "n1"}],
    }
    assert answer(relations, "slow_links", given) == [
        ("r", 1, "n1", 0, None, 8, 2, 3.0, 0.375),
        ("r", 0, None, 1, "n1", 8, 1, 8.0, 1.0),
        ("r", 2, None, 3, None, 8, 1, 8.0, 1.0),
    ]


def test_the_schedule_is_nobodys_lateness(relations: duckdb.DuckDBPyConnection) -> None:
    late = {"collective": "all_reduce", "group_size": 2, "skew_ms": 5.0, "last_rank": 1}
    calls = [
        {**row, "wait_ms": 5.0 * (row["rank"] == 0), "stage": 0}
        for number in (1, 2)
        for row in call(number, [0, 1], group_kind="tp", **late)
    ] + [
        {**row, "wait_ms": 5.0, "stage": row["rank"]}
        for row in call(3, [0, 1], group_kind="embedding", **late)
    ]
    warm = [{**row, "step": 2, "call": f"w{row['call']}"} for row in calls]
    given: Given = {
        "collective_calls": calls + warm,
        "step_stats": [
            {"run_id": "r", "step": 1, "warmup": False},
            {"run_id": "r", "step": 2, "warmup": True},
        ],
    }
    assert answer(relations, "last_to_arrive", given) == [("r", "tp", 1, 2, 2, 1.0, 0, 10.0, 5.0)]


@pytest.mark.parametrize(("received_ms", "own"), [(0, 5.0), (5, 0.0), (3, 2.0)])
def test_lateness_is_own_as_far_as_the_rank_worked_longer(
    relations: duckdb.DuckDBPyConnection, received_ms: int, own: float
) -> None:
    ms = 1_000_000
    late = {"collective": "all_reduce", "group_size": 2, "skew_ms": 5.0, "last_rank": 1}
    calls = [
        {**row, "wait_ms": 5.0 * (row["rank"] == 0), "stage": 0, "seq": 2}
        for row in call(1, [0, 1], group_kind="tp", **late)
    ]
    place = {"run_id": "r", "step": 1}
    comms = [
        {**place, "rank": rank, "seq": 2, "start_ns": start * ms, "end_ns": 20 * ms}
        for rank, start in ((0, 10), (1, 15))
    ]
    comms.append({**place, "rank": 1, "seq": 1, "start_ns": 0, "end_ns": received_ms * ms})
    given: Given = {
        "collective_calls": calls,
        "comms": comms,
        "ops": [{**place, "rank": rank, "seq": 1, "start_ns": 0} for rank in (0, 1)],
        "step_stats": [{**place, "warmup": False}],
    }
    (row,) = answer(relations, "last_to_arrive", given)
    assert (row[2], row[6], row[7]) == (1, pytest.approx(own), 5.0)


def test_idling_before_a_step_is_own_lateness(relations: duckdb.DuckDBPyConnection) -> None:
    """The first kernel of the late rank begins late: nothing of its step comes before the call."""
    ms, late = 1_000_000, {"collective": "all_reduce", "group_size": 2, "last_rank": 1}
    calls = [
        {**row, "step": 2, "wait_ms": 5.0 * (row["rank"] == 0), "stage": 0, "seq": 2}
        for row in call(1, [0, 1], group_kind="tp", skew_ms=5.0, **late)
    ]
    place = {"run_id": "r", "step": 2}
    works = [(rank, 1, -10, 0) for rank in (0, 1)] + [(0, 2, 0, 20), (1, 2, 5, 20)]
    given: Given = {
        "collective_calls": calls,
        "comms": [
            {**place, "rank": rank, "seq": 2, "start_ns": start * ms, "end_ns": 20 * ms}
            for rank, start in ((0, 10), (1, 15))
        ],
        "ops": [
            {"run_id": "r", "step": step, "rank": rank, "start_ns": at * ms, "end_ns": end * ms}
            for rank, step, at, end in works
        ],
        "step_stats": [{**place, "warmup": False}],
    }
    (row,) = answer(relations, "last_to_arrive", given)
    assert (row[2], row[6], row[7]) == (1, pytest.approx(5.0), 5.0)


def test_hidden_communication_of_kernels_is_that_of_the_device(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    of_device = {"run_id": "r", "rank": 0, "window_ms": 20.0}
    given: Given = {
        "device_steps": [
            {**of_device, "step": 1, "comm_ms": 18.0, "exposed_comm_ms": 18.0},
            {**of_device, "step": 2, "comm_ms": 8.0, "exposed_comm_ms": 6.0},
            {**of_device, "step": 3, "comm_ms": 8.0, "exposed_comm_ms": 2.0},
        ],
        "step_stats": [{"run_id": "r", "step": step, "warmup": step == 1} for step in (1, 2, 3)],
    }
    (row,) = answer(relations, "hidden_communication", given)
    assert row == ("r", 8.0, 0.5, 0.2, None, None)


def test_clocks_are_trusted_as_far_as_skews_exceed_them(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    given: Given = {
        "clock_offsets": [
            {"run_id": "r", "rank": 0, "clock": "a", "uncertainty_ms": 0.0, "drift_ppm": 0.0},
            {"run_id": "r", "rank": 1, "clock": "b", "uncertainty_ms": 0.4, "drift_ppm": -3.0},
            {"run_id": "r", "rank": 2, "clock": "c", "reason": "clocks_not_aligned"},
            {"run_id": "s", "rank": 0, "clock": "rank 0", "reason": "simulated"},
        ],
        "collective_calls": [
            *call(1, [0, 1], skew_ms=2.0),
            *call(2, [0, 1], skew_reason="below_clock_uncertainty"),
            *call(3, [0, 1], overlapped=True),
        ],
    }
    assert answer(relations, "clock_trust", given) == [
        ("r", 3, 3, 0.4, 3.0, 2.0, 0.5, ["clocks_not_aligned"])
    ]


def test_a_share_with_an_unseen_peer_is_null(relations: duckdb.DuckDBPyConnection) -> None:
    parts = dict.fromkeys(WINDOW_PARTS, 1.0)
    of_stage = {"run_id": "r", "stage": 0, "window_ms": 8.0, **parts}
    of_rank = {**of_stage, "in_op_overlap_ms": 0.5}
    given: Given = {
        "stage_summary": [
            {**of_stage, "window_reason": "peer_not_seen"},
            {"run_id": "s", "stage": 0, "window_reason": "simulated"},
        ],
        "rank_summary": [
            {**of_rank, "rank": 0, "in_op_wait_ms": 0.2},
            {**of_rank, "rank": 1, "p2p_recv_transfer_ms": 0.5},
            {"run_id": "s", "rank": 0, "stage": 0, "reason": "simulated"},
        ],
    }
    (shares,) = answer(relations, "time_shares", given)
    assert shares[2:] == (*[pytest.approx(1 / 8)] * 8, None)
    ((_, comm, overlapped, exposed, wait, messages),) = answer(
        relations, "hidden_communication", given
    )
    assert (comm, overlapped, exposed) == (1.0, 0.5, pytest.approx(0.5 / 8))
    assert (wait, messages) == (None, None)


def test_what_slow_ranks_cost_is_over_the_runs_that_were_compared(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    lost = {"time_lost_ms": 3.6e6, "gpu_hours_lost": 8.0, "stragglers": 1}
    given: Given = {
        "runs": [{"run_id": run, "config": "c", "world_size": 8} for run in ("a", "b", "copy")]
        + [{"run_id": "log", "config": "l"}, {"run_id": "size", "config": "c"}],
        "run_summary": [
            {"run_id": "a", **lost},
            {"run_id": "b"},
            {"run_id": "copy", **lost},
            {"run_id": "log"},
            {"run_id": "size", **lost, "gpu_hours_lost": None},
        ],
        "run_history": [
            {"run_id": run, "reason": "duplicate" if run == "copy" else None}
            for run in ("a", "b", "copy", "log", "size")
        ],
        "step_stats": [
            {"run_id": run, "step": step, "step_ms": 7.2e6, "warmup": step == 1}
            for run in ("a", "b", "copy", "log", "size")
            for step in (1, 2)
        ],
    }
    assert answer(relations, "gpu_hours", given) == [("c", 3, 2, 2, 8.0, 0.5)]


def test_warm_up_is_no_spread(relations: duckdb.DuckDBPyConnection) -> None:
    steps = [(1, 90.0, True), (2, 10.0, False), (3, 12.0, False), (4, None, False)]
    given: Given = {
        "runs": [{"run_id": "r"}],
        "step_stats": [
            {"run_id": "r", "step": step, "step_ms": ms, "warmup": warmup, "outlier": step == 3}
            for step, ms, warmup in steps
        ],
    }
    (row,) = answer(relations, "step_spread", given)
    assert row == ("r", 2, 11.0, pytest.approx(11.9), 12.0, pytest.approx(2**0.5 / 11), 1)


def test_a_jump_is_against_the_five_steps_before(relations: duckdb.DuckDBPyConnection) -> None:
    losses = [9.0, 4.0, 4.0, 4.0, 4.0, 4.0, 5.0, None, 4.7, 4.0]
    steps = [
        {"run_id": "r", "step": n, "loss": loss, "step_ms": 1.0, "outlier": n in (7, 10)}
        for n, loss in enumerate(losses, 1)
    ]
    rows = answer(relations, "loss_spikes", {"step_stats": steps})
    assert [(row[1], row[4], row[6]) for row in rows] == [(7, True, True), (10, False, True)]
    rows = answer(relations, "loss_spikes", {"step_stats": steps}, rise="0.1")
    assert [(row[1], row[4], row[6]) for row in rows] == [
        (7, True, True),
        (9, True, False),
        (10, False, True),
    ]


def test_layers_that_rise_come_first(relations: duckdb.DuckDBPyConnection) -> None:
    shown = [("0", "steady", 0.3), ("1", "rising", 0.1), ("2", None, None), ("3", "rising", 0.2)]
    stats = [
        {"run_id": "r", "layer": layer, "trend": trend, "trend_ratio": ratio}
        for layer, trend, ratio in shown
    ]
    rows = answer(relations, "layer_drift", {"layer_stats": stats})
    assert [row[1] for row in rows] == ["3", "1", "0", "2"]


def test_a_plan_is_shown_where_it_is_off(relations: duckdb.DuckDBPyConnection) -> None:
    row = {"run_id": "r", "plan_run_id": "p", "pass": "forward"}
    traffic = {**row, "kind": "traffic", "planned_bytes": 5e6, "measured_bytes": 1e7}
    given: Given = {
        "plan_vs_measured": [
            {**traffic, "group_kind": "tp", "bytes_error_ratio": -0.5},
            {**traffic, "group_kind": "pp", "bytes_error_ratio": 0.05},
            {**row, "kind": "traffic", "group_kind": "dp", "reason": "not_in_plan"},
            {**row, "kind": "collective", "group_kind": "dp", "reason": "not_in_plan"},
            {
                **row,
                "kind": "layer",
                "layer_kind": "head",
                "planned_compute_ms": 4.0,
                "measured_compute_ms": 2.0,
                "compute_error_ratio": 1.0,
                "reason": "forward_modules_only",
            },
        ]
    }
    assert [row[2:] for row in answer(relations, "plan_gaps", given)] == [
        ("layer", "forward", "head", 4.0, 2.0, "ms", 1.0, "forward_modules_only"),
        ("traffic", "forward", "dp", None, None, "MB", None, "not_in_plan"),
        ("traffic", "forward", "tp", 5.0, 10.0, "MB", -0.5, None),
    ]
    assert len(answer(relations, "plan_gaps", given, off="2")) == 1


def test_what_is_missing_comes_with_what_helps(relations: duckdb.DuckDBPyConnection) -> None:
    coverage = {
        "run_id": "r",
        "not_computable": ["a.x: why", "b.y: why"],
        "hints": [None, "give it"],
        "partly": ["c.z: why (1 of 2 rows)"],
        "partly_hints": ["add it"],
    }
    whole = {"run_id": "s", "not_computable": [], "hints": [], "partly": [], "partly_hints": []}
    assert answer(relations, "missing", {"coverage": [coverage, whole]}) == [
        ("r", "b.y: why", "no row", "give it"),
        ("r", "a.x: why", "no row", None),
        ("r", "c.z: why (1 of 2 rows)", "some rows", "add it"),
    ]


def test_lines_files_and_faults_are_listed_worst_first(
    relations: duckdb.DuckDBPyConnection,
) -> None:
    bad = {"run_id": "r", "source_id": 0, "reason": "bad"}
    given: Given = {
        "sources": [
            {"run_id": "r", "source_id": 0, "path": "x.txt", "bytes": 5},
            {"run_id": "r", "source_id": 1, "path": "y.txt", "duplicate_of": "x.txt", "bytes": 5},
        ],
        "rejects": [
            {**bad, "line": 7, "text": "late"},
            {**bad, "line": 3, "text": "f" * 80},
            {**bad, "line": 1, "reason": "worse", "text": "w"},
        ],
        "faults": [
            {"run_id": "r", "source_id": 0, "name": "n", "severity": "info", "count": 9},
            {"run_id": "r", "source_id": 1, "name": "d", "severity": "data_loss", "count": 1},
        ],
        "skipped": [{"path": "z", "reason": "no_format"}, {"path": "e", "reason": "empty"}],
    }
    assert answer(relations, "bad_lines", given) == [
        ("r", "x.txt", None, "bad", 2, 3, "f" * 60),
        ("r", "x.txt", None, "worse", 1, 1, "w"),
    ]
    assert answer(relations, "duplicates", given) == [("r", "y.txt", None, "x.txt", 5)]
    faults = answer(relations, "tolerated_faults", given)
    assert [(row[1], row[3]) for row in faults] == [("y.txt", "d"), ("x.txt", "n")]
    skips = answer(relations, "passed_over", given)
    assert skips == [("empty", "e", None), ("no_format", "z", None)]


def test_faults_come_in_the_order_of_their_severity(relations: duckdb.DuckDBPyConnection) -> None:
    given: dict[str, list[dict[str, Any]]] = {
        "sources": [{"run_id": "r", "source_id": 0, "path": "x.txt"}],
        "faults": [
            {"run_id": "r", "source_id": 0, "name": one.value, "severity": one.value, "count": 1}
            for one in Severity
        ],
    }
    told = [row[4] for row in answer(relations, "tolerated_faults", given)]
    assert told == [one.value for one in reversed(Severity)]


# --- how a question is written ----------------------------------------------------------------

GOOD = (
    "-- What?\n-- @topic input\n-- @param top BIGINT = 3 | Rows.\n-- Read it so.\n\nSELECT $top\n"
)


def test_a_question_is_read_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "what.sql"
    path.write_text(GOOD)
    read = read_example(path)
    assert (read.name, read.question, read.topic) == ("what", "What?", "input")
    assert (read.reading, read.body, read.sql) == ("Read it so.", "SELECT $top\n", GOOD)
    assert read.bind({}) == {"top": 3}
    assert read.bind({"top": "5"}) == {"top": 5}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("What?", "What.", "not a sentence that ends with"),
        ("@topic input", "@topic cats", "has a topic"),
        ("-- @topic input\n", "", "has a topic"),
        ("-- Read it so.\n", "", "says how to read it"),
        ("@param top BIGINT = 3", "@param top BIGINT", "not a parameter"),
        ("BIGINT", "MONEY", "not a parameter"),
        ("= 3", '= "x"', "the default of top is not a BIGINT"),
        ("= 3", "= x", "the default of top is not a BIGINT"),
        ("@param", "@unknown", "unknown tag @unknown"),
    ],
)
def test_a_header_that_breaks_its_form_says_where(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "what.sql"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(ContractError, match=message) as caught:
        read_example(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"top": "many"}, "not a UBIGINT", "whole number"),
        ({"since": "yesterday"}, "not a TIMESTAMP", "2025-01-31"),
        ({"tops": "1"}, "has no parameter 'tops'", "it takes since, top"),
    ],
)
def test_values_have_the_declared_type(given: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        example("attention").bind(given)
    assert hint in str(caught.value.hint)


def test_a_name_that_is_none_is_corrected() -> None:
    with pytest.raises(UsageError, match="unknown saved question 'attenton'") as caught:
        example("attenton")
    assert caught.value.hint == "did you mean attention?"
    with pytest.raises(UsageError) as caught:
        example("zzz")
    assert caught.value.hint == "list them with: tracelake examples"
