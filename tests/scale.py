"""Compute the tables of docs/scale.md: measurements, and estimates for large archives.

`make docs` writes the tables into the page; `tests/test_docs.py` fails when the page has others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "scale.md"
_BLOCK = re.compile(r"(<!-- begin: arithmetic -->\n).*?(\n<!-- end: arithmetic -->)", re.DOTALL)

HOUR = 3600
TB = 1e6  # in MB


@dataclass(frozen=True)
class Unit:
    """What one of something costs, measured on the machine of docs/benchmarks.md.

    Attributes:
        value: In the unit that `shown` ends with.
        source: How it was measured.
    """

    value: float
    shown: str
    source: str


PARSE = Unit(
    0.0038, "3.8 ms of a core per MB", "ingest of 4 runs of 64 ranks, 4.0 GB: 15.2 s of a core"
)
FILE = Unit(
    0.0002,
    "0.2 ms of a core per file",
    "10,000 rank files of 16 kB: 3.0 s, without the start and the time for their text",
)
BUILD = Unit(
    0.083,
    "83 ms of a core per MB",
    "`build` of a run of 1,024 ranks, 142 MB of text: 11.8 s of a core, half of them to replay"
    " every rank alone; 4 runs of 64 ranks, 4.0 GB: 162 s",
)
PLAN = Unit(
    0.00006, "0.06 ms per file, by the command alone", "a rerun over 10,000 files, with its start"
)
INSERT = Unit(
    0.0005,
    "0.5 ms of a core per MB, by the command alone",
    "a bound: its time in a `build` by two workers is 3.4 s for 4 such runs, and for 12 (920 MB)"
    " as much, to 0.3 s",
)
PARQUET = Unit(
    0.06,
    "6 % of the text",
    "a run of 4,096 ranks of 285 MB; 13 % of 1,003 runs of 1.2 GB",
)
MODELS = Unit(
    0.12,
    "12 % of the text, models",
    "the same two lakes, when all models were in the warehouse",
)
MANIFEST = Unit(0.00083, "0.83 kB per file", "the same two lakes")
READS = Unit(
    2,
    "2 requests per file of 1 MB in a store",
    "one to detect its format, and a worker's to read it; threads need the first alone"
    " (docs/stores.md)",
)
WRITES = Unit(
    50,
    "50 requests per run in a store",
    "4 runs of 64 ranks of 77 MB: 52 PUT, and 43 GET and 104 HEAD to build",
)
LISTED = Unit(0.001, "1 request per 1,000 files that are listed", "the protocol")
UNITS = (PARSE, FILE, BUILD, INSERT, PLAN, PARQUET, MODELS, MANIFEST, READS, WRITES, LISTED)

FILE_MB = 1.0
RANKS = 1_000
WIDTHS = (2, 64, 1_000)
ARCHIVES = {"1 TB": TB, "100 TB": 100 * TB, "10 PB": 10_000 * TB}


def tables() -> str:
    """What was measured, and what follows, as Markdown."""
    measured = ["| measured | |", "|-|-|", *(f"| {u.shown} | {u.source} |" for u in UNITS)]
    rows: dict[str, list[str]] = {}
    for size in ARCHIVES.values():
        for name, value in _figures(size).items():
            rows.setdefault(name, []).append(value)
    follows = [
        f"| | {' | '.join(ARCHIVES)} |",
        "|-|" + "--:|" * len(ARCHIVES),
        *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items()),
    ]
    return "\n".join([*measured, "", *follows])


def _figures(mb: float) -> dict[str, str]:
    files = mb / FILE_MB
    runs = files / RANKS
    parse = (mb * PARSE.value + files * FILE.value) / HOUR
    build = mb * BUILD.value / HOUR
    plan = files * PLAN.value / HOUR
    insert = mb * INSERT.value / HOUR
    figures = {
        f"files of {FILE_MB:g} MB; runs of {RANKS:,} ranks": f"{_si(files)}; {_si(runs)}",
        f"ingest, core-hours: MB x {_ms(PARSE)} + files x {_ms(FILE)}": _number(parse),
        f"build, core-hours: MB x {_ms(BUILD)}": _number(build),
        f"the command alone, hours: files x {_ms(PLAN)} + MB x {_ms(INSERT)}": _number(
            plan + insert
        ),
    }
    for width in WIDTHS:
        hours = (parse + build - insert) / width + plan + insert
        figures[f"hours with {width:,} cores: rest / {width:,} + the command"] = _number(hours)
    reads, writes = files * (READS.value + LISTED.value), runs * WRITES.value
    return {
        **figures,
        f"requests to a store: files x {READS.value:g} and runs x {WRITES.value:g}": (
            f"{_si(reads)} and {_si(writes)}"
        ),
        f"Parquet: {PARQUET.value * 100:g} %": _bytes(mb * PARQUET.value),
        f"models: {MODELS.value * 100:g} %": _bytes(mb * MODELS.value),
        f"manifests: files x {MANIFEST.value * 1000:g} kB": _bytes(files * MANIFEST.value),
        f"rerun without changes, hours: files x {_ms(PLAN)}": _number(plan),
    }


def _ms(unit: Unit) -> str:
    return f"{unit.value * 1000:g} ms"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _si(value: float) -> str:
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value:,.0f}"


def _bytes(mb: float) -> str:
    for size, name in ((1e9, "PB"), (1e6, "TB"), (1e3, "GB")):
        if mb >= size:
            return f"{mb / size:,.3g} {name}"
    return f"{mb:,.3g} MB"


def rendered(page: str) -> str:
    """The page with the tables as they are now."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{tables()}\n{found[2]}", page)


def write() -> None:
    """Writes the tables into the page."""
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
