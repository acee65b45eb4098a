"""Take lines out of the objects of JSON that collectors of logs write: a line of text in each.

docker's files, Fluent Bit, Fluentd, Elastic's shippers, `journalctl -o json`, `logcli -o jsonl` and
Google Cloud differ in what they call the text and the time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_TEXTS = ("log", "message", "MESSAGE", "line", "textPayload", "msg")
_TIMES = ("time", "@timestamp", "timestamp")
_BEGIN = '{"'
_HEAD = re.compile(rf'\{{"(?:[^\n]*?")??(?:{"|".join(_TEXTS)})" ?: ?"'.encode(), re.ASCII)
_STAMP = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,18}(?:Z|[+-][0-9:]{4,5}))$"


def taken_out(text: pl.Series) -> pl.Series:
    r"""Return lines, in place of such an object its text.

    Line ends at the end of the text are left out; those within it are blanks.

    Example:
        >>> taken_out(pl.Series(['{"log": "step 1\\n", "stream": "stdout"}', "step 2"])).to_list()
        ['step 1', 'step 2']
    """
    hit = text.str.starts_with(_BEGIN)
    if not hit.any():
        return text
    objects = text.filter(hit)
    texts = _first(objects, _TEXTS).str.strip_chars_end("\r\n").str.replace_all(r"[\r\n]+", " ")
    # `scatter` changes the series that it is called on.
    return text.clone().scatter(hit.arg_true(), texts.zip_with(texts.is_not_null(), objects))


def head_taken_out(head: bytes) -> bytes:
    """Return the first bytes of a file, in place of such objects their time and text."""
    return _opened(head) if _HEAD.match(head) else head


@functools.lru_cache(8)
def _opened(head: bytes) -> bytes:
    """Return a head of such lines; each format asks for it, and facts once more."""
    import polars as pl  # noqa: PLC0415 - slow to import, and few files have such lines

    whole, newline, cut = head.rpartition(b"\n")
    lines = pl.Series(whole.decode("utf-8", "replace").split("\n"))
    stamps = _first(lines, _TIMES).str.extract(_STAMP)
    stamped = pl.select(pl.concat_str(stamps, taken_out(lines), separator=" ", ignore_nulls=True))
    return "\n".join(stamped.to_series()).encode() + newline + cut


def _first(lines: pl.Series, keys: Sequence[str]) -> pl.Series:
    """Return of each object the value of the first of the keys that it has; of others nothing."""
    found = lines.str.json_path_match(f"$['{keys[0]}']")
    for key in keys[1:]:
        if found.null_count():
            values = lines.str.json_path_match(f"$['{key}']")
            found = found.zip_with(found.is_not_null(), values)
    return found
