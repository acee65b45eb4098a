"""Access the files of a lake that change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tracelake.base import files

Chain = Sequence[tuple[str, bytes | None]]
"""Files, by posix path relative to the lake, with their new content; None removes a file. They are
changed in order."""
UNPUBLISHED = "[!.]*.tmp"
"""Names of files that replace others at once, which only holders of the lake's commit lock write.

Others write files of hidden names, which they lock meanwhile: see `files.put`."""


class SmallFiles:
    """The files of a lake that change: manifests, records, the warehouse.

    They are in its directory, or in a store with a local copy (`tracelake.lake.mirror`); readers
    find them below `root`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def refresh(self, *names: str) -> None:
        """Fetch what other machines have changed, of files or of folders (with a slash)."""

    def publish(self, chains: Sequence[Chain], parts: set[Path]) -> None:
        """Replace files; after this call they and the parts they name are durable.

        Args:
            parts: Files and folders of parts that must be on the disk before.

        Raises:
            ChangedError: Another machine has changed one since it was read; others may be replaced.
        """
        written: list[tuple[Path | None, Path]] = []
        known, folders = set(parts), set()
        try:
            for number, (name, content) in enumerate(link for chain in chains for link in chain):
                path = self.root / name
                beside = None if content is None else path.with_name(f"{path.stem}.{number}.tmp")
                written.append((beside, path))
                folders.add(path.parent)
                if beside is not None and content is not None:
                    files.write(beside, content)
                    known.add(beside)
            files.sync(known | folders)
            for new, path in written:
                if new is None:
                    files.remove(path)
                else:
                    files.replace(new, path)
            files.sync(folders)
        except BaseException:
            for new, _ in written:
                if new is not None:
                    files.remove(new)
            raise

    def put(self, name: str, content: bytes) -> None:
        """Replace a file.

        Raises:
            ChangedError: Another machine has changed it since it was read.
            RefusedError: The disk is full or broken.
            UsageError: It cannot be written.
        """
        files.put(self.root / name, content)

    def publish_large(self, staged: Path, name: str) -> None:
        """Replace a file of any size with a staged one.

        Raises:
            ChangedError: Another machine has changed it since it was read.
        """
        files.sync([staged])
        files.replace(staged, self.root / name)
        files.sync([self.root])

    def share(self, name: str) -> None:
        """Publish a file that was put below the root, whatever other machines have."""
