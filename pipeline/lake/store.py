"""The lake on disk: manifests, commit, locks, and the one place that touches its files."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import LakeError
from pipeline.lake.loose import Loose
from pipeline.lake.manifest import RunEntry, Snapshot
from pipeline.schema import PARTITION_KEY, tables

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

MANIFEST_VERSION = 1
SKIPPED_GROUP = "_skipped"

_MANIFESTS = "_manifest"
_STAGING = "_staging"
_LOCKS = "_lock"

# Of a manifest file: inode, size, mtime and ctime. Manifests are replaced, never written in place.
_Stamp = tuple[int, int, int, int]


class Lake:
    """A lake directory. Open it with `Lake.open` or make it with `Lake.create`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loose = Loose(root / _MANIFESTS / "_loose")
        self._known: dict[str, tuple[_Stamp, tuple[RunEntry, ...]]] = {}

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
            for folder in (_MANIFESTS, _STAGING, _LOCKS):
                (path / folder).mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise LakeError(
                "the lake path is a file, not a directory",
                path=error.filename or root,
                hint="name a directory with --lake",
            ) from error
        except OSError as error:
            raise LakeError(f"cannot write the lake: {error.strerror}", path=root) from error
        return cls(path)

    @functools.cached_property
    def _fs(self) -> FileSystem:
        from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 - readers do without

        return LocalFileSystem()

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
        for group, stamp in self._manifests():
            if group == SKIPPED_GROUP:
                skipped = tuple(self._read_manifest(self._manifest_path(group))["parts"])
                continue
            seen = self._known.get(group)
            if seen is None or seen[0] != stamp:
                entries = self._runs_of(group).items()
                seen = stamp, tuple(RunEntry.from_json(group, *entry) for entry in entries)
            known[group] = seen
        self._known = known
        runs = {entry.run_id: entry for _, entries in known.values() for entry in entries}
        return Snapshot(dict(sorted(runs.items())), skipped)

    def _manifests(self) -> list[tuple[str, _Stamp]]:
        """Every group with its manifest's stamp, in order of name."""
        found = []
        with os.scandir(self.root / _MANIFESTS) as files:
            for file in files:
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
    def _read_manifest(path: Path) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise LakeError(
                f"the manifest cannot be read: {error}",
                path=path,
                hint="delete it and ingest its inputs again",
            ) from error
        if manifest.get("version") != MANIFEST_VERSION:
            raise LakeError(
                f"the manifest has version {manifest.get('version')}, this tracelake reads"
                f" {MANIFEST_VERSION}",
                path=path,
                hint="use the tracelake that wrote it, or ingest into a new lake",
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
        """Makes runs visible: moves staged parts in, then replaces the group's manifest.

        Args:
            staged: Final path, relative to the lake's root -> staged file.
            drop: Runs that the entries supersede -> their group; those of other groups are dropped
                after this group has been committed.
        """
        drop = drop or {}
        new = {e.run_id: e.to_json() for e in entries}
        with self.lock("commit"):
            old = {name: self._runs_of(name) for name in sorted({group, *drop.values()})}
            for runs in old.values():
                for run_id in runs.keys() & {*new, *drop}:
                    self._loose.add(chain.from_iterable(runs[run_id]["parts"].values()))
                for run_id in runs.keys() & drop.keys():
                    del runs[run_id]
            self._move_in(staged)
            self._write_runs(group, old.pop(group) | new)
            for other, runs in old.items():
                self._write_runs(other, runs)

    def commit_skipped(
        self, inputs: Sequence[Mapping[str, Any]], staged: Mapping[str, Path]
    ) -> None:
        """Replaces the list of inputs that no format took, and the parts that hold it."""
        with self.lock("commit"):
            path = self._manifest_path(SKIPPED_GROUP)
            self._loose.add(self._read_manifest(path)["parts"] if path.is_file() else ())
            self._move_in(staged)
            content = {"inputs": [dict(record) for record in inputs], "parts": sorted(staged)}
            self._write_manifest(SKIPPED_GROUP, content)

    def _runs_of(self, group: str) -> dict[str, Any]:
        path = self._manifest_path(group)
        return dict(self._read_manifest(path)["runs"]) if path.is_file() else {}

    def _write_runs(self, group: str, runs: Mapping[str, Any]) -> None:
        if runs:
            self._write_manifest(group, {"runs": dict(sorted(runs.items()))})
        else:
            self._manifest_path(group).unlink(missing_ok=True)

    def _manifest_path(self, group: str) -> Path:
        return self.root / _MANIFESTS / f"{group}.json"

    def _move_in(self, staged: Mapping[str, Path]) -> None:
        self._loose.add(staged)
        for relative, source in staged.items():
            target = self.root / relative
            # The name carries the content's hash: a file of that name is this file.
            if not target.exists():
                self._fs.create_dir(str(target.parent), recursive=True)
                self._fs.move(str(source), str(target))

    def _write_manifest(self, group: str, content: Mapping[str, Any]) -> None:
        target = self._manifest_path(group)
        beside = target.with_suffix(f".{os.getpid()}.tmp")
        with self._fs.open_output_stream(str(beside)) as out:
            out.write(json.dumps({"version": MANIFEST_VERSION, **content}).encode())
        self._fs.move(str(beside), str(target))

    # --- locks and cleaning ------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Holds the lake's exclusive lock of that name; waits for it."""
        path = self.root / _LOCKS / name
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def staging(self, purpose: str) -> Iterator[Path]:
        """A private directory on the lake's filesystem, removed afterwards."""
        parent = self.root / _STAGING
        parent.mkdir(exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix=f"{purpose}-", dir=parent) as folder,
            (Path(folder) / ".writer").open("w") as alive,
        ):
            fcntl.flock(alive, fcntl.LOCK_EX)
            yield Path(folder)

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
            found = set(self._stored_parts() if listed is None else listed) - committed
            for part in found - snapshot.all_parts:
                path = self.root / part
                with contextlib.suppress(FileNotFoundError):  # never moved in
                    path.unlink()
                    removed += 1
                with contextlib.suppress(OSError):  # not empty: still in use
                    path.parent.rmdir()
            self._loose.keep(found & snapshot.all_parts)
            for folder in (self.root / _STAGING).glob("*"):
                removed += self._remove_if_dead(folder)
        return removed

    def _stored_parts(self) -> Iterator[str]:
        """Every file in a run's folder of a table, relative to the root."""
        for table in tables():
            folder = self.root / table
            for run in os.listdir(folder) if folder.is_dir() else ():
                if run.startswith(f"{PARTITION_KEY}="):
                    for name in os.listdir(folder / run):
                        yield f"{table}/{run}/{name}"

    def _remove_if_dead(self, folder: Path) -> int:
        """Empties a staging folder whose writer is gone; a live one holds a lock on `.writer`."""
        mark = folder / ".writer"
        if not mark.is_file():
            return 0
        with mark.open("a") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0
            files = [path for path in folder.rglob("*") if not path.is_dir()]
            self._fs.delete_dir(str(folder))
            return len(files)
