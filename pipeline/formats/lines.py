r"""Define a format of text lines by the expressions of its lines.

A `LineFormat` lists the kinds of its lines in order. The first kind whose expression matches a
line, whole and without its end, decides what becomes of it. A line of no kind is rejected::

    FORMAT = LineFormat(
        name="step_lines",
        doc="A line per step with its time.",
        heading=r"# steps v1",
        lines=(
            Row("train_steps", r"step=(?P<step>\d+) ms=(?P<step_time_ns__ms>[\d.]+)"),
            Context(r"#.*"),
            Irrelevant("blank", r"\s*", "Empty lines."),
        ),
    )

A named group is a column of the table. A name that ends in `__s`, `__ms`, `__us` or `__ns` is
decimal text of that unit, for a column of integer nanoseconds: `step_time_ns__ms` fills
`step_time_ns`. A row whose value is missing where the table requires it, or does not fit its
column, is rejected. The named groups of a `Context` are columns of the rows after it, up to the
next line of the same kind in the same file.

A `Record` is a line that an expression alone does not read: the `reader` of the format makes its
rows. Colours of a terminal are left out before a line is matched, and with `prefixed` so is what
launchers put before it; a line in an object of JSON, as collectors of logs write it, is taken out.

An expression must be one of Python and of polars (the Rust crate regex): no look-around, no
references back. `\d`, `\w`, `\s` and `\b` mean ASCII. A row is read fastest if its expression has
one way to match: `[^|]*\|` instead of `.*\|`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from tracelake.base.errors import ContractError
from tracelake.formats import (
    Claim,
    FileFacts,
    Format,
    NamedBy,
    Parser,
    Places,
    Run,
    RunFacts,
    one_run_per_file,
    unclaimed,
)
from tracelake.formats.envelope import head_taken_out
from tracelake.formats.ledger import UNFINISHED, UNFINISHED_LINE, Fault, Ledger
from tracelake.formats.readers import Reader
from tracelake.schema.tables import tables

if TYPE_CHECKING:  # polars is imported when the first file of such a format is parsed
    from tracelake.formats.expressions import Expression
    from tracelake.formats.line_parser import LineParser

_DIGITS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
_TYPES = {"INTEGER", "BIGINT", "DOUBLE", "VARCHAR"}
_PLACE = {"source_id", "line"}
# What a rotation adds to the name of a log, as in `train.log.1` and `train.log-20260131`.
_ROTATED = re.compile(r"(?<=\.log|\.out|\.txt|\.err)(?:[.-]\d+)+$", re.ASCII)
_NONE: Mapping[str, str] = MappingProxyType({})
BAD_VALUE = "bad_value"
NOT_UTF8 = "not_utf8"
UNKNOWN = "unknown_line"
_REJECTS = {
    BAD_VALUE: "A value is missing, or its column cannot hold it: it is no number, too large, or"
    " finer than a nanosecond.",
    NOT_UTF8: "The line has values, or is of no known kind, and is not UTF-8.",
    UNKNOWN: "The line is of no kind that the format has.",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A line that is a row of a table; its named groups are columns."""

    table: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Context:
    """A line that is no row; its named groups are columns of the rows after it."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Record:
    """A line that the reader of the format makes rows of."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Irrelevant:
    """A line that says nothing of interest; it is counted by kind."""

    kind: str
    pattern: str
    doc: str


@dataclass(frozen=True, slots=True)
class Reject:
    """A damaged line; it is stored with this reason."""

    reason: str
    pattern: str
    doc: str


Kind = Row | Context | Record | Irrelevant | Reject


class LineFormat(Format):
    """A format whose lines are told apart by expressions; see the module.

    Attributes:
        heading: Expression of Python for how files of this format begin and no others do, behind a
            byte order mark and blanks.
        lines: The kinds of lines, in the order in which they are tried.
        reader: Makes the rows of `Record` lines, with `tables` those that it fills.
        prefixed: Launchers may put something before each line, and collectors of logs each line
            into an object of JSON.
        stamp: Reads the start of the run from the first bytes of a file.
        facts: Reads name and head, where ranks have files of their own; `group` splits them into
            runs.
        join: Makes the facts of a run of those of its files, in order. By default they are those
            of the last file, and the ranks of all.
    """

    heading: str
    lines: tuple[Kind, ...]
    reader: type[Reader] | None
    prefixed: bool
    join: Callable[[Sequence[RunFacts]], RunFacts]

    def __init__(
        self,
        *,
        name: str,
        doc: str,
        lines: Sequence[Kind],
        heading: str = "",
        version: int = 1,
        sniff: Callable[[bytes], Claim] = unclaimed,
        reader: type[Reader] | None = None,
        tables: Sequence[str] = (),
        rejects: Mapping[str, str] = _NONE,
        faults: Sequence[Fault] = (),
        prefixed: bool = False,
        named_by: NamedBy = "head",
        stamp: Callable[[bytes], datetime | None] | None = None,
        facts: Callable[[str, bytes], FileFacts] | None = None,
        group: Callable[[Sequence[FileFacts], float], Sequence[Sequence[FileFacts]]] = (
            one_run_per_file
        ),
        join: Callable[[Sequence[RunFacts]], RunFacts] | None = None,
        places: Callable[[Iterable[bytes]], Places] | None = None,
        preamble_of: tuple[str, ...] = (),
    ) -> None:
        """Check what can be checked without polars.

        Raises:
            ContractError: An expression is none, or names what is no column of its table.
        """
        begin = _compiled(name, heading).pattern.encode()
        _check(name, lines, reader, tables)
        rows = [kind for kind in lines if isinstance(kind, Row)]
        named = facts or functools.partial(_facts, stamp)
        super().__init__(
            name=name,
            doc=doc,
            version=version,
            tables=tuple(dict.fromkeys([*tables, *(row.table for row in rows)])),
            sniff=(lambda head: sniff(head_taken_out(head))) if prefixed else sniff,
            begin=re.compile(begin) if heading else None,
            facts=(lambda path, head: named(path, head_taken_out(head))) if prefixed else named,
            group=group,
            parser=functools.partial(_parser, self),
            rejects={
                **_REJECTS,
                **rejects,
                **{k.reason: k.doc for k in lines if isinstance(k, Reject)},
            },
            irrelevant={
                **{k.kind: k.doc for k in lines if isinstance(k, Irrelevant)},
                UNFINISHED.name: UNFINISHED_LINE,
            },
            faults=(UNFINISHED, *faults),
            named_by=named_by,
            places=places,
            preamble_of=preamble_of,
            dated_by="name" if stamp is None else "content",
            prepare=_prepare,
        )
        object.__setattr__(self, "heading", heading)
        object.__setattr__(self, "lines", tuple(_joined(lines)))
        object.__setattr__(self, "reader", reader)
        object.__setattr__(self, "prefixed", prefixed)
        object.__setattr__(self, "join", join or _last)

    @functools.cached_property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions of the lines as polars takes them.

        Raises:
            ContractError: polars cannot use one.
        """
        from tracelake.formats.expressions import Group, expression  # noqa: PLC0415

        stored = {column.name: column for name in self.tables for column in tables()[name].stored}
        found = []
        for kind in self.lines:
            named = columns_of(kind.pattern) if isinstance(kind, Row | Context) else {}
            required = tables()[kind.table].required if isinstance(kind, Row) else frozenset()
            groups = [
                Group(group, column, stored[column].type, digits, column in required)
                for group, (column, digits) in named.items()
            ]
            found.append(expression(kind.pattern, groups, text=isinstance(kind, Record)))
        return tuple(found)


def _joined(lines: Iterable[Kind]) -> Iterator[Kind]:
    """Yield the kinds with neighbouring records as one: each expression is a pass over the text."""
    for records, some in itertools.groupby(lines, lambda kind: isinstance(kind, Record)):
        if records:
            yield Record("|".join(f"(?:{kind.pattern})" for kind in some))
        else:
            yield from some


def _parser(fmt: LineFormat, run: Run, ledger: Ledger) -> Parser:
    from tracelake.formats.line_parser import LineParser  # noqa: PLC0415 - imports polars

    return LineParser(fmt, run, ledger)


def _prepare(parsers: Sequence[LineParser]) -> None:
    from tracelake.formats.line_parser import prepare  # noqa: PLC0415 - imports polars

    prepare(parsers)


def _facts(stamp: Callable[[bytes], datetime | None] | None, path: str, head: bytes) -> FileFacts:
    stem = PurePosixPath(_ROTATED.sub("", path)).stem
    return FileFacts(path, stem, stamp=stamp(head) if stamp else None)


def _last(found: Sequence[RunFacts]) -> RunFacts:
    every = [facts.ranks for facts in found if facts.ranks is not None]
    return dataclasses.replace(found[-1], ranks=frozenset().union(*every) if every else None)


def _compiled(name: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ContractError(f"format {name}: {pattern!r} is no expression: {error}") from error


def columns_of(pattern: str) -> dict[str, tuple[str, int | None]]:
    """Return the named groups of an expression: the column, and the digits of a unit in ns."""
    found = {}
    for group in re.compile(pattern).groupindex:
        column, _, unit = group.partition("__")
        found[group] = column, _DIGITS.get(unit, -1) if unit else None
    return found


def _check(
    name: str, lines: Sequence[Kind], reader: type[Reader] | None, read: Sequence[str]
) -> None:
    """Raise `ContractError` where kinds and tables do not fit together."""
    for kind in lines:
        _compiled(name, kind.pattern)
    records = any(isinstance(kind, Record) for kind in lines)
    if records != (reader is not None) or records != bool(read):
        raise ContractError(
            f"format {name}: Record, reader and tables go together",
            hint="give all three or none of them",
        )
    rows = [kind for kind in lines if isinstance(kind, Row)]
    contexts = [kind for kind in lines if isinstance(kind, Context)]
    unknown = sorted({*read, *(row.table for row in rows)} - set(tables()))
    if unknown or not (rows or records):
        wrong = f"no table {', '.join(unknown)}" if unknown else "no kind of line is a row"
        raise ContractError(f"format {name}: {wrong}", hint="see schemas/ for the tables")
    for row in rows:
        _check_groups(name, row, [row.table])
    filled = [row.table for row in rows]
    carried = {column for one in contexts for column in _check_groups(name, one, filled)}
    for row in rows:
        own = {column for column, _ in columns_of(row.pattern).values()}
        missing = tables()[row.table].required - own - carried - _PLACE
        if missing or not own:
            raise ContractError(
                f"format {name}: a row of {row.table} gives no {', '.join(missing) or 'column'}",
                hint="name its columns in its expression, or in that of a Context",
            )


def _check_groups(name: str, kind: Row | Context, filled: Sequence[str]) -> list[str]:
    """Return the columns of the groups.

    Raises:
        ContractError: They are no columns of these tables, or have another type or unit.
    """
    stored = {column.name: column for table in filled for column in tables()[table].stored}
    groups = columns_of(kind.pattern)
    for group, (column, digits) in groups.items():
        known = stored.get(column) if column not in _PLACE else None
        if known is None or known.type not in _TYPES:
            raise ContractError(
                f"format {name}: the group {group} fills no column of {', '.join(filled)}",
                hint="name a column of numbers or text",
            )
        if digits is not None and (digits < 0 or (known.type, known.unit) != ("BIGINT", "ns")):
            raise ContractError(
                f"format {name}: the group {group} has a unit that is not of its column",
                hint="add __s, __ms, __us or __ns to the name of a column of nanoseconds",
            )
    columns = [column for column, _ in groups.values()]
    if len({*columns}) < len(columns):
        raise ContractError(f"format {name}: several groups of {kind.pattern!r} fill one column")
    return columns
