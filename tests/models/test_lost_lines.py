"""Lines that a trace lacks or has twice are findings that name rank and step."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import ingest_and_build
from tests.traces import trace, trace_name, write
from tracelake import open as open_lake

STEPS, LINES = 4, 3


Lines = list[str]


def without(lines: Lines, first: int, last: int) -> Lines:
    return lines[: first - 1] + lines[last:]


def doubled(lines: Lines, *numbers: int) -> Lines:
    return [one for n, line in enumerate(lines, 1) for one in [line] * (1 + (n in numbers))]


# What becomes of the lines of rank 1, and the finding.
HARMED: dict[str, tuple[Callable[[Lines], Lines], list[tuple[str, str, str]]]] = {
    "whole": (lambda lines: lines, []),
    "last_step": (
        lambda lines: without(lines, LINES * 3 + 1, LINES * 4),
        [("incomplete", "run", "The run is incomplete: step 4 of rank 1 is missing.")],
    ),
    "lost": (
        lambda lines: without(lines, 5, 5),
        [
            (
                "incomplete",
                "lost lines of rank 1",
                "lost lines of rank 1: step 2 lacks 1 of 1 backward steps.",
            )
        ],
    ),
    "doubled": (
        lambda lines: doubled(lines, 4, 5),
        [
            (
                "faults",
                "doubled lines of rank 1",
                "doubled lines of rank 1: step 2 has forward_step again in line 5 and 1 more.",
            )
        ],
    ),
    "doubled_end": (
        lambda lines: doubled(lines, LINES),
        [
            (
                "faults",
                "doubled lines of rank 1",
                "doubled lines of rank 1: step 1 has optimizer_step again in line 4.",
            )
        ],
    ),
}


def test_lines_that_are_lost_or_doubled(tmp_path: Path) -> None:
    for day, (name, (harm, _)) in enumerate(HARMED.items(), 1):
        start = 1000.0 * day  # equal files would be one
        lines = trace(1, steps=STEPS, start=start).splitlines(keepends=True)
        stamp = f"2025010{day}000000"
        ranks = {
            trace_name(0, stamp=stamp): trace(0, steps=STEPS, start=start),
            trace_name(1, stamp=stamp): "".join(harm(lines)),
        }
        write(tmp_path / "in" / name, ranks)
    lake = tmp_path / "lake"
    ingest_and_build(tmp_path / "in", lake)
    with open_lake(lake) as opened:
        for name, (_, found) in HARMED.items():
            ((run,),) = opened.sql(
                f"SELECT DISTINCT run_id FROM sources WHERE path LIKE '{name}/%'"
            ).fetchall()
            seen = opened.sql(
                f"FROM findings SELECT gate, subject, evidence WHERE run_id = '{run}'"
            ).fetchall()
            assert seen == found, name
            ((slow,),) = opened.sql(
                f"FROM straggler_steps SELECT max(slowdown) WHERE run_id = '{run}'"
            ).fetchall()
            assert slow in (None, 1.0)  # what is there twice counts once
            ((unfinished,),) = opened.sql(
                "FROM step_stats SELECT count(*) FILTER (reason = 'step_unfinished')"
                f" WHERE run_id = '{run}'"
            ).fetchall()
            ((hints,),) = opened.sql(
                f"FROM coverage SELECT partly_hints WHERE run_id = '{run}'"
            ).fetchall()
            assert unfinished == (name == "lost")
            ((steps,),) = opened.sql(f"FROM ops SELECT max(step) WHERE run_id = '{run}'").fetchall()
            assert steps == STEPS  # an optimizer that is there twice ends one step
            hint = "ingest a copy that has all lines of step 2 of rank 1"
            assert (hint in hints) == (name == "lost")


@pytest.mark.parametrize("size", ["tp", "pp"])
def test_what_lacks_the_last_step_of_a_rank_is_named(
    size: str, tracelake: Command, tmp_path: Path
) -> None:
    """A peer in every call, or the only rank of a stage."""
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    sizes = {"--tp": 1, "--pp": 1, f"--{size}": 2}
    options = [word for option in sizes.items() for word in option]
    formats = ("--formats", "rank_trace", "--steps", STEPS)
    assert tracelake("synth", archive, *formats, *options).code == 0
    (path,) = archive.rglob("*_rank1_*")
    lines = path.read_text().splitlines(keepends=True)
    ends = [n for n, line in enumerate(lines, 1) if "optimizer_step" in line]
    path.write_text("".join(lines[: ends[STEPS - 2]]))
    assert tracelake("run", archive / "rank_trace", "--lake", lake).code == 0
    with open_lake(lake) as opened:
        named = opened.sql("FROM abstentions SELECT DISTINCT remedy WHERE remedy IS NOT NULL")
        assert named.fetchall() == [("ingest again when step 4 of rank 1 is there",)]
    shown = " ".join(tracelake("show", "latest", "--lake", lake).out.split())
    assert "The run is incomplete: step 4 of rank 1 is missing." in shown
    assert re.search(r"no .*collective_calls\.skew_ms \(\d+ of \d+ rows\)", shown)
    assert "ingest again when step 4 of rank 1 is there" in shown
    assert "all metrics" not in shown


def test_metrics_of_an_incomplete_run_are_not_called_complete(
    tracelake: Command, tmp_path: Path
) -> None:
    ranks = {trace_name(0): trace(0, steps=STEPS), trace_name(1): trace(1, steps=STEPS - 1)}
    lake = tmp_path / "lake"
    assert tracelake("run", write(tmp_path / "in", ranks), "--lake", lake).code == 0
    shown = tracelake("show", "latest", "--lake", lake).out
    assert "all metrics were computed, but from an incomplete run: see Attention" in shown
