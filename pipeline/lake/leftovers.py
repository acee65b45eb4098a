"""Find and remove files that nothing uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tracelake.base import files
from tracelake.lake.home import RECORDS
from tracelake.lake.small_files import UNPUBLISHED
from tracelake.lake.store import Lake
from tracelake.lake.work import MARK, STAGING, is_held, remove_staging
from tracelake.storage.store_path import MANIFESTS

# Temporary names beside the final place, of others than commits; they are locked meanwhile.
_OF_OTHERS = (".*.tmp", f"{MANIFESTS}/.*.tmp", f"{RECORDS}/.*.tmp")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or a folder that can be removed.

    Attributes:
        kind: part, staging or temporary.
        path: Posix, relative to the lake's root.
        files: Number of files.
    """

    kind: str
    path: str
    files: int
    bytes: int


def leftovers(lake: Lake, published: Collection[str], *, remove: bool) -> list[Leftover]:
    """Return the files that no manifest and no live writer needs, and perhaps remove them.

    The caller holds the lake's warehouse lock, because a running build reads parts that are
    superseded meanwhile. Commits and new staging wait until this is done: files without a lock are
    unused.

    Args:
        published: Part files that the current warehouse names; they are not removed.
    """
    with lake.lock("commit"), lake.lock("staging"):
        found = list(_found(lake, published))
        if not remove:
            return found
        for leftover in found:
            if leftover.kind == "staging":
                remove_staging(lake.root / leftover.path)
            elif leftover.kind == "temporary":
                files.remove(lake.root / leftover.path)
        lake.part_files.remove([left.path for left in found if left.kind == "part"])
    return found


def _found(lake: Lake, published: Collection[str]) -> Iterator[Leftover]:
    needed = lake.snapshot().all_parts.union(published)
    for there in lake.part_files.stored():
        if there.settled and there.part not in needed:
            yield Leftover("part", there.part, 1, there.bytes)
    for folder in _matching(lake.root, f"{STAGING}/*"):
        if not is_held(folder / MARK):
            inside = [path for path in folder.rglob("*") if not path.is_dir()]
            yield _leftover(lake.root, "staging", folder, inside)
    for path in _matching(lake.root, f"{MANIFESTS}/{UNPUBLISHED}"):  # of commits
        yield _leftover(lake.root, "temporary", path, [path])
    for path in _matching(lake.root, *_OF_OTHERS):
        if not is_held(path):
            yield _leftover(lake.root, "temporary", path, [path])


def _matching(root: Path, *patterns: str) -> list[Path]:
    return sorted({path for pattern in patterns for path in root.glob(pattern)})


def _leftover(root: Path, kind: str, path: Path, inside: Iterable[Path]) -> Leftover:
    sizes = [file.lstat().st_size for file in inside]
    return Leftover(kind, path.relative_to(root).as_posix(), len(sizes), sum(sizes))
