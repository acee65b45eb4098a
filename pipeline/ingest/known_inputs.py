"""Index the inputs that a lake knows, so that an unchanged file is not opened again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tracelake.formats import Format, formats
from tracelake.inputs.streams import FileRef, strip_suffix
from tracelake.lake.manifest import RunEntry, Snapshot, label_of
from tracelake.schema.tables import SCHEMA_VERSION

Record = Mapping[str, Any]

# Number of bytes that the hash in a run id covers.
ID_BYTES = 4096


@dataclass(frozen=True, slots=True)
class KnownInput:
    """A committed source: its run and its record."""

    run: RunEntry
    record: Record


def known_formats() -> str:
    """Return names and versions of all formats; a different set may decide differently."""
    return " ".join(f"{fmt.name}:{fmt.version}" for fmt in formats().values())


_StatKey = tuple[str, int, int, int]
# Inode, which a file keeps when it is renamed and grows, and the member.
_FileKey = tuple[int, str | None]


class KnownInputs:
    """Index over the records of all inputs.

    Attributes:
        runs: Every run of the lake and every dropped run; a new run never gets one of these ids.
        dropped: The dropped runs.
        lost: Runs whose part files are missing or damaged: their input is read again.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        skipped: Iterable[Record],
        dropped: Mapping[str, RunEntry],
        lost: Collection[str],
    ) -> None:
        self.lost = lost
        self.dropped = dropped.keys()
        self.runs = {**dropped, **snapshot.runs}
        self._by_stat: dict[_StatKey, list[KnownInput | Record]] = defaultdict(list)
        self._by_label: dict[str, list[KnownInput]] = defaultdict(list)
        self._by_file: dict[_FileKey, list[KnownInput]] = defaultdict(list)
        self._by_head: dict[str, list[KnownInput]] = defaultdict(list)
        for run in self.runs.values():
            for record in run.sources:
                source = KnownInput(run, record)
                self._by_stat[_record_key(record)].append(source)
                self._by_label[label_of(record)].append(source)
                self._by_head[record["head_hash"]].append(source)
                if run.run_id not in self.dropped and record["inode"]:
                    self._by_file[record["inode"], record["member"]].append(source)
        for record in skipped:
            if "size" in record:
                self._by_stat[_record_key(record)].append(record)

    def unchanged(self, entry: FileRef, forced: Format | None) -> list[KnownInput | Record]:
        """Return all records of a file if it is unchanged and would be sniffed alike.

        Empty unless every member of an archive has a record.
        """
        known = self._by_stat.get((entry.path, entry.size, entry.mtime_ns, entry.inode), [])
        whole = all(_record(k)["members"] == len(known) for k in known)
        return list(known) if whole and all(_holds(k, forced) for k in known) else []

    def at(self, label: str) -> list[KnownInput]:
        """Return sources that were read under this label."""
        return self._by_label.get(label, [])

    def near(self, label: str, head_hash: str, entry: FileRef) -> list[KnownInput]:
        """Return sources of this label, with this beginning, or of this file under another name.

        Of runs that were dropped, another name is that of another run.
        """
        begun = (
            known
            for known in self._by_head.get(head_hash, [])
            if known.run.run_id not in self.dropped
            or base_name(label_of(known.record)) == base_name(label)
        )
        return [*self.at(label), *begun, *self._by_file.get((entry.inode, entry.member), [])]


def base_name(label: str) -> str:
    """Return the base name without a compression suffix."""
    return strip_suffix(label.rpartition("/")[2])


def _holds(known: KnownInput | Record, forced: Format | None) -> bool:
    """Return whether the earlier decision and the stored facts would be the same now."""
    if not isinstance(known, KnownInput):
        return forced is None and bool(known["formats"] == known_formats())
    options = known.run.options
    fmt = formats().get(options["format"])
    # What a later version read says more than this one would.
    if fmt is None or options["parser"] < fmt.version or options["schema"] != SCHEMA_VERSION:
        return False
    return not options["forced"] if forced is None else fmt.name == forced.name


def _record(known: KnownInput | Record) -> Record:
    return known.record if isinstance(known, KnownInput) else known


def _record_key(record: Record) -> _StatKey:
    return record["path"], record["size"], record["mtime_ns"], record["inode"]
