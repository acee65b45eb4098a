"""Read lines that need more than one expression: several rows, open keys, or lines before them.

A `LineFormat` hands each line of its kind `Record` to its reader, in order, one reader per file.
The line comes without its end, without colours of a terminal, and without what launchers and
collectors of logs put around it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, Overflow
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tracelake.formats import FileFacts, RunFacts
from tracelake.formats.ledger import Fault

if TYPE_CHECKING:
    import polars as pl

# Colours and other sequences that a terminal obeys.
ANSI = r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
# What mpirun, that of SageMaker and horovodrun put before a piece of output, which may begin within
# a line; with --timestamp-output a date, too.
TAG = (
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4})?"
    r"\[(?:[0-9]+,)?(?:mpirank:)?[0-9]+(?:,[A-Za-z0-9_.-]+)?\]<std(?:out|err)>: ?"
)
# What syslog and journald put before a line, behind the time: host and program.
_WRITER = r"[A-Za-z0-9][A-Za-z0-9_.-]* [^ :\[\]0-9][^ :\[\]]*(?:\[[0-9]+\])?: "
# What other launchers put before a line: srun -l, MPICH (`[7] `), torchrun (`[default7]:` or
# another role, `[rank7]:`, or as its template has it, `[host:7]:`), torchx and NeMo-Run
# (`trainer/0 [0]:`), Ray, kubectl (with --prefix, with --timestamps), files of containers in
# Kubernetes, journald, syslog, docker (compose and service), Airflow, Metaflow, Determined (its
# command, its page), pdsh (an address, or a name with a digit); `#015` is how syslog writes a
# carriage return.
# Several of them may follow each other.
PREFIX = (
    r"^(?:[ \t]*[0-9]+: ?|\[(?:[A-Za-z][A-Za-z0-9_.:-]*)?[0-9]+\]: ?|\[[0-9]+\] |#015"
    r"|[A-Za-z][A-Za-z0-9_.-]*[A-Za-z]/[0-9]+ "
    r"|\[[0-9]{4}-[0-9]{2}-[0-9]{2}[ T,][^\[\]]{8,24}\] \{[A-Za-z0-9_]+\.py:[0-9]+\} [A-Z]+ - "
    r"|\[[0-9-]{10}T[0-9:.]{8,18}Z\] (?:[0-9a-f]{8} )?(?:\[rank=[0-9]+\] )?\|\| "
    r"(?:\[rank=[0-9]+\] )?(?:[A-Z]+: )?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{12} \[[^\[\]/ ]+/[^\[\] ]+ \(pid [0-9]+\)\] "
    r"(?:\[[0-9a-z-]{8,64}\] )?"
    r"|<[a-z]+> +\[[^\[\]]*\] \[[^\[\]]*\] \|\| "
    r"|\([A-Za-z][^()]*(?:pid|rank)=[0-9][^()]*\) ?"
    r"|\[pod/[^\] ]+\] |[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,18}(?:Z|[+-][0-9:]{4,5}) "
    rf"(?:std(?:out|err) [FP] |{_WRITER})?"
    rf"|[A-Z][a-z]{{2}} [ 0-9][0-9] [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,9}})? {_WRITER}"
    r"|[A-Za-z0-9][A-Za-z0-9_.@-]*(?:[_-][0-9]+ +| {2,})\| "
    r"|[0-9]{1,3}(?:\.[0-9]{1,3}){3}: |[A-Za-z][A-Za-z0-9_.-]*[0-9][A-Za-z0-9_.-]*: )+"
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf)", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST = 2**63 - 1

Rows = Sequence[tuple[str | Fault, Mapping[str, Any]]]


class BadValueError(ValueError):
    """A value is missing, or its column cannot hold it."""


class Reader(Protocol):
    """Reads the records of one file."""

    def __init__(self, facts: FileFacts) -> None: ...

    def read(self, text: str) -> Rows | str:
        """Return the rows of a line by table, none for context, or the reason to reject it.

        A fault of the format that the line shows is one of the rows, with its `text` alone.

        Raises:
            BadValueError: The line has a value that its column cannot hold.
        """

    def finish(self) -> RunFacts:
        """Return the facts of the run."""


@dataclass(frozen=True)
class Alike:
    """Lines of one table that were read together.

    Attributes:
        at: Numbers of the lines, rising.
        values: What each line says by itself, by column; the columns can hold it.
    """

    table: str
    at: Sequence[int]
    values: Mapping[str, pl.Series]


@runtime_checkable
class ManyReader(Reader, Protocol):
    """Reads lines that are alike together, and others one by one."""

    @property
    def keys(self) -> Hashable | None:
        """Return what tells the lines that are like the latest read alone, if any can be."""

    def read_many(self, keys: Any, texts: pl.Series) -> Alike:
        """Return those of some lines, of this file or others, that have these keys."""

    def take(self, alike: Alike, place: int, stop: int) -> Mapping[str, list[Any]] | None:
        """Return the columns of lines that depend on those before; None to read one alone.

        Args:
            place: Of the first line among those that are alike.
            stop: Of the first that does not follow; fewer lines may be taken, but at least one.
        """


def number(text: str) -> float:
    """Return a decimal number, which may be `nan` or `inf`.

    Raises:
        BadValueError: It is none, or larger than any float.
    """
    if _NUMBER.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
    elif _NOT_FINITE.fullmatch(text):
        return float(text)
    raise BadValueError(text)


def whole(text: str, bits: int = 63) -> int:
    """Return an integer that a column of so many bits can hold.

    Raises:
        BadValueError: It is none, or too large.
    """
    value = int(text) if _WHOLE.fullmatch(text) else 1 << 64
    if not -(1 << bits) <= value < 1 << bits:
        raise BadValueError(text)
    return value


def scaled(text: str, digits: int) -> int:
    """Return a decimal number times ten to the power of digits, exactly.

    Exponents are read too, and digits beyond the last one must be zero.

    Raises:
        BadValueError: It is no number, too large, or finer than the unit.
    """
    value = _scaled(text, digits)
    if value != value.to_integral_value():
        raise BadValueError(text)
    return int(value)


def rounded_ns(text: str, digits: int) -> int:
    """Return a printed time in ns, rounded where it is printed finer than that.

    Raises:
        BadValueError: It is no number, or too large.
    """
    return int(_scaled(text, digits).to_integral_value())


def _scaled(text: str, digits: int) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise BadValueError(text)
    try:
        value = Decimal(text).scaleb(digits)
    except Overflow as error:  # of a million digits
        raise BadValueError(text) from error
    if abs(value) > _LARGEST:
        raise BadValueError(text)
    return value
