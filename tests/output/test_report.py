from __future__ import annotations

import base64
import email
import email.policy
import hashlib
import importlib
import re
import shlex
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import ROOT, Command, Result
from tests.pages import Node, charts, own, packed, read_page
from tests.report_lakes import link_run, make, plan_run, trace_run
from tests.tiny_lakes import Rows, commit_run, log_run
from tracelake.base.errors import InputError, LakeError, UsageError
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.models.catalog import catalog
from tracelake.output.html import content
from tracelake.output.html.attention import read_attention
from tracelake.output.html.page import ReportFormat, write_report
from tracelake.output.html.reading import page_about

NOTHING = "\N{EN DASH}"
NOW = datetime(2025, 3, 2, 6, 0)
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    rejecting = log_run(steps=5, rejected=2, complete=False, run_date=datetime(2025, 3, 1, 23))
    fault = {"source_id": 0, "line": 7, "name": "cut", "severity": "data_loss", "count": 2}
    return make(
        tmp_path_factory.mktemp("report") / "cluster",
        {
            "slow": trace_run(slow=1.5, run_date=datetime(2025, 3, 1, 6)),
            "even": trace_run(run_date=datetime(2025, 2, 1)),
            "log": {**rejecting, "faults": [fault, {**fault, "name": "odd", "severity": "info"}]},
            "plan": plan_run(),
        },
    )


SLOW_AGAIN = {
    f"{config}{day}": trace_run(slow=slow, config=config, run_date=datetime(2025, 3, day))
    for config, slow in (("c", 1.5), ("d", 2.0), ("e", 1.0))
    for day in (1, 2, 3)
}
WORSE = {
    **{f"r{n}": trace_run(config="r", run_date=datetime(2025, 3, n)) for n in (1, 2, 3)},
    "worse": trace_run(slow=1.5, config="r", run_date=datetime(2025, 3, 4), complete=False),
}
SINGLE = {
    "alone": trace_run(ranks=1, simulated=True, config="alone"),
    "played": trace_run(simulated=True, config="played"),
    "many": trace_run(slow=1.5, slow_rank=69, ranks=70, config="many"),
}
CARDS = {
    "undated": log_run(steps=5, rejected=2, complete=False, config="undated"),
    "dated": trace_run(slow=1.5, run_date=datetime(2025, 3, 1), config="dated"),
}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Runs of configurations that do not meet, for pages about some of them."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "in").mkdir()
    (folder / "in" / "notes.md").write_text("no trace\n")
    with pytest.raises(InputError):
        ingest([str(folder / "in")], Lake.create(folder / "lake"), Options())
    return make(folder / "lake", SLOW_AGAIN | WORSE | SINGLE | CARDS)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose name and texts are of markup."""
    rows = {**log_run(steps=4, rejected=1, model=EVIL, attributes=[(EVIL, EVIL)])}
    rows["layer_times"] = [{**row, "layer": f"{row['layer']}{EVIL}"} for row in rows["layer_times"]]
    rows["rejects"] = [{**rows["rejects"][0], "reason": EVIL, "text": EVIL}]
    rows["sources"] = [{**rows["sources"][0], "path": f"{EVIL}.txt"}]
    rows["faults"] = [
        {"source_id": 0, "line": 1, "name": EVIL, "severity": "error", "count": 1, "text": EVIL}
    ]
    marked = trace_run(slow=1.5, config="*c*")
    root = tmp_path_factory.mktemp("hostile") / "lake_of <b>"
    return make(root, {"evil": rows, "_r_1": marked})


def write(lake: Lake, out: Path, **options: Any) -> Node:
    write_report(lake, out, **{"now": NOW, **options})
    return read_page(out.read_text())


@pytest.fixture(scope="module")
def page(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Node:
    return write(lake, tmp_path_factory.mktemp("out") / "page.html")


@pytest.fixture(scope="module")
def single(several: Lake, tmp_path_factory: pytest.TempPathFactory) -> Node:
    return write(several, tmp_path_factory.mktemp("out") / "page.html", runs=list(SINGLE))


def figures(node: Node, title: str, *names: str) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in names) for row in node.section(title).table()]


def listed(page: Node) -> list[str]:
    return [cell.text for cell in page.by_id("runs").all("td", "name")]


def test_the_page_says_when_and_of_what(page: Node, lake: Lake) -> None:
    assert page.all("title")[0].text == f"tracelake report: {lake.root.name}"
    told = page.all("header")[0].text
    assert "2025-03-02 06:00" in told
    assert "4 runs (1 aicb_workload, 1 optimus, 2 rank_trace)" in told


def test_the_page_needs_nothing_else(page: Node) -> None:
    names = {node.attrs["id"] for node in page.nodes() if "id" in node.attrs}
    for node in page.nodes():
        assert node.tag not in {"link", "img", "iframe", "object", "use", "image"}
        assert not {"src", "srcset", "xlink:href", "action"} & node.attrs.keys()
        assert node.attrs.get("href", "#runs").removeprefix("#") in names
        if node.tag != "meta":  # the policy has hashes in base64, which may have a //
            assert not any("url(" in value or "//" in value for value in node.attrs.values())
    styles = "".join(node.text for node in page.all("style"))
    assert not re.search(r"url\(|@import|//", styles)
    (script,) = [node for node in page.all("script") if not node.attrs]
    assert not re.search(r"fetch|XMLHttp|import\s*\(|https?:|eval|Function\(", script.text)
    (policy,) = [n for n in page.all("meta") if n.attrs.get("http-equiv")]
    allowed = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script.text, packed(page, "chart-library"))
    ]
    sources = " ".join(f"'sha256-{digest}'" for digest in allowed)
    assert policy.attrs["content"] == (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {sources}"
    )


def test_headline_names_each_run_the_most_severe_first(page: Node) -> None:
    rows = page.section("Runs").table()
    assert [row["label"] for row in rows] == ["log", "slow", "even"]
    slow = rows[1]
    assert slow["problems"] == "straggler"
    assert (slow["step p50 (ms)"], slow["bubble (%)"], slow["stragglers"]) == (
        "350.00",
        "10.7",
        "1",
    )
    assert rows[0]["rejects"] == "2"
    (plan,) = page.by_id("runs").all("details")
    assert [cell.text for cell in plan.all("td", "name")] == ["plan"]


def test_headline_says_why_a_figure_is_missing(single: Node) -> None:
    headline = single.all("table", "headline")[0]
    heads = [head.text for head in headline.all("th")]
    names = [cell.text for cell in headline.all("td", "name")]
    row = headline.all("tr")[1 + names.index("alone")]
    cell = row.all("td")[heads.index("bubble (%)")]
    assert cell.text == NOTHING
    assert cell.attrs["title"].startswith("simulated: The ranks ran")


def test_attention_lists_what_is_wrong_and_nothing_else(page: Node) -> None:
    groups = page.by_id("attention").all("details")
    told = {g.attrs["id"]: [item.text for item in g.all("li")] for g in groups if "id" in g.attrs}
    assert list(told) == ["straggler", "unreadable", "rejects", "incomplete"]
    (straggler,) = told["straggler"]
    assert straggler.startswith("slow: rank 2 (stage 0): forward_step took 1.62 times as long")
    assert " It cost 0.6 GPU s by replay. " in straggler
    assert straggler.endswith("Compare what rank 2 computes with its peers.")
    assert told["unreadable"][0].startswith("log: log.txt: cut, 2 times, first in line 7")
    assert told["rejects"][0].startswith("log: Lines rejected: 2 (")
    assert "the first at log.txt:1000: " in told["rejects"][0]
    assert told["incomplete"][0].startswith("log: The run is incomplete: its input has not ended.")
    (kinds,) = [g for g in groups if "kinds" in g.attrs.get("class", "")]
    assert "stragglers 1, data lost or unreadable 1" in kinds.all("summary")[0].text


def test_findings_without_a_card_stand_open(several: Lake, tmp_path: Path) -> None:
    attention = write(several, tmp_path / "page.html", runs=list(CARDS)).by_id("attention")
    assert "No problems found." not in attention.text
    (card,) = attention.all("article")
    assert "rank 2" in card.text
    open_ones = [part.attrs["id"] for part in own(attention, "details") if "id" in part.attrs]
    assert open_ones == ["rejects", "incomplete"]
    (kinds,) = [part for part in own(attention, "details") if "kinds" in part.classes]
    assert [part.attrs["id"] for part in own(kinds, "details")] == ["straggler"]


def test_attention_names_what_was_slow_again_and_again_the_dearest_first(
    several: Lake, tmp_path: Path
) -> None:
    page = write(several, tmp_path / "page.html", runs=list(SLOW_AGAIN))
    cheap, dear = (
        f"rank 2: forward_step took {slowdown:.2f} times as long as the median of 3 peers in 3"
        f" of its latest 3 runs, last in {config}3. It cost {4 * lost / 1000:.3g} GPU s by replay."
        for config, slowdown, lost in (("c", 130 / 80, 150), ("d", 180 / 80, 300))
    )
    told = [item.text for item in page.by_id("recurring").all("li")]
    for text, wanted in zip(told, (f"d3: {dear}", f"c3: {cheap}"), strict=True):
        assert text.startswith(wanted)
    attention = {row["label"]: row["problems"] for row in page.section("Runs").table()}
    assert attention["d3"] == "recurring, straggler"
    assert attention["d2"] == "recurring, straggler"
    older = write(several, tmp_path / "older.html", runs=["c1", "c2", "e3"])
    (older_text,) = [item.text for item in older.by_id("recurring").all("li")]
    assert older_text.startswith(f"c2: {cheap}")
    other = write(several, tmp_path / "other.html", runs=["e3"])
    assert "No problems found." in other.text


def test_each_command_of_a_card_answers(tmp_path: Path, tracelake: Command) -> None:
    broken = log_run(steps=5, complete=False, run_date=datetime(2025, 3, 1), config="log")
    lake = make(
        tmp_path / "lake",
        {
            "trace": trace_run(slow=1.5, run_date=datetime(2025, 3, 1)),
            "log": broken,
            "links": link_run(),
        },
    )
    cards = write(lake, tmp_path / "page.html").all("article")
    offered = {
        card.all("h3")[0].text: [code.text for code in card.all("details", "sql")[0].all("code")]
        for card in cards
    }
    assert len(offered) == 3
    for title, commands in offered.items():
        assert any("timeline" in command for command in commands) == ("rank 2" in title), title
        for command in commands:
            program, *arguments = shlex.split(command)
            given = [
                str(tmp_path / word) if word == "trace.json.gz" else word for word in arguments
            ]
            answer = tracelake(*given)
            assert (program, answer.code) == ("tracelake", 0), answer.err
            assert "(0 rows)" not in answer.out, command


def test_attention_lists_what_is_worse_than_earlier_runs(several: Lake, tmp_path: Path) -> None:
    page = write(several, tmp_path / "page.html", runs=list(WORSE))
    told = [item.text for item in page.by_id("regressed").all("li")]
    assert all(text.startswith("worse") for text in told)
    assert any("step_p50_ms 350 is 16.7 % over the median 300 of 3" in text for text in told)
    attention = {row["label"]: row["problems"] for row in page.section("Runs").table()}
    assert attention["worse"].startswith("regressed, straggler")
    even = write(several, tmp_path / "even.html", runs=["r3"])
    assert "No problems found." in even.text


def test_headings_count_alarms_and_name_notices(tmp_path: Path) -> None:
    def told() -> tuple[str, list[str], list[str]]:
        page = write(made, tmp_path / "page.html")
        write_report(made, tmp_path / "a.md", now=NOW, form=ReportFormat.MARKDOWN)
        title, *lines = (tmp_path / "a.md").read_text().splitlines()
        return page.by_id("regressed").all("summary")[0].text, title.split(", "), lines

    def night(n: int) -> Rows:
        slow = 1.5 if n > 7 else 1.0
        return trace_run(ranks=1, slow=slow, slow_rank=0, run_date=datetime(2025, 3, n))

    made = make(tmp_path / "lake", {f"night{n}": night(n) for n in range(1, 9)})
    heading, title, lines = told()
    assert heading == "Regressions 1 notice"
    assert title[0].endswith(": regressions 1 notice")
    commit_run(made, "night9", night(9))
    build(made)
    heading, title, lines = told()
    assert heading == "Regressions 1 and 1 notice"
    assert title[0].endswith(": regressions 1")
    assert "## Regressions (1 and 1 notice)" in lines


def test_passed_over_inputs_are_told_but_not_beside_named_runs(
    several: Lake, tmp_path: Path
) -> None:
    whole = write(several, tmp_path / "whole.html")
    assert whole.by_id("skipped").all("li")[0].text == "no_format: notes.md"
    named = write(several, tmp_path / "named.html", runs=["e1"])
    assert named.by_id("attention").all("p")[0].text == "No problems found."


def test_a_run_of_a_trace_shows_its_figures(page: Node) -> None:
    run = page.by_id("run-slow")
    facts = run.terms("facts")
    assert facts["tp"] == "4 name"
    assert facts["run date"] == "2025-03-01 06:00:00"
    ranks = figures(run, "Slow ranks", "rank", "verdict", "slow steps", "time lost (ms)")
    assert ranks[1:3] == [("1", "ok", "0", "0.00"), ("2", "straggler", "3", "150.00")]
    stages = figures(run, "Bubble by stage", "stage", "basis", "bubble (%)", "theory bubble (%)")
    assert stages == [("0", "measured", "10.7", "0.0"), ("0", "modelled", "0.0", "0.0")]
    windows = figures(
        run, "Where the pipeline window went", "rank", "compute (ms)", "in op comm (ms)", "gap (ms)"
    )
    assert windows[0] == ("0", "280.00", "20.00", "50.00")
    assert windows[2] == ("2", "330.00", "20.00", "0.00")
    balance = figures(run, "Balance of stages", "stage", "micro-batch (ms)", "share (%)")
    assert balance == [("0", "350.00", "100.0")]
    (call,) = run.section("Communication: time and bandwidth by size").table()
    assert (call["size"], call["group size"], call["calls"]) == ("1.00 MB", "4", "3")
    assert (call["time p50 (ms)"], call["algbw p50 (GB/s)"]) == ("20.00", "0.05")
    assert call["busbw p50 (GB/s)"] == "0.08"
    assert "overlapped" not in call
    assert figures(run, "Steps", "step", "step (ms)")[0] == ("1", "350.00")


def test_a_run_says_what_equal_peers_would_save(page: Node, lake: Lake) -> None:
    section = page.by_id("run-slow").section("What if")
    pieces = [part.text for part in section.all("p", "legend")[0].all("span")]
    assert pieces == [
        "300.00 ms with equal peers",
        "50.00 ms for slower peers (S 1.167)",
        "cause: one rank",
    ]
    widths = [part.attrs["style"] for part in section.all("div", "stack")[0].all("i")]
    assert widths == ["width:85.71%", "width:14.29%"]
    (rank,) = section.table()
    assert (rank["rank"], rank["fixing it saves (ms of a step)"]) == ("2", "50.00")
    assert f"tracelake whatif --lake {lake.root} slow --fix rank=2" in section.text
    even = page.by_id("run-even").section("What if")
    assert "with equal peers" in even.text
    assert "--fix" not in even.text


def test_parts_of_the_window_fill_the_bar(page: Node) -> None:
    section = page.by_id("run-slow").section("Where the pipeline window went")
    legend = [part.text for part in section.all("p", "legend")[0].all("span")]
    for stack in section.all("span", "stack"):
        widths = [float(i.attrs["style"][6:-1]) for i in stack.all("i")]
        assert sum(widths) == pytest.approx(100, abs=0.3)
    first = section.all("span", "stack")[0].all("i")
    assert [i.attrs["title"] for i in first] == ["compute 80.0 %", "in op comm 5.7 %", "gap 14.3 %"]
    places = [int(i.attrs["class"].removeprefix("p")) for i in first]
    assert [legend[place] for place in places] == ["compute", "in op comm", "gap"]


def test_a_run_of_a_log_shows_its_figures(page: Node) -> None:
    run = page.by_id("run-log")
    layers = figures(run, "Layers", "layer", "steps", "mean (ms)", "p95 (ms)")
    assert layers == [("0", "4", "1.00", "1.00"), ("1", "4", "2.00", "2.00")]
    stages = figures(run, "Bubble by stage", "stage", "basis", "theory bubble (%)", "reason")
    assert stages[1] == ("1", "modelled", "20.0", "forward_modules_only")
    rejects = run.section("Rejected lines").table()
    assert rejects[0] == {"path": "log.txt", "line": "1000", "reason": "bad", "text": "x"}
    faults = figures(run, "Faults tolerated", "severity", "name", "count")
    assert faults == [("data loss", "cut", "2"), ("info", "odd", "2")]
    assert figures(run, "Files", "path", "rejected") == [("log.txt", "2")]
    assert figures(run, "Steps", "step", "loss")[2] == ("3", "3.500")


def test_a_run_of_a_plan_shows_its_figures(page: Node) -> None:
    run = page.by_id("run-plan")
    (row,) = run.section("Planned communication").table()
    assert (row["pass"], row["group size"], row["bytes"]) == ("forward", "8", "50.00 MB")
    assert (row["compute (ms)"], row["needed (GB/s)"]) == ("2.00", "25.00")
    stages = figures(run, "Bubble by stage", "stage", "basis", "bubble (%)")
    assert stages == [("all", "theory", "25.0")]


def test_sections_without_data_say_why_in_one_line(page: Node, single: Node) -> None:
    without = page.by_id("run-plan").terms("without")
    assert without["Layers"] == "The input has no layer times."
    assert without["Rejected lines"] == "No line was rejected."
    played = single.by_id("run-played")
    assert played.terms("without")["Slow ranks"].startswith("simulated: The ranks ran")
    missing = played.section("Coverage").table()
    wanted = {"figure": "straggler_ranks.slowdown", "reason": "simulated"}
    (row,) = [row for row in missing if row["figure"] == wanted["figure"]]
    assert row["what would provide it"] == "trace every rank on its own device"
    assert row.items() >= wanted.items()
    assert not [table for table in played.all("tbody") if not table.all("tr")]


def test_runs_beyond_the_detailed_keep_their_headline(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "DETAILED_RUNS", 2)
    page = write(lake, tmp_path / "page.html")
    assert listed(page) == ["log", "slow", "even", "plan"]
    assert [run.attrs["id"] for run in page.all("details", "run")] == ["run-log", "run-slow"]


def test_runs_beyond_the_listed_are_counted(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "LISTED_RUNS", 1)
    page = write(lake, tmp_path / "page.html")
    assert listed(page) == ["log"]
    assert "1 of 4 runs" in page.section("Runs").text


def test_long_tables_keep_what_matters(single: Node) -> None:
    section = single.by_id("run-many").section("Slow ranks")
    ranks = section.table()
    assert len(ranks) == 64
    assert (ranks[-1]["rank"], ranks[-1]["verdict"]) == ("69", "straggler")
    assert "64 of 70 rows" in section.text


def test_definitions_stand_once_for_every_heading(page: Node) -> None:
    defined = {
        node.attrs["data-defines"]: {t.attrs["data-label"] for t in node.all("dt")}
        for node in page.all("dl", "glossary")
    }
    for table in page.all("table"):
        if relation := table.attrs.get("data-of"):
            labels = {str(head.children[0]).strip() for head in table.all("th")}
            drawn = {"parts", "steps over time"}
            elsewhere = {"path"} if relation in {"rejects", "faults", "ops"} else set()
            assert labels <= defined[relation] | drawn | elsewhere
    assert "simulated" in defined["reason"]
    assert defined["run_summary"] >= {"bubble", "busbw"}


def test_what_the_lake_says_is_text(hostile: Lake, tmp_path: Path) -> None:
    page = write(hostile, tmp_path / "page.html")
    assert len([node for node in page.all("script") if not node.attrs]) == 1
    assert not page.all("img")
    assert "lake_of <b>" in page.all("title")[0].text
    run = page.by_id("run-evil")
    assert run.section("Rejected lines").table()[0]["text"] == EVIL
    assert run.section("Layers").table()[0]["layer"] == f"0{EVIL}"
    assert run.terms("facts")[EVIL] == EVIL
    assert charts(page)["evil"]["layers"]["layer"][0] == f"0{EVIL}"
    assert EVIL in page.by_id("unreadable").text


def test_an_empty_lake_says_so(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    build(lake)
    page = write(lake, tmp_path / "page.html")
    assert "The lake has no runs." in page.by_id("runs").text
    assert not page.all("table")


def test_a_lake_without_warehouse_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="tracelake build"):
        write_report(Lake.create(tmp_path / "lake"), tmp_path / "page.html")


def test_only_named_runs(lake: Lake, tmp_path: Path) -> None:
    page = write(lake, tmp_path / "page.html", runs=["even", "plan"])
    assert listed(page) == ["even", "plan"]
    assert "log.txt" not in page.text
    assert "No problems found." in page.text


def test_an_unknown_run_is_an_error(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run 'nope'") as caught:
        write_report(lake, tmp_path / "page.html", runs=["even", "nope"])
    assert "tracelake runs" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_a_page_of_new_runs_has_hosts_that_earlier_tests_show_to_be_slow(tmp_path: Path) -> None:
    log = log_run(complete=True, run_date=NOW.replace(tzinfo=None))
    tests = link_run()
    tests["runs"][0]["run_date"] = NOW.replace(tzinfo=None) - timedelta(days=9)
    lake = make(tmp_path / "lake", {"links": tests, "log": log})
    page = write(lake, tmp_path / "page.html", since=timedelta(hours=24))
    assert listed(page) == ["log"]
    assert "host a" in page.section("Incidents").text
    alone = write(lake, tmp_path / "alone.html", runs=["log"])
    assert "No problems found." in alone.text


def test_a_page_has_what_goes_on_in_a_job_that_its_label_tells(tmp_path: Path) -> None:
    config = "format=training_log global_batch_size=8"
    job: dict[str, Any] = {"config": config, "ranks_seen": None}
    runs = {
        f"{label}{n}": log_run(**job, label=label, complete=n > 0, run_date=NOW + timedelta(days=n))
        for label in ("one", "other")
        for n in range(2)
    }
    lake = make(tmp_path / "lake", runs)
    page = write(lake, tmp_path / "page.html", runs=["one1"])
    (card,) = page.section("Incidents").all("article")
    assert card.all("h3")[0].text.startswith("warning one one0 incomplete")


def test_only_runs_dated_within(lake: Lake, tmp_path: Path) -> None:
    page = write(lake, tmp_path / "page.html", since=timedelta(hours=24))
    assert listed(page) == ["log", "slow"]
    assert "dated within 24 h, 1 without a date left out" in page.all("header")[0].text
    page = write(lake, tmp_path / "page.html", since=timedelta(hours=23))
    assert listed(page) == ["log"]
    page = write(lake, tmp_path / "page.html", since=timedelta(hours=1))
    assert "No run is dated within 1 h." in page.by_id("runs").text


def test_the_same_lake_and_time_give_the_same_page(lake: Lake, tmp_path: Path) -> None:
    pages = [tmp_path / "new" / "a.html", tmp_path / "new" / "b.html"]
    results = [write_report(lake, page, now=NOW) for page in pages]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert [(r.path, r.runs, r.bytes) for r in results] == [
        (page, 4, page.stat().st_size) for page in pages
    ]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.html", "b.html"]


def test_a_page_opens_only_the_part_files_of_its_runs(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    for run_id in ("own", "other"):
        commit_run(lake, run_id, trace_run(config=run_id))
    build(lake)
    parts = lake.snapshot().runs["other"].parts
    for table in ("ops", "comms"):
        for part in parts[table]:
            (lake.root / part).unlink()
    page = write(lake, tmp_path / "page.html", runs=["own"])
    assert page.by_id("run-own").section("Pipeline timeline").table()
    with pytest.raises(LakeError, match=r"No files found.*tracelake check"):
        write_report(lake, tmp_path / "other.html", now=NOW, runs=["other"])


def test_a_page_is_replaced_at_once(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("the page before")
    with path.open() as reader:
        write_report(lake, path, now=NOW, runs=["plan"])
        assert reader.read() == "the page before"
    assert listed(read_page(path.read_text())) == ["plan"]


def test_a_page_that_cannot_be_written_leaves_nothing(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        write_report(lake, tmp_path / "page.html", now=NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.fixture
def longer_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The shipped models and one more."""
    shutil.copytree(ROOT / "sql", tmp_path / "sql")
    (tmp_path / "sql" / "runs" / "line_count.sql").write_text(
        "-- How many lines a run has.\n-- @report Lines of a run\n-- @grain run_id\n"
        "-- @column total BIGINT lines | Lines.\n"
        "SELECT run_id, sum(lines)::BIGINT AS total FROM sources GROUP BY run_id\n"
    )
    module = importlib.import_module("tracelake.models.catalog")
    monkeypatch.setattr(module, "resource_dir", lambda name: tmp_path / name)
    catalog.cache_clear()
    yield
    catalog.cache_clear()


def test_findings_of_a_kind_without_a_title_are_shown_by_its_name() -> None:
    """As those of a kind that only a model knows."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE findings (run_id VARCHAR, kind VARCHAR, severity VARCHAR, level INT,"
            " subject VARCHAR, evidence VARCHAR, advice VARCHAR, incident VARCHAR, slowdown DOUBLE,"
            " cost_gpu_hours DOUBLE, cost_basis VARCHAR, cost_bound VARCHAR, lost_ratio DOUBLE)"
        )
        con.execute("CREATE TABLE runs (run_id VARCHAR, run_date TIMESTAMP)")
        con.execute("CREATE TABLE incidents (incident VARCHAR, open BOOLEAN)")
        con.execute("INSERT INTO runs VALUES ('a', NULL)")
        page_about(con, ["a"])
        for kind in ("slow_disk", "regressed"):
            con.execute(
                "INSERT INTO findings BY NAME"
                " SELECT 'a' AS run_id, $1 AS kind, 'warning' AS severity, 2 AS level",
                [kind],
            )
        groups = read_attention(con, inputs=False)
    assert [group.title for group in groups] == ["Regressions", "Slow disk"]


@pytest.mark.usefixtures("longer_catalog")
def test_a_new_model_with_a_title_is_a_section(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake", {"log": log_run(steps=3)})
    section = write(lake, tmp_path / "page.html").by_id("run-log").section("Lines of a run")
    assert section.table() == [{"total": "8"}]


def test_late_runs_are_on_the_page_whatever_their_date(lake: Lake, tmp_path: Path) -> None:
    page = write(lake, tmp_path / "page.html", since=timedelta(hours=23), late=["even", "plan"])
    assert listed(page) == ["log", "even", "plan"]
    told = page.all("header")[0].text
    assert "dated within 23 h or arrived since the last report (2)" in told
    assert "without a date" not in told


def test_markdown_shows_the_same_with_pictures_beside_it(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "out" / "night.md"
    write_report(lake, out, now=NOW, form=ReportFormat.MARKDOWN)
    text = out.read_text()
    assert text.startswith("# tracelake cluster: stragglers 1, data lost or unreadable 1,")
    assert "- **slow**: rank 2 (stage 0): forward_step took 1.62 times as long" in text
    head, _ = (line for line in text.splitlines() if line.startswith("| label"))
    (slow,) = [line for line in text.splitlines() if line.startswith("| slow |")]
    row = dict(zip(head.split(" | "), slow.split(" | "), strict=True))
    assert (row["step p50 (ms)"], row["bubble (%)"]) == ("350.00", "10.7")
    shown = re.findall(r"^!\[.*\]\((.*)\)$", text, re.MULTILINE)
    assert "night.charts/slow-timeline.png" in shown
    there = {f"night.charts/{path.name}" for path in (out.parent / "night.charts").iterdir()}
    assert there == set(shown)
    write_report(lake, out, now=NOW, form=ReportFormat.MARKDOWN, pictures="svg", runs=["slow"])
    assert (out.parent / "night.charts" / "slow-timeline.svg").read_text().startswith("<svg")


def test_incidents_in_a_mail_name_their_latest_run(
    sample_lake: Lake, tmp_path: Path, tracelake: Command
) -> None:
    out = tmp_path / "night.md"
    assert tracelake("report", "--lake", sample_lake.root, "-o", out).code == 0
    assert "since 2024-01-09, last in job001 (173a3a41). rank 2 (stage 0)" in out.read_text()


def test_what_is_over_is_not_in_the_subject_and_marked_in_the_text(tmp_path: Path) -> None:
    def night(number: int, *, whole: bool = True) -> Rows:
        return log_run(complete=whole, run_date=datetime(2025, 3, number))

    runs = {"broken": night(1, whole=False)} | {f"good{n}": night(n) for n in (2, 3, 4)}
    lake = make(tmp_path / "lake", runs)
    out = tmp_path / "night.md"
    write_report(lake, out, now=NOW, form=ReportFormat.MARKDOWN)
    head, *text = out.read_text().splitlines()
    assert head == "# tracelake lake: no open problems"
    assert "## Incomplete runs (1 over)" in text
    assert [line for line in text if line.endswith(" Its incident is over.")]
    again = make(tmp_path / "again", {**runs, "broken2": night(5, whole=False)})
    write_report(again, out, now=NOW, form=ReportFormat.MARKDOWN)
    head, *text = out.read_text().splitlines()
    assert head == "# tracelake again: incomplete runs 1"
    assert "## Incomplete runs (1 and 1 over)" in text


def test_markdown_leaves_what_the_lake_says_as_text(hostile: Lake, tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    write_report(hostile, out, now=NOW, form=ReportFormat.MARKDOWN)
    assert out.read_text().startswith("# tracelake lake_of \\<b\\>:")
    assert "- **\\_r_1**: rank 2" in out.read_text()


def test_a_mail_has_text_pictures_and_the_page(lake: Lake, tmp_path: Path) -> None:
    for name in ("a.eml", "b.eml"):
        write_report(lake, tmp_path / name, now=NOW, form=ReportFormat.MAIL)
    sent = (tmp_path / "a.eml").read_bytes()
    assert sent == (tmp_path / "b.eml").read_bytes()
    mail = email.message_from_bytes(sent, policy=email.policy.default)
    assert mail["Subject"].startswith("tracelake cluster: stragglers 1, data lost or unreadable 1,")
    parts = {part.get_content_type() for part in mail.walk()}
    assert parts >= {"text/plain", "text/html", "image/png"}
    plain = mail.get_body(("plain",))
    shown = mail.get_body(("html",))
    assert plain is not None
    assert shown is not None
    assert "rank 2 (stage 0)" in plain.get_content()
    assert f'`tracelake query --lake {lake.root} "FROM findings' in plain.get_content()
    names = {part["Content-ID"] for part in mail.walk() if part.get_content_type() == "image/png"}
    assert set(re.findall(r'src="cid:([^"]+)"', shown.get_content())) == {n[1:-1] for n in names}
    assert "slow-timeline.png" in {name[1:-1] for name in names}
    (page,) = mail.iter_attachments()
    assert page.get_filename() == "tracelake-2025-03-02.html"
    assert listed(read_page(page.get_content())) == ["log", "slow", "even", "plan"]


def test_the_command_writes_each_form(lake: Lake, tmp_path: Path, tracelake: Command) -> None:
    def report(*arguments: str) -> Result:
        return tracelake("report", "--lake", lake.root, *arguments)

    assert report("-o", str(tmp_path / "a.md"), "--pictures", "svg", "--run", "slo").code == 0
    assert (tmp_path / "a.charts" / "slow-timeline.svg").is_file()
    assert report("-o", str(tmp_path / "a.eml"), "--run", "plan").code == 0
    assert (tmp_path / "a.eml").read_bytes().startswith(b"Subject: tracelake")
    sent = report("-o", "-", "--format", "mail", "--run", "slow")
    assert sent.out.startswith("Subject: tracelake cluster: stragglers 1")
    assert "-" not in {path.name for path in tmp_path.iterdir()}
    refused = report("-o", "-", "--format", "markdown")
    assert (refused.code, "cannot go to standard output" in refused.err) == (2, True)
    unknown = report("-o", str(tmp_path / "a.pdf"), "--format", "pdf")
    assert unknown.code == 2
    assert "one of html, markdown, mail" in unknown.err
