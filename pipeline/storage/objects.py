"""Access the objects of stores through obstore, which no other module imports.

It finds credentials in the environment or the identity of the machine: a URI has none.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracelake.base.errors import ChangedError, StoreError, UsageError
from tracelake.storage.store_path import StorePath

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

# Parallel requests to a store: each mostly waits for the network.
WIDTH = 32
# Up to 8 attempts in half a minute to two minutes.
_RETRIES: Any = {
    "max_retries": 7,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {
        "init_backoff": timedelta(seconds=0.5),
        "max_backoff": timedelta(seconds=20),
        "base": 8,
    },
}
# For one attempt, which may put `_ONE_PUT_BYTES`.
_TIMEOUT = timedelta(minutes=2)
# A conditional put takes one request, up to this size: a store takes 5 GB at once, and this process
# holds it in memory. Larger files are multipart uploads.
_ONE_PUT_BYTES = 256 << 20
# Of a multipart upload; part files up to this size take one request.
_PIECE: Any = {"chunk_size": 10 << 20, "max_concurrency": 2}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# What the text of an error has, and what to do.
_ADVICE = {
    "configured region|PermanentRedirect|AuthorizationHeaderMalformed": (
        "set AWS_REGION to the region of the bucket"
    ),
    "S3 error.*400 Bad Request": "check AWS_REGION and the credentials, then run again",
    r"169\.254\.169\.254": "no credentials were found: set them in the environment",
    "object with invalid path": "rename that object, or name a folder without it",
    "": "check that it can be reached with these credentials, then run again",
}

Version = dict[str, str | None]
"""The state of an object: its `e_tag`, and `version` if the store has one."""


class Listed(NamedTuple):
    """An object, in one state.

    Attributes:
        name: Relative to a folder, posix.
        mtime_ns: Since 1970. Listings of some stores have fractions of seconds, headers have none.
        tag: Of this state alone.
    """

    name: str
    size: int
    mtime_ns: int
    tag: str | None


def stat(place: StorePath) -> Listed | None:
    """Return an object's entry in the store; None if it does not exist."""
    if not place.key:
        return None
    with contextlib.suppress(FileNotFoundError), _errors(place.uri):
        return _listed(place.name, _store(place.root).head(place.key))
    return None


def look(folder: StorePath, names: Collection[str]) -> dict[str, int]:
    """Return bytes of those objects of a folder that exist; names are relative to it."""
    with ThreadPoolExecutor(WIDTH) as pool:
        found = pool.map(stat, map(folder.below, names))
        return {name: one.size for name, one in zip(names, found, strict=True) if one}


def listed(folder: StorePath) -> list[Listed]:
    """Return all objects below a folder, in order of name; none if there is no such folder."""
    start = len(folder.key) + 1 if folder.key else 0
    with _errors(folder.uri):
        batches = _store(folder.root).list(folder.key or None, chunk_size=1000)
        found = [_listed(one["path"][start:], one) for batch in batches for one in batch]
    if not all(one.size for one in found):
        # Some programs mark a folder by an empty object "x/", whose slash does not arrive here.
        folders = {parent for one in found for parent in _parents(one.name)}
        found = [one for one in found if one.size or one.name not in folders]
    return sorted(found)


def _parents(name: str) -> Iterator[str]:
    while name:
        name = name.rpartition("/")[0]
        yield name


def _listed(name: str, found: ObjectMeta) -> Listed:
    microseconds = (found["last_modified"] - _EPOCH) // timedelta(microseconds=1)
    return Listed(name, found["size"], microseconds * 1000, found["e_tag"])


def read(place: StorePath, start: int, stop: int) -> tuple[bytes, Listed]:
    """Return bytes of an object, fewer at its end, and its state, in one request.

    Raises:
        EOFError: It ends before `start`.
        FileNotFoundError: It does not exist.
    """
    with _errors(place.uri):
        found = _store(place.root).get(place.key, options={"range": (start, stop)})
        return bytes(found.bytes()), _listed(place.name, found.meta)


def fetch(place: StorePath, target: Path) -> Version:
    """Write an object to a file, which must not be in use.

    Raises:
        FileNotFoundError: It does not exist.
    """
    with _errors(place.uri), target.open("wb") as file:
        found = _store(place.root).get(place.key)
        for piece in found.stream():
            file.write(piece)
        return _version(found.meta)


def put(place: StorePath, content: bytes | Path, known: Version | None) -> Version:
    """Put an object whose present state is known.

    Args:
        content: Bytes, or a file.
        known: The state that is replaced; None if the object must not exist yet.

    Raises:
        ChangedError: It is in another state.
    """
    if isinstance(content, Path) and content.stat().st_size > _ONE_PUT_BYTES:
        # A multipart upload has no condition, so compare right before. If two machines upload at
        # the same time, the last one stays.
        now = stat(place)
        if (now and now.tag) != (known and known["e_tag"]):
            raise _changed(place.uri)
        return _put(place, content, use_multipart=True, **_PIECE)
    mode = "create" if known is None else {k: v for k, v in known.items() if v}
    try:
        return _put(place, content, mode=mode, use_multipart=False)
    except FileNotFoundError:
        raise _changed(place.uri) from None
    except ChangedError:
        # Where the answer to a put was lost, the store was asked again, and has done it already.
        wanted = content.read_bytes() if isinstance(content, Path) else content
        with contextlib.suppress(FileNotFoundError), _errors(place.uri):
            found = _store(place.root).get(place.key)
            if bytes(found.bytes()) == wanted:
                return _version(found.meta)
        raise


def overwrite(place: StorePath, file: Path) -> Version:
    """Put a file as an object, whatever the store has."""
    return _put(place, file, **_PIECE)


def _put(place: StorePath, content: bytes | Path, **how: Any) -> Version:
    with _errors(place.uri):
        return _version(_store(place.root).put(place.key, content, **how))


def _version(meta: Any) -> Version:
    return {"e_tag": meta["e_tag"], "version": meta["version"]}


def upload(folder: StorePath, files: Mapping[str, Path]) -> None:
    """Put files into a folder in parallel, by name; after an error some may have been put."""
    with ThreadPoolExecutor(WIDTH) as pool:
        for done in [pool.submit(overwrite, folder.below(name), files[name]) for name in files]:
            done.result()


def remove_all(folder: StorePath, names: Collection[str]) -> None:
    """Remove objects of a folder; they need not exist."""
    keys = [folder.below(name).key for name in names]
    try:
        with _errors(folder.uri):
            _store(folder.root).delete(keys)
    except FileNotFoundError:  # a store may end at the first that is missing
        for key in keys:
            with contextlib.suppress(FileNotFoundError), _errors(folder.uri):
                _store(folder.root).delete(key)


@functools.cache
def _store(root: str) -> ObjectStore:
    options: dict[str, Any] = {"client_options": {"timeout": _TIMEOUT}, "retry_config": _RETRIES}
    at = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if root.startswith("s3://") and at:
        options["config"] = {"aws_endpoint": at}
        options["client_options"]["allow_http"] = at.startswith("http://")
    with _errors(root):
        store: ObjectStore = with_extra("obstore.store", root).from_url(root, **options)
        return store


def with_extra(module: str, uri: str) -> Any:
    """Return a module that needs the extra `stores`.

    Raises:
        UsageError: The extra is not installed.
    """
    try:
        # Threads that import two of its modules at once would see a part of the package.
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a store needs {error.name}, which is not installed",
            path=uri,
            hint="pip install 'tracelake[stores]'",
        ) from error


@contextlib.contextmanager
def _errors(uri: str) -> Iterator[None]:
    """Convert obstore's errors, so that a missing object differs from a failing store.

    Raises:
        ChangedError: A condition of a put does not hold.
        EOFError: The object ends before the range that was requested.
        FileNotFoundError: The object does not exist.
        PermissionError: The user may not access it.
        StoreError: The store fails.
    """
    known = with_extra("obstore.exceptions", uri)
    try:
        yield
    except FileNotFoundError as error:
        if error.errno is not None:  # a file on this machine
            raise
        raise FileNotFoundError(errno.ENOENT, "no such object in the store", uri) from None
    except (known.AlreadyExistsError, known.PreconditionError):
        raise _changed(uri) from None
    except known.PermissionDeniedError:
        raise PermissionError(errno.EACCES, "the store denies access", uri) from None
    except (known.BaseError, ValueError) as error:
        raise _error(uri, str(error)) from None


def _changed(uri: str) -> ChangedError:
    return ChangedError("another machine was first", path=uri, hint="run the command again")


def _error(uri: str, text: str) -> Exception:
    """Return the error for obstore's text: a line, and then the store's full answer."""
    if "416 Range Not Satisfiable" in text:
        return EOFError(f"{uri}: the object has become shorter")
    # A query may have a signature.
    message = re.sub(r"\?\S*", "", text.partition("\n")[0].partition(": <?xml")[0])
    if code := re.search(r"<Code>(\w+)</Code>", text):
        message = f"{message}: {code[1]}"
    hint = next(hint for pattern, hint in _ADVICE.items() if re.search(pattern, text))
    return StoreError(f"the store fails: {message}", path=uri, hint=hint)
