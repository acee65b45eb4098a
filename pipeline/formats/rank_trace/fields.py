"""Read the fields of a rank trace: `key=value` pairs of an operation or a sub-operation.

A value may hold commas: it ends at a comma that is followed by `identifier=`. Each field is first
compared with the last value of the same field (its key, its token). In a dense trace nearly all
fields are equal to it, which saves searching the end and hashing.
"""

from __future__ import annotations

from tracelake.formats.rank_trace import layout
from tracelake.formats.rank_trace.layout import Rows, Words
from tracelake.kernels.compiled import inlined
from tracelake.kernels.numbers import NULL, Bytes, Longs, copy_bytes, decimal_ns, whole_number
from tracelake.kernels.tokens import Tokens, intern, match
from tracelake.kernels.words import behind_blanks, is_at, word_of

_NO_KEY, _END = -1, -2
_NONE = word_of(b"None")

# Maximum of one record: each key is compared with those before it.
MOST_FIELDS = 1024


@inlined
def identifier_end(buf: Bytes, p: int, end: int) -> int:
    """Return the index after the ASCII identifier at p; p if there is none."""
    q = p
    while q < end:
        c = buf[q]
        letter = 97 <= c <= 122 or 65 <= c <= 90 or c == 95
        if not letter and (q == p or not 48 <= c <= 57):
            break
        q += 1
    return q


@inlined
def _key(buf: Bytes, p: int, end: int, hint: int, keys: Tokens) -> tuple[int, int]:
    """Return (key, index of its value), or (_NO_KEY, p)."""
    q = match(keys, hint, buf, p, end)
    if 0 <= q < end and buf[q] == 61:
        return hint, q + 1
    q = identifier_end(buf, p, end)
    if q > p and q < end and buf[q] == 61:
        return intern(keys, buf, p, q), q + 1
    return _NO_KEY, p


@inlined
def _next(buf: Bytes, p: int, end: int, stop: int, hint: int, keys: Tokens) -> tuple[int, int]:
    """Return the field after a value that ends at p: (key, index of value), _END or _NO_KEY."""
    if p >= end or buf[p] == stop:
        return _END, p
    if buf[p] == 44:
        return _key(buf, p + 1, end, hint, keys)
    return _NO_KEY, p


@inlined
def _shape(buf: Bytes, p: int, end: int, rows: Rows) -> tuple[int, int]:
    """Return (elements, index after it) of `[a, b, ...]`; add its dimensions to the rows."""
    q = p + 1
    if p >= end or buf[p] != 91:
        return NULL, -1
    elements, empty, large = 1, False, False
    while q < end and not (buf[q] == 93 and q == p + 1):
        dimension, q = whole_number(buf, behind_blanks(buf, q, end), end, 18)
        if q < 0 or q >= end or (buf[q] != 44 and buf[q] != 93):
            return NULL, -1
        rows.shapes[rows.size[layout.DIMENSIONS]] = dimension
        rows.size[layout.DIMENSIONS] += 1
        if dimension == 0:
            empty = True
        elif elements > layout.MAX_ELEMENTS // dimension:
            large = True
        else:
            elements *= dimension
        if buf[q] == 93:
            break
        q += 1
    if q >= end:
        return NULL, -1
    return (0 if empty else layout.TOO_MANY_ELEMENTS if large else elements), q + 1


@inlined
def _typed(buf: Bytes, p: int, end: int, role: int, record: Longs, rows: Rows) -> int:
    """Read a number or a shape into the record; return the index after it, -1 if there is none."""
    if is_at(buf, p, end, _NONE):
        return p + 4
    if role == layout.SHAPE:
        record[layout.SHAPE], q = _shape(buf, p, end, rows)
    elif role == layout.STAGE:
        record[layout.STAGE], q = whole_number(buf, p, end, 9)
    elif role == layout.COUNT:
        record[layout.SHAPE], q = whole_number(buf, p, end, 18)
        rows.shapes[rows.size[layout.DIMENSIONS]] = record[layout.SHAPE]
        rows.size[layout.DIMENSIONS] += 1
    else:
        record[role], q = decimal_ns(buf, p, end)
    return q


@inlined
def _text_end(
    buf: Bytes, p: int, end: int, stop: int, escape: int, hint: int, keys: Tokens
) -> tuple[int, int, int]:
    """Return (end of the text at p, next key or _END, next value's index); end -1 if escaped."""
    q = p
    while q < end and buf[q] != stop:
        if buf[q] == 44:
            key, value = _key(buf, q + 1, end, hint, keys)
            if key >= 0:
                return q, key, value
        elif buf[q] == escape:
            return -1, _NO_KEY, q
        q += 1
    return q, _END, q


@inlined
def _add_attribute(buf: Bytes, p: int, q: int, key: int, rows: Rows) -> None:
    """Add `key` with the value `buf[p:q]`; None and empty text are missing values."""
    at, end = rows.size[layout.ATTRIBUTES], rows.size[layout.VALUE_BYTES]
    rows.keys[at] = key
    rows.size[layout.ATTRIBUTES] += 1
    if q == p or (q == p + 4 and is_at(buf, p, q, _NONE)):
        rows.ends[at] = ~end
    else:
        end = copy_bytes(buf, p, q, rows.values, end)
        rows.size[layout.VALUE_BYTES] = end
        rows.ends[at] = end


@inlined
def _is_new(key: int, first: int, record: Longs, rows: Rows) -> bool:
    """Return whether the record does not have this key yet; mark known keys in SEEN."""
    if key < layout.KNOWN_KEYS:
        bit = 1 << key
        known = record[layout.SEEN] & bit
        record[layout.SEEN] |= bit
        return bool(known == 0)
    for i in range(first, rows.size[layout.ATTRIBUTES]):  # noqa: SIM110 -- kernels have no generators
        if rows.keys[i] == key:
            return False
    return True


@inlined
def clear(record: Longs) -> None:
    """Reset the record."""
    for i in range(layout.RECORD_SIZE):
        record[i] = NULL if i < layout.PHASE or i == layout.BATCH else 0


@inlined
def _read_text(
    buf: Bytes,
    p: int,
    end: int,
    stop: int,
    escape: int,
    role: int,
    hint: int,
    remembered: Longs,
    record: Longs,
    keys: Tokens,
    texts: Tokens,
) -> tuple[int, int, int]:
    """Read a token into the record; return the same as `_text_end`."""
    if role == layout.DTYPE and match(texts, layout.TORCH_TEXT, buf, p, end) > 0:
        p += 6
    q = match(texts, remembered[role], buf, p, end)
    if q >= 0:
        key, value = _next(buf, q, end, stop, hint, keys)
        if key != _NO_KEY:
            record[role] = remembered[role]
            return q, key, value
    q, key, value = _text_end(buf, p, end, stop, escape, hint, keys)
    if q > p:
        record[role] = intern(texts, buf, p, q)
    return q, key, value


@inlined
def read_fields(
    buf: Bytes,
    p: int,
    end: int,
    stop: int,
    escape: int,
    kind: int,
    record: Longs,
    rows: Rows,
    words: Words,
) -> tuple[int, int]:
    """Read fields from p to the byte `stop` (256: none), the end, or a list after its bracket.

    Returns:
        (problem, index where the fields end); LIST in the record says that a list follows.
    """
    keys, texts = words.keys, words.texts
    clear(record)
    hints, remembered = words.hints[kind], words.remembered[kind]
    first = rows.size[layout.ATTRIBUTES]
    key, p = _key(buf, p, end, hints[0], keys)
    n = 0
    while key >= 0:
        hints[min(n, layout.HINTS - 1)] = key
        n += 1
        if n > MOST_FIELDS or not _is_new(key, first, record, rows):
            return (layout.BAD_FIELD if n > MOST_FIELDS else layout.DUPLICATE_KEY), p
        role = layout.ROLES[kind, key] if key < layout.KNOWN_KEYS else layout.ATTRIBUTE
        hint = hints[min(n, layout.HINTS - 1)]
        if role == layout.LIST and p < end and buf[p] == 91:
            record[layout.LIST] = 1
            return 0, p + 1
        if layout.DURATION <= role <= layout.SHAPE:
            q = _typed(buf, p, end, role, record, rows)
            key, value = _next(buf, q, end, stop, hint, keys) if q >= 0 else (_NO_KEY, p)
            if key == _NO_KEY:
                return (layout.BAD_SHAPE if role == layout.SHAPE else layout.BAD_NUMBER), p
            if role <= layout.TIMESTAMP:
                record[layout.NUMBER_AT + 2 * role], record[layout.NUMBER_AT + 2 * role + 1] = p, q
        elif layout.PHASE <= role <= layout.TENSOR:
            q, key, value = _read_text(
                buf, p, end, stop, escape, role, hint, remembered, record, keys, texts
            )
            if q < 0:
                return layout.ESCAPED, p
            remembered[role] = record[role]
        else:
            this = key
            q, key, value = _text_end(buf, p, end, stop, escape, hint, keys)
            if q < 0:
                return layout.ESCAPED, p
            _add_attribute(buf, p, q, this, rows)
            if role == layout.BATCH:
                number, behind = whole_number(buf, p, q, 18)
                record[layout.BATCH] = number if behind == q else NULL
                record[layout.NUMBER_AT], record[layout.NUMBER_AT + 1] = p, q
            elif role == layout.SEMANTICS:
                record[layout.SEMANTICS] = match(texts, layout.PLACEHOLDER_TEXT, buf, p, q) == q
        p = value if key >= 0 else q
    return (layout.BAD_FIELD if key == _NO_KEY else 0), p
