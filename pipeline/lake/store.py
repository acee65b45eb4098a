"""Open a lake; read its manifests, commit, lock and clean up."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from tracelake.base import files
from tracelake.base.errors import ChangedError, LakeError
from tracelake.lake.home import MANIFESTS, RECORDS, WAREHOUSE, find_home, make_home
from tracelake.lake.manifest import Change, RunEntry, Snapshot
from tracelake.lake.packs import PACKS_VERSION, Packs
from tracelake.lake.part_files import Mark, PartFiles, UnlistedParts
from tracelake.lake.shapes import group_damage, packs_damage, skipped_damage
from tracelake.lake.small_files import SmallFiles
from tracelake.lake.versioned import read_versioned
from tracelake.lake.work import locked, remove_dead, staging
from tracelake.storage import is_uri

MANIFEST_VERSION = 1
SKIPPED_GROUP = "_skipped"
PACKS_GROUP = "_packs"

# Machines that commit at once do not wait for each other; each tries this often.
_ATTEMPTS = 20

_T = TypeVar("_T")

# Of a manifest file: inode, size, mtime and ctime. Manifests are replaced, never written in place.
_Stamp = tuple[int, int, int, int]


class Lake:
    """A lake, in a directory or below a URI. Open it with `Lake.open`, make it with `Lake.create`.

    Attributes:
        name: The directory's absolute path, or the URI.
        root: Where its small files are on this machine: the directory, or a copy.
        part_files: Its part files, wherever they are.
        verified: Parts whose content this process has compared with their hash.
        damaged: Parts of models whose content differs from it.
    """

    def __init__(self, name: str, small: SmallFiles, part_files: PartFiles) -> None:
        self.name = name
        self.root = small.root
        self.part_files = part_files
        self.verified: dict[str, Mark] = {}
        self.damaged: set[str] = set()
        self._small = small
        self._unlisted = UnlistedParts(self.root / MANIFESTS / "_loose")
        self._known: dict[str, tuple[_Stamp, tuple[RunEntry, ...]]] = {}
        self._packs: tuple[_Stamp, Packs] | None = None

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
                raise LakeError("the lake path is a file, not a directory", path=name)
            raise LakeError("not a lake", path=name, hint="make one with: tracelake ingest")
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
        self._small.refresh(f"{MANIFESTS}/")
        known: dict[str, tuple[_Stamp, tuple[RunEntry, ...]]] = {}
        skipped: tuple[str, ...] = ()
        packs: tuple[_Stamp, Packs] | None = None
        for group, stamp in self._manifests():
            if group == SKIPPED_GROUP:
                skipped = tuple(self._read_skipped().get("parts", ()))
                continue
            if group == PACKS_GROUP:
                packs = self._packs
                if packs is None or packs[0] != stamp:
                    packs = stamp, self._read_packs()
                continue
            seen = self._known.get(group)
            if seen is None or seen[0] != stamp:
                entries = self._runs_of(group).items()
                seen = stamp, tuple(RunEntry.from_json(group, *entry) for entry in entries)
            known[group] = seen
        self._known, self._packs = known, packs
        runs = {entry.run_id: entry for _, entries in known.values() for entry in entries}
        return Snapshot(dict(sorted(runs.items())), skipped, packs[1] if packs else Packs())

    def _read_packs(self) -> Packs:
        content = self._read_manifest(PACKS_GROUP, packs_damage, PACKS_VERSION)
        return Packs.from_json(content) if content else Packs()

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

    def _read_manifest(
        self, group: str, check: Callable[[Any], str | None], version: int = MANIFEST_VERSION
    ) -> dict[str, Any]:
        """Return the content of a manifest; empty if there is none."""
        path = self._manifest_path(group)
        hint = "delete it and ingest its inputs again"
        return read_versioned(path, "the manifest", version, hint, check) or {}

    # --- writing -------------------------------------------------------------------

    def commit(
        self,
        group: str,
        entries: Iterable[RunEntry],
        *,
        staged: Mapping[str, Path],
        drop: Mapping[str, str] | None = None,
    ) -> None:
        """Make the runs of one group visible; see `Change` and `commit_all`."""
        self.commit_all([Change(group, tuple(entries), staged, drop or {})])

    def commit_all(self, changes: Sequence[Change]) -> None:
        """Make runs visible: move staged parts in, then replace manifests one after the other.

        After this call everything is on the disk. If it fails, each group is either old or new,
        also after a power cut. One sync covers all changes.
        """
        staged = {part: path for change in changes for part, path in change.staged.items()}
        with self.lock("commit"):
            taken = self._take(staged)
            self.agree(lambda: self._replace_runs(changes, taken))

    def _replace_runs(self, changes: Sequence[Change], taken: set[Path]) -> None:
        now: dict[str, dict[str, Any]] = {}
        chains: list[list[tuple[str, Mapping[str, Any] | None]]] = []
        loose: list[str] = []
        for change in changes:
            new: dict[str, dict[str, Any]] = {}
            touched = dict.fromkeys([change.group, *sorted(set(change.drop.values()))])
            # If an earlier change also replaces this group, that happens first.
            if not chains or not now.keys().isdisjoint(touched):
                chains = [list(chain.from_iterable(chains))]
            else:
                chains.append([])
            for group in touched:
                runs = now[group] if group in now else self._runs_of(group)
                if group == change.group:
                    new = change.taken(runs)
                for run_id in runs.keys() & {*new, *change.drop}:
                    loose += chain.from_iterable(runs[run_id]["parts"].values())
                left = {r: entry for r, entry in runs.items() if r not in change.drop}
                now[group] = dict(sorted((left | new if group == change.group else left).items()))
                chains[-1].append((group, {"runs": now[group]} if now[group] else None))
        self._publish(chains, taken, loose)

    def commit_skipped(
        self, inputs: Sequence[Mapping[str, Any]], staged: Mapping[str, Path]
    ) -> None:
        """Replace the list of skipped inputs and the parts with their rows."""
        with self.lock("commit"):
            taken = self._take(staged)
            loose = self._read_skipped().get("parts", ())
            content = {"inputs": [dict(record) for record in inputs], "parts": sorted(staged)}
            self._publish([[(SKIPPED_GROUP, content)]], taken, loose)

    def commit_packs(
        self, packs: Packs, staged: Mapping[str, Path], superseded: Iterable[str]
    ) -> None:
        """Replace the list of packs; this moves the rows of runs atomically.

        Args:
            superseded: Part files that have no rows of a run any more.
        """
        with self.lock("commit"):
            taken = self._take(staged)
            self._publish([[(PACKS_GROUP, packs.to_json())]], taken, superseded)

    def use_own_parts(self, run_ids: Set[str]) -> None:
        """Read the rows of runs from their own parts again, and no longer from packs.

        Their input was read again without a change: so packs name the same generation.
        """
        if run_ids & self.snapshot().packs.generations.keys():
            with self.lock("warehouse"):  # as whoever changes packs
                self.agree(lambda: self._outdate_packed(run_ids))

    def _outdate_packed(self, run_ids: Set[str]) -> None:
        packs = self.snapshot().packs
        outdated = dict.fromkeys(run_ids & packs.generations.keys(), "")
        self.commit_packs(Packs({**packs.generations, **outdated}, packs.runs), {}, ())

    def _runs_of(self, group: str) -> dict[str, Any]:
        return dict(self._read_manifest(group, group_damage).get("runs", {}))

    def _manifest_path(self, group: str) -> Path:
        return self.root / MANIFESTS / f"{group}.json"

    def _take(self, staged: Mapping[str, Path]) -> set[Path]:
        """Move parts in, and return what must be on the disk before a manifest names them."""
        self._unlisted.add(staged)
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
        self._unlisted.add(loose)
        self._small.publish(
            [[(f"{MANIFESTS}/{group}.json", _text(told)) for group, told in one] for one in chains],
            taken,
        )

    def put(self, name: str, content: bytes) -> None:
        """Replace a small file other than a manifest, by its path relative to the lake.

        Raises:
            ChangedError: Another machine has changed it since it was read.
            RefusedError: The disk is full or broken.
            UsageError: It cannot be written.
        """
        self._small.put(name, content)

    def share(self, name: str) -> None:
        """Publish a file below the root, by its name, if the lake is in a store."""
        self._small.share(name)

    def add_model_parts(self, staged: Mapping[str, Path]) -> None:
        """Move parts of models in; they are swept unless a warehouse that names them is published.

        Args:
            staged: Final path, relative to the lake's root -> staged file.
        """
        with self.lock("commit"):
            files.sync(self._take(staged))

    def publish_warehouse(self, staged: Path) -> None:
        """Replace the warehouse that was read with a new one.

        Raises:
            ChangedError: Another machine has published one since.
        """
        self._small.publish_large(staged, WAREHOUSE)

    def refresh_warehouse(self) -> None:
        """Fetch the warehouse that another machine has built for a lake in a store."""
        self._small.refresh(WAREHOUSE)

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
                self._small.refresh(f"{MANIFESTS}/", WAREHOUSE, f"{RECORDS}/")
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
            needed: Parts of models that the warehouse names.
            published: Parts of the warehouse that was replaced.
            full: Search every folder, also for files that are not listed.
        """
        with self.lock("commit"):
            committed = self.snapshot().all_parts.union(needed)
            listed = None if full else self._unlisted.listed()
            if listed is None:
                listed = {found.part for found in self.part_files.stored() if found.settled}
            found = set(listed).union(published) - committed
            kept = found & snapshot.all_parts
            removed = self.part_files.remove(found - kept)
            self._unlisted.keep(kept)
            for path in (self.root / MANIFESTS).glob("*.tmp"):  # of a commit that was killed
                files.remove(path)
                removed += 1
        return removed + remove_dead(self.root)


def _text(manifest: Mapping[str, Any] | None) -> bytes | None:
    if manifest is None:
        return None
    return json.dumps({"version": MANIFEST_VERSION, **manifest}).encode()
