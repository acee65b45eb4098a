"""Traces of the published analysis: its figures by another reader, for any sizes; else a reason."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import Command
from tests.lakes import asked, ingest_and_build
from tests.reference.straggler_analysis import KINDS, Analysis, Layout, trace

LAYOUTS = {
    "plain": Layout(dp=3, batches=6),
    "overlap": Layout(pp=3, overlap=True, batches=5),
    "interleaved": Layout(pp=2, vpp=2),
    "interleaved_overlap": Layout(pp=4, vpp=2, overlap=True, batches=4),
    "one_rank": Layout(dp=1, pp=1, steps=3),
    "tensor": Layout(tp=8, dp=4),
    "global_ranks": Layout(tp=8, dp=4, global_ranks=True),
    "sequence": Layout(dp=1, dsp=2, pp=3),
    "no_pipeline": Layout(pp=1, dp=5),
    "no_data_parallel": Layout(dp=1, pp=4),
    "early_sends": Layout(pp=3, early_sends=True),
}
USUAL = replace(LAYOUTS["plain"], seed=1)


def other_types() -> pa.Table:
    """The usual trace, as a writer without compression would have it: seconds since 1970."""
    table = trace(USUAL)
    columns = {
        name: table[name].cast(pa.float64()) for name in table.column_names if name != "optype"
    }
    columns["start_ts"] = pc.add(
        columns["start_ts"], pc.multiply(table["step"].cast(pa.float64()), 1e6)
    )
    empty = pc.equal(table["mc"], -1)
    columns["mc"] = pc.if_else(empty, float("nan"), columns["mc"])
    columns["mb_id"] = pc.if_else(empty, None, columns["mb_id"])
    return pa.table({**columns, "optype": table["optype"].cast(pa.large_string())})


def unusual() -> dict[str, tuple[pa.Table, str | None]]:
    """Traces that lack something or have something else, with their sizes."""
    table, meta = trace(USUAL), USUAL.meta()
    quoted = meta.replace("dp_size: 3", "dp_size: '3' # x")
    first = pc.and_(pc.equal(table["rank"], 1), pc.equal(table["step"], 9))
    sends = pc.and_(pc.equal(table["optype"], "forward-send"), pc.equal(table["seq_id"], 2))
    again = table.set_column(5, "start_ts", pc.add(table["start_ts"], pa.scalar(1, pa.float32())))
    return {
        "other_types": (other_types(), "\ufeff" + quoted.replace("\n", "\r\n")),
        "no_sizes": (table, None),
        "more_ranks": (table, meta.replace("dp_size: 3", "dp_size: 4")),
        "step_without_rank": (table.filter(pc.invert(first)), meta),
        "message_without_sender": (table.filter(pc.invert(sends)), meta),
        "twice": (pa.concat_tables([table, again.filter(first)]), meta),
        "other_operation": (
            table.set_column(4, "optype", pc.replace_substring(table["optype"], "gc", "gc2")), meta,
        ),
        "ranks_contradict": (table.set_column(2, "rank", table["stage"]), meta),
        "null": (table.set_column(6, "duration", pc.if_else(first, None, table["duration"])), meta),
        "negative": (table.set_column(6, "duration", pc.negate(table["duration"])), meta),
        "text": (table.set_column(3, "step", pa.array(["x"] * table.num_rows)), meta),
        "empty": (table.slice(0, 0), meta),
    }  # fmt: skip


REASONS = {
    "no_sizes": "world_size_unknown",
    "more_ranks": "run_incomplete",
    "step_without_rank": "run_incomplete",
    "message_without_sender": "peer_not_seen",
    "twice": "peer_not_seen",
    "other_operation": "unknown_operation",
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    archive = tmp_path_factory.mktemp("archive")
    found = {name: (trace(layout), layout.meta()) for name, layout in LAYOUTS.items()} | unusual()
    for name, (table, meta) in found.items():
        pq.write_table(table, archive / f"trace-{name}.parquet")
        if meta is not None:
            (archive / f"meta-{name}.yaml").write_text(meta, newline="")
    lake = ingest_and_build(archive, tmp_path_factory.mktemp("lake"))
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        yield con


def published(con: duckdb.DuckDBPyConnection, name: str) -> dict[tuple[str, str], float]:
    """What whatif_published and whatif_steps have of a trace."""
    run = f"run_id IN (SELECT run_id FROM sources WHERE path LIKE '%trace-{name}.parquet')"
    figures = con.execute(f"SELECT figure, subject, value_ratio FROM whatif_published WHERE {run}")
    found = {(figure, subject): value for figure, subject, value in figures.fetchall()}
    steps = con.execute(f"SELECT step, paper_ms / 1e3 FROM whatif_steps WHERE {run}").fetchall()
    return found | {("t", str(step)): time for step, time in steps}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_sizes(traces: duckdb.DuckDBPyConnection, name: str) -> None:
    expected = Analysis(trace(LAYOUTS[name]).to_pylist(), LAYOUTS[name]).figures()
    assert published(traces, name) == pytest.approx(expected, abs=1e-6)


def test_other_types_of_columns(traces: duckdb.DuckDBPyConnection) -> None:
    expected = Analysis(trace(USUAL).to_pylist(), USUAL).figures()
    assert published(traces, "other_types") == pytest.approx(expected, abs=1e-5)


def test_abstains(traces: duckdb.DuckDBPyConnection) -> None:
    found = traces.execute(
        "SELECT regexp_extract(s.path, 'trace-(.*).parquet', 1), w.reason, w.s_peer, w.cause"
        " FROM whatif_runs AS w JOIN sources AS s USING (run_id) WHERE w.s_peer IS NULL"
    ).fetchall()
    assert {name: reason for name, reason, *_ in found if name} == REASONS
    assert {cause for *_, cause in found} == {None}
    runs = "SELECT run_id FROM whatif_runs WHERE s_peer IS NULL"
    left = traces.execute(f"SELECT count(*) FROM whatif_published WHERE run_id IN ({runs})")
    assert left.fetchone() == (0,)
    assert traces.execute("SELECT count(*) FROM model_failures").fetchone() == (0,)


def test_what_is_no_trace_is_rejected(traces: duckdb.DuckDBPyConnection) -> None:
    found = traces.execute(
        "SELECT regexp_extract(s.path, '(trace|meta)-(.*)[.]', 2), r.reason FROM rejects AS r"
        " JOIN sources AS s USING (run_id, source_id) WHERE s.path LIKE '%parquet'"
    ).fetchall()
    assert dict(found) == {
        "ranks_contradict": "ranks_contradict",
        "null": "out_of_range",
        "negative": "out_of_range",
        "text": "other_columns",
    }


def test_published_figures(field: Path, tmp_path: Path) -> None:
    """Every published figure of trace ST, to 1e-5."""
    folder = field / "straggler_analysis"
    told, workers, stage = (
        json.loads((folder / f"{name}-ST.json").read_text()) for name in ("result", "mw", "ms")
    )
    expected = {
        ("s", ""): told["blocking_slowdown"],
        ("launch", ""): told["launch_slowdown"],
        ("m_w", "7"): workers["Mw"],
        ("m_s", "3"): stage["Ms"],
        **{("s_dp", k): v for k, v in told["blocking_decompose_by_dp_rank"].items()},
        **{("s_stage", k): v for k, v in told["blocking_decompose_by_stage"].items()},
        **{("s_kind", KINDS[k]): v for k, v in told["blocking_decompose_by_optype"].items()},
        **{("t", k): v for k, v in told["step_t_nodelay"].items()},
    }
    lake = ingest_and_build(folder, tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        assert published(con, "ST") == pytest.approx(expected, abs=1e-5)
        steps = con.execute("SELECT step, t_ms / 1e3, s_paper FROM whatif_steps").fetchall()
        assert {str(step): time for step, time, _ in steps} == pytest.approx(
            told["step_t_nodelay"], abs=1e-5
        )
        assert {str(step): slow for step, _, slow in steps} == pytest.approx(
            told["blocking_step_slowdown"], abs=1e-5
        )
        run = con.execute("SELECT round(s_peer, 3), cause, replay_error_ratio FROM whatif_runs")
        assert run.fetchall() == [(1.005, "stage_split", 0.0)]


def test_data_in_parquet_is_skipped_and_not_read_again(tmp_path: Path, tracelake: Command) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    data = folder / "data" / "train.parquet"
    data.parent.mkdir(parents=True)
    pq.write_table(pa.table({"tokens": list(range(1000))}), data)
    whole = data.read_bytes()
    (folder / "data" / "cut.parquet").write_bytes(whole[:-40])
    (folder / "train.log").write_text(" iteration 1/ 1 | elapsed time per iteration (ms): 9.0 |\n")
    assert tracelake("run", folder, "--lake", lake).code == 0
    skipped = "SELECT path, reason FROM skipped ORDER BY path"
    expected = [
        {"path": f"data/{name}.parquet", "reason": "no_records"} for name in ("cut", "train")
    ]
    assert asked(tracelake, lake, skipped) == expected
    # Of the same size and date it is not opened, whatever it is now.
    kept = data.stat()
    data.write_bytes(b"x" * len(whole))
    os.utime(data, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert tracelake("run", folder, "--lake", lake).code == 0
    assert asked(tracelake, lake, skipped) == expected


def test_a_name_that_is_no_text_is_a_name(tmp_path: Path) -> None:
    pq.write_table(trace(USUAL), tmp_path / "trace-x.parquet")
    meta = USUAL.meta().encode() + b"trial_name: a\xffb\n"
    (tmp_path / "meta-x.yaml").write_bytes(meta)
    lake = ingest_and_build(tmp_path, tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        found = con.execute("SELECT dp, attributes['trial_name'] FROM runs").fetchall()
    assert found == [(3, "a\ufffdb")]


def test_ragged_data_is_the_cause(tmp_path: Path) -> None:
    """Forward and backward passes of a micro-batch are long on all stages of its replica."""
    layout = Layout(dp=8, pp=2, batches=8, ragged=True)
    pq.write_table(trace(layout), tmp_path / "trace-R.parquet")
    (tmp_path / "meta-R.yaml").write_text(layout.meta())
    lake = ingest_and_build(tmp_path, tmp_path / "lake")
    with duckdb.connect(str(lake.warehouse), read_only=True) as con:
        assert con.execute("SELECT cause, s_peer > 1.03 FROM whatif_runs").fetchall() == [
            ("data", True)
        ]
