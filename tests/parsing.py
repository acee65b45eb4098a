"""Drives one format over bytes in memory as ingest does over files, and checks the contract."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tracelake.formats import (
    HEAD_BYTES,
    Block,
    Chunk,
    Claim,
    Format,
    Held,
    Run,
    RunFacts,
    Span,
    format_named,
    formats,
)
from tracelake.formats.ledger import Ledger
from tracelake.schema.tables import tables as schema_tables

BLOCK_SIZE = 1 << 20
GAP_SECONDS = 60.0


def large_formats() -> dict[str, Format]:
    """Formats that owe a bench with peers, and are fuzzed: those whose files may be of any size."""
    return {name: fmt for name, fmt in formats().items() if fmt.volume == "large"}


@dataclass(frozen=True, slots=True)
class ParsedRun:
    """One run: rows by table (every table of the format, perhaps empty), accounts and facts."""

    run: Run
    tables: dict[str, pa.Table]
    ledger: Ledger
    facts: RunFacts

    def rows(self, table: str) -> list[dict[str, object]]:
        """Rows of a table; maps as dicts."""
        return [
            {k: dict(v) if _is_map(self.tables[table], k, v) else v for k, v in row.items()}
            for row in self.tables[table].to_pylist()
        ]

    def rejects(self) -> list[tuple[str, int, int, str, str]]:
        """(path, line, byte offset, reason, text) of every reject."""
        return [
            (
                self.run.sources[r["source_id"]].path,
                r["line"],
                r["byte_offset"],
                r["reason"],
                r["text"],
            )
            for r in self.tables["rejects"].to_pylist()
        ]

    def faults(self) -> list[tuple[str, str, int, int | None]]:
        """(path, name, count, first line) of every fault."""
        return [
            (self.run.sources[f["source_id"]].path, f["name"], f["count"], f["line"])
            for f in self.tables["faults"].to_pylist()
        ]


@dataclass(frozen=True, slots=True)
class Parsed:
    """All runs that a format makes of its files."""

    runs: tuple[ParsedRun, ...]

    @property
    def only(self) -> ParsedRun:
        """The run, where there is one."""
        assert len(self.runs) == 1, [[s.path for s in r.run.sources] for r in self.runs]
        return self.runs[0]

    @property
    def tables(self) -> dict[str, pa.Table]:
        """Tables of the only run."""
        return self.only.tables

    @property
    def ledger(self) -> Ledger:
        """Accounts of the only run."""
        return self.only.ledger

    @property
    def facts(self) -> RunFacts:
        """Facts of the only run."""
        return self.only.facts


def claim_of(fmt: Format, head: bytes) -> Claim:
    """What a format says of the first bytes of a file."""
    return Claim.YES if fmt.begins(head) else fmt.sniff(head)


def parse(
    chosen: str | Format,
    files: Mapping[str, bytes],
    *,
    block_size: int = BLOCK_SIZE,
    given: Mapping[str, int] | None = None,
    gap_seconds: float = GAP_SECONDS,
    run_name: str | None = None,
    empty_last: bool = False,
    together: bool = False,
) -> Parsed:
    """Parses decompressed files by path.

    Every chunk holds at least one line, or `block_size` bytes of one if the format takes
    long lines, and at most `block_size` bytes beyond that, small sources together; the buffer is
    overwritten after each feed, so a parser that keeps a view of it is found out. `run_name` is
    what a --run-pattern would say of every file. With `empty_last` the block that says `last` holds
    no line. With `together` the runs are small ones, which are all fed before they are finished.
    """
    fmt = format_named(chosen) if isinstance(chosen, str) else chosen
    facts = [
        fmt.facts(path, data[:HEAD_BYTES])._replace(given=dict(given or {}), run=run_name)
        for path, data in files.items()
    ]
    groups = fmt.group(facts, gap_seconds)
    assert sorted(f.path for g in groups for f in g) == sorted(files), "each file in one run"
    fed = []
    for group in groups:
        sources = tuple(sorted(group, key=lambda f: f.path))
        named = {k: v for f in sources for k, v in f.topology.items()}
        run = Run(sources, named, {k: v for f in sources for k, v in f.given.items()}, together)
        data = [files[f.path] for f in sources]
        fed.append(_feed(fmt, run, data, block_size, empty_last=empty_last))
        if not together:
            next(fed[-1])
    parsers = [next(one) for one in fed] if together else []
    if fmt.prepare and parsers:
        fmt.prepare(parsers)
    held = [next(one) for one in fed]
    return Parsed(tuple(one.send(rows) for one, rows in zip(fed, _made(held), strict=True)))


def _made(held: Sequence[Held | None]) -> Iterator[dict[str, pa.RecordBatch]]:
    """Yields the rows that each run holds back, which are made for all at once."""
    contents = [one.content for one in held if one]
    made = next(one for one in held if one).make(contents) if contents else {}
    stops = dict.fromkeys(made, 0)
    for one in held:
        own = {}
        for table, count in one.rows.items() if one else ():
            own[table] = made[table].slice(stops[table], count)
            stops[table] += count
        yield own
    assert stops == {table: batch.num_rows for table, batch in made.items()}


def _feed(
    fmt: Format, run: Run, data: list[bytes], block_size: int, *, empty_last: bool
) -> Generator[Any, Any]:
    """Yields the parser of a run that has all chunks, what it holds back, and what it made."""
    ledger = Ledger()
    parser = fmt.parser(run, ledger)
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in (*fmt.tables, "rejects")}

    def collect(*, everything: bool = False) -> None:
        for name, ready in parser.drain().items():
            batches[name].extend(ready)
        batches["rejects"].extend(ledger.drain_rejects(everything=everything))

    blocks: list[Block] = []
    for source_id, raw in enumerate(data):
        blocks.extend(
            _blocks(source_id, raw, block_size, empty_last=empty_last, cut=fmt.long_lines)
        )
    for chunk in _chunks(blocks, block_size):
        parser.feed(chunk)
        chunk.data[:] = 0xFF
        collect()
    yield parser
    facts = parser.finish()
    made = yield facts.held
    collect(everything=True)
    for name, batch in made.items():
        batches[name].append(batch)
    facts = replace(facts, held=None)
    batches["faults"] = ledger.fault_batches()
    found = {
        name: pa.Table.from_batches(ready, schema_tables()[name].storage_schema)
        for name, ready in batches.items()
    }
    _check_accounts(fmt, ledger, data, found)
    yield ParsedRun(run, found, ledger, facts)


def _blocks(
    source_id: int, raw: bytes, block_size: int, *, empty_last: bool, cut: bool
) -> Iterator[Block]:
    """Whole lines in order, or cut anywhere; exactly one block says `last`."""
    start, line = 0, 1
    while start < len(raw):
        end = raw.rfind(b"\n", start, start + block_size) + 1
        if end <= start:
            end = start + block_size if cut else raw.find(b"\n", start) + 1 or len(raw)
        if len(raw) - start <= block_size:
            end = len(raw)
        data = np.frombuffer(raw[start:end], np.uint8).copy()
        yield Block(source_id, data, line, start, last=end == len(raw) and not empty_last)
        line += raw.count(b"\n", start, end)
        start = end
    if empty_last or not raw:
        yield Block(source_id, np.empty(0, np.uint8), line, start, last=True)


def _chunks(blocks: list[Block], size: int) -> Iterator[Chunk]:
    """Blocks of the given size together, of different sources only, in the order given."""
    while blocks:
        taken = [blocks.pop(0)]
        while blocks and blocks[0].source_id != taken[-1].source_id:
            if sum(len(b.data) for b in (*taken, blocks[0])) > size:
                break
            taken.append(blocks.pop(0))
        data, spans = bytearray(), []
        for b in taken:
            start = len(data)
            data += b.data.tobytes()
            spans.append(Span(b.source_id, start, len(data), b.line, b.offset, b.last))
            if len(data) > start and data[-1] != ord("\n"):
                data += b"\n"
        array = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(array == ord("\n"))
        firsts = np.searchsorted(ends, [s.start for s in spans])
        yield Chunk(array, ends, firsts, tuple(spans))


def _check_accounts(
    fmt: Format, ledger: Ledger, data: list[bytes], found: dict[str, pa.Table]
) -> None:
    """Every line is counted once, by a documented kind, and every row belongs to its source."""
    for source_id, raw in enumerate(data):
        count = ledger.source(source_id)
        lines = raw.count(b"\n") + (not raw.endswith(b"\n") and raw != b"")
        assert count.lines == lines, (source_id, count, lines)
        assert set(count.irrelevant) <= set(fmt.irrelevant)
    stored = [r for name in fmt.tables for r in found[name].column("source_id").to_pylist()]
    for source_id in range(len(data)):
        assert ledger.source(source_id).rows == stored.count(source_id), source_id
    for name in fmt.tables:
        where = list(
            zip(
                found[name].column("source_id").to_pylist(),
                found[name].column("line").to_pylist(),
                strict=True,
            )
        )
        assert where == sorted(where), f"{name} is not in order of source and line"
    assert set(found["rejects"].column("reason").to_pylist()) <= set(fmt.rejects)
    for table in found.values():
        table.validate(full=True)


def _is_map(table: pa.Table, name: str, value: object) -> bool:
    return value is not None and pa.types.is_map(table.schema.field(name).type)
