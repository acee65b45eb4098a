"""Small objects of a store that are put only if they still are what was read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import StoreError, TracelakeError, UsageError
from pipeline.stores.place import Place

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Version = dict[str, str | None]
"""What a store knows a state of an object by: `e_tag`, and `version` where it has one."""


class ChangedError(TracelakeError):
    """Another writer was first: the object is not what it was when it was read."""

    exit_code = 3


class Objects:
    """The objects below a folder of a store.

    Raises:
        UsageError: The store has no conditional puts, or the library for them is not installed.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._store = _store(place)

    def versions(self, prefix: str) -> dict[str, str]:
        """Names below a folder, or of one object -> the tag of its state."""
        import obstore

        with _errors(self.place):
            batches = obstore.list(self._store, prefix)
            return {str(found["path"]): str(found["e_tag"]) for batch in batches for found in batch}

    def tag(self, name: str) -> str | None:
        """The tag of an object's state; None if there is none."""
        import obstore

        with _errors(self.place), contextlib.suppress(FileNotFoundError):
            return str(obstore.head(self._store, name)["e_tag"])
        return None

    def fetch(self, name: str, target: Path) -> Version:
        """Writes an object to a file, which must not be in use.

        Raises:
            FileNotFoundError: There is none.
        """
        import obstore

        with _errors(self.place), target.open("wb") as file:
            found = obstore.get(self._store, name)
            for piece in found.stream():
                file.write(piece)
            return _version(found.meta)

    def put(self, name: str, content: bytes | Path, known: Version | None) -> Version:
        """Puts an object whose state is known.

        Args:
            content: Bytes, or a file.
            known: The state that is replaced; None for an object that must not be there yet.

        Raises:
            ChangedError: It is in another state.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create" if known is None else {k: v for k, v in known.items() if v}
        try:
            with _errors(self.place):
                # In one request: a put in parts knows no condition.
                return _version(
                    obstore.put(self._store, name, content, mode=mode, use_multipart=False)
                )
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
            raise ChangedError(
                "another writer was first", path=f"{self.place.uri}/{name}", hint="run again"
            ) from error


def _version(meta: Any) -> Version:
    return {"e_tag": meta["e_tag"], "version": meta["version"]}


def _store(place: Place) -> ObjectStore:
    if not place.is_conditional:
        raise UsageError(
            "a lake cannot lie in this store, whose puts know no condition",
            path=place.uri,
            hint="name a lake in s3, gs or abfs, or a directory; inputs may lie here",
        )
    try:
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise UsageError(
            "a lake in an object store needs a library that is not installed",
            path=place.uri,
            hint="pip install 'tracelake[stores]'",
        ) from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    options: dict[str, Any] = {}
    if place.uri.startswith("s3://") and endpoint:
        options = {
            "config": {"aws_endpoint": endpoint},
            "client_options": {"allow_http": endpoint.startswith("http://")},
        }
    with _errors(place):
        return from_url(place.uri, **options)


@contextlib.contextmanager
def _errors(place: Place) -> Iterator[None]:
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except BaseError as error:
        raise StoreError(
            f"the store fails: {str(error).splitlines()[0]}",
            path=place.uri,
            hint="see whether it can be reached with these credentials, then run again",
        ) from error
