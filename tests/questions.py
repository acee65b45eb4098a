"""Generates docs/questions.md: every saved question, its SQL and its answer on data/sample."""

from __future__ import annotations

import io
import json
import tempfile
import textwrap
from pathlib import Path

from tests.conftest import ROOT
from tests.lakes import run_ingest
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.warehouse.examples import TOPICS, Example, examples
from tracelake.warehouse.results import write_result
from tracelake.warehouse.running import run_query

PAGE = "docs/questions.md"
_INTRO = """# Questions

Generated from `sql/examples/` by `make docs`.

The questions that come with tracelake, their SQL, and their answers on `data/sample`.
`tracelake examples` lists them, `tracelake examples NAME` prints the SQL of one to start from, and
`tracelake query --example NAME` asks it; `--param top=5` gives a parameter another value, and
`--format` writes the answer for a program. A question of one's own is a file: `query -f FILE`.
Columns are those of [reference.md](reference.md), figures those of
[definitions.md](definitions.md); [sql.md](sql.md) says what else a query may do. An answer without
rows has only the names of its columns.
"""


def sample_lake(folder: Path) -> Lake:
    """A lake of data/sample with its warehouse."""
    run_ingest(ROOT / "data" / "sample", folder)
    lake = Lake.open(folder)
    build(lake)
    return lake


def page(lake: Lake) -> str:
    """The page, with the answers of this lake."""
    text = _INTRO
    found = examples()
    for topic in TOPICS:
        listed = [e for e in found.values() if e.topic == topic]
        text += f"\n## {topic.capitalize()}\n" + "".join(_section(lake, e) for e in listed)
    return text


def _section(lake: Lake, asked: Example) -> str:
    out = io.StringIO()
    write_result(run_query(lake, asked.sql, asked.bind({})), "table", out)
    answer = "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())
    reading = textwrap.fill(asked.reading, 100, break_on_hyphens=False)
    parameters = "".join(
        f"- `{p.name}` {p.type} = {json.dumps(p.default)}: {p.doc}\n" for p in asked.parameters
    )
    return (
        f"\n### {asked.question}\n\n{reading}\n\n{parameters}\n"
        f"```sql\n{asked.body}```\n\n"
        f"```text\n$ tracelake query --lake lake --example {asked.name}\n{answer}```\n"
    )


def write() -> None:
    """Writes the page."""
    with tempfile.TemporaryDirectory() as folder:
        text = page(sample_lake(Path(folder) / "lake"))
    (ROOT / PAGE).write_text(text, encoding="utf-8")
