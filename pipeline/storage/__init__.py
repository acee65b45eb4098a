"""Access object stores by URI: list, read, put and remove.

`objects` is the one seam to the library of stores. It needs the extra `stores`, and so does `duck`,
by which DuckDB reads part files with its own reader.
"""

from tracelake.storage.files import FIRST_BYTES, WHOLE_BYTES, StoredFile
from tracelake.storage.objects import (
    WIDTH,
    Listed,
    Version,
    fetch,
    listed,
    look,
    overwrite,
    put,
    remove_all,
    stat,
    upload,
    with_extra,
)
from tracelake.storage.store_path import StorePath, is_uri, listed_place, place_of

__all__ = [
    "FIRST_BYTES",
    "WHOLE_BYTES",
    "WIDTH",
    "Listed",
    "StorePath",
    "StoredFile",
    "Version",
    "fetch",
    "is_uri",
    "listed",
    "listed_place",
    "look",
    "overwrite",
    "place_of",
    "put",
    "remove_all",
    "stat",
    "upload",
    "with_extra",
]
