"""A figure that is NULL has a reason, in odd inputs too."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.figures import FIGURES, unexplained
from tests.model_cases import PipeTable, insert
from tracelake.models.base import create_empty_tables
from tracelake.models.catalog import catalog
from tracelake.models.compute import compute, connect

RUNS = """
run_id | format     | simulated | world_size | tp | pp | dp | micro_batches | vpp
r      | rank_trace | false     | {world}    | 1  | {pp} | 2 | {batches}   | NULL
"""


def trace(
    *, ranks: int = 4, pp: int = 2, batches: int = 2, steps: int = 3, length: int = 1000
) -> tuple[str, str]:
    """Rows of `ops` and `comms`: every operation takes `length`, one after the other."""
    ops, comms = [], []
    for rank in range(ranks):
        now = seq = 0
        for step in range(1, steps + 1):
            for batch in range(batches):
                for op, kind in (("forward_step", "compute"), ("backward_step", "compute")):
                    seq += 1
                    ops.append(
                        f"r|{rank}|{rank * pp // ranks}|{step}|{seq}|{batch}|{op}|{kind}"
                        f"|{now}|{now + length}|{length}"
                    )
                    comms.append(
                        f"r|{rank}|{step}|{seq}|1|{batch}|{op}|all_reduce|dp|int8|[8]|8"
                        f"|{now}|{now + length}|{length}"
                    )
                    now += length
            seq += 1
            ops.append(
                f"r|{rank}|{rank * pp // ranks}|{step}|{seq}|0|optimizer_step|optimizer"
                f"|{now}|{now}|0"
            )
    head = "run_id|rank|stage|step|seq|micro_batch|op|category|start_ns|end_ns|duration_ns"
    comm_head = (
        "run_id|rank|step|seq|sub_seq|micro_batch|parent_op|collective|group_kind|dtype"
        "|shape|bytes|start_ns|end_ns|duration_ns"
    )
    return "\n".join([head, *ops]), "\n".join([comm_head, *comms])


CASES: list[tuple[dict[str, int], dict[str, int | str]]] = [
    ({"length": 0}, {"batches": 2}),
    ({"length": 0, "steps": 1}, {"batches": 2}),
    ({"length": 0}, {"batches": "NULL"}),
    ({"length": 0}, {"pp": "NULL", "world": "NULL"}),
    ({}, {"batches": 2}),
    ({"steps": 1}, {"batches": "NULL"}),
    ({}, {"pp": 4}),
    ({}, {"world": 8}),
    ({"ranks": 1, "pp": 1}, {"world": 1, "pp": 1}),
    ({"ranks": 3, "pp": 3}, {"world": 4}),
]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """Models of all cases, which are runs with the numbers of the cases as their names."""
    with connect() as con:
        con.execute(catalog().macros)
        create_empty_tables(con)
        for number, (shape, runs) in enumerate(CASES):
            ops, comms = trace(**shape)
            sizes = {"world": 4, "pp": 2, "batches": 2} | runs
            for table, text in (("runs", RUNS.format(**sizes)), ("ops", ops), ("comms", comms)):
                insert(con, table, PipeTable.parse(text).of(str(number)))
        wanted = sorted({model for model, _ in FIGURES} | {"coverage"})
        for model in catalog().upstream(wanted):
            compute(con, model)
        yield con


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_figure_that_is_null_has_a_reason(number: int, con: duckdb.DuckDBPyConnection) -> None:
    assert con.execute(f"FROM step_stats WHERE run_id = '{number}r'").fetchall()
    assert unexplained(con, f"run_id = '{number}r'") == {}


def test_what_takes_no_time_is_below_the_clocks_resolution(con: duckdb.DuckDBPyConnection) -> None:
    for column, model in (
        ("stages_reason", "step_stats"),
        ("reason", "stage_balance"),
        ("reason", "straggler_ranks"),
    ):
        found = con.execute(f"SELECT DISTINCT {column} FROM {model} WHERE run_id = '0r'")
        assert found.fetchall() == [("below_clock_resolution",)], model
