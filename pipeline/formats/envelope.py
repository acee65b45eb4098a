"""Take lines out of the objects of JSON that collectors of logs write: a line of text in each.

docker's files, Fluent Bit, Fluentd, Elastic's shippers, `journalctl -o json`, `logcli -o jsonl` and
Google Cloud differ in what they call the text and the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_TEXTS = ("log", "message", "MESSAGE", "line", "textPayload", "msg")
_TIMES = ("time", "@timestamp", "timestamp")
_BEGIN = '{"'
_HEAD = re.compile(rf'\{{"(?:[^\n]*?")??(?:{"|".join(_TEXTS)})" ?: ?"'.encode(), re.ASCII)
_STAMP = r"^(\d{4}-\d{2}-\d{2}T[0-9:.]{8,18}(?:Z|[+-][0-9:]{4,5}))$"


def taken_out(text: pl.Series) -> pl.Series:
    r"""Return lines, in place of such an object its text.

    Line ends at the end of the text are left out; those within it are blanks.

    Example:
        >>> taken_out(pl.Series(['{"log": "step 1\\n", "stream": "stdout"}', "step 2"])).to_list()
        ['step 1', 'step 2']
    """
    import polars as pl  # noqa: PLC0415 - slow to import, and few files have such lines

    if not text.str.starts_with(_BEGIN).any():
        return text
    said = _first(text, _TEXTS).str.strip_chars_end("\r\n").str.replace_all(r"[\r\n]+", " ")
    return pl.select(pl.coalesce(said, text)).to_series()


def head_taken_out(head: bytes) -> bytes:
    """Return the first bytes of a file, in place of such objects their time and text."""
    if not _HEAD.match(head):
        return head
    import polars as pl  # noqa: PLC0415

    lines = pl.Series(head.decode("utf-8", "replace").splitlines())
    stamps = _first(lines, _TIMES).str.extract(_STAMP)
    stamped = pl.select(pl.concat_str(stamps, taken_out(lines), separator=" ", ignore_nulls=True))
    return "\n".join(stamped.to_series()).encode()


def _first(lines: pl.Series, keys: Iterable[str]) -> pl.Series:
    """Return of each object the value of the first of the keys that it has; of others nothing."""
    import polars as pl  # noqa: PLC0415

    found = pl.Series([None], dtype=pl.String).new_from_index(0, len(lines))
    for key in keys:
        if found.null_count():
            said = lines.str.json_path_match(f"$['{key}']")
            found = pl.select(pl.coalesce(found, said)).to_series()
    return found
