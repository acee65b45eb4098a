"""Read URIs of stores: which bucket, and which object or folder in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tracelake.base.errors import UsageError

# The folder by which a lake is known.
MANIFESTS = "_manifest"
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
# Scheme -> its canonical form.
_SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss"}
_HDFS = ("hdfs", "viewfs")


@dataclass(frozen=True, slots=True)
class StorePath:
    """A folder or an object in a store.

    Attributes:
        uri: Without a slash at its end.
        root: The beginning of the URI that names the bucket or container.
    """

    uri: str
    root: str

    def below(self, relative: str) -> StorePath:
        """Return the place at a relative posix path."""
        return StorePath(f"{self.uri}/{relative}", self.root)

    @property
    def key(self) -> str:
        """The name in the bucket; empty for the bucket itself."""
        return self.uri[len(self.root) + 1 :]

    @property
    def name(self) -> str:
        """The last name in the path."""
        return self.uri.rpartition("/")[2]


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
    if parts.scheme.lower() in _HDFS:
        raise UsageError(
            "HDFS is not read",
            path=shown,
            hint="copy the files to a disk or a store, mount HDFS, or pipe a file:"
            " hdfs dfs -cat FILE | tracelake run - --lake LAKE",
        )
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
    if not authority:
        raise UsageError("the URI names no bucket", path=uri)
    if any(part in ("", ".", "..") for part in path.split("/")) and path:
        raise UsageError("the path of a URI must have no empty parts and no dots", path=uri)
    root = f"{scheme}://{authority}"
    return StorePath(f"{root}/{path}".rstrip("/"), root)


def listed_place(uri: str) -> StorePath:
    """Return the place of an object that a listing gave: its name may have any character."""
    return StorePath(uri, "/".join(uri.split("/", 3)[:3]))
