"""Pictures of the report for the documentation: `make screenshots` writes them from data/sample."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tests.browser import ARGUMENTS, find_browser
from tests.conftest import ROOT
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.output.html.page import write_report

IMAGES = ROOT / "docs" / "images"
WIDTH = 1180
SLOW_RUN = "173a3a41"
SLOW_RANK = 2
POINTS_OUT = "rank 2 computes 1.30 times as long as its peers"
# Draws a text above the timeline, with an arrow to the row of a rank and a frame about the row.
POINT_AT = """(run, [rank, text]) => {
    const canvas = run.querySelector("[data-chart=timeline] canvas");
    const figure = canvas.closest("figure");
    const [frame, row] = [figure.getBoundingClientRect(), canvas.getBoundingClientRect()];
    const [left, top] = [row.left - frame.left, row.top - frame.top + 26 * rank];
    figure.style.position = "relative";
    const add = (style, text) => {
        const part = document.createElement("div");
        part.style.cssText = `position: absolute; color: var(--bad); ${style}`;
        part.textContent = text;
        figure.append(part);
    };
    const at = left + 0.75 * row.width;
    add(`left: ${left}px; top: ${top - 1}px; width: ${row.width}px; height: 27px;
        border: 2px solid; border-radius: 4px`, "");
    add(`left: ${at}px; top: ${-38}px; height: ${top + 36}px; border-left: 2px solid`, "");
    add(`left: ${at - 6}px; top: ${top - 11}px; border: 7px solid transparent;
        border-top: 10px solid var(--bad)`, "");
    add(`left: ${at - 190}px; top: -64px; padding: 2px 10px; border: 2px solid; border-radius: 4px;
        background: var(--paper); font-weight: 600; white-space: nowrap`, text);
}"""
NIGHT = datetime(2024, 1, 10, 6, 30)


def main() -> None:
    """Writes docs/images/report.png and docs/images/run.png."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = _sample_page(Path(folder))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=ARGUMENTS)
        _picture_of_the_top(_opened(browser, page))
        _picture_of_a_run(_opened(browser, page))
        browser.close()


def _sample_page(folder: Path) -> Path:
    lake = Lake.create(folder / "lake")
    ingest([str(ROOT / "data" / "sample")], lake, Options())
    build(lake)
    return write_report(lake, folder / "report.html", now=NIGHT).path


def _opened(browser: Browser, path: Path) -> Page:
    page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
    page.goto(path.as_uri())
    return page


def _picture_of_the_top(page: Page) -> None:
    end = _bottom(page.locator("#runs"))
    page.screenshot(
        path=IMAGES / "report.png",
        full_page=True,
        clip={"x": 0, "y": 0, "width": WIDTH, "height": end + 10},
    )


def _picture_of_a_run(page: Page) -> None:
    run = page.locator(f"details.run[id$='{SLOW_RUN}']")
    run.evaluate("run => { run.open = true; run.scrollIntoView() }")
    timeline = run.locator("section", has=page.locator("figure[data-chart=timeline]"))
    windows = run.locator("section", has=page.locator("figure[data-chart=windows]"))
    for section in (timeline, windows):
        section.scroll_into_view_if_needed()
        section.locator("figure svg, figure canvas").first.wait_for()
    run.evaluate(POINT_AT, [SLOW_RANK, POINTS_OUT])
    page.evaluate("scrollTo(0, 0)")
    box = run.bounding_box()
    assert box is not None
    height = _bottom(windows) - box["y"] + 20
    page.screenshot(
        path=IMAGES / "run.png",
        full_page=True,
        clip={"x": 0, "y": box["y"] - 10, "width": WIDTH, "height": height},
    )


def _bottom(part: Locator) -> float:
    box = part.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


if __name__ == "__main__":
    main()
