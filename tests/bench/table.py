"""Results as JSON, and as the one markdown table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.contract import Result, Role, Settings, benches
from tests.bench.measure import Sample, median

_MARK = "<!-- {}: {} -->"
_BLOCKS = "benches", "results"
_COLUMNS = (
    "bench",
    "case",
    "candidate",
    "wall s",
    "min to max",
    "CPU s",
    "peak MiB",
    "rate",
    "tracelake is",
)


def document(settings: Settings, results: Sequence[Result]) -> dict[str, Any]:
    """Everything that was measured, every sample of it."""
    return {
        "machine": machine.describe(),
        "settings": {
            name: getattr(settings, name)
            for name in ("size_bytes", "files", "runs", "repeat", "tiny")
        },
        "results": [
            {
                **{k: v for k, v in asdict(one).items() if k != "samples"},
                "samples": [_sample(sample) for sample in one.samples],
                "median_s": median(one.samples),
                "rate": one.rate,
            }
            for one in results
        ],
    }


def results_of(found: Mapping[str, Any]) -> list[Result]:
    """The results of a document."""
    return [
        Result(
            **{key: row[key] for key in ("bench", "case", "candidate", "amount", "unit", "facts")},
            role=Role(row["role"]),
            samples=[Sample(**sample) for sample in row["samples"]],
        )
        for row in found["results"]
    ]


def markdown(found: Mapping[str, Any]) -> str:
    """The table of a document.

    The last column compares rates within a case: how many times as fast as the row the case's first
    row of tracelake is.
    """
    head = f"| {' | '.join(_COLUMNS)} |\n|---|---|---|{'--:|' * (len(_COLUMNS) - 3)}"
    rows = [f"| {' | '.join(row)} |" for row in _rows(results_of(found))]
    sizes = found["settings"]
    asked = (
        f"large files of {sizes['size_bytes'] / 1e6:,.0f} MB, {sizes['files']:,} small files,"
        f" lakes of up to {sizes['runs']:,} runs, median of {sizes['repeat']}"
    )
    return "\n".join([f"{machine.line(found['machine'])}; {asked}.", "", head, *rows])


def write_json(found: Mapping[str, Any], path: Path) -> None:
    """Writes a document."""
    path.write_text(f"{json.dumps(found, indent=1)}\n", encoding="utf-8")


def descriptions() -> str:
    """What each bench measures, in its own words."""
    return "\n\n".join(f"**{name}**: {bench.doc.strip()}" for name, bench in benches().items())


def rendered(page: str, found: Mapping[str, Any]) -> str:
    """A page with the table and the descriptions between its marks.

    Raises:
        ValueError: The page lacks a mark.
    """
    for name, text in zip(_BLOCKS, (descriptions(), markdown(found)), strict=True):
        before, after = _around(page, name)
        page = f"{before}\n\n{text}\n\n{after}"
    return page


def check_page(page: str) -> None:
    """Whether a page has what `rendered` needs.

    Raises:
        ValueError: The page lacks a mark.
    """
    for name in _BLOCKS:
        _around(page, name)


def _around(page: str, name: str) -> tuple[str, str]:
    """What stands before and after a block, each with its mark."""
    begin, end = _MARK.format("begin", name), _MARK.format("end", name)
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not ended:
        raise ValueError(f"the page has no {begin} ... {end}")
    return before + begun, ended + after


def _rows(results: Sequence[Result]) -> Iterator[list[str]]:
    for (bench, case), group in groupby(results, key=lambda one: (one.bench, one.case)):
        members = list(group)
        ours = next((one for one in members if one.role is Role.OURS), None)
        for place, one in enumerate(members):
            walls = [sample.wall_s for sample in one.samples]
            facts = ", ".join(f"{_number(v)} {k.replace('_', ' ')}" for k, v in one.facts.items())
            yield [
                "" if place else bench,
                "" if place else case,
                f"**{one.candidate}**" if one.role is Role.OURS else one.candidate,
                _number(median(one.samples)),
                f"{_number(min(walls))} to {_number(max(walls))}",
                _number(_median([sample.cpu_s for sample in one.samples])),
                f"{_median([sample.peak_bytes for sample in one.samples]) / 2**20:,.0f}",
                (f"{_number(one.rate)} {one.unit}/s" if one.unit else "")
                + (f"; {facts}" if facts and one.unit else facts),
                ""
                if ours is None or one.role is Role.OURS
                else f"{_number(ours.rate / one.rate)} x as fast",
            ]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sample(sample: Sample) -> dict[str, float]:
    return {
        "wall_s": sample.wall_s,
        "user_s": sample.user_s,
        "system_s": sample.system_s,
        "peak_bytes": sample.peak_bytes,
    }
