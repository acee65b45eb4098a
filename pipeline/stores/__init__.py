"""Object stores: what lies behind a URI, read, listed, put and removed.

Bulk goes through pyarrow's own file systems. They know no condition on a put, which a commit needs;
so the small objects of a lake, and its warehouse, go through obstore (`objects`). DuckDB reads part
files by its own reader (`duck`). Both find credentials and endpoints the ordinary way, in the
environment and with the machine: a URI has none. `objects` and `duck` need the extra `stores`.
"""

from pipeline.stores.files import (
    FIRST_BYTES,
    WIDTH,
    Listed,
    StoredFile,
    listed,
    look,
    remove_all,
    stat,
    upload,
)
from pipeline.stores.place import Place, is_uri, place_of

__all__ = [
    "FIRST_BYTES",
    "WIDTH",
    "Listed",
    "Place",
    "StoredFile",
    "is_uri",
    "listed",
    "look",
    "place_of",
    "remove_all",
    "stat",
    "upload",
]
