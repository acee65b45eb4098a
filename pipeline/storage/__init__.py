"""Access object stores by URI: read, list, put and remove.

Large files go through pyarrow's own file systems. They have no conditional put, which a commit
needs; so the small objects of a lake, and its warehouse, go through obstore (`objects`). DuckDB
reads part files by its own reader (`duck`). Both find credentials and endpoints in the environment
or the identity of the machine: a URI has none. `objects` and `duck` need the extra `stores`.
"""

from tracelake.storage.files import (
    FIRST_BYTES,
    WIDTH,
    Listed,
    StoredFile,
    listed,
    look,
    remove_all,
    stat,
    upload,
    whole,
)
from tracelake.storage.store_path import StorePath, is_uri, listed_place, place_of

__all__ = [
    "FIRST_BYTES",
    "WIDTH",
    "Listed",
    "StorePath",
    "StoredFile",
    "is_uri",
    "listed",
    "listed_place",
    "look",
    "place_of",
    "remove_all",
    "stat",
    "upload",
    "whole",
]
