"""Make Arrow tables of objects, to be printed in any format."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

TEXT, COUNT = pa.string(), pa.int64()


def table_of(rows: Iterable[object], /, **columns: pa.DataType) -> pa.Table:
    """Return a table with a row per object; columns are attributes of it, each with its type."""
    rows = list(rows)
    arrays = [
        pa.array([getattr(row, name) for row in rows], type_) for name, type_ in columns.items()
    ]
    return pa.table(arrays, names=list(columns))
