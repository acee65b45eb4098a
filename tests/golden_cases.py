"""Golden cases: tests/formats/<format>/<case>/ with `input/` and `expected.json`.

`expected.json` is a list of runs, each with its files, facts, line accounts, rejects, faults and
rows by table, one row per line; what is NULL or empty is left out. A case may have `given.json`,
the topology of `--set`. After writing the input of a new case::

    python -m tests.golden_cases FORMAT CASE

writes its `expected.json`, to be read and judged before it is committed.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from tests.parsing import Parsed, ParsedRun, parse

GOLDEN = Path(__file__).parent / "formats"


def cases() -> list[Path]:
    """Every case folder, by format and name."""
    return sorted(p.parent for p in GOLDEN.glob("*/*/input"))


def run_case(case: Path, *, block_size: int = 1 << 20) -> str:
    """Text of `expected.json` as the parser would have it."""
    top = case / "input"
    files = {
        path.relative_to(top).as_posix(): path.read_bytes()
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }
    given = case / "given.json"
    sizes = json.loads(given.read_text(encoding="utf-8")) if given.exists() else {}
    return render(parse(case.parent.name, files, block_size=block_size, given=sizes))


def render(parsed: Parsed) -> str:
    """Runs in order of their first file, as JSON with one line per row."""
    runs = sorted(parsed.runs, key=lambda r: r.run.sources[0].path)
    return "[\n" + ",\n".join(_run(r) for r in runs) + "\n]\n"


def _run(parsed: ParsedRun) -> str:
    facts = dataclasses.asdict(parsed.facts)
    facts["ranks"] = None if facts["ranks"] is None else sorted(facts["ranks"])
    facts["foreign"] = facts["foreign"] or None
    sources = [
        {
            "path": source.path,
            "host": source.host,
            **dataclasses.asdict(parsed.ledger.source(source_id)),
            "irrelevant": dict(sorted(parsed.ledger.source(source_id).irrelevant.items())),
        }
        for source_id, source in enumerate(parsed.run.sources)
    ]
    parts = [
        f'"facts": {_json(facts)}',
        f'"sources": {_lines(sources)}',
        *(f'"{name}": {_lines(parsed.rows(name))}' for name in sorted(parsed.tables)),
    ]
    return "{" + ",\n ".join(parts) + "}"


def _lines(rows: list[dict[str, object]]) -> str:
    return "[" + ",".join("\n  " + _json(row) for row in rows) + "]"


def _json(row: dict[str, object]) -> str:
    given = {k: v for k, v in row.items() if v is not None and v != {}}
    return json.dumps(given, ensure_ascii=False, default=str)


if __name__ == "__main__":
    chosen = GOLDEN / sys.argv[1] / sys.argv[2]
    (chosen / "expected.json").write_text(run_case(chosen), encoding="utf-8")
