"""Charts of the page: these rows in the lake, these marks."""

from __future__ import annotations

import itertools
from datetime import datetime
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from tests.conftest import Command
from tests.pages import Node, charts, read_page
from tests.report_lakes import MS, make, plan_run, trace_run
from tests.tiny_lakes import Rows, log_run
from tracelake.lake.store import Lake
from tracelake.output.html.charts.series import KINDS
from tracelake.output.html.charts.vega import picture, spec
from tracelake.output.html.page import write_report

Series = dict[str, list[Any]]
RunSeries = dict[str, dict[str, Series]]

SLOW = "wd8_tp2_pp2_numl4_bs1_gpt2bpetokenizer-173a3a41"


def drawn(lake: Lake, out: Path, run_id: str) -> dict[str, Series]:
    write_report(lake, out, runs=[run_id])
    return charts(read_page(out.read_text()))[run_id]


def rows(series: Series, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(series[name] for name in names), strict=True))


def late(*, kinds: bool) -> Rows:
    """The last member comes later in every step, to calls of one kind or of two."""
    run = trace_run(steps=4)
    for comm in run["comms"]:
        if kinds and comm["step"] > 2:
            comm["collective"] = "all_gather"
        if comm["rank"] == 3:
            comm["start_ns"] += comm["step"] * MS
            comm["duration_ns"] -= comm["step"] * MS
    return run


def placed(hosts: int) -> Rows:
    run = trace_run()
    (source,) = run["sources"]
    sources = [{**source, "source_id": r, "rank": r, "host": f"node{r % hosts}"} for r in range(4)]
    return {**run, "sources": sources}


def diverged() -> Rows:
    run = log_run(steps=5)
    records = [
        {**row, "loss": float("nan")} if row["step"] == 3 else row for row in run["train_steps"]
    ]
    return {**run, "train_steps": records}


def many_operations(ranks: int, batches: int) -> Rows:
    """Short forward and backward steps in turn, on every rank of a single stage."""
    run = trace_run(ranks=ranks, steps=1, micro_batches=batches)
    ops = []
    for rank in range(ranks):
        for turn in range(2 * batches):
            times = {"start_ns": turn * MS, "end_ns": (turn + 1) * MS, "duration_ns": MS}
            of = {
                "source_id": 0,
                "rank": rank,
                "stage": 0,
                "step": 1,
                "seq": turn,
                "line": turn + 1,
            }
            op = "backward_step" if turn % 2 else "forward_step"
            ops.append({**of, "op": op, "category": "compute", "micro_batch": turn // 2, **times})
    return {**run, "ops": ops, "comms": []}


LINKED = {"near": placed(1), "far": placed(2), "lost": trace_run()}
TOGETHER = {
    "late in one": late(kinds=False),
    "late in two kinds": late(kinds=True),
    "short": trace_run(steps=1),
    "even": trace_run(steps=2),
    "wide": trace_run(slow=1.5, slow_rank=69, ranks=70),
    "log": log_run(steps=5),
    "diverged": diverged(),
}
ALONE = {
    "crowd": many_operations(ranks=16, batches=1_500),
    "long": log_run(steps=13_000),
    "plan": plan_run(),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Runs of which each has what one test looks at."""
    return make(tmp_path_factory.mktemp("charts") / "lake", LINKED | TOGETHER | ALONE)


@pytest.fixture(scope="module")
def page(lake: Lake) -> Node:
    path = lake.root.with_name("page.html")
    write_report(lake, path, runs=list(TOGETHER))
    return read_page(path.read_text())


@pytest.fixture(scope="module")
def series(page: Node) -> RunSeries:
    return charts(page)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Series]:
    folder = tmp_path_factory.mktemp("slow")
    runs = {
        "before": trace_run(run_date=datetime(2025, 3, 1)),
        "slow": trace_run(slow=1.5, run_date=datetime(2025, 3, 2)),
        "after": trace_run(run_date=datetime(2025, 3, 3)),
    }
    return drawn(make(folder / "lake", runs), folder / "page.html", "slow")


def test_the_timeline_has_every_operation_of_one_step(slow: dict[str, Series]) -> None:
    names = ("label", "kind", "op", "t0", "t1", "n", "batch")
    of_step = [m[:-1] for m in rows(slow["timeline"], *names, "step") if m[-1] == 2]
    marks = [mark for mark in of_step if mark[1] != "collective"]
    assert (len(marks), len(of_step)) == (8, 12)
    assert marks[:2] == [
        ("rank 0 · stage 0", "forward", "forward_step", 0.0, 100.0, 1, 0),
        ("rank 0 · stage 0", "backward", "backward_step", 100.0, 300.0, 1, 0),
    ]
    assert marks[4][3:5] == (0.0, 150.0)
    assert set(slow["timeline"]["step"]) == {1, 2}  # the fastest and the slowest


def test_parts_of_a_window_fill_it(slow: dict[str, Series]) -> None:
    parts = rows(slow["windows"], "label", "part", "ms", "share")
    of_first = [part[1:] for part in parts if part[0] == "rank 0 · stage 0"]
    assert of_first == [
        ("compute", 280.0, 0.8),
        ("in op comm", 20.0, 0.0571),
        ("gap", 50.0, 0.1429),
    ]
    assert slow["windows"]["ideal"][0] == 350.0


def test_stages_stand_beside_theory(slow: dict[str, Series]) -> None:
    assert rows(slow["stages"], "basis", "stage", "bubble", "low", "high", "theory") == [
        ("measured", 0, 0.1071, 0.0, 0.1429, 0.0),
        ("modelled", 0, 0.0, None, None, 0.0),
    ]


def test_slowdown_by_rank_and_step(slow: dict[str, Series]) -> None:
    cells = {
        (label, step): s for label, step, s in rows(slow["slow_ranks"], "label", "step", "slowdown")
    }
    assert len(cells) == 12
    assert cells["rank 2", 1] == pytest.approx(330 / 280, abs=1e-4)
    assert cells["rank 1", 3] == 1.0


def test_bandwidth_by_size(slow: dict[str, Series]) -> None:
    (point,) = rows(
        slow["bandwidth"], "collective", "group", "bytes", "n", "calls", "algbw", "busbw"
    )
    assert point == ("all_reduce", "tp", 1_000_000, 4, 3, 0.05, 0.075)
    (line,) = rows(slow["bandwidth"], "rated", "rated_by")
    assert line == (0.075, "best tp of the lake")


def test_bandwidth_beside_rated_links(tracelake: Command, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "speeds").write_text("ib = 0.1  # one direction\nnvlink=0.2\npcie=0.05\n")
    page = tmp_path / "page.html"
    report = ("report", "--lake", lake.root, "-o", page)
    named = [word for run in LINKED for word in ("--run", run)]
    for given in (str(tmp_path / "speeds"), "pcie=0.05,nvlink=0.2,ib=0.1"):
        done = tracelake(*report, "--links", given, *named)
        assert done.code == 0, done.err
        shown = read_page(page.read_text())
        drawn = charts(shown)
        lines = {run: rows(drawn[run]["bandwidth"], "rated", "rated_by") for run in drawn}
        assert lines == {
            "near": [(0.2, "rated nvlink: 0.2 GB/s")],
            "far": [(0.1, "rated ib: 0.1 GB/s")],
            "lost": [(None, None)],
        }
        title = "Communication: time and bandwidth by size"
        for run, share in (("near", "37.5"), ("far", "75.0")):
            (call,) = shown.by_id(f"run-{run}").section(title).table()
            assert call["of rated (%)"] == share
    assert "of rated" not in shown.by_id("run-lost").section(title).text
    unknown = tracelake(*report, "--links", "wire=3")
    assert (unknown.code, "unknown link 'wire'" in unknown.err) == (2, True)
    for wrong in ("ib=fast", "ib=0", "nowhere"):
        refused = tracelake(*report, "--links", wrong)
        assert (refused.code, "--links" in refused.err) == (2, True)


def test_history_ends_with_the_run_itself(slow: dict[str, Series]) -> None:
    assert rows(slow["history"], "run", "ms", "own") == [
        ("before", 300.0, False),
        ("slow", 350.0, True),
    ]


def test_skew_of_a_late_member(page: Node, series: RunSeries) -> None:
    skew = series["late in two kinds"]["skew"]
    assert sorted(rows(skew, "label", "calls", "p50", "max")) == [
        ("all_gather · tp", 2, 3.5, 4.0),
        ("all_reduce · tp", 2, 1.5, 2.0),
    ]
    # One kind of call is a figure and no chart.
    assert "skew" not in series["late in one"]
    section = page.by_id("run-late in one").section("Communication: time and bandwidth by size")
    (call,) = section.table()
    assert (call["skew p50 (ms)"], call["skew p95 (ms)"]) == ("2.50", "3.85")


def test_one_bar_is_no_chart(page: Node, series: RunSeries) -> None:
    assert not {"phases", "slow_ranks", "skew", "balance"} & series["short"].keys()
    assert "slow_ranks" not in series["even"]
    assert "slow_ranks" in series["wide"]
    ranks = page.by_id("run-short").section("Slow ranks")
    assert not ranks.all("figure")
    assert len(ranks.table()) == 4


def test_a_legend_has_only_names_that_are_drawn(slow: dict[str, Series]) -> None:
    (kind,) = [kind for kind in KINDS if kind.name == "bandwidth"]
    svg = picture(kind, slow["bandwidth"], "svg").decode()
    assert "all_reduce" in svg
    assert "reduce_scatter" not in svg


def test_steps_and_layers_without_warmup(series: RunSeries) -> None:
    log = series["log"]
    assert log["step_times"]["step"] == [3, 4, 5]
    assert log["loss"]["step"] == [3, 4, 5]
    assert rows(log["layers"], "layer", "step", "ms")[:2] == [("0", 2, 1.0), ("0", 3, 1.0)]
    assert log["layer_heat"]["deviation"] == [0.0] * 8
    assert rows(log["split"], "stage", "split")[:2] == [(0, "as it ran"), (0, "best")]
    assert rows(log["layer_stages"], "label", "layer") == [("stage 0", "0"), ("stage 1", "1")]


def test_a_single_step_or_run_is_no_line(series: RunSeries) -> None:
    short = series["short"]
    assert "timeline" in short
    assert not {"step_times", "loss", "history", "layers", "balance"} & short.keys()


def test_a_page_without_charts_brings_no_library(lake: Lake, tmp_path: Path) -> None:
    size = write_report(lake, tmp_path / "page.html", runs=["plan"]).bytes
    page = read_page((tmp_path / "page.html").read_text())
    assert not page.all("figure")
    assert [node.attrs for node in page.all("script")] == [{}]
    assert size < 200_000


def test_many_steps_share_points_that_show_the_longest(lake: Lake, tmp_path: Path) -> None:
    long = drawn(lake, tmp_path / "page.html", "long")["step_times"]
    assert 3_000 < len(long["ms"]) <= 6_000
    spans = rows(long, "step", "last")
    assert spans[0][0] == 3
    assert spans[-1][1] == 13_000
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(spans))


def test_a_crowded_timeline_is_thinned_and_loses_no_time(lake: Lake, tmp_path: Path) -> None:
    marks = drawn(lake, tmp_path / "page.html", "crowd")["timeline"]
    assert 1_000 < len(marks["t0"]) <= 6_000
    assert sum(marks["n"]) == 16 * 3_000
    times = rows(marks, "label", "t0", "t1")
    assert sum(end - start for _, start, end in times) == pytest.approx(16 * 3_000)
    for before, after in itertools.pairwise(times):
        assert after[1] >= before[2] - 1e-6 or after[0] != before[0]
    assert len(set(marks["label"])) == 16
    assert (min(marks["t0"]), max(marks["t1"])) == (0.0, 3_000.0)


def test_of_many_ranks_the_first_of_a_stage_and_the_slow_ones_have_a_timeline(
    series: RunSeries,
) -> None:
    wide = series["wide"]
    assert set(wide["timeline"]["label"]) == {"rank 0 · stage 0", "rank 69 · stage 0"}
    assert set(wide["windows"]["label"]) == {"stage 0 (70 ranks)"}
    heat = rows(wide["slow_ranks"], "label", "step", "rank")
    assert len(heat) == 35 * 3
    assert heat[-1] == ("ranks 68 to 69", 3, 69)


def test_every_kind_becomes_a_picture(slow: dict[str, Series], series: RunSeries) -> None:
    seen = set()
    for kind in KINDS:
        for of_run in (slow, series["log"]):
            if kind.name in of_run:
                seen.add(kind.name)
                assert picture(kind, of_run[kind.name], "png").startswith(b"\x89PNG")
                svg = picture(kind, of_run[kind.name], "svg").decode()
                assert "var(--" not in svg
                assert svg.count("role-mark") > 0 or svg.count("mark-") > 0
    assert seen >= {"timeline", "windows", "stages", "slow_ranks", "bandwidth", "layers", "split"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_spec_names_its_rows_and_fetches_nothing(kind: Any) -> None:
    text = str(spec(kind))
    assert "'name': 'rows'" in text
    assert "'url'" not in text


def test_idle_time_by_phase_adds_up_to_that_of_the_stage(sample_lake: Lake, tmp_path: Path) -> None:
    series = drawn(sample_lake, tmp_path / "page.html", SLOW)
    assert rows(series["phases"], "stage", "phase") == [
        (stage, phase) for stage in (0, 1) for phase in ("warmup", "steady", "cooldown")
    ]
    idle = {
        stage: sum(ms for s, ms in rows(series["phases"], "stage", "ms") if s == stage)
        for stage in (0, 1)
    }
    parts = rows(series["windows"], "label", "part", "ms")
    for stage, total in idle.items():
        of_stage = [p for p in parts if p[0].endswith(f"stage {stage}")]
        unbusy = sum(
            ms for _, part, ms in of_stage if part not in {"compute", "data", "in op comm"}
        )
        assert total == pytest.approx(unbusy / 4, abs=0.01)


def test_a_figure_that_is_no_number_is_left_out(series: RunSeries) -> None:
    loss = series["diverged"]["loss"]["loss"]
    assert loss[1] is None
    assert loss[2] is not None


def test_every_kind_is_what_vega_lite_defines() -> None:
    for kind in KINDS:
        alt.Chart.from_dict(spec(kind), validate=True)
