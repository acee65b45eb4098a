"""Group runs that are computed together into batches of bounded size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

from tracelake.base.errors import LakeError
from tracelake.base.packing import packed
from tracelake.lake.manifest import Snapshot
from tracelake.lake.part_files import PartFiles
from tracelake.models.base import select_parts
from tracelake.schema.tables import tables

# Bytes of text of the runs that are computed together, which decide how much memory that takes: as
# Parquet the same rows can be ten times as many bytes as others.
_BATCH_BYTES = 64_000_000
# Relations of a larger run lie in a file. With 250 MB of text that takes 14 % more time of a core
# and a quarter less memory than to spill them, with 4 GB no more time and half the memory.
_IN_FILE_BYTES = 1_000_000_000
# Every batch costs half a second of a core, so smaller ones are not shared among workers.
_SHARED_BYTES = 4_000_000
# Numbers in place of texts save a tenth of the time of a batch, and cost a tenth of a second.
_CODED_BYTES = 4_000_000
# Opening a part of this size takes as long as reading it.
_SMALL_PART_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs that are computed together.

    Attributes:
        parts: Their part files by base table.
        older: Parts of an earlier version of the schemas.
        dead: Parts with outdated rows, each with the runs that these are of.
        small: Base tables with such small parts that it is faster to read them into memory once.
        coded: The runs of its parts, where it is worth while to compute with numbers in place of
            texts that are often the same; else none.
        large: Its run is larger than a batch should be: a model takes as long as many others.
        in_file: Its run is so large that its relations should lie in a file.
    """

    run_ids: tuple[str, ...]
    parts: Mapping[str, Sequence[str]]
    older: frozenset[str]
    dead: Mapping[str, frozenset[str]]
    small: frozenset[str] = frozenset()
    coded: frozenset[str] = frozenset()
    large: bool = False
    in_file: bool = False

    def select(self, table: str, base: str, enums: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return SELECT of the rows of its runs in a base table; see `select_parts`."""
        return select_parts(
            tables()[table],
            base,
            self.parts[table],
            self.older,
            only=self.run_ids,
            dead=self.dead,
            enums=enums,
        )


def batches(
    files: PartFiles, snapshot: Snapshot, run_ids: Collection[str], width: int = 1
) -> Iterator[Batch]:
    """Divide runs into batches: those of one part together, so that few batches read it.

    Args:
        width: How many batches are computed at once: there are as many, if the runs suffice.

    Raises:
        LakeError: A part is missing.
    """
    runs = {run_id: snapshot.runs[run_id] for run_id in run_ids}
    parts = {part for run in runs.values() for part in run.all_parts}
    bytes_of = {part: mark.bytes for part, mark in files.marks(parts).items()}
    if missing := sorted(parts - bytes_of.keys()):
        raise LakeError(
            "a part file is missing",
            path=f"{files.base}/{missing[0]}",
            hint="ingest its inputs again; tracelake check lists what is missing",
        )
    by_part = sorted(run_ids, key=lambda run_id: (runs[run_id].parts.get("runs", ()), run_id))
    texts = {run_id: runs[run_id].text_bytes for run_id in by_part}
    share = sum(texts.values()) // width + max(texts.values(), default=0) // 2
    bound = min(_BATCH_BYTES, max(share, _SHARED_BYTES))
    for together in packed(texts, (texts.__getitem__, bound)):
        yield _batch(snapshot, together, bytes_of, sum(texts[run_id] for run_id in together))


def halves(snapshot: Snapshot, batch: Batch) -> tuple[Batch, Batch]:
    """Divide a batch of several runs into two."""
    middle = len(batch.run_ids) // 2
    first = batch_of(snapshot, batch.run_ids[:middle])
    second = batch_of(snapshot, batch.run_ids[middle:])
    return replace(first, small=batch.small), replace(second, small=batch.small)


def batch_of(snapshot: Snapshot, run_ids: Sequence[str]) -> Batch:
    """Return a batch of any size, with views of all its tables."""
    parts = snapshot.parts_by_table(run_ids)
    named = {part for listed in parts.values() for part in listed}
    dead = {part: runs for part, runs in snapshot.dead.items() if part in named}
    return Batch(tuple(run_ids), parts, snapshot.older & named, dead)


def _batch(snapshot: Snapshot, run_ids: list[str], bytes_of: Mapping[str, int], text: int) -> Batch:
    batch = batch_of(snapshot, run_ids)
    sizes = dict.fromkeys(tables(), 0)
    for run_id in run_ids:  # of a shared part, the run's share
        for table, parts in snapshot.runs[run_id].parts.items():
            sizes[table] += sum(bytes_of[part] // snapshot.sharers(part) for part in parts)
    named = (snapshot.runs_of.get(part, ()) for part in chain.from_iterable(batch.parts.values()))
    large = text > _BATCH_BYTES
    small = (
        name
        for name, found in batch.parts.items()
        if sizes[name] < len(found) * _SMALL_PART_BYTES
        # a step that repeats makes few bytes of many rows
        and not (large and any(column.dictionary for column in tables()[name].columns))
    )
    return replace(
        batch,
        small=frozenset(small),
        coded=frozenset(run_ids).union(*named) if text > _CODED_BYTES else frozenset(),
        large=large,
        in_file=text > _IN_FILE_BYTES,
    )
