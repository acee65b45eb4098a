"""The lake on disk: manifests, commit, locks, and the one place that touches its files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from pipeline.errors import LakeError
from pipeline.lake.manifest import RunEntry, Snapshot
from pipeline.schema import PARTITION_KEY, tables

MANIFEST_VERSION = 1
SKIPPED_GROUP = "_skipped"

_MANIFESTS = "_manifest"
_STAGING = "_staging"
_LOCKS = "_lock"


class Lake:
    """A lake directory. Open it with `Lake.open` or make it with `Lake.create`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fs = pafs.LocalFileSystem()

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

    @property
    def warehouse(self) -> Path:
        """The DuckDB file that the build publishes."""
        return self.root / "warehouse.duckdb"

    # --- reading -------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Reads all manifests.

        Raises:
            LakeError: A manifest is damaged or was written by a newer tracelake.
        """
        runs: dict[str, RunEntry] = {}
        skipped: tuple[str, ...] = ()
        for path in sorted((self.root / _MANIFESTS).glob("*.json")):
            manifest = self._read_manifest(path)
            if path.stem == SKIPPED_GROUP:
                skipped = tuple(manifest["parts"])
                continue
            for run_id, entry in manifest["runs"].items():
                runs[run_id] = RunEntry(
                    run_id,
                    path.stem,
                    entry["generation"],
                    {table: tuple(parts) for table, parts in entry["parts"].items()},
                    tuple(entry["sources"]),
                    entry["options"],
                )
        return Snapshot(dict(sorted(runs.items())), skipped)

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
        with self.lock("commit"):
            self._move_in(staged)
            new = {e.run_id: e.to_json() for e in entries}
            self._write_runs(group, self._runs_of(group, without=drop) | new)
            for other in sorted(set(drop.values()) - {group}):
                self._write_runs(other, self._runs_of(other, without=drop))

    def commit_skipped(
        self, inputs: Sequence[Mapping[str, Any]], staged: Mapping[str, Path]
    ) -> None:
        """Replaces the list of inputs that no format took, and the parts that hold it."""
        with self.lock("commit"):
            self._move_in(staged)
            content = {"inputs": [dict(record) for record in inputs], "parts": sorted(staged)}
            self._write_manifest(SKIPPED_GROUP, content)

    def _runs_of(self, group: str, *, without: Collection[str]) -> dict[str, Any]:
        path = self._manifest_path(group)
        runs = self._read_manifest(path)["runs"] if path.is_file() else {}
        return {run_id: entry for run_id, entry in runs.items() if run_id not in without}

    def _write_runs(self, group: str, runs: Mapping[str, Any]) -> None:
        if runs:
            self._write_manifest(group, {"runs": dict(sorted(runs.items()))})
        else:
            self._manifest_path(group).unlink(missing_ok=True)

    def _manifest_path(self, group: str) -> Path:
        return self.root / _MANIFESTS / f"{group}.json"

    def _move_in(self, staged: Mapping[str, Path]) -> None:
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

    def sweep(self, snapshot: Snapshot) -> int:
        """Removes part files that no manifest names and staging that no live writer holds.

        Args:
            snapshot: The reading that has been published; a part committed since is spared.

        Returns:
            Files removed.
        """
        removed = 0
        with self.lock("commit"):
            named = self.snapshot().all_parts | snapshot.all_parts
            for table in tables():
                for path in (self.root / table).glob(f"{PARTITION_KEY}=*/*"):
                    if path.relative_to(self.root).as_posix() not in named:
                        path.unlink()
                        removed += 1
                        with contextlib.suppress(OSError):  # not empty: still in use
                            path.parent.rmdir()
            for folder in (self.root / _STAGING).glob("*"):
                removed += _remove_if_dead(folder)
        return removed


def _remove_if_dead(folder: Path) -> int:
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
        pafs.LocalFileSystem().delete_dir(str(folder))
        return len(files)
