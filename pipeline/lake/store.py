"""Open a lake; read its manifests, commit, lock and clean up."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tracelake.base import files
from tracelake.base.errors import ChangedError, LakeError
from tracelake.lake.home import RECORDS, WAREHOUSE, find_home, make_home
from tracelake.lake.layout import is_part, table_of_part
from tracelake.lake.manifest import (
    MANIFEST_VERSION,
    READ_VERSIONS,
    Change,
    Group,
    RunEntry,
    RunsOf,
    Snapshot,
    from_spans,
    group_name,
)
from tracelake.lake.part_files import Mark, PartFiles, UnlistedParts
from tracelake.lake.shapes import group_damage, packs_damage, read_versioned, skipped_damage
from tracelake.lake.small_files import UNPUBLISHED, SmallFiles
from tracelake.lake.work import locked, remove_dead, staging
from tracelake.storage.store_path import MANIFESTS, is_uri

SKIPPED_GROUP = "_skipped"
# Earlier versions moved rows of many runs into packs without a change of their groups, and listed
# these packs, which replace parts of the runs, in a manifest of their own.
PACKS_GROUP = "_packs"

# Machines that commit at once do not wait for each other; each tries this often.
_ATTEMPTS = 20

_T = TypeVar("_T")

# Of a manifest file: inode, size, mtime and ctime. Manifests are replaced, never written in place.
_Stamp = tuple[int, int, int, int]


class _Read(NamedTuple):
    """A group's manifest as it was read."""

    stamp: _Stamp
    entries: tuple[RunEntry, ...]
    runs_of: RunsOf


class _Packs(NamedTuple):
    """The packs of earlier versions.

    Attributes:
        generations: The generation of each run's rows in packs.
        parts: Run -> table -> the packs that have its rows.
    """

    generations: Mapping[str, str]
    runs_of: RunsOf
    parts: Mapping[str, Mapping[str, tuple[str, ...]]]

    def moved(self, run: RunEntry) -> bool:
        """Return whether the rows of a run are in packs."""
        return self.generations.get(run.run_id) == run.generation

    def placed(self, run: RunEntry) -> RunEntry:
        """Return a run with the parts that have its rows."""
        if not self.moved(run):
            return run
        return replace(run, parts={**run.parts, **self.parts[run.run_id]})


class Lake:
    """A lake, in a directory or below a URI. Open it with `Lake.open`, make it with `Lake.create`.

    Attributes:
        name: The directory's absolute path, or the URI.
        root: Where its small files are on this machine: the directory, or a copy.
        small: Its files that change: manifests, records, the warehouse.
        part_files: Its part files, wherever they are.
        verified: Parts whose content this process has compared with their hash.
        damaged: Parts of models whose content differs from it.
        unlisted: Parts that the next sweep checks: moved in and not yet named, or superseded.
    """

    def __init__(self, name: str, small: SmallFiles, part_files: PartFiles) -> None:
        self.name = name
        self.root = small.root
        self.small = small
        self.part_files = part_files
        self.verified: dict[str, Mark] = {}
        self.damaged: set[str] = set()
        self.unlisted = UnlistedParts(self.root / MANIFESTS / "_loose")
        self._known: dict[str, _Read] = {}

    @classmethod
    def open(cls, name: str | Path) -> Lake:
        """Return an existing lake.

        Raises:
            LakeError: There is none of this name.
            StoreError: Its store does not answer.
            UsageError: No lake can be there.
        """
        lake = cls.find(name)
        if lake is None:
            if not is_uri(str(name)) and Path(name).is_file():
                raise LakeError(
                    "the lake path is a file, not a directory",
                    path=name,
                    hint="give a directory with --lake",
                )
            raise LakeError("not a lake", path=name, hint="make one with: tracelake run INPUT")
        return lake

    @classmethod
    def find(cls, name: str | Path) -> Lake | None:
        """Return the lake of this name, if there is one; see `open`."""
        home = find_home(name)
        return home and cls(*home)

    @classmethod
    def create(cls, name: str | Path) -> Lake:
        """Return the lake of this name; make it if it does not exist; see `make_home`."""
        return cls(*make_home(name))

    @property
    def warehouse(self) -> Path:
        """The DuckDB file that the build publishes, on this machine."""
        return self.root / WAREHOUSE

    # --- reading -------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Read all manifests, except those that are unchanged since the last read.

        Raises:
            LakeError: A manifest is damaged or was written by a newer tracelake.
        """
        self.small.refresh(f"{MANIFESTS}/")
        return self._read()

    def _read(self) -> Snapshot:
        entries, packed = self._entries()
        runs = {entry.run_id: entry for entry in entries}
        twice = tuple((e.run_id, e.group) for e in entries if runs[e.run_id] is not e)
        runs_of = {p: named for group in self._known.values() for p, named in group.runs_of.items()}
        skipped = tuple(self._read_skipped().get("parts", ()))
        return Snapshot(dict(sorted(runs.items())), skipped, {**runs_of, **packed}, twice)

    def _entries(self) -> tuple[list[RunEntry], RunsOf]:
        """Return the entries of all groups, in order of group, and the runs of packs.

        The last entry of a run counts.
        """
        known: dict[str, _Read] = {}
        for group, stamp in self._manifests():
            if group in {SKIPPED_GROUP, PACKS_GROUP}:
                continue
            seen = self._known.get(group)
            if seen is None or seen.stamp != stamp:
                found = self._group(group)
                read = tuple(RunEntry.from_json(group, *entry) for entry in found.runs.items())
                seen = _Read(stamp, read, found.runs_of)
            known[group] = seen
        self._known = known
        entries = list(chain.from_iterable(group.entries for group in known.values()))
        packs = self._read_packs()
        if packs is None:
            return entries, {}
        return [packs.placed(entry) for entry in entries], packs.runs_of

    def _read_packs(self) -> _Packs | None:
        content = self._read_manifest(PACKS_GROUP, packs_damage)
        if not content:
            return None
        runs_of = from_spans(content["packs"], list(content["runs"]))
        parts: dict[str, dict[str, tuple[str, ...]]] = {run_id: {} for run_id in content["runs"]}
        for pack, runs in runs_of.items():
            for run_id in runs:
                named = parts[run_id].get(table_of_part(pack), ())
                parts[run_id][table_of_part(pack)] = (*named, pack)
        return _Packs(content["runs"], runs_of, parts)

    def _manifests(self) -> list[tuple[str, _Stamp]]:
        """Return every group with its manifest's stamp, in order of name."""
        found = []
        with os.scandir(self.root / MANIFESTS) as listed:
            for file in listed:
                if file.name.endswith(".json"):
                    with contextlib.suppress(FileNotFoundError):  # removed just now
                        at = file.stat()
                        stamp = at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
                        found.append((file.name.removesuffix(".json"), stamp))
        return sorted(found)

    def skipped_inputs(self) -> list[dict[str, Any]]:
        """Return the records of skipped inputs."""
        return list(self._read_skipped().get("inputs", ()))

    def _read_skipped(self) -> dict[str, Any]:
        return self._read_manifest(SKIPPED_GROUP, skipped_damage)

    def _read_manifest(self, group: str, check: Callable[[Any], str | None]) -> dict[str, Any]:
        """Return the content of a manifest; empty if there is none."""
        path = self.root / MANIFESTS / f"{group}.json"
        hint = "delete it and ingest its inputs again"
        return read_versioned(path, "the manifest", READ_VERSIONS, hint, check) or {}

    # --- writing -------------------------------------------------------------------

    def commit_all(self, changes: Sequence[Change]) -> None:
        """Make runs visible: move staged parts in, then replace manifests one after the other.

        A run that another group has is taken out of it.

        After this call everything is on the disk. If it fails, each group is either old or new,
        also after a power cut. One sync covers all changes.
        """
        staged = {part: path for change in changes for part, path in change.staged.items()}
        with self.lock("commit"):
            taken = self._take(staged)
            self.agree(lambda: self._replace_runs(changes, taken))

    def _replace_runs(self, changes: Sequence[Change], taken: set[Path]) -> None:
        concerned = {entry.run_id for change in changes for entry in change.entries}
        concerned.update(*(change.drop for change in changes))
        committed: dict[str, RunEntry] = {}
        groups: dict[str, list[str]] = {run_id: [] for run_id in concerned}
        for entry in self._entries()[0]:
            if entry.run_id in concerned:
                committed[entry.run_id] = entry
                groups[entry.run_id].append(entry.group)
        now: dict[str, Group] = {}
        chains: list[list[tuple[str, Mapping[str, Any] | None]]] = []
        loose: list[str] = []
        for change in changes:
            new = change.taken(committed)
            drop = {r for r in change.drop if change.over is None or r in new}
            others = chain.from_iterable(groups[run_id] for run_id in sorted({*drop, *new}))
            touched = dict.fromkeys([change.group, *others])
            # If an earlier change also replaces this group, that happens first.
            if not chains or not now.keys().isdisjoint(touched):
                chains = [list(chain.from_iterable(chains))]
            else:
                chains.append([])
            for group in touched:
                before = now.get(group) or self._group(group)
                for run_id in before.runs.keys() & {*new, *drop}:
                    loose += chain.from_iterable(before.runs[run_id]["parts"].values())
                left = {r: run for r, run in before.runs.items() if r not in drop and r not in new}
                runs_of = before.runs_of
                if group == change.group:
                    left = dict(sorted({**left, **new}.items()))
                    runs_of = change.listed(runs_of)
                now[group] = Group(left, runs_of)
                chains[-1].append((group, now[group].to_json()))
        self._publish(chains, taken, loose)

    def commit_skipped(
        self, inputs: Sequence[Mapping[str, Any]], staged: Mapping[str, Path]
    ) -> None:
        """Replace the list of skipped inputs and the parts with their rows."""
        with self.lock("commit"):
            taken = self._take(staged)
            loose = self._read_skipped().get("parts", ())
            content = {
                "version": MANIFEST_VERSION,
                "inputs": [dict(record) for record in inputs],
                "parts": sorted(staged),
            }
            self._publish([[(SKIPPED_GROUP, content)]], taken, loose)

    def adopt_packs(self) -> None:
        """Make one group of the runs whose rows earlier versions moved into packs."""
        if not (self.root / MANIFESTS / f"{PACKS_GROUP}.json").is_file():
            return
        with self.lock("commit"):
            self.agree(self._adopt_packs)

    def _adopt_packs(self) -> None:
        packs = self._read_packs()
        if packs is None:
            return
        runs = [run for run in self._read().runs.values() if packs.moved(run)]
        group = group_name(packs.runs_of)
        self._replace_runs([Change(group, runs, {}, runs_of=packs.runs_of)], set())
        self._publish([[(PACKS_GROUP, None)]], set(), packs.runs_of)

    def _group(self, name: str) -> Group:
        return Group.from_json(self._read_manifest(name, group_damage))

    def _take(self, staged: Mapping[str, Path]) -> set[Path]:
        """Move parts in, and return what must be on the disk before a manifest names them."""
        self.unlisted.add(staged)
        return self.part_files.take(staged)

    def _publish(
        self,
        chains: Sequence[Sequence[tuple[str, Mapping[str, Any] | None]]],
        taken: set[Path],
        loose: Iterable[str],
    ) -> None:
        """Replace manifests, in order along each chain; the parts that they name exist.

        Args:
            chains: Groups with the content of their manifests; None removes a manifest.
            taken: See `_take`.
            loose: Parts that these manifests no longer name.
        """
        self.unlisted.add(loose)
        self.small.publish(
            [
                [(f"{MANIFESTS}/{group}.json", _text(manifest)) for group, manifest in one]
                for one in chains
            ],
            taken,
        )

    def add_model_parts(self, staged: Mapping[str, Path]) -> None:
        """Move parts of models in; they are swept unless a warehouse that names them is published.

        Args:
            staged: Final path, relative to the lake's root -> staged file.
        """
        with self.lock("commit"):
            files.sync(self._take(staged))

    def agree(self, change: Callable[[], _T]) -> _T:
        """Make a change that depends on the lake; try again if another machine was first.

        Raises:
            ChangedError: Other machines were first every time.
        """
        for left in reversed(range(_ATTEMPTS)):
            try:
                return change()
            except ChangedError:
                if not left:
                    raise
                self.small.refresh(f"{MANIFESTS}/", WAREHOUSE, f"{RECORDS}/")
        raise AssertionError("unreachable")

    # --- locks and cleaning ------------------------------------------------------------

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the lake's exclusive lock of that name; wait for it."""
        return locked(self.root, name)

    def staging(self, purpose: str) -> AbstractContextManager[Path]:
        """Return a private directory on the lake's filesystem, removed afterwards."""
        return staging(self.root, purpose)

    def sweep(
        self,
        snapshot: Snapshot,
        *,
        needed: Collection[str] = (),
        published: Collection[str] = (),
        full: bool = False,
    ) -> int:
        """Remove files without a manifest and staging without a live writer; return how many.

        Args:
            snapshot: The manifests that were published; parts committed later are not removed.
            needed: Parts of models that the warehouse names, and what has lost its manifest.
            published: Parts of the warehouse that was replaced.
            full: Search every folder, also for files of models that are not listed. Those of tables
                may have lost their manifest.
        """
        with self.lock("commit"):
            committed = self.snapshot().all_parts.union(needed)
            listed = self.unlisted.listed()
            if full or listed is None:
                there = {found.part for found in self.part_files.stored() if found.settled}
                of_models = {part for part in there if not is_part(part)}
                listed = there if listed is None else of_models.union(listed)
            found = {*listed, *published} - committed
            kept = found & snapshot.all_parts
            removed = self.part_files.remove(found - kept)
            self.unlisted.keep(kept)
            for path in (self.root / MANIFESTS).glob(UNPUBLISHED):  # of a commit that was killed
                files.remove(path)
                removed += 1
        return removed + remove_dead(self.root)


def _text(manifest: Mapping[str, Any] | None) -> bytes | None:
    return None if manifest is None else json.dumps(manifest).encode()
