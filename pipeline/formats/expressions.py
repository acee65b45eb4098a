"""Match the lines of a slice of a file against expressions, and type their groups, by polars.

Bytes that are not UTF-8 are replaced before an expression sees them: polars does not check, and one
would fail the whole slice. Lines with such bytes give no values.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from tracelake.base.errors import ContractError
from tracelake.formats.envelope import taken_out
from tracelake.formats.readers import ANSI, PREFIX, TAG
from tracelake.kernels.arrow import not_utf8, pieces
from tracelake.kernels.numbers import Bytes, Longs

TEXT = "text"
_MATCHED = "_matched"
_RETURN, _ESCAPE = b"\r\x1b"
_WRONG = re.compile(r"[\udc80-\udcff]")  # bytes that are not UTF-8, as Python keeps them
_EXPONENT = r"^-?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]{1,2}$"
SLICE_BYTES = 4 << 20
"""Text that is matched at once; a line may be longer."""
_MOST = 2**63 - 1
# What \d and the like mean in polars is not ASCII.
_ASCII = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[\t-\r ]",
    "S": r"[^\t-\r ]",
    "b": r"(?-u:\b)",
}


@dataclass(frozen=True, slots=True)
class Group:
    """A named group of an expression, and the column that it fills.

    Attributes:
        type: Type of the column as `schemas/columns.toml` has it.
        digits: The group is decimal text, and the column has as many digits more as an integer.
        required: The column is never NULL.
    """

    name: str
    column: str
    type: str
    digits: int | None
    required: bool


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression for whole lines; `pattern` is as polars reads it.

    Attributes:
        text: The lines themselves are wanted, as the column `TEXT`, instead of groups.
    """

    pattern: str
    groups: tuple[Group, ...]
    text: bool = False


class LineSlice(NamedTuple):
    """Some lines of a file.

    Attributes:
        starts: Index in `data` of each line's first byte.
        stops: Index behind each line's last byte, its end left out.
    """

    data: Bytes
    starts: Longs
    stops: Longs


NO_LINES = LineSlice(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Matches:
    """The lines of a slice that match an expression.

    Attributes:
        at: Their numbers in the slice, from 0, rising.
        values: Their typed groups by column; a row per line that has all its values.
        bad: Numbers of lines with a value that is missing or that the column cannot hold.
    """

    at: Longs
    values: pl.DataFrame
    bad: Longs

    def between(self, first: int, stop: int) -> Matches:
        """Return those among some lines, which are counted from the first of them."""
        low, high = np.searchsorted(self.at, (first, stop))
        values = self.values[low:high] if self.values.width else self.values
        return Matches(self.at[low:high] - first, values, _between(self.bad, first, stop))


@dataclass(frozen=True, slots=True)
class Found:
    """Holds what was found in a slice.

    Attributes:
        matches: An entry per expression.
        rest: Lines that match none.
        not_utf8: Lines that are not UTF-8, and have values or match none.
    """

    matches: tuple[Matches, ...]
    rest: Longs
    not_utf8: Longs

    def between(self, first: int, stop: int) -> Found:
        """Return what was found in some of the lines, which are counted from the first of them."""
        matches = tuple(one.between(first, stop) for one in self.matches)
        return Found(matches, *(_between(at, first, stop) for at in (self.rest, self.not_utf8)))


def _between(numbers: Longs, first: int, stop: int) -> Longs:
    low, high = np.searchsorted(numbers, (first, stop))
    return numbers[low:high] - first


def expression(pattern: str, groups: Sequence[Group], *, text: bool = False) -> Expression:
    """Return an expression for whole lines.

    Raises:
        ContractError: polars cannot use it.
    """
    ascii_only = re.sub(r"\\(.)", lambda escape: _ASCII.get(escape[1], escape[0]), pattern)
    ended = f"^(?:{ascii_only})(?P<{_MATCHED}>)$" if groups else f"^(?:{ascii_only})$"
    try:
        pl.Series([""]).str.contains(ended)
    except pl.exceptions.ComputeError as error:
        reason = next((s for s in str(error).splitlines() if s.startswith("error:")), str(error))
        raise ContractError(f"polars cannot use the expression {pattern!r}: {reason}") from error
    return Expression(ended, tuple(groups), text)


def find(lines: LineSlice, expressions: Sequence[Expression], *, prefixed: bool) -> Found:
    """Match each line with the first expression that it matches whole.

    Text in the result is a copy. Colours of a terminal do not count, nor, if `prefixed`, what
    launchers and collectors of logs put around a line.
    """
    data, starts, stops = lines
    wrong = not_utf8(data, starts, stops)
    if wrong.size:
        data = data.copy()
        for line in wrong.tolist():
            raw = data[starts[line] : stops[line]].tobytes().decode("utf-8", "surrogateescape")
            whole = _WRONG.sub(" ", raw).encode()  # as long as before
            data[starts[line] : stops[line]] = np.frombuffer(whole, np.uint8)
    both = pieces(data, starts, stops, pa.large_utf8())
    text = pl.Series(both, dtype=pl.String).gather_every(2)
    printed = text
    if prefixed:
        text = taken_out(text)
    if text is not printed or np.any(data == _ESCAPE):
        text = text.str.replace_all(ANSI, "")
    if prefixed:
        text = text.str.replace_all(TAG, "").str.replace(PREFIX, "")
    at = np.arange(starts.size)
    foreign = text.gather(wrong)
    if wrong.size:
        at = np.delete(at, wrong)
        text = text.gather(at)
    matches = []
    for one in expressions:
        if at.size:
            found, hit = _match(text, at, one)
            if hit.any():
                text = text.filter(~hit)
                at = at[~hit.to_numpy()]
        else:
            found = Matches(at, pl.DataFrame(), at)
        matches.append(found)
    refused = _refused(foreign, wrong, expressions, matches) if wrong.size else wrong
    return Found(tuple(matches), at, refused)


def _refused(
    text: pl.Series, at: Longs, expressions: Sequence[Expression], matches: list[Matches]
) -> Longs:
    """Return those lines that have values or match none; the others are added to `matches`."""
    refused = []
    for number, one in enumerate(expressions):
        hit = text.str.contains(one.pattern).to_numpy()
        if one.groups or one.text:
            refused.append(at[hit])
        else:
            every = np.sort(np.concatenate([matches[number].at, at[hit]]))
            matches[number] = dataclasses.replace(matches[number], at=every)
        at, text = at[~hit], text.filter(pl.Series(~hit))
    return np.sort(np.concatenate([*refused, at]))


def _match(text: pl.Series, at: Longs, one: Expression) -> tuple[Matches, pl.Series]:
    """Return the lines that match, and which those are."""
    if not one.groups:
        hit = text.str.contains(one.pattern)
        values = pl.DataFrame({TEXT: text.filter(hit)}) if one.text else pl.DataFrame()
        return Matches(at[hit.to_numpy()], values, at[:0]), hit
    groups = text.str.extract_groups(one.pattern)
    hit = groups.struct.field(_MATCHED).is_not_null()
    lines = at[hit.to_numpy()]
    texts = groups.struct.unnest().filter(hit)
    columns, bad = [], np.zeros(lines.size, np.bool_)
    for group in one.groups:
        printed = _given(texts[group.name])
        value = _typed(printed, group).alias(group.column)
        missing = value.null_count()
        if missing and (group.required or missing != printed.null_count()):
            unheld = value.is_null() if group.required else value.is_null() & printed.is_not_null()
            bad |= unheld.to_numpy()
        columns.append(value)
    frame = pl.DataFrame(columns)
    if bad.any():
        return Matches(lines[~bad], frame.filter(pl.Series(~bad)), lines[bad]), hit
    return Matches(lines, frame, lines[:0]), hit


def _given(text: pl.Series) -> pl.Series:
    """Return texts, NULL where they are empty."""
    empty = text == ""
    return text.set(empty, None) if empty.any() else text


def _typed(text: pl.Series, group: Group) -> pl.Series:
    """Return texts as values of a column; NULL where the column cannot hold it."""
    if group.digits is not None:
        return _decimals(text, group.digits)
    match group.type:
        case "INTEGER":
            return text.cast(pl.Int32, strict=False)
        case "BIGINT":
            return text.cast(pl.Int64, strict=False)
        case "DOUBLE":
            return _floats(text)
    return text


def null_row(groups: Sequence[Group]) -> pl.DataFrame:
    """Return one row of NULLs in the types of the groups' columns."""
    none = pl.Series([None], dtype=pl.String)
    return pl.DataFrame([_typed(none, group).alias(group.column) for group in groups])


def _floats(text: pl.Series) -> pl.Series:
    """Return texts as floats; NULL where a number is larger than any float."""
    values = text.cast(pl.Float64, strict=False)
    infinite = values.is_infinite()
    if infinite.any():
        return values.set(infinite & text.str.contains("[0-9]"), None)
    return values


def _decimals(text: pl.Series, digits: int) -> pl.Series:
    """Return decimal texts times ten to the power of digits, exactly; NULL where that fails."""
    text = _without_exponents(text)
    places = rf"(?:\.[0-9]{{1,{digits}}})?" if digits else ""
    text = text.set(~text.str.contains(f"^-?[0-9]+{places}$"), None)
    point = text.str.find(".", literal=True).cast(pl.Int64)
    given = (text.str.len_bytes().cast(pl.Int64) - point - 1).fill_null(0)
    factors = [10 ** (digits - k) for k in range(digits + 1)]
    limit = pl.Series([_MOST // factor for factor in factors]).gather(given)
    number = text.str.replace(".", "", literal=True).cast(pl.Int64, strict=False)
    fits = number.is_between(-limit, limit)
    return number.set(~fits, None) * pl.Series(factors).gather(given)


def _without_exponents(text: pl.Series) -> pl.Series:
    """Return decimal texts with those like `1.6e+07` written out."""
    hit = text.str.contains(_EXPONENT).fill_null(value=False)
    if not hit.any():
        return text
    plain = pl.Series([format(Decimal(one), "f") for one in text.filter(hit)])
    return text.scatter(hit.arg_true(), plain)


def sliced(data: Bytes, start: int, ends: Longs) -> Iterator[LineSlice]:
    """Divide lines into slices that are matched one by one, at least one line each.

    Args:
        start: Index of the first byte.
        ends: Index of the newline behind each line.
    """
    first = 0
    while first < ends.size:
        last = max(int(np.searchsorted(ends, start + SLICE_BYTES)), first + 1)
        behind = ends[first:last] - start
        part = data[start : start + int(behind[-1])]
        starts = np.concatenate([[0], behind[:-1] + 1])
        ended = (behind > starts) & (data[ends[first:last] - 1] == _RETURN)
        yield LineSlice(part, starts, behind - ended)
        start, first = int(ends[last - 1]) + 1, last


def joined(slices: Sequence[LineSlice]) -> LineSlice:
    """Return the lines of several slices as one."""
    if len(slices) == 1:
        return slices[0]
    newline = np.frombuffer(b"\n", np.uint8)
    data = np.concatenate([part for lines in slices for part in (lines.data, newline)])
    firsts = np.cumsum([0, *(lines.data.size + 1 for lines in slices[:-1])])
    moved = [(one.starts + at, one.stops + at) for one, at in zip(slices, firsts, strict=True)]
    starts, stops = map(np.concatenate, zip(*moved, strict=True))
    return LineSlice(data, starts, stops)


def find_all(
    slices: Sequence[LineSlice], expressions: Sequence[Expression], *, prefixed: bool
) -> Iterable[Found]:
    """Match the lines of each slice; see `find`. Large inputs use the threads that polars may."""
    if len(slices) < 2:
        return [find(lines, expressions, prefixed=prefixed) for lines in slices]
    return _threads().map(lambda lines: find(lines, expressions, prefixed=prefixed), slices)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(pl.thread_pool_size(), "lines")
