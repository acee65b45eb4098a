"""Small files of a lake in an object store: a copy on this machine, and puts that depend on it.

The copy is what was last read of them. A file is put in the store only if it is still in the state
of the copy: so two machines that commit at once never undo each other's work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline import files
from pipeline.errors import LakeError
from pipeline.lake.work import locked
from pipeline.stores import WIDTH, Objects, Place, Version

_VERSIONS = ".versions.json"


def mirror_root(place: Place) -> Path:
    """Folder of the copy, this user's own: below XDG_CACHE_HOME, else ~/.cache.

    Raises:
        LakeError: There is no such folder.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        parent = Path(cache) if cache else Path.home() / ".cache"
    except RuntimeError as error:
        raise LakeError(
            "there is no home for the copy of the lake's small files",
            path=place.uri,
            hint="set XDG_CACHE_HOME to a folder of your own",
        ) from error
    digest = hashlib.sha256(place.uri.encode()).hexdigest()[:16]
    return parent / "tracelake" / "lakes" / f"{place.name}-{digest}"


class Mirror:
    """The copy of a lake's small files.

    Args:
        root: Folder of the copy.

    Raises:
        StoreError: The store does not answer; so do all methods.
    """

    def __init__(self, place: Place, root: Path) -> None:
        self.root = root
        self._objects = Objects(place)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def pull(self, *prefixes: str) -> None:
        """Brings files, or all files below a folder, to what they are in the store."""
        with self._versions() as known:
            found: dict[str, str] = {}
            for prefix in prefixes:
                if prefix.endswith("/"):
                    found |= self._objects.versions(prefix)
                elif tag := self._objects.tag(prefix):
                    found[prefix] = tag
            stale = [
                name
                for name, tag in found.items()
                if known.get(name, {}).get("e_tag") != tag or not (self.root / name).is_file()
            ]
            with ThreadPoolExecutor(WIDTH) as pool:
                known |= zip(stale, pool.map(self._fetch, stale), strict=True)
            gone = [n for n in known if n.startswith(prefixes) and n not in found]
            for name in gone:
                files.remove(self.root / name)
                del known[name]

    def _fetch(self, name: str) -> Version:
        path = self.root / name
        files.make_folder(path.parent)
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            version = self._objects.fetch(name, beside)
            files.replace(beside, path)
        finally:
            files.remove(beside)
        return version

    def put(self, chains: Sequence[Sequence[tuple[str, bytes]]]) -> None:
        """Puts files in the store and in the copy.

        Args:
            chains: Names with contents: a file of a chain is there before the next one is put;
                chains have no order, and no name stands in two.

        Raises:
            ChangedError: A file is not what the copy has: pull and try again. Others may be put.
        """
        with self._versions() as known, ThreadPoolExecutor(WIDTH) as pool:
            for done in [pool.submit(self._put_chain, chain, known) for chain in chains]:
                done.result()

    def _put_chain(self, chain: Sequence[tuple[str, bytes]], known: dict[str, Version]) -> None:
        for name, content in chain:
            path = self.root / name
            if name in known and path.is_file() and path.read_bytes() == content:
                continue
            version = self._objects.put(name, content, known.get(name))
            files.make_folder(path.parent)
            beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            files.write(beside, content)
            files.replace(beside, path)
            known[name] = version

    def publish(self, name: str, source: Path) -> None:
        """Puts a large file in the store, and moves it to its place in the copy.

        Raises:
            ChangedError: The one in the store is not what the copy has.
        """
        with self._versions() as known:
            known[name] = self._objects.put(name, source, known.get(name))
            files.replace(source, self.root / name)

    @contextlib.contextmanager
    def _versions(self) -> Iterator[dict[str, Version]]:
        """The states of the copy's files, kept beside them; one process changes them at a time."""
        path = self.root / _VERSIONS
        with locked(self.root, "mirror"):
            try:
                known: dict[str, Version] = json.loads(path.read_bytes())
            except (FileNotFoundError, ValueError):  # all is fetched anew
                known = {}
            try:
                yield known
            finally:
                beside = path.with_name(f"{path.name}.tmp")
                files.write(beside, json.dumps(known).encode())
                files.replace(beside, path)
