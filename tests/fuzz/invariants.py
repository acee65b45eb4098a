"""What must hold of any bytes that a parser is given."""

from __future__ import annotations

from random import Random

from tests.fuzz.seeds import file_name
from tests.golden_cases import render
from tests.parsing import Parsed, claim_of, parse
from tracelake.formats import HEAD_BYTES, Claim, formats
from tracelake.formats.ledger import TEXT_LIMIT, escape

_WHOLE = 1 << 20


def examine(name: str, data: bytes, random: Random) -> Parsed:
    """Parses bytes as a format would, whole and in chunks cut anywhere, and judges the outcome.

    `parse` itself checks that every line is counted once, that rejects and kinds are documented,
    that rows are in order and belong to their source, and that the arrays are sound.
    """
    for fmt in formats().values():
        assert claim_of(fmt, data[:HEAD_BYTES]) in Claim
    files = {file_name(name): data}
    whole = parse(name, files, block_size=_WHOLE)
    _judge(whole, data)
    size = random.choice((1, 7, 64, 300, 1000, 5000))
    pieces = parse(name, files, block_size=size, empty_last=random.random() < 0.5)
    assert _same(pieces, whole), f"other rows in chunks of {size}"
    return whole


def _same(one: Parsed, other: Parsed) -> bool:
    alike = (
        one.facts == other.facts
        and one.ledger.sources == other.ledger.sources
        and all(one.tables[name].equals(table) for name, table in other.tables.items())
    )
    return alike or render(one) == render(other)  # dictionaries in another order, and NaN


def _judge(parsed: Parsed, data: bytes) -> None:
    """No row is outside its source, and what was rejected stands there as it was."""
    lines = data.split(b"\n")
    count = len(lines) - (lines[-1] == b"")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for name, table in parsed.tables.items():
        if name not in ("rejects", "faults"):
            assert all(1 <= n <= count for n in table.column("line").to_pylist()), name
    seen = set()
    for _, number, offset, _, text in parsed.only.rejects():
        assert number not in seen, f"line {number} rejected twice"
        seen.add(number)
        assert 1 <= number <= count
        assert starts[number - 1] <= offset <= starts[number - 1] + len(lines[number - 1])
        raw = lines[number - 1][offset - starts[number - 1] :]
        kept = [escape(r[:TEXT_LIMIT]) for r in (raw, raw.removesuffix(b"\r"))]
        assert text in kept, (number, offset, text[:200], kept[0][:200])
