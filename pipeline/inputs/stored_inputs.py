"""Find inputs below a URI, in the order of a walk through folders."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from tracelake.base.errors import InputError
from tracelake.storage.objects import Listed, listed, stat
from tracelake.storage.store_path import StorePath, place_of

_MAGIC = re.compile(r"[*\[]")
_FIRST, _THEN = r"(?!\.)", r"[^/]*"  # a star matches no hidden name, as in a shell


@dataclass(frozen=True, slots=True)
class StoredRoot:
    """Files of a store that an input names.

    Attributes:
        folder: Folder that their names are relative to.
        walked: The input names a folder, not files: hidden ones are skipped.
    """

    folder: StorePath
    files: tuple[Listed, ...]
    walked: bool


def stored_root(uri: str) -> StoredRoot:
    """Return what a URI names: a file, all files below a folder, or matches of a glob.

    Raises:
        InputError: It names nothing.
        StoreError: The store does not answer.
        UsageError: See `place_of`.
    """
    magic = _MAGIC.search(uri)
    if magic is None:
        place = place_of(uri)
        if file := stat(place):
            folder = place_of(place.uri.rpartition("/")[0])
            return StoredRoot(folder, (file,), walked=False)
        files = listed(place)
        if not files:
            raise InputError("no such object or folder in the store", path=place.uri)
        return StoredRoot(place, _in_order(files), walked=True)
    base = place_of(uri[: uri.rindex("/", 0, magic.start())])
    matches = re.compile(_pattern(uri[len(base.uri) + 1 :]))
    found = [file for file in listed(base) if matches.fullmatch(file.name)]
    if not found:
        raise InputError("nothing in the store matches", path=uri)
    common = os.path.commonpath([posixpath.dirname(file.name) or "." for file in found])
    if common in ("", "."):
        return StoredRoot(base, _in_order(found), walked=False)
    inside = [file._replace(name=file.name[len(common) + 1 :]) for file in found]
    return StoredRoot(base.below(common), _in_order(inside), walked=False)


def hidden_part(name: str) -> str | None:
    """Return the path down to the first name that starts with a dot, if there is one."""
    parts = name.split("/")
    paths = accumulate(parts, "{}/{}".format)
    return next((path for path, part in zip(paths, parts, strict=True) if part[0:1] == "."), None)


def _in_order(files: list[Listed]) -> tuple[Listed, ...]:
    """Return files in the order of a walk: those of a folder by name, then its subfolders."""

    def place(file: Listed) -> list[tuple[bool, str]]:
        *folders, name = file.name.split("/")
        return [*((True, folder) for folder in folders), (False, name)]

    return tuple(sorted(files, key=place))


def _pattern(glob: str) -> str:
    """Return a glob as a regular expression; it may match a folder, with all below it."""
    return "/".join(_parts(glob)).replace("**/", rf"(?:{_FIRST}{_THEN}/)*") + r"(?:/.*)?"


def _parts(glob: str) -> Iterator[str]:
    for part in glob.split("/"):
        if part == "**":
            yield part
            continue
        pieces = re.split(r"(\*|\[[^\]]+\])", part)
        text = "".join(
            _THEN if piece == "*" else _set(piece) if piece[:1] == "[" else re.escape(piece)
            for piece in pieces
        )
        yield (_FIRST if part[:1] in ("*", "[") else "") + text


def _set(piece: str) -> str:
    inside = piece[1:-1]
    if not inside:
        return re.escape(piece)
    return f"[^{inside[1:]}]" if inside.startswith("!") else piece
