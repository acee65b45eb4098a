"""What a terminal shows of runs: every line fits, every figure is the warehouse's."""

from __future__ import annotations

import contextvars
import copy
import functools
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.conftest import Command
from tests.lakes import ingest_and_build
from tests.report_lakes import MS, make, trace_run
from tests.tiny_lakes import commit_run, commit_runs
from tests.traces import plan, write
from tracelake.base.text import name_lake
from tracelake.lake.store import Lake
from tracelake.output.terminal.changes import read_changes
from tracelake.output.terminal.diff import print_changes
from tracelake.output.terminal.ending import print_ending, read_ending
from tracelake.output.terminal.facts import read_run
from tracelake.output.terminal.page import Column, Page
from tracelake.output.terminal.runs import draw_runs, runs_sql
from tracelake.output.terminal.show import print_run
from tracelake.schema.tables import reasons
from tracelake.warehouse.results import write_result
from tracelake.warehouse.running import run_query
from tracelake.warehouse.warehouse import open_warehouse

SLOW, CLEAN = "173a3a41", "8c53c861"
LOG, EARLIER_LOG = "b707a239", "d0f5c32f"
SIMULATED, PLAN = "803d817a", "e7b5847f"
RUNS = (SLOW, CLEAN, LOG, EARLIER_LOG, SIMULATED, PLAN, "595df7de")
PARTS = ("compute", "data", "in_op_comm", "p2p_recv", "p2p_send", "finalize", "other_step", "gap")
TRACELAKE = Path(sys.executable).with_name("tracelake")
Document = dict[str, Any]


class Screen(io.StringIO):
    """A terminal of the width that COLUMNS says."""

    def __init__(self, encoding: str = "utf-8", *, terminal: bool = True) -> None:
        super().__init__()
        self._encoding, self._terminal = encoding, terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(scope="module")
def lake(sample_lake: Lake) -> Path:
    return sample_lake.root


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")


def whole(lake: Path, part: str) -> str:
    with open_warehouse(Lake.open(lake)) as con:
        rows = con.execute("SELECT run_id FROM runs WHERE contains(run_id, $1)", [part]).fetchall()
    ((run_id,),) = rows
    return str(run_id)


@functools.cache
def read(lake: Path, run: str) -> Document:
    with open_warehouse(Lake.open(lake)) as con:
        return read_run(con, whole(lake, run))


def document(lake: Path, run: str) -> Document:
    """A copy, to be changed by a test."""
    return copy.deepcopy(read(lake, run))


@functools.cache
def changes(lake: Path, before: str, after: str) -> Document:
    with open_warehouse(Lake.open(lake)) as con:
        return read_changes(con, whole(lake, before), whole(lake, after))


def printed(draw: Callable[[Page], None], screen: Screen) -> list[str]:
    draw(Page(screen))
    return screen.getvalue().splitlines()


def shown(of: Document, screen: Screen | None = None) -> str:
    lines = printed(lambda page: print_run(of, page), screen or Screen(terminal=False))
    return "\n".join(lines)


def pasted(text: str) -> list[list[str]]:
    """Return the commands that a text has to the end of a line or part, as a shell splits them."""
    return [shlex.split(said) for said in re.findall(r"\btracelake (.*?)(?:; |$)", text, re.M)]


def differing(of: Document) -> str:
    return "\n".join(printed(lambda page: print_changes(of, page), Screen(terminal=False)))


def listed(lake: Path, screen: Screen, **choice: Any) -> list[str]:
    (answer,) = run_query(Lake.open(lake), runs_sql(**choice))
    return printed(lambda page: draw_runs(answer, page), screen)


# --- show -----------------------------------------------------------------------------


def test_show_prints_the_figures_of_the_warehouse(tracelake: Command, lake: Path) -> None:
    result = tracelake("show", SLOW, "--lake", lake)
    assert result.code == 0
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[:2] == ["job001", whole(lake, SLOW)]
    for line in (
        "rank_trace · 2024-01-09 06:00:07 (from the name)",
        "bubble 35.5 % theory 33.3 %",
        "communication 24.0 % of the pipeline windows, inside operations",
        "bus bandwidth 4.00 GB/s of all_reduce embedding float32 51642368 bytes",
        "stragglers 1 76.59 ms lost, 0.613 GPU s",
        "Ranks 7 ok, 1 straggler",
        "2 0 straggler 1.30 x 4 of 4 76.59 ms",
        "send pp of 2 1.05 MB float16 64 17.28 ms 0.27 ms 0.27 ms 3.88 GB/s 3.88 GB/s",
        "Not in the input layer times",
    ):
        assert line in lines
    assert "world size 8, tp 2, pp 2, micro-batch size 1, layers 4 (from the name)" in result.out
    assert "straggler    rank 2 (stage 0): forward_step took 1.30 times" in result.out
    assert "\x1b" not in result.out


def test_the_document_is_made_of_the_rows_of_the_warehouse(tracelake: Command, lake: Path) -> None:
    told = json.loads(tracelake("show", SLOW, "--lake", lake, "--format", "json").out)
    assert list(told) == [
        "run_id",
        "run",
        "copy_of",
        "continued_by",
        "running_until",
        "views",
        "inputs",
        "faults",
        "summary",
        "baseline",
        "attention",
        "opportunities",
        "steps",
        "stages",
        "stragglers",
        "devices",
        "collectives",
        "timers",
        "plan",
        "tests",
        "layers",
        "split",
        "coverage",
        "not_computable",
        "partly_computable",
    ]
    run_id = told["run_id"]
    for key, relation in (("run", "runs"), ("summary", "run_summary"), ("coverage", "coverage")):
        sql = f"FROM {relation} WHERE run_id = '{run_id}'"
        (row,) = json.loads(tracelake("query", sql, "--lake", lake, "--format", "json").out)
        assert told[key].items() <= row.items()
        assert {"not_computable", "hints", "partly", "partly_hints"} >= row.keys() - told[
            key
        ].keys()
    assert [kind["kind"] for kind in told["attention"]] == ["straggler"]
    for stage in told["stages"]:
        assert sum(stage[f"{part}_ms"] for part in PARTS) == pytest.approx(stage["window_ms"])
    assert told["stragglers"]["verdicts"] == {"ok": 7, "straggler": 1}
    assert [row["rank"] for row in told["stragglers"]["worst"]] == [2]
    assert told["steps"]["counted_steps"] == len(told["steps"]["curve"]) == 4


def test_bars_are_as_long_as_their_parts(lake: Path) -> None:
    of = document(lake, SLOW)
    text = shown(of)
    for stage in of["stages"]:
        (line,) = [row for row in text.splitlines() if row.startswith(f"  stage {stage['stage']} ")]
        bar = line[12:60]
        end = drawn = 0.0
        for part, glyph in zip(PARTS, "█▤▓▒░▞╌·", strict=True):
            drawn += bar.count(glyph)
            end += stage[f"{part}_ms"] / stage["window_ms"]
            assert abs(drawn - 48 * end) <= 0.51, part
        assert drawn == 48
    (theory,) = [row for row in text.splitlines() if row.startswith("  theory ")]
    assert theory[12:60] == "█" * 32 + "░" * 16


def test_a_log_shows_layers_and_a_better_split(lake: Path) -> None:
    text = shown(document(lake, LOG))
    assert "modelled from layer times; the listed modules are 21.8 % of a step" in text
    assert "a better split would save 6.1 % of a modelled step" in text
    assert [line.split()[0] for line in text.splitlines() if "block" in line] == [
        "2",
        "3",
        "0",
        "1",
    ]
    assert "    → log 4 more steps" in text


def test_a_drifting_layer_is_named(lake: Path) -> None:
    of = document(lake, LOG)
    slowest = of["layers"]["slowest"][1]
    of["layers"]["drifting"] = [{**slowest, "trend": "rising", "trend_ratio": 0.082}]
    of["layers"]["drifting_layers"] = 3
    text = shown(of)
    assert "layer 2 is rising +8.2 % over the run" in text
    assert "... and 2 layers more with a trend" in text


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of runs as the sample has none: timers, kernels, and a job in two logs."""
    folder = tmp_path_factory.mktemp("others")
    timers = (
        f"step:{step} - actor/pg_loss:0.1 - timing_s/gen:{20 + step}.0"
        f" - timing_s/update_actor:10.0 - timing_s/step:40.0\n"
        for step in range(1, 12)
    )
    record = (
        " [2026-05-{:02} 10:00:00] iteration {:8}/ 50 | elapsed time per iteration (ms): 500.0 |"
        " global batch size: 64 | lm loss: 2.3E+00 |\n"
    )
    logs = {f"slurm-{n}.out": record.format(n, n) for n in (1, 2)}
    write(folder / "in", {"timers.log": "".join(timers), **logs})
    for rank, gap in ((0, 10), (1, 30)):
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "dur": 10, "args": {"stream": 7}}
        kernels = [{**kernel, "ts": gap * n} for n in range(3)]
        info = {"rank": rank, "world_size": 2}
        trace = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": kernels}
        write(folder / "in", {f"kernels/rank{rank}.json": json.dumps(trace)})
    return ingest_and_build(folder / "in", folder / "lake").root


def test_a_log_shows_the_timers_that_take_most_of_a_step(tracelake: Command, others: Path) -> None:
    said = tracelake("show", "timers", "--lake", others).out.splitlines()
    (first,) = [number for number, line in enumerate(said) if line == "Timers  2 timers"]
    assert [line.split()[:6] for line in said[first + 2 : first + 4]] == [
        ["gen", "26.50", "s", "66.2", "%", "█" * 11],
        ["update_actor", "10.00", "s", "25.0", "%", "█" * 4],
    ]


def test_timers_of_two_logs_are_compared(tracelake: Command, tmp_path: Path) -> None:
    for name, gen in (("before", 20.0), ("after", 30.0)):
        lines = (
            f"step:{step} - actor/pg_loss:0.1 - timing_s/gen:{gen}"
            f" - timing_s/update_actor:10.0 - timing_s/step:40.0\n"
            for step in range(1, 12)
        )
        write(tmp_path / "in", {f"{name}.log": "".join(lines)})
    lake = ingest_and_build(tmp_path / "in", tmp_path / "lake").root
    said = tracelake("diff", "before", "after", "--lake", lake).out.splitlines()
    at = said.index("Timers  1 change")
    assert [line.split() for line in said[at + 1 : at + 4]] == [
        ["timer", "before", "after", "change", "relative", "verdict"],
        ["gen", "20.00", "s", "30.00", "s", "+10.00", "s", "+50.0", "%", "worse"],
        [],
    ]


def test_a_trace_of_kernels_shows_what_the_devices_did_the_idlest_first(
    tracelake: Command, others: Path
) -> None:
    said = tracelake("show", "kernels", "--lake", others).out.splitlines()
    at = said.index("Devices  2 ranks")
    assert [line.split() for line in said[at + 1 : at + 4]] == [
        ["rank", "steps", "window", "compute", "communication", "copies", "idle"],
        ["1", "1", "0.07", "ms", "42.9", "%", "0.0", "%", "0.0", "%", "57.1", "%"],
        ["0", "1", "0.03", "ms", "100.0", "%", "0.0", "%", "0.0", "%", "0.0", "%"],
    ]


def test_what_a_run_does_not_have_is_one_line(lake: Path) -> None:
    lines = shown(document(lake, PLAN)).splitlines()
    for line in (
        "Attention  No problems found",
        "Not in the input  operations of ranks, communication of ranks, layer times",
    ):
        assert line in lines
    assert any(line.startswith("Planned communication  7 kinds") for line in lines)


def test_what_is_missing_is_told_once_per_cause_with_its_remedy(lake: Path) -> None:
    of = document(lake, SIMULATED)
    text = shown(of)
    assert text.count("→ trace every rank on its own device") == 1
    assert "→ give --set micro_batches=N" in text
    figures = {row["figure"] for row in of["not_computable"]}
    assert len(figures) > 10
    assert all(figure in text for figure in figures)
    assert all(row["why"] for row in of["not_computable"])


def test_each_advice_stands_below_what_it_is_about(lake: Path) -> None:
    of = document(lake, SLOW)
    seen = ["Rank 2 is slow.", "Rank 6 is slow.", "Rank 7 is slow."]
    of["attention"][0] |= {"seen": seen, "advice": ["Check rank 2.", "Drain n3.", "Drain n3."]}
    lines = [line.removeprefix("  straggler").strip() for line in shown(of).splitlines()]
    first = lines.index("Rank 2 is slow.")
    assert lines[first : first + 5] == [seen[0], "Check rank 2.", *seen[1:], "Drain n3."]


def test_of_thousands_of_ranks_the_worst_are_shown(lake: Path) -> None:
    of = document(lake, SLOW)
    rank = of["stragglers"]["worst"][0]
    of["attention"][0]["count"] = 384
    of["stragglers"] = {
        "verdicts": {"ok": 16_000, "straggler": 384},
        "worst": [{**rank, "rank": number} for number in range(8)],
    }
    stage = of["stages"][0]
    of["stages"] = [
        {**stage, "stage": number, "bubble_ratio": number / 100} for number in range(64)
    ]
    text = shown(of)
    assert "Ranks  16,000 ok, 384 straggler" in text
    assert "  the worst 8 of 384" in text
    query = f"FROM findings WHERE kind = 'straggler' AND run_id = '{of['run_id']}'"
    assert f'... and 383 more: tracelake query "{query}"' in " ".join(text.split())
    assert "  16 of 64 stages, those with the largest bubbles" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("  stage ")] == [
        *(str(number) for number in range(48, 64))
    ]


@pytest.mark.parametrize("width", [72, 80, 120])
def test_every_line_fits_the_terminal(
    lake: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = "\n".join(shown(document(lake, run), Screen()) for run in RUNS).splitlines()
    lines += printed(lambda page: print_changes(changes(lake, SLOW, CLEAN), page), Screen())
    lines += listed(lake, Screen(), attention=True) + listed(lake, Screen())
    assert [line for line in lines if cell_len(line) > width] == []


def test_an_encoding_without_blocks_gets_ascii(lake: Path) -> None:
    for run in RUNS:
        shown(document(lake, run), Screen("ascii")).encode("ascii")
    text = shown(document(lake, SLOW), Screen("ascii", terminal=False))
    (theory,) = [line for line in text.splitlines() if line.startswith("  theory ")]
    assert theory[12:60] == "#" * 32 + "." * 16


def test_colours_are_for_terminals_that_want_them(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = document(lake, SLOW)
    assert "\x1b[" not in shown(of, Screen())
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[" in shown(of, Screen())
    assert "\x1b[" not in shown(of, Screen(terminal=False))


def test_text_of_a_log_does_not_drive_the_terminal(lake: Path) -> None:
    of = document(lake, LOG)
    of["run"]["model"] = "\x1b[2Jllama"
    of["layers"]["slowest"][0]["layer"] = "a\x07b"
    text = shown(of)
    assert "\\x1b[2Jllama" in text
    assert "a\\x07b" in text
    assert "\x1b" not in text


def test_a_line_is_escaped_whoever_prints_it() -> None:
    assert printed(lambda page: page.line("\x1b[2J"), Screen()) == ["\\x1b[2J"]


def test_the_worst_rank_comes_first_and_means_are_over_all_steps(tmp_path: Path) -> None:
    rows = trace_run(ranks=6, slow=1.5, slow_rank=1)
    for op in rows["ops"]:
        if op["rank"] == 4 and op["op"] == "backward_step":
            op["duration_ns"] += op["step"] * 50 * MS
            op["end_ns"] += op["step"] * 50 * MS
    made = make(tmp_path / "lake", {"r-00000001": rows})
    with open_warehouse(made) as con:
        of = read_run(con, "r-00000001")
        (means,) = con.execute(
            "SELECT avg(compute_ms), avg(window_ms) FROM rank_bubbles"
        ).fetchall()
    worst = of["stragglers"]["worst"]
    assert [(row["rank"], row["verdict"]) for row in worst] == [(4, "straggler"), (1, "straggler")]
    assert worst[0]["time_lost_ms"] == 50 + 100 + 150
    (stage,) = of["stages"]
    assert (stage["compute_ms"], stage["window_ms"]) == pytest.approx(means)


def test_a_curve_keeps_its_peaks_and_a_level_one_is_level() -> None:
    page = Page(Screen())
    values = [10.0] * 100
    values[50] = 20.0
    assert page.curve(values, 10) == "▁▁▁▁▁█▁▁▁▁"
    assert page.curve([100.0, 100.1, 100.0], 10) == "▁▂▁"
    assert page.curve([5.0], 10) == "▁"
    assert page.curve([], 10) == ""


def test_a_table_whose_commands_name_the_lake_is_aligned() -> None:
    rows = [{"do": "tracelake check", "at": "first"}, {"do": "wait", "at": "second"}]
    screen = Screen(terminal=False)

    def draw() -> None:
        name_lake("my lake")
        Page(screen).table([Column("do"), Column("at")], rows, indent=0)

    contextvars.copy_context().run(draw)
    head, command, other = screen.getvalue().splitlines()
    assert command == "tracelake check --lake 'my lake'  first"
    assert head.index("at") == command.index("first") == other.index("second")


@pytest.mark.parametrize(
    ("name", "run"),
    [
        (SLOW, SLOW),
        ("latest", SIMULATED),
        (f"{SLOW}~1", CLEAN),
        (f"{SLOW}~0", SLOW),
    ],
)
def test_a_run_has_many_names(tracelake: Command, lake: Path, name: str, run: str) -> None:
    assert tracelake("show", name, "--lake", lake).out.splitlines()[1].endswith(run)


def test_commands_that_write_files_name_the_run_before_as_show_does(
    tracelake: Command, lake: Path, tmp_path: Path
) -> None:
    name = f"{SLOW}~1"
    assert tracelake("whatif", name, "--lake", lake).out.splitlines()[0].endswith(CLEAN)
    assert CLEAN in tracelake("timeline", name, "--lake", lake, "-o", tmp_path / "run.json").err
    page = tmp_path / "page.html"
    assert tracelake("report", "--run", name, "--lake", lake, "-o", page).code == 0
    assert f'-{CLEAN}"' in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["nobody", "wd8", f"{CLEAN}~1", f"{SLOW}~2", "", "~1"])
def test_a_name_that_is_none_is_a_usage_error(tracelake: Command, lake: Path, name: str) -> None:
    result = tracelake("show", name, "--lake", lake)
    assert (result.code, result.out) == (2, "")
    assert "next:" in result.err


def test_a_name_that_the_terminal_cannot_show_is_escaped(lake: Path) -> None:
    done = subprocess.run(
        [
            TRACELAKE,
            "query",
            "SELECT 'caf\N{LATIN SMALL LETTER E WITH ACUTE}' AS x",
            "--lake",
            lake,
        ],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "x\ncaf\\xe9\n")


# --- diff -----------------------------------------------------------------------------


def test_diff_says_what_got_worse(tracelake: Command, lake: Path) -> None:
    result = tracelake("diff", SLOW, "--lake", lake)
    assert result.code == 0
    assert result.out == tracelake("diff", CLEAN, SLOW, "--lake", lake).out
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    for line in (
        "of one configuration",
        "stragglers 0 1 +1 worse",
        "step p50 187.58 ms 201.85 ms +14.28 ms +7.6 % worse",
        "bubble 34.1 % 35.5 % +1.4 points +4.0 % worse",
        "no change of 1 % or more: busbw, coverage, steps, suspects, rejects",
        "0 micro-batch 49.52 ms 63.77 ms +14.26 ms +28.8 % worse",
        "Layers neither run has layers",
        "2 ok straggler 1.00 x 1.30 x 0.20 ms 76.59 ms",
    ):
        assert line in lines


def test_diff_as_json_has_exact_changes_and_the_largest_first(
    tracelake: Command, lake: Path
) -> None:
    told = json.loads(tracelake("diff", SLOW, "--lake", lake, "--format", "json").out)
    assert told["comparable"]
    assert told["caveats"] == told["settings"] == []
    before, after = (document(lake, run)["summary"] for run in (CLEAN, SLOW))
    for row in told["headline"]:
        assert row["before"] == before[row["figure"]]
        assert row["after"] == after[row["figure"]]
        assert row["change"] == row["after"] - row["before"]
        if row["before"]:
            assert row["change_ratio"] == row["change"] / row["before"]
    grown = [abs(row["change_ratio"]) for row in told["headline"] if row["before"]]
    assert grown == sorted(grown, reverse=True)
    calls = [call["figures"]["time_ms"] for call in told["collectives"]]
    moved = [abs(time["after"] - time["before"]) for time in calls]
    assert moved == sorted(moved, reverse=True)


def test_diff_goes_by_date_and_says_so(tracelake: Command, lake: Path) -> None:
    typed, swapped = (
        tracelake("diff", *runs, "--lake", lake).out.splitlines()
        for runs in ((CLEAN, SLOW), (SLOW, CLEAN))
    )
    said = "        in order of their dates, not as typed"
    assert said not in typed
    assert [line for line in swapped if line != said] == typed
    told = changes(lake, SLOW, CLEAN)
    assert told["swapped"]
    (step,) = [row for row in told["headline"] if row["figure"] == "step_p50_ms"]
    assert (step["change"] > 0, step["verdict"]) == (True, "worse")


def test_undated_runs_are_compared_as_typed(lake: Path) -> None:
    for runs in ((PLAN, LOG), (LOG, PLAN)):
        told = changes(lake, *runs)
        assert not told["swapped"]
        assert told["before"]["run_id"].endswith(runs[0])


def test_diff_says_first_where_the_step_went(tracelake: Command, lake: Path) -> None:
    told = json.loads(tracelake("diff", SLOW, "--lake", lake, "--format", "json").out)
    *operations, rest = told["operations"]
    assert (rest["op"], rest["kind"], rest["stage"]) == ("rest", "rest", None)
    moved = [abs(row["change_ms"]) for row in operations]
    assert moved == sorted(moved, reverse=True)
    (step,) = [row for row in told["headline"] if row["figure"] == "step_p50_ms"]
    assert rest["running_ms"] == pytest.approx(step["change"])
    assert sum(row["change_ms"] for row in told["operations"]) == pytest.approx(step["change"])
    assert sum(row["share_ratio"] for row in told["operations"]) == pytest.approx(1)
    assert {row["stage"] for row in operations[:3]} == {0}  # rank 2 is slow

    lines = tracelake("diff", SLOW, "--lake", lake).out.splitlines()
    headings = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert headings[2:5] == ["Step by operation", "Headline", "Stages"]
    heading = "Step by operation  where +14.2"
    start = next(n for n, line in enumerate(lines) if line.startswith(heading)) + 2
    table = lines[start : lines.index("", start)]
    first = table[0].split()
    assert first[0] == operations[0]["op"]
    assert table[-1].split()[:4] == ["rest", "of", "the", "medians"]
    assert "+14.2" in table[-1]
    bars = [line[line.index("\N{FULL BLOCK}") :].rstrip() for line in table]
    assert all(set(bar) == {"\N{FULL BLOCK}"} for bar in bars)
    places = [line.index("\N{FULL BLOCK}") for line in table]
    assert places[1] == places[0] + len(bars[0])  # a bar begins where the one before it ends


def test_what_is_the_same_in_all_stages_stands_once(tracelake: Command, lake: Path) -> None:
    out = tracelake("diff", SLOW, "--lake", lake).out
    (window,) = [line.split() for line in out.splitlines() if line.split()[1:2] == ["window"]]
    assert window[0] == "all"


def test_logs_have_no_operations_to_compare(lake: Path) -> None:
    told = changes(lake, EARLIER_LOG, LOG)
    assert told["operations"] == []
    assert "not both runs have operations with a pipeline window" in differing(told)


def test_runs_that_do_not_compare_say_why(lake: Path) -> None:
    told = changes(lake, LOG, SIMULATED)
    assert not told["comparable"]
    assert "optimus and rank_trace" in told["caveats"][0]
    assert "after is simulated: only its compute times hold" in told["caveats"]
    assert "after is incomplete" in told["caveats"]
    settings = {row["name"]: (row["before"], row["after"]) for row in told["settings"]}
    assert settings["format"] == ("optimus", "rank_trace")
    assert settings["world_size"] == (4, 8)
    assert settings["tensor"] == (None, "float16[1,1024,512]")
    text = differing(told)
    assert "of one configuration" not in text
    assert "only before" in text
    assert "Only after lacks" in text


def test_calls_and_layers_that_one_run_lacks_are_listed(lake: Path) -> None:
    told = changes(lake, PLAN, LOG)
    assert {row["seen_in"] for row in told["layers"]} == {"after"}
    layer = told["layers"][0]["figures"]["p50_ms"]
    assert layer["before"] is layer["change"] is layer["verdict"] is None


@pytest.mark.parametrize("runs", [[SLOW, SLOW], [CLEAN], [SLOW, "nobody"]])
def test_diff_needs_two_runs(tracelake: Command, lake: Path, runs: list[str]) -> None:
    result = tracelake("diff", *runs, "--lake", lake)
    assert (result.code, result.out) == (2, "")


# --- runs -----------------------------------------------------------------------------


def ids(tracelake: Command, lake: Path, *options: str) -> list[str]:
    answer = tracelake("runs", "--lake", lake, "--format", "json", *options)
    assert answer.code == 0, answer.err
    return [row["run_id"][-8:] for row in json.loads(answer.out)]


def test_runs_are_chosen_and_sorted(tracelake: Command, lake: Path) -> None:
    everything = ids(tracelake, lake)
    # The one with a finding, then the latest.
    assert everything[:3] == [SLOW, SIMULATED, LOG]
    assert sorted(everything) == sorted(RUNS)
    assert ids(tracelake, lake, "--limit", "2") == [SLOW, SIMULATED]
    assert ids(tracelake, lake, "--trace-format", "optimus") == [LOG, EARLIER_LOG]
    assert ids(tracelake, lake, "--attention") == [SLOW]
    by_time = [EARLIER_LOG, LOG, SLOW, CLEAN]
    assert ids(tracelake, lake, "--sort", "step_p50_ms")[:4] == by_time
    assert ids(tracelake, lake, "--sort", "step_p50_ms", "--reverse")[:4] == by_time[::-1]
    assert ids(tracelake, lake, "--sort", "run_id")[0] == PLAN
    assert ids(tracelake, lake, "--since", "24h") == []
    assert ids(tracelake, lake, "--sort", "run_date")[:3] == [SIMULATED, LOG, SLOW]
    for head, column in (("step", "step_p50_ms"), ("bubble", "bubble_ratio"), ("run", "hash")):
        assert ids(tracelake, lake, "--sort", head) == ids(tracelake, lake, "--sort", column)
    assert ids(tracelake, lake, "--sort", "run date")[:3] == [SIMULATED, LOG, SLOW]
    assert ids(tracelake, lake, "--sort", "attention")[0] == SLOW
    listed = tracelake("runs", "--lake", lake, "--format", "csv").out.splitlines()[0]
    for name in listed.replace('"', "").split(","):
        assert len(ids(tracelake, lake, "--sort", name)) == len(RUNS), name
    assert PLAN not in ids(tracelake, lake, "--since", "9999w")
    (row,) = json.loads(tracelake("runs", "--lake", lake, "--attention", "--format", "json").out)
    assert row["attention"] == "straggler"


@pytest.mark.parametrize(
    "options", [["--sort", "colour"], ["--trace-format", "nvlog"], ["--since", "long"]]
)
def test_runs_refuses_what_it_does_not_know(
    tracelake: Command, lake: Path, options: list[str]
) -> None:
    result = tracelake("runs", "--lake", lake, *options)
    assert (result.code, result.out) == (2, "")


def test_a_narrow_terminal_keeps_names_and_says_what_is_left_out(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = listed(lake, Screen())
    first = lines[1].split()
    assert (first[0], first[1], first[-1]) == ("job001", SLOW, "straggler")
    assert [line.split()[1] for line in lines[1:4]] == [SLOW, SIMULATED, LOG]
    assert "columns that do not fit: " in " ".join(lines)
    plans = lines.index("Without steps  plans of work, tests of links, and logs without steps")
    assert {line.split()[1] for line in lines[plans + 2 :]} >= {PLAN}
    monkeypatch.setenv("COLUMNS", "250")
    wide = listed(lake, Screen())
    assert "rejects" in wide[0]
    assert "fit" not in " ".join(wide)


def test_the_end_of_a_run_says_what_is_wrong_in_ten_lines(lake: Path) -> None:
    with open_warehouse(Lake.open(lake)) as con:
        ending = read_ending(con)
    lines = printed(lambda page: print_ending(*ending, page), Screen(terminal=False))
    assert len(lines) <= 8
    assert lines[0].startswith("critical rank 2 in job001: straggler since 2024-01-09, cause ")
    assert lines[0].endswith(f"GPU h a day by replay  tracelake show {SLOW}")
    assert lines[-1].startswith(
        "7 runs (2 without steps); 1 needs attention: tracelake runs --attention"
    )


def test_the_end_of_a_run_says_how_many_more_there_are_and_what_lists_them(
    tracelake: Command, tmp_path: Path
) -> None:
    nights = {"over": [1, 1, 1, 1.5, 1.5, 1, 1, 1]} | {job: [1, 1, 1, 1.5] for job in "abcdefg"}
    jobs = {
        f"{config}{n}": trace_run(slow=slow, config=config, run_date=datetime(2025, 3, 1 + n))
        for config, slows in nights.items()
        for n, slow in enumerate(slows)
    }
    undated = {f"undated{n}": trace_run(slow=1.5, config=f"u{n}") for n in range(4)}
    root = tmp_path / "a lake"
    commit_runs(Lake.create(root), {**jobs, **undated})
    archive = write(tmp_path / "archive", dict.fromkeys(("a.txt", "b.txt"), plan(3, declared=5)))
    ended = tracelake("run", archive, "--lake", root).out.splitlines()
    lake = f"'{root}'"  # to be pasted into a shell
    text = "\n".join(ended)
    assert len(re.findall(r"^critical rank \d in [a-g]3: straggler since 2025-", text, re.M)) == 5
    assert len(re.findall(r"^critical rank \d in undated\d: straggler, ", text, re.M)) == 2
    assert f"... and 2 more incidents: tracelake ask --lake {lake} incidents" in ended
    assert f"... and 3 more findings: tracelake ask --lake {lake} attention" in ended
    (counted,) = [line for line in ended if "need attention" in line]
    assert counted.startswith(
        "42 runs (2 without steps); 14 need attention (2 of incidents that are over):"
        f" tracelake runs --lake {lake} --attention"
    )
    commands = pasted(text)
    assert len(commands) >= 10
    for command in commands:
        done = tracelake(*command)
        assert done.code == 0, done.err
    listed = tracelake("runs", "--attention", "--lake", root, "--format", "json").out
    assert len(json.loads(listed)) == 14


def test_an_incident_of_a_whole_run_is_called_by_the_label_of_the_run(
    tracelake: Command, tmp_path: Path
) -> None:
    records = (
        f" [2026-05-10 10:00:0{i}] iteration {i:8}/ 50 | elapsed time per iteration (ms): 500.0 |"
        " global batch size: 64 | lm loss: 2.3E+00 |\n"
        for i in range(1, 9)
    )
    archive = write(tmp_path / "archive", {"job-10.log": "".join(records)})
    ended = tracelake("run", archive, "--lake", tmp_path / "lake").out.splitlines()
    assert ended[0].startswith(
        "warning  job-10: incomplete since 2026-05-10, its log ends with step 8 of 50  tracelake "
    )
    page = (tmp_path / "lake" / "report.html").read_text()
    link = r'<a href="#run-[^"]+" title="[^"]+">job-10</a> <code>[0-9a-f]{8}</code>'
    assert re.search(f"warning</span> {link} <small>incomplete since", page)


def test_the_end_of_a_run_begins_with_what_is_critical(tracelake: Command, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    day = datetime(2025, 3, 1)
    commit_run(lake, "partial", trace_run(complete=False, ranks_expected=6, run_date=day))
    first = tracelake("run", write(tmp_path / "in", {"a.txt": plan(3)}), "--lake", lake.root)
    assert first.out.startswith("warning  partial: incomplete since 2025-03-01, ")
    commit_run(lake, "undated", trace_run(slow=1.5, config="undated"))
    ended = tracelake("run", tmp_path / "in", "--lake", lake.root).out.splitlines()
    assert [line[:16] for line in ended[:2]] == ["critical rank 2 ", "warning  partial"]


def test_runs_mark_a_copy_with_the_run_that_it_repeats(tracelake: Command, tmp_path: Path) -> None:
    archive = write(tmp_path / "archive", dict.fromkeys(("a.txt", "b.txt"), plan(3)))
    lake = tmp_path / "lake"
    assert tracelake("run", archive, "--lake", lake).code == 0
    rows = json.loads(tracelake("runs", "--lake", lake, "--format", "json").out)
    original, copied = sorted(rows, key=lambda row: str(row["label"]))
    assert (original["copy_of"], copied["copy_of"]) == (None, original["hash"])
    head, first, second = tracelake("runs", "--lake", lake).out.splitlines()[:3]
    assert "copy of" in head
    assert sorted(line.count(original["hash"]) for line in (first, second)) == [1, 1]
    assert "copy of" in (lake / "report.html").read_text()
    assert ids(tracelake, lake, "--sort", "copy of")[0] == copied["run_id"][-8:]
    shown = tracelake("show", copied["hash"], "--lake", lake).out
    assert f"a copy of {original['label']}, which counts in its place" in shown
    assert ["show", "--lake", str(lake), original["hash"]] in pasted(shown)
    assert "a copy of" not in tracelake("show", original["hash"], "--lake", lake).out


def test_show_names_the_log_in_which_a_job_went_on(tracelake: Command, others: Path) -> None:
    (later,) = ids(tracelake, others, "--limit", "1")
    assert f"the job went on in slurm-2: tracelake show --lake {others} {later}" in (
        tracelake("show", "slurm-1", "--lake", others).out
    )
    assert "went on" not in tracelake("show", "slurm-2", "--lake", others).out


def test_a_question_is_asked_of_a_run_by_its_label(tracelake: Command, lake: Path) -> None:
    asked = tracelake("ask", "slow_ranks", "job001", "--lake", lake, "--format", "json")
    assert [row["rank"] for row in json.loads(asked.out)] == [2]
    nothing = tracelake("ask", "why", "job000", "--lake", lake)
    assert (nothing.code, nothing.out.startswith("No rows. What is wrong")) == (0, True)
    two = ("ask", "collective_time", "job000", "--lake", lake, "--param", "top=2")
    assert tracelake(*two).out.endswith("At most 2 rows are shown; --param top=N shows N.\n")
    assert "At most" not in tracelake(*two[:-1], "top=1000").out
    for form, rows in (("csv", 3), ("ndjson", 2)):  # a program's rows stay alone
        asked = tracelake(*two, "--format", form)
        assert len(asked.out.splitlines()) == rows
        assert asked.err == "At most 2 rows are shown; --param top=N shows N.\n"
    assert not tracelake(*two[:-1], "top=1000", "--format", "csv").err
    whole_lake = tracelake("ask", "trend", "job000", "--lake", lake)
    assert (whole_lake.code, "not of one run" in whole_lake.err) == (2, True)


def test_a_lake_without_such_runs_says_so(lake: Path) -> None:
    assert listed(lake, Screen(), trace_format="none")[-1] == "no runs"


# --- other results --------------------------------------------------------------------


def test_a_result_fits_the_terminal_or_is_told_row_by_row(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def lines(sql: str) -> list[str]:
        screen = Screen()
        write_result(run_query(Lake.open(lake), sql), "table", screen)
        return screen.getvalue().splitlines()

    assert lines("SELECT 1 AS a, 'x' AS b") == ["a  b", "1  x"]
    folded = lines("SELECT run_id, config FROM runs")
    assert max(map(cell_len, folded)) <= 80
    assert folded[0].startswith("┏")
    rows = lines(f"FROM runs WHERE run_id = '{whole(lake, SLOW)}'")
    assert rows[0] == "row 1"
    assert f"  run_id             {whole(lake, SLOW)}" in rows


# --- completion -----------------------------------------------------------------------


def completed(*words: str, **environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if name != "TRACELAKE_LAKE"}
    done = subprocess.run(
        [TRACELAKE],
        env={
            **kept,
            "_TRACELAKE_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("tracelake", *words)),
            "COMP_CWORD": str(len(words)),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_completes_runs_tables_and_formats(lake: Path) -> None:
    slow = whole(lake, SLOW)
    assert completed("show", "--lake", str(lake), slow[:-6]) == [slow]
    assert completed("show", SLOW[:4], TRACELAKE_LAKE=str(lake)) == [SLOW]
    assert completed("show", "job00", TRACELAKE_LAKE=str(lake))[0] == "job001"
    assert completed("diff", slow, "tp2_", TRACELAKE_LAKE=str(lake)) == [
        whole(lake, LOG),
        whole(lake, EARLIER_LOG),
    ]
    assert completed("show", "lat", TRACELAKE_LAKE=str(lake)) == ["latest"]
    assert completed("describe", "run_") == ["run_history", "run_list", "run_summary", "run_views"]
    assert completed("formats", "r") == ["rank_trace"]
    assert completed("runs", "--trace-format", "o") == ["optimus"]


def test_completion_without_a_lake_is_silent(tmp_path: Path) -> None:
    assert completed("show", "w") == []
    assert completed("show", "w", TRACELAKE_LAKE=str(tmp_path / "absent")) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_shown(shell: str) -> None:
    done = subprocess.run(
        [TRACELAKE, "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"complete_{shell}" in done.stdout


def test_documents_are_not_changed_by_printing(lake: Path) -> None:
    of = document(lake, SLOW)
    before = copy.deepcopy(of)
    shown(of)
    assert of == before


def test_a_run_that_cannot_be_replayed_says_why_in_words(tracelake: Command, lake: Path) -> None:
    meaning = reasons()["simulated"].rstrip(".")
    shown = tracelake("whatif", SIMULATED, "--lake", lake)
    said = " ".join(shown.out.split())
    assert (shown.code, meaning[1:] in said, "simulated, " in said) == (0, True, True)
    asked = tracelake("whatif", SIMULATED, "--lake", lake, "--fix", "rank=0")
    assert (asked.code, meaning in " ".join(asked.err.split())) == (2, True)
