"""Find or make a lake: a directory, or a folder of a store with a local copy of its small files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from tracelake.base import files
from tracelake.base.disk_cache import user_cache
from tracelake.base.errors import (
    ChangedError,
    LakeError,
    RefusedError,
    UsageError,
    advice_on,
    is_refusal,
)
from tracelake.lake.mirror import Mirror
from tracelake.lake.part_files import PartFiles
from tracelake.lake.small_files import SmallFiles
from tracelake.lake.work import LOCKS, STAGING
from tracelake.storage.objects import with_extra
from tracelake.storage.store_path import MANIFESTS, StorePath, is_uri, place_of

WAREHOUSE = "warehouse.duckdb"
RECORDS = "_run"

# The object that marks a lake in a store, where there are no folders.
_MARK = f"{MANIFESTS}/_lake"
# What DuckDB takes for a pattern in names of files, or for more than the name of a database.
_PATTERN = re.compile(r"[*?\\]|\[.*\]", re.DOTALL)


class Home(NamedTuple):
    """The two parts of a lake.

    Attributes:
        name: The directory's absolute path, or the URI.
    """

    name: str
    small: SmallFiles
    part_files: PartFiles


def full_name(name: str | Path) -> str:
    """Return a lake's name that is valid anywhere on this machine."""
    return str(name) if is_uri(str(name)) else str(Path(name).absolute())


def real_name(name: str) -> str:
    """Return a lake's name with links resolved."""
    return place_of(name).uri if is_uri(name) else os.path.realpath(name)


def local_root(name: str | Path) -> Path:
    """Return the folder of a lake's small files on this machine; the lake need not exist.

    Raises:
        LakeError: See `mirror_root`.
        UsageError: It is a URI of an unknown store.
    """
    return mirror_root(place_of(str(name))) if is_uri(str(name)) else Path(name)


def find_home(name: str | Path) -> Home | None:
    """Return the place of the lake of this name; None if it does not exist.

    Raises:
        LakeError: The system does not let it be read.
        StoreError: Its store does not answer.
        UsageError: No lake can be there.
    """
    if is_uri(str(name)):
        home = _in_store(str(name))
        return home if (home.small.root / _MARK).is_file() else None
    try:
        path = Path(os.path.realpath(name))
        return _in_directory(path) if (path / MANIFESTS).is_dir() else None
    except OSError as error:
        raise _unusable(name, error) from error


def make_home(name: str | Path) -> Home:
    """Return the place of the lake of this name; make it if it does not exist.

    Raises:
        LakeError: The path is a file, is in use for something else, or cannot be written.
        StoreError: Its store does not answer.
        UsageError: No lake can be there.
    """
    if is_uri(str(name)):
        home = _in_store(str(name))
        if not (home.small.root / _MARK).is_file():
            with contextlib.suppress(ChangedError):  # another machine made it
                home.small.put(_MARK, b"tracelake\n")
        return home
    try:
        path = Path(os.path.realpath(name))
        made = (path / MANIFESTS).is_dir()
        if not made and (found := _PATTERN.search(str(path))):
            raise UsageError(
                f"a lake cannot be at {path}: DuckDB takes {found[0]} for more than a name",
                hint="give another directory with --lake",
            )
        if not made and path.is_dir() and any(path.iterdir()):
            raise LakeError(
                "the directory is not empty and not a lake",
                path=name,
                hint="give an empty or a new directory",
            )
        _make_folders(path)
    except (FileExistsError, NotADirectoryError) as error:
        raise LakeError(
            "the lake path is a file, not a directory",
            path=error.filename or name,
            hint="give a directory with --lake",
        ) from error
    except OSError as error:
        if is_refusal(error):
            message = f"cannot write the lake: {error.strerror}"
            raise RefusedError(message, path=name, hint=advice_on(error)) from error
        raise _unusable(name, error) from error
    return _in_directory(path)


def _unusable(name: str | Path, error: OSError) -> LakeError:
    return LakeError(
        f"cannot open the lake: {error.strerror}", path=name, hint="give another path with --lake"
    )


def _make_folders(root: Path) -> None:
    for folder in (MANIFESTS, STAGING, LOCKS):
        files.make_folder(root / folder)


def _in_directory(root: Path) -> Home:
    return Home(str(root), SmallFiles(root), PartFiles(str(root)))


def _in_store(uri: str) -> Home:
    """Return a lake in a store, with the copy that its readers need."""
    place = place_of(uri)
    part_files = part_files_at(place.uri)
    root = mirror_root(place)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_folders(root)
    small = Mirror(place, root)
    small.refresh(_MARK, WAREHOUSE, f"{RECORDS}/")
    return Home(place.uri, small, part_files)


def part_files_at(base: str) -> PartFiles:
    """Return the part files of the lake whose directory or URI this is."""
    if not is_uri(base):
        return PartFiles(base)
    place = place_of(base)
    stored = with_extra("tracelake.lake.stored", place.uri)
    found: PartFiles = stored.StoredPartFiles(place)
    return found


def mirror_root(place: StorePath) -> Path:
    """Return the folder of a lake's copy; see `user_cache`.

    Raises:
        LakeError: There is no home folder.
    """
    try:
        parent = user_cache()
    except RuntimeError as error:
        raise LakeError(
            "there is no home folder for the copy of the lake's small files",
            path=place.uri,
            hint="set XDG_CACHE_HOME to a folder of your own",
        ) from error
    digest = hashlib.sha256(place.uri.encode()).hexdigest()[:16]
    return parent / "lakes" / f"{place.name}-{digest}"
