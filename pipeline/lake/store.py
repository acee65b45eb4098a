"""The lake on disk: manifests, commit, locks, and the one place that touches its files."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline import files
from pipeline.errors import LakeError
from pipeline.lake.loose import Loose, stored_parts
from pipeline.lake.manifest import Change, RunEntry, Snapshot
from pipeline.lake.packs import PACKS_VERSION, Packs
from pipeline.lake.work import LOCKS, STAGING, locked, remove_dead, staging

MANIFEST_VERSION = 1
SKIPPED_GROUP = "_skipped"
PACKS_GROUP = "_packs"

_MANIFESTS = "_manifest"

# Of a manifest file: inode, size, mtime and ctime. Manifests are replaced, never written in place.
_Stamp = tuple[int, int, int, int]


class Lake:
    """A lake directory. Open it with `Lake.open` or make it with `Lake.create`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loose = Loose(root / _MANIFESTS / "_loose")
        self._known: dict[str, tuple[_Stamp, tuple[RunEntry, ...]]] = {}
        self._packs: tuple[_Stamp, Packs] | None = None

    @staticmethod
    def exists(root: str | Path) -> bool:
        """Whether there is a lake at this path."""
        return (Path(root) / _MANIFESTS).is_dir()

    @classmethod
    def open(cls, root: str | Path) -> Lake:
        """An existing lake.

        Raises:
            LakeError: There is none at this path.
        """
        path = Path(root).resolve()
        if path.is_file():
            raise LakeError("the lake path is a file, not a directory", path=root)
        if not cls.exists(path):
            raise LakeError("not a lake", path=root, hint="make one with: tracelake ingest")
        return cls(path)

    @classmethod
    def create(cls, root: str | Path) -> Lake:
        """The lake at this path, made if it is not there.

        Raises:
            LakeError: The path is a file, is in use for something else, or cannot be written.
        """
        path = Path(root).resolve()
        try:
            if not cls.exists(path) and path.is_dir() and any(path.iterdir()):
                raise LakeError(
                    "the directory holds something else than a lake",
                    path=root,
                    hint="name an empty or a new directory",
                )
            for folder in (_MANIFESTS, STAGING, LOCKS):
                files.make_folder(path / folder)
        except (FileExistsError, NotADirectoryError) as error:
            raise LakeError(
                "the lake path is a file, not a directory",
                path=error.filename or root,
                hint="name a directory with --lake",
            ) from error
        except OSError as error:
            raise LakeError(f"cannot write the lake: {error.strerror}", path=root) from error
        return cls(path)

    @property
    def warehouse(self) -> Path:
        """The DuckDB file that the build publishes."""
        return self.root / "warehouse.duckdb"

    # --- reading -------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Reads all manifests, but those that this object has read and nobody has replaced since.

        Raises:
            LakeError: A manifest is damaged or was written by a newer tracelake.
        """
        known: dict[str, tuple[_Stamp, tuple[RunEntry, ...]]] = {}
        skipped: tuple[str, ...] = ()
        packs: tuple[_Stamp, Packs] | None = None
        for group, stamp in self._manifests():
            if group == SKIPPED_GROUP:
                skipped = tuple(self._read_manifest(self._manifest_path(group))["parts"])
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
        path = self._manifest_path(PACKS_GROUP)
        content = self._read_manifest(path, PACKS_VERSION) if path.is_file() else None
        return Packs.from_json(content) if content else Packs()

    def _manifests(self) -> list[tuple[str, _Stamp]]:
        """Every group with its manifest's stamp, in order of name."""
        found = []
        with os.scandir(self.root / _MANIFESTS) as listed:
            for file in listed:
                if file.name.endswith(".json"):
                    with contextlib.suppress(FileNotFoundError):  # dropped just now
                        at = file.stat()
                        stamp = at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
                        found.append((file.name.removesuffix(".json"), stamp))
        return sorted(found)

    def skipped_inputs(self) -> list[dict[str, Any]]:
        """What is remembered of inputs that no format took."""
        path = self._manifest_path(SKIPPED_GROUP)
        return list(self._read_manifest(path)["inputs"]) if path.is_file() else []

    @staticmethod
    def _read_manifest(path: Path, version: int = MANIFEST_VERSION) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise LakeError(
                f"the manifest cannot be read: {error}",
                path=path,
                hint="delete it and ingest its inputs again",
            ) from error
        if manifest.get("version") != version:
            raise LakeError(
                f"the manifest has version {manifest.get('version')}, this tracelake reads"
                f" {version}",
                path=path,
                hint="use the tracelake that wrote it or a newer one, or ingest into a new lake",
            )
        return manifest

    # --- writing -------------------------------------------------------------------

    def commit(
        self,
        group: str,
        entries: Iterable[RunEntry],
        *,
        staged: Mapping[str, Path],
        drop: Mapping[str, str] | None = None,
    ) -> None:
        """Makes the runs of one group visible; see `Change` and `commit_all`."""
        self.commit_all([Change(group, tuple(entries), staged, drop or {})])

    def commit_all(self, changes: Sequence[Change]) -> None:
        """Makes runs visible: moves staged parts in, then replaces manifests one after the other.

        Once this returns, all of it is on the disk; if it does not, each group is as it was or as
        it is to be, also after a power cut. That costs the same for one change as for many.
        """
        with self.lock("commit"):
            now: dict[str, dict[str, Any]] = {}
            writes: list[tuple[str, dict[str, Any]]] = []
            loose: list[str] = []
            for change in changes:
                new = {entry.run_id: entry.to_json() for entry in change.entries}
                touched = dict.fromkeys([change.group, *sorted(set(change.drop.values()))])
                for group in touched:
                    runs = now[group] if group in now else self._runs_of(group)
                    for run_id in runs.keys() & {*new, *change.drop}:
                        loose += chain.from_iterable(runs[run_id]["parts"].values())
                    left = {r: entry for r, entry in runs.items() if r not in change.drop}
                    now[group] = dict(
                        sorted((left | new if group == change.group else left).items())
                    )
                    writes.append((group, now[group]))
            staged = {r: path for change in changes for r, path in change.staged.items()}
            self._publish(
                [(group, {"runs": runs} if runs else None) for group, runs in writes], staged, loose
            )

    def commit_skipped(
        self, inputs: Sequence[Mapping[str, Any]], staged: Mapping[str, Path]
    ) -> None:
        """Replaces the list of inputs that no format took, and the parts that hold it."""
        with self.lock("commit"):
            path = self._manifest_path(SKIPPED_GROUP)
            loose = self._read_manifest(path)["parts"] if path.is_file() else []
            content = {"inputs": [dict(record) for record in inputs], "parts": sorted(staged)}
            self._publish([(SKIPPED_GROUP, content)], staged, loose)

    def commit_packs(
        self, packs: Packs, staged: Mapping[str, Path], superseded: Iterable[str]
    ) -> None:
        """Replaces the list of packs: the rows of runs are there from then on, at once.

        Args:
            superseded: Part files that have no rows of a run any more.
        """
        with self.lock("commit"):
            self._publish([(PACKS_GROUP, packs.to_json())], staged, superseded)

    def _runs_of(self, group: str) -> dict[str, Any]:
        path = self._manifest_path(group)
        return dict(self._read_manifest(path)["runs"]) if path.is_file() else {}

    def _manifest_path(self, group: str) -> Path:
        return self.root / _MANIFESTS / f"{group}.json"

    def _publish(
        self,
        manifests: Sequence[tuple[str, Mapping[str, Any] | None]],
        staged: Mapping[str, Path],
        loose: Iterable[str],
    ) -> None:
        """Moves parts in, then puts manifests in place, in order: what they name is there.

        Args:
            manifests: Groups with what their manifests say; None for one that ends.
            loose: Parts that these manifests no longer name.
        """
        self._loose.add([*loose, *staged])
        known = {self.root / _MANIFESTS}
        for relative, source in staged.items():
            target = self.root / relative
            # The name carries the content's hash: a file of that name is this file.
            if not target.exists():
                files.make_folder(target.parent)
                files.replace(source, target)
            known |= {target, target.parent, target.parent.parent, self.root}
        written: list[tuple[Path | None, Path]] = []
        for number, (group, content) in enumerate(manifests):
            path = self._manifest_path(group)
            if content is None:
                written.append((None, path))
                continue
            beside = path.with_name(f"{group}.{number}.tmp")
            text = json.dumps({"version": MANIFEST_VERSION, **content})
            files.write(beside, text.encode())
            written.append((beside, path))
            known.add(beside)
        files.sync(known)
        for new, path in written:
            if new is None:
                files.remove(path)
            else:
                files.replace(new, path)
        files.sync([self.root / _MANIFESTS])

    # --- locks and cleaning ------------------------------------------------------------

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Holds the lake's exclusive lock of that name; waits for it."""
        return locked(self.root, name)

    def staging(self, purpose: str) -> AbstractContextManager[Path]:
        """A private directory on the lake's filesystem, removed afterwards."""
        return staging(self.root, purpose)

    def sweep(self, snapshot: Snapshot, *, full: bool = False) -> int:
        """Removes files of no manifest and staging of no live writer, and says how many.

        Args:
            snapshot: The reading that has been published; a part committed since is spared.
            full: Look through every folder, also for what nobody has listed.
        """
        removed = 0
        with self.lock("commit"):
            committed = self.snapshot().all_parts
            listed = None if full else self._loose.listed()
            found = set(stored_parts(self.root) if listed is None else listed) - committed
            kept = found & snapshot.all_parts
            for part in found - kept:
                path = self.root / part
                if path.exists():  # or it was never moved in
                    files.remove(path)
                    removed += 1
                files.remove_folder(path.parent)
            self._loose.keep(kept)
            for path in (self.root / _MANIFESTS).glob("*.tmp"):  # of a commit that was killed
                files.remove(path)
                removed += 1
        return removed + remove_dead(self.root)
