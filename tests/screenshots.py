"""Pictures of the report for the documentation: `make screenshots` writes them from data/sample."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tests.browser import ARGUMENTS, find_browser
from tests.conftest import ROOT
from tracelake.ingest import Options, ingest
from tracelake.lake import Lake
from tracelake.models import build
from tracelake.output.html import write_report

IMAGES = ROOT / "docs" / "images"
WIDTH = 1180
SLOW_RUN = "173a3a41"
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
    sections = run.locator(".sections > section")
    for number in range(3):
        sections.nth(number).scroll_into_view_if_needed()
        for figure in sections.nth(number).locator("figure[data-chart]").all():
            figure.locator("svg, canvas").first.wait_for()
    page.evaluate("scrollTo(0, 0)")
    box = run.bounding_box()
    assert box is not None
    height = _bottom(sections.nth(2)) - box["y"] + 20
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
