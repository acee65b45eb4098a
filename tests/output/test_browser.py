"""The page in a real browser: charts are drawn, nothing is fetched, text stays text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.browser import ARGUMENTS, find_browser
from tests.report_lakes import make, plan_run, trace_run
from tests.tiny_lakes import commit_run, log_run
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.output.html.page import write_report

BROWSER = find_browser()
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
Scheme: TypeAlias = Literal["light", "dark"]
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on this machine: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield browser
        browser.close()


class Opened:
    """A page of the report in a new tab, with all that it says and asks for."""

    def __init__(
        self, browser: Browser, path: Path, width: int = 1440, scheme: Scheme = "light"
    ) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page: Page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", self._saw)
        self.page.goto(path.as_uri())

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.said.append(message.text)

    def _saw(self, request: Request) -> None:
        self.asked.append(request.url)

    def open_run(self, run_id: str) -> None:
        """Opens a run and looks at all of its charts."""
        self.page.evaluate("id => { document.getElementById(id).open = true }", f"run-{run_id}")
        figures = self.page.locator(f"[id='run-{run_id}'] figure[data-chart]")
        figures.first.wait_for()
        for figure in figures.all():
            figure.scroll_into_view_if_needed()
            figure.locator("svg, canvas").first.wait_for()
        self.page.wait_for_function(
            "id => [...document.getElementById(id).querySelectorAll('figure')]"
            ".every(figure => 'drawn' in figure.dataset)",
            arg=f"run-{run_id}",
        )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    runs = {
        f"trace{n:02}": trace_run(slow=1.5 if n == 7 else 1.0, run_date=datetime(2025, 3, 1 + n))
        for n in range(12)
    }
    root = tmp_path_factory.mktemp("browser") / "lake"
    return make(root, {**runs, "log": log_run(steps=6), "plan": plan_run()})


@pytest.fixture(scope="module")
def path(lake: Lake) -> Path:
    path = lake.root.parent / "page.html"
    write_report(lake, path)
    return path


@pytest.fixture(scope="module")
def few(lake: Lake) -> Path:
    """A page about a run of each kind, two of them packed."""
    path = lake.root.parent / "few.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracelake.output.html.page.PLAIN_RUNS", 2)
        write_report(lake, path, runs=["trace00", "trace07", "log", "plan"])
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (800, "dark"), (390, "light")])
def test_every_chart_is_drawn_and_nothing_is_fetched(
    browser: Browser, path: Path, width: int, scheme: Scheme
) -> None:
    opened = Opened(browser, path, width, scheme)
    for run_id in ("trace07", "trace00", "log"):
        opened.open_run(run_id)
    assert opened.said == []
    assert opened.asked == [path.as_uri()]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    kinds = opened.page.locator("figure[data-drawn]").evaluate_all(
        "figures => figures.map(figure => figure.dataset.chart)"
    )
    assert {"timeline", "windows", "stages", "slow_ranks", "bandwidth", "layers"} <= set(kinds)
    bars = "[id='run-trace07'] figure[data-chart=windows] path[aria-roledescription=bar]"
    assert opened.page.locator(bars).count() == 4 * 3


def test_pixels_are_painted_in_the_colours_of_the_page(browser: Browser, few: Path) -> None:
    opened = Opened(browser, few)
    opened.open_run("trace07")
    colors = opened.page.evaluate(
        """() => {
            const run = document.getElementById("run-trace07");
            const canvas = run.querySelector("[data-chart=timeline] canvas");
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            const seen = new Set();
            for (let at = 0; at < data.length; at += 4) {
                if (data[at + 3] === 255) seen.add(data.slice(at, at + 3).join());
            }
            return [...seen];
        }"""
    )
    assert {"47,111,181", "127,178,229"} <= set(colors)  # forward and backward


def test_a_timeline_zooms_and_comes_back(browser: Browser, few: Path) -> None:
    opened = Opened(browser, few)
    opened.open_run("trace07")
    canvas = opened.page.locator("[id='run-trace07'] [data-chart=timeline] canvas")
    canvas.scroll_into_view_if_needed()
    before = canvas.screenshot()
    canvas.hover()
    opened.page.mouse.wheel(0, -300)
    opened.page.wait_for_timeout(200)
    assert canvas.screenshot() == before, "the wheel alone scrolls the page"
    canvas.scroll_into_view_if_needed()
    canvas.hover()
    opened.page.keyboard.down("Shift")
    opened.page.mouse.wheel(0, -300)
    opened.page.keyboard.up("Shift")
    opened.page.wait_for_timeout(300)
    assert canvas.screenshot() != before
    canvas.dblclick()
    opened.page.mouse.move(0, 0)
    opened.page.wait_for_timeout(300)
    assert canvas.screenshot() == before


def test_runs_are_sorted_and_filtered(browser: Browser, path: Path) -> None:
    page = Opened(browser, path).page
    names = page.locator("table.headline tbody tr:not([hidden]) td.name")
    page.locator("table.headline th button", has_text="step p50").click()
    assert names.first.inner_text() == "trace07"
    page.fill("#filter", "trace0 rank_trace")
    assert names.count() == 10
    assert page.locator("#count").inner_text() == "10 of 14"
    page.fill("#filter", "step>310 trace")
    assert names.all_inner_texts() == ["trace07"]
    page.fill("#filter", "step<=310 rank_trace")
    assert names.count() == 11
    page.fill("#filter", "")
    page.locator("button[data-config]").first.click()
    assert names.count() == 13  # the log has the same configuration
    page.locator("button[data-config]").first.click()
    page.check("#urgent")
    assert names.all_inner_texts() == ["trace07"]


def test_incidents_come_first_with_cause_and_links(browser: Browser, path: Path) -> None:
    page = Opened(browser, path).page
    card = page.locator("#attention article").first
    box = card.bounding_box()
    assert box is not None
    assert box["y"] < 300, "the first incident is on the first screen"
    said = card.inner_text()
    assert "rank 2" in said
    assert "since Mar 8, 2025" in said
    assert "GPU h a day" in said
    assert "300.00 ms → 350.00 ms (+16.7 % against the baseline)" in said
    dots = card.locator("svg.dates circle")
    assert dots.count() == 12
    assert card.locator("svg.dates circle.own").count() == 1
    assert card.locator("svg.dates line.break").count() == 1
    assert card.locator("svg.strip rect.hot").count() == 1
    labels = card.locator("svg.dates text").all_text_contents()
    assert "Mar 1, 2025" in labels
    assert "Mar 12" in labels


def test_a_run_opens_with_its_verdict_and_marks_the_slow_rank(browser: Browser, few: Path) -> None:
    opened = Opened(browser, few)
    opened.open_run("trace07")
    run = opened.page.locator("[id='run-trace07']")
    first = run.locator(".verdicts li").first
    assert "rank 2" in first.inner_text()
    timeline = run.locator("figure[data-chart=timeline]")
    assert timeline.locator("select option").count() >= 1
    assert "collective" in timeline.locator(".legend").inner_text()
    canvas = timeline.locator("canvas")
    before = canvas.screenshot()
    timeline.locator("input").fill("backward")
    assert canvas.screenshot() != before


def test_two_runs_are_compared_on_the_page(browser: Browser, path: Path) -> None:
    page = Opened(browser, path).page
    compare = page.locator("#compare")
    compare.locator("[data-side=before]").select_option("trace06")
    compare.locator("[data-side=after]").select_option("trace07")
    compare.locator("button").click()
    svg = compare.locator("svg")
    svg.wait_for()
    assert svg.get_attribute("aria-label") == (
        "Operations of a step: 300.00 ms before, 350.00 ms after"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, few: Path, scheme: Scheme) -> None:
    opened = Opened(browser, few, scheme=scheme)
    opened.open_run("trace07")
    opened.page.evaluate(AXE)
    found = opened.page.evaluate(
        "() => axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'best-practice']})"
        ".then(r => r.violations.map(v => [v.impact, v.id, v.nodes[0].html.slice(0, 200)]))"
    )
    assert [v for v in found if v[0] in {"serious", "critical"}] == []


def test_a_link_opens_the_run_and_the_sql(browser: Browser, path: Path) -> None:
    page = Opened(browser, path).page
    page.locator("#attention a", has_text="trace07").first.click()
    run = page.locator("[id='run-trace07']")
    page.wait_for_function("id => document.getElementById(id).open", arg="run-trace07")
    section = run.locator("section", has=page.locator("h3", has_text="Bubble by stage"))
    section.locator("summary", has_text="SQL").click()
    assert section.locator("code").inner_text() == "FROM stage_bubbles WHERE run_id = 'trace07'"
    section.locator("button.copy").click()
    assert (
        page.evaluate("getSelection().toString()").strip() == section.locator("code").inner_text()
    )
    assert section.locator("button.copy").inner_text() == "Copied"
    assert "12 rows of comms" in section.locator(".sql").inner_text()
    section.locator("a", has_text="sql/bubbles/stage_bubbles.sql").click()
    page.locator("[id='sql-stage_bubbles'] pre").wait_for(state="visible")


def test_headings_explain_themselves(browser: Browser, few: Path) -> None:
    opened = Opened(browser, few)
    opened.open_run("trace00")
    page = opened.page
    without = page.evaluate(
        """() => [...document.querySelectorAll("table[data-of] th, dl.cards dt")]
            .filter(head => !head.title).map(head => head.textContent.trim())"""
    )
    assert set(without) <= {"parts", "steps over time", "path"}


def test_what_a_log_says_stays_text(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {**log_run(steps=4, rejected=1, model=EVIL)}
    rows["layer_times"] = [{**row, "layer": f"{row['layer']}{EVIL}"} for row in rows["layer_times"]]
    rows["rejects"] = [{**rows["rejects"][0], "text": EVIL}]
    lake = Lake.create(tmp_path / "lake")
    for run_id in ("evil", "packed"):
        commit_run(lake, run_id, rows)
    build(lake)
    monkeypatch.setattr("tracelake.output.html.page.PLAIN_RUNS", 1)
    write_report(lake, tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html")
    for run_id in ("evil", "packed"):
        opened.open_run(run_id)
        bar = opened.page.locator(f"[id='run-{run_id}'] [data-chart=layer_stages] path[aria-label]")
        bar.first.hover()
        opened.page.locator("#vg-tooltip-element.visible").wait_for()
    assert "owned" not in opened.page.title()
    assert opened.page.locator("main img").count() == 0
    assert EVIL in opened.page.locator("#attention").inner_text()
    assert opened.said == []
    assert opened.asked == [(tmp_path / "page.html").as_uri()]
