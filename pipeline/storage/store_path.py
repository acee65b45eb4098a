"""Read URIs of stores, and open the pyarrow file system of each."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyarrow import fs

from tracelake.base.errors import StoreError, UsageError

_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
# Scheme -> its canonical form.
_SCHEMES = {
    "s3": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
}
# Stores with conditional puts.
_CONDITIONAL = ("s3", "gs", "abfs", "abfss")
_ATTEMPTS = 8
_DENIED = ("ACCESS_DENIED", "PERMISSION_DENIED", "AccessDenied", "AuthorizationFailure")


@dataclass(frozen=True, slots=True)
class StorePath:
    """A folder or an object in a store.

    Attributes:
        uri: Without a slash at its end.
        root: The beginning of paths in the store: the bucket or container, or empty.
        path: The path for pyarrow's file system, with the bucket.
    """

    uri: str
    root: str
    path: str

    def below(self, relative: str) -> StorePath:
        """Return the place at a relative posix path."""
        return StorePath(f"{self.uri}/{relative}", self.root, f"{self.path}/{relative}")

    @property
    def filesystem(self) -> fs.FileSystem:
        """The pyarrow file system of this place."""
        return _filesystem(self.root)

    @property
    def is_conditional(self) -> bool:
        """Return whether the store has conditional puts, which a lake needs."""
        return self.uri.split(":", 1)[0] in _CONDITIONAL

    @property
    def name(self) -> str:
        """The last name in the path."""
        return self.path.rsplit("/", 1)[-1]


def is_uri(name: str) -> bool:
    """Return whether a name is a URI rather than a path."""
    return _URI.match(name) is not None


def place_of(uri: str) -> StorePath:
    """Read a URI.

    Raises:
        UsageError: The scheme is unknown, or it has a secret in it.
    """
    parts = urlsplit(uri)
    scheme = _SCHEMES.get(parts.scheme.lower())
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    if scheme is None:
        raise UsageError("unknown kind of store", path=shown, hint=f"known: {', '.join(_SCHEMES)}")
    account = scheme.startswith("abfs")  # abfs://container@account.dfs.core.windows.net/path
    if parts.query or parts.fragment or parts.password or (parts.username and not account):
        raise UsageError(
            "a URI must have no credentials and no options",
            path=shown,
            hint="set them in the environment, e.g. AWS_ENDPOINT_URL: see docs/stores.md",
        )
    authority, path = parts.netloc, parts.path.strip("/")
    if not authority and scheme not in ("hdfs", "viewfs"):
        raise UsageError("the URI names no bucket", path=uri)
    if any(part in ("", ".", "..") for part in path.split("/")) and path:
        raise UsageError("the path of a URI must have no empty parts and no dots", path=uri)
    return _place(scheme, authority, path)


def listed_place(uri: str) -> StorePath:
    """Return the place of an object that a listing gave: its name may have any character."""
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    return _place(scheme, authority, path)


def _place(scheme: str, authority: str, path: str) -> StorePath:
    root = f"{scheme}://{authority}"
    if scheme in ("hdfs", "viewfs"):
        inside = f"/{path}"
    else:
        bucket = authority.partition("@")[0]
        inside = f"{bucket}/{path}" if path else bucket
    return StorePath(f"{root}/{path}".rstrip("/"), root, inside)


@functools.cache
def _filesystem(root: str) -> fs.FileSystem:
    scheme, _, bucket = root.partition("://")
    with store_errors(root):
        if scheme == "s3":
            return _s3(bucket)
        return fs.FileSystem.from_uri(root)[0]


def endpoint() -> str | None:
    """Return the S3 endpoint, if it is not Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _s3(bucket: str) -> fs.FileSystem:
    """Return an S3 file system that retries when the store is busy."""
    at = endpoint()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and at is None:
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        endpoint_override=at,
        scheme="http" if at and at.startswith("http://") else "https",
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


@contextlib.contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Convert pyarrow's errors, so that a missing file differs from a failing store.

    Raises:
        FileNotFoundError: The object does not exist.
        PermissionError: The user may not read it.
        StoreError: The store fails.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        told = str(error)
        if any(word in told for word in _DENIED):
            raise PermissionError(13, "the store denies access", uri) from error
        raise StoreError(
            f"the store fails: {told.splitlines()[0]}",
            path=uri,
            hint="check that it can be reached with these credentials, then run again",
        ) from error
