"""Put small objects of a store only if they are unchanged since they were read."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore, from_url

from tracelake.base.errors import ChangedError, StoreError, UsageError
from tracelake.storage.store_path import StorePath, endpoint, place_of

# Larger files are multipart uploads: a store takes 5 GB at once, and this process holds it in
# memory.
_ONE_PUT_BYTES = 256 << 20
# A whole object that this library cannot read is left to pyarrow, which is more patient.
_SOON: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}

Version = dict[str, str | None]
"""The state of an object: its `e_tag`, and `version` if the store has one."""


class Objects:
    """The objects below a folder of a store.

    Raises:
        UsageError: The store has no conditional puts.
    """

    def __init__(self, place: StorePath) -> None:
        self.place = place
        self._store = _store(place)

    def tags(self, prefix: str) -> dict[str, str]:
        """Return the tag of each object below a folder, or of one object, by name."""
        with _errors(self.place):
            batches = obstore.list(self._store, prefix)
            return {str(found["path"]): str(found["e_tag"]) for batch in batches for found in batch}

    def tag(self, name: str) -> str | None:
        """Return the tag of an object's state; None if there is none."""
        with _errors(self.place), contextlib.suppress(FileNotFoundError):
            return str(obstore.head(self._store, name)["e_tag"])
        return None

    def fetch(self, name: str, target: Path) -> Version:
        """Write an object to a file, which must not be in use.

        Raises:
            FileNotFoundError: It does not exist.
        """
        with _errors(self.place), target.open("wb") as file:
            found = obstore.get(self._store, name)
            for piece in found.stream():
                file.write(piece)
            return _version(found.meta)

    def put(self, name: str, content: bytes | Path, known: Version | None) -> Version:
        """Put an object whose present state is known.

        Args:
            content: Bytes, or a file.
            known: The state that is replaced; None if the object must not exist yet.

        Raises:
            ChangedError: It is in another state.
        """
        if isinstance(content, Path) and content.stat().st_size > _ONE_PUT_BYTES:
            return self._put_large(name, content, known)
        mode: Any = "create" if known is None else {k: v for k, v in known.items() if v}
        try:
            with _errors(self.place):
                # In one request, because a multipart upload has no condition.
                return _version(
                    obstore.put(self._store, name, content, mode=mode, use_multipart=False)
                )
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            raise _changed(self.place, name) from None

    def _put_large(self, name: str, source: Path, known: Version | None) -> Version:
        """Put a large file by multipart upload, which has no condition; compare right before.

        If two machines upload at the same time, the last one stays.
        """
        if self.tag(name) != (known and known["e_tag"]):
            raise _changed(self.place, name)
        with _errors(self.place):
            return _version(obstore.put(self._store, name, source, use_multipart=True))

    def overwrite(self, name: str, source: Path) -> Version:
        """Put a file as an object, whatever the store has."""
        with _errors(self.place):
            return _version(obstore.put(self._store, name, source))


def _changed(place: StorePath, name: str) -> ChangedError:
    return ChangedError(
        "another machine was first", path=f"{place.uri}/{name}", hint="run the command again"
    )


def _version(meta: Any) -> Version:
    return {"e_tag": meta["e_tag"], "version": meta["version"]}


class WholeObjects:
    """The objects of a bucket, each read whole in one request that also gives its state.

    pyarrow finds credentials in more places, e.g. in a profile. So what cannot be read here is
    left to it, and with it all that follows if the store does not accept this library's.
    """

    def __init__(self, root: str) -> None:
        place = place_of(root)
        region = getattr(place.filesystem, "region", None)  # pyarrow looks up that of the bucket
        config = {"aws_region": region} if region else {}
        self._start = f"{root}/"
        self._store: ObjectStore | None = _store(place, config=config, retry_config=_SOON)

    def read(self, place: StorePath, size: int, mtime_ns: int) -> bytes | None:
        """Return the content of an object; None if it is in another state, or cannot be read.

        Args:
            size: Of the state that a listing had.
            mtime_ns: Of the same; headers have whole seconds.
        """
        if self._store is None:
            return None
        try:
            found = obstore.get(self._store, place.uri.removeprefix(self._start))
            seconds = int(found.meta["last_modified"].timestamp())
            if (found.meta["size"], seconds) != (size, mtime_ns // 10**9):
                return None
            content = bytes(found.bytes())
        except (GenericError, UnauthenticatedError):
            self._store = None
            return None
        except (BaseError, FileNotFoundError):
            return None
        return content if len(content) == size else None


@functools.cache
def whole_objects(root: str) -> WholeObjects:
    """Return the objects of the bucket with this URI."""
    return WholeObjects(root)


def _store(place: StorePath, **options: Any) -> ObjectStore:
    if not place.is_conditional:
        raise UsageError(
            "a lake cannot be in this store, because it has no conditional puts",
            path=place.uri,
            hint="use a lake in s3, gs or abfs, or a directory; inputs may be here",
        )
    if place.uri.startswith("s3://") and (at := endpoint()):
        options["config"] = {**options.get("config", {}), "aws_endpoint": at}
        options["client_options"] = {"allow_http": at.startswith("http://")}
    with _errors(place):
        return from_url(place.uri, **options)


@contextlib.contextmanager
def _errors(place: StorePath) -> Iterator[None]:
    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except BaseError as error:
        raise StoreError(
            f"the store fails: {str(error).splitlines()[0]}",
            path=place.uri,
            hint="check that it can be reached with these credentials, then run again",
        ) from None  # the lines after the first are the store's full answer
