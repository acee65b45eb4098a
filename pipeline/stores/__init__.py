"""Object stores: what lies behind a URI, read, listed, put and removed.

Bulk goes through pyarrow's own file systems. They know no condition on a put, which a commit needs;
so the small objects of a lake, and its warehouse, go through obstore. Both find credentials and
endpoints the ordinary way, in the environment and with the machine; a URI has none.
"""

from pipeline.stores.files import (
    WIDTH,
    Listed,
    StoredFile,
    listed,
    look,
    remove_all,
    upload,
)
from pipeline.stores.objects import ChangedError, Objects, Version
from pipeline.stores.place import Place, is_uri, place_of

__all__ = [
    "WIDTH",
    "ChangedError",
    "Listed",
    "Objects",
    "Place",
    "StoredFile",
    "Version",
    "is_uri",
    "listed",
    "look",
    "place_of",
    "remove_all",
    "upload",
]
