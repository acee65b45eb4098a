"""Copy the small files of a lake in an object store to this machine, and put them conditionally.

The copy is the last state that was read. A file is put in the store only if the stored one is still
in the state of the copy. So two machines that commit at once never undo each other's work.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tracelake.base import files
from tracelake.lake.small_files import Chain, SmallFiles
from tracelake.lake.work import locked
from tracelake.storage.objects import WIDTH, Version, fetch, listed, overwrite, put, stat
from tracelake.storage.store_path import StorePath

_VERSIONS = ".versions.json"
# No store can delete on a condition, so objects are emptied instead; an empty object is no file.
_ENDED = b""


class Mirror(SmallFiles):
    """The copy of a lake's small files.

    Args:
        root: Folder of the copy.

    Raises:
        StoreError: The store does not answer; so do all methods.
    """

    def __init__(self, place: StorePath, root: Path) -> None:
        super().__init__(root)
        self._place = place

    def refresh(self, *names: str) -> None:
        """See `SmallFiles`."""
        with self._versions() as known:
            found: dict[str, str | None] = {}
            for name in names:
                if name.endswith("/"):
                    below = listed(self._place.below(name[:-1]))
                    found |= {f"{name}{one.name}": one.tag for one in below}
                elif one := stat(self._place.below(name)):
                    found[name] = one.tag
            stale = [n for n, tag in found.items() if known.get(n, {}).get("e_tag") != tag]
            with ThreadPoolExecutor(WIDTH) as pool:
                known.update(zip(stale, pool.map(self._fetch, stale), strict=True))
            for name in [n for n in known if n.startswith(names) and n not in found]:
                files.remove(self.root / name)
                del known[name]

    def publish(self, chains: Sequence[Chain], parts: set[Path]) -> None:
        """See `SmallFiles`; parts are in the store already."""
        del parts
        with self._versions() as known, ThreadPoolExecutor(WIDTH) as pool:
            for done in [pool.submit(self._put_chain, chain, known) for chain in chains]:
                done.result()

    def put(self, name: str, content: bytes) -> None:
        """See `SmallFiles`."""
        self.publish([[(name, content)]], set())

    def publish_large(self, staged: Path, name: str) -> None:
        """See `SmallFiles`."""
        with self._versions() as known:
            known[name] = put(self._place.below(name), staged, known.get(name))
            files.replace(staged, self.root / name)

    def share(self, name: str) -> None:
        """See `SmallFiles`."""
        with self._versions() as known:
            known[name] = overwrite(self._place.below(name), self.root / name)

    def _put_chain(self, chain: Chain, known: dict[str, Version]) -> None:
        for name, content in chain:
            path, new = self.root / name, _ENDED if content is None else content
            before = path.read_bytes() if path.is_file() else _ENDED
            if name in known and before == new:
                continue
            known[name] = put(self._place.below(name), new, known.get(name))
            with self._replacing(path) as beside:
                files.write(beside, new)

    def _fetch(self, name: str) -> Version:
        with self._replacing(self.root / name) as beside:
            return fetch(self._place.below(name), beside)

    @contextlib.contextmanager
    def _replacing(self, path: Path) -> Iterator[Path]:
        """Yield a file of the copy to write; without one at exit the file is removed."""
        files.make_folder(path.parent)
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            yield beside
            if beside.stat().st_size:
                files.replace(beside, path)
            else:
                files.remove(path)
        finally:
            files.remove(beside)

    @contextlib.contextmanager
    def _versions(self) -> Iterator[dict[str, Version]]:
        """Yield the states of the copy's files; only one process changes them at a time."""
        path = self.root / _VERSIONS
        with locked(self.root, "mirror"):
            try:
                known: dict[str, Version] = dict(json.loads(path.read_bytes()))
            except (FileNotFoundError, ValueError, TypeError, RecursionError):
                known = {}  # everything is fetched again
            before = dict(known)
            try:
                yield known
            finally:
                if known != before:
                    beside = path.with_name(f"{path.name}.tmp")
                    files.write(beside, json.dumps(known).encode())
                    files.replace(beside, path)
