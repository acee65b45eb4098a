"""Small runs whose columns are made together have the rows that each has alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden_cases import GOLDEN
from tests.lakes import rows, run_ingest
from tests.traces import op, trace, trace_name, write
from tracelake.base.errors import InputError
from tracelake.formats import Held, rank_trace
from tracelake.formats.rank_trace.held import make

TABLES = ("ops", "comms", "sources", "faults", "rejects", "runs")


@pytest.fixture
def made_together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs were made at once, each time that some were."""
    found: list[int] = []

    def counted(runs: Any) -> Any:
        found.append(len(runs))
        return make(runs)

    monkeypatch.setattr("tracelake.formats.rank_trace.make", counted)
    return found


def runs_of_every_kind(folder: Path) -> list[Path]:
    """One folder per run, with lines that tell all columns apart; some have a tolerated fault."""
    for case in sorted((GOLDEN / "rank_trace").glob("*/input")):
        shutil.copytree(case, folder / case.parent.name)
    details = op(0, "forward_step", 20, 5).replace("batch_id=0", "batch_id=0,cmd=None,x='a, b'")
    shape = "input__shape=[4, 2],input__dtype=torch.bfloat16"
    plain = "input__shape=None,input__dtype=None"
    sub = "trace_src_func=f_moe,duration=1,timestamp=9,group=exp,comm_func=all_gather,own=7"
    several = op(0, "another_op", 10, 4) + op(0, "forward_step", 30, 9).replace(
        "sub_operations=[]", f"sub_operations=['{sub}', '{sub}']"
    )
    write(
        folder,
        {
            "details/a.txt": details + op(0, "send_forward", 30, 5).replace(plain, shape),
            "several/a.txt": several,
            **{
                f"keys{n}/a.txt": several.replace("own", f"own{n % 2}={n},own{1 - n % 2}")
                for n in range(8)
            },
            "not_utf8/a.txt": details.encode().replace(b"a, b", b"a\xff") + several.encode(),
            "wrong_text/a.txt": several.encode().replace(b"f_moe", b"f\xff_moe"),
            "unknown_dtype/a.txt": op(0, "recv_forward", 30, 5).replace(
                plain, shape.replace("bfloat16", "quint4")
            ),
            "umlaut/a.txt": details.replace("a, b", "ä"),
            "no_rows/a.txt": "rank:0:forward_step(mg_state=None)\n" + details,
            **{f"job{n}/{trace_name(r)}": trace(r, steps=n) for n in range(1, 6) for r in range(2)},
        },
    )
    return sorted(path for path in folder.iterdir())


def test_rows_are_those_of_each_run_alone(tmp_path: Path, made_together: list[int]) -> None:
    folders = runs_of_every_kind(tmp_path / "in")
    run_ingest(tmp_path / "in", tmp_path / "together")
    held = sum(made_together)
    made_together.clear()
    apart: dict[str, list[tuple[Any, ...]]] = {table: [] for table in TABLES}
    for folder in folders:
        run_ingest(folder, tmp_path / "apart" / folder.name)
        for table in TABLES:
            apart[table] += rows(tmp_path / "apart" / folder.name, table, own(table))
    assert not made_together
    for table in TABLES:
        found = rows(tmp_path / "together", table, own(table))
        assert sorted(found, key=repr) == sorted(apart[table], key=repr)
    told = "WHERE name IN ('not_utf8', 'unknown_dtype')"
    faulty = rows(tmp_path / "together", "faults", "DISTINCT run_id", told)
    assert len(faulty) >= 3
    assert held == len(apart["runs"]) - len(faulty) - len({"umlaut"})


def own(table: str) -> str:
    """Columns that do not depend on the folder that was named."""
    return {"sources": "* EXCLUDE (path)", "runs": "* EXCLUDE (label)"}.get(table, "*")


@pytest.mark.parametrize("cause", ["an error", "another number of rows", "other columns"])
def test_a_run_whose_held_rows_cannot_be_made_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    jobs = {f"job{n}/{trace_name(0, world=1)}": trace(0, steps=n) for n in range(1, 6)}
    folder = write(tmp_path / "in", jobs)
    run_ingest(folder, tmp_path / "expected")

    def failing(runs: Any) -> Any:
        made = make(runs)
        if any(rows.ops.wide.shape[1] == 9 for rows in runs):
            if cause == "an error":
                raise ValueError(cause)
            ops = made["ops"]
            made["ops"] = (
                ops.slice(1) if cause == "another number of rows" else ops.select(["line"])
            )
        return made

    monkeypatch.setattr("tracelake.formats.rank_trace.make", failing)
    report = run_ingest(folder, tmp_path / "lake")
    (failure,) = report.failures
    assert failure.input == f"job3/{trace_name(0, world=1)}"
    assert rows(tmp_path / "lake", "skipped", "path, reason") == [(failure.input, "parser_failed")]
    lost = f"WHERE run_id <> '{failure.run_id}' ORDER BY ALL"
    for table in ("ops", "runs", "sources"):
        found = rows(tmp_path / "lake", table, "*", "ORDER BY ALL")
        assert found == rows(tmp_path / "expected", table, "*", lost)


def test_rows_may_be_held_back_only_where_runs_are_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held({"ops": 1}, None, make)
    monkeypatch.setattr(rank_trace._Parser, "_held", lambda _: held)
    with pytest.raises(InputError, match="rows are held back of a run that is not `together`"):
        run_ingest(write(tmp_path / "in", {"a.txt": trace(0)}), tmp_path / "lake")
