"""Read saved questions: `sql/examples/`, one per file, with parameters and an explanation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from tracelake.base.errors import ContractError, UsageError, unknown
from tracelake.base.resources import resource_dir
from tracelake.models.describe import text_table
from tracelake.models.header import read_header
from tracelake.warehouse.statements import Value

# Topics in the order in which they are listed.
TOPICS = ("fleet", "pipeline", "stragglers", "communication", "steps", "plans", "input")

_PARAM = re.compile(
    r"(?P<name>[a-z]\w*)\s+(?P<type>[A-Z]+)\s*=\s*(?P<default>[^|]*?)\s*\|\s*(?P<doc>\S.*)"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a saved question.

    Attributes:
        type: VARCHAR, BIGINT, UBIGINT, DOUBLE or TIMESTAMP.
        default: As a value of that type; None for NULL.
    """

    name: str
    type: str
    default: Value
    doc: str

    def read(self, text: str) -> Value:
        """Return a value of the parameter's type.

        Raises:
            UsageError: The text is not of that type.
        """
        read, form = _TYPES[self.type]
        try:
            return read(text)
        except ValueError:
            raise UsageError(f"--param {self.name}={text}: not a {self.type}", hint=form) from None


def _whole(text: str) -> int:
    if (number := int(text)) < 0:
        raise ValueError(text)
    return number


_TYPES: Mapping[str, tuple[Callable[[str], Value], str]] = {
    "VARCHAR": (str, "any text"),
    "BIGINT": (int, "give a whole number, such as 20"),
    "UBIGINT": (_whole, "give a whole number from 0 on, such as 20"),
    "DOUBLE": (float, "give a number, such as 0.1"),
    "TIMESTAMP": (datetime.fromisoformat, "give a date, such as 2025-01-31 or 2025-01-31T18:00"),
}


@dataclass(frozen=True, slots=True)
class Example:
    """A saved question.

    Attributes:
        question: The question that it answers.
        reading: How to read the answer, and what to do next.
        sql: The whole file: a header of comments, an empty line, the query.
    """

    name: str
    topic: str
    question: str
    reading: str
    parameters: tuple[Parameter, ...]
    sql: str

    @property
    def body(self) -> str:
        """The query without the header."""
        return self.sql.split("\n\n", 1)[-1]

    def bind(self, given: Mapping[str, str]) -> dict[str, Value]:
        """Return values of all parameters, from texts for some of them.

        Raises:
            UsageError: A name is not a parameter, or a text is not a value of its type.
        """
        known = {parameter.name for parameter in self.parameters}
        if unknown := sorted(given.keys() - known):
            raise UsageError(
                f"saved question {self.name} has no parameter {unknown[0]!r}",
                hint=f"it takes {', '.join(sorted(known))}" if known else "it takes none",
            )
        return {
            p.name: p.read(given[p.name]) if p.name in given else p.default for p in self.parameters
        }


def examples() -> dict[str, Example]:
    """Return all saved questions by name, by topic and then by name.

    Raises:
        ContractError: A header breaks its form.
    """
    folder = resource_dir("sql") / "examples"
    found = [read_example(path) for path in folder.glob("*.sql")]
    found.sort(key=lambda e: (TOPICS.index(e.topic), e.name))
    return {e.name: e for e in found}


def example(name: str) -> Example:
    """Return a saved question.

    Raises:
        UsageError: There is none of this name.
    """
    known = examples()
    if name not in known:
        raise unknown("unknown saved question", name, known, "list them with: tracelake examples")
    return known[name]


def examples_table() -> pa.Table:
    """Return name, topic, question and parameters of every saved question."""
    rows = [
        (e.name, e.topic, e.question, ", ".join(p.name for p in e.parameters) or None)
        for e in examples().values()
    ]
    return text_table(("name", "topic", "question", "parameters"), rows)


def read_example(path: Path) -> Example:
    """Read a saved question: comment lines with question, tags and reading, then the SQL.

    Raises:
        ContractError: The header breaks its form; it says where.
    """
    sql = path.read_text(encoding="utf-8")
    question, tags, reading = read_header(path, sql, ("topic", "param"), "?")
    ((line, topic),) = tags["topic"] or [(1, "")]
    if topic not in TOPICS or not reading:
        raise ContractError(
            "a saved question has a topic, and says how to read it",
            path=path,
            line=line,
            hint=f"-- @topic {'|'.join(TOPICS)} and -- a sentence or two",
        )
    parameters = tuple(_parameter(path, line, words) for line, words in tags["param"])
    return Example(path.stem, topic, question, " ".join(reading), parameters, sql)


def _parameter(path: Path, line: int, words: str) -> Parameter:
    parts = _PARAM.fullmatch(words)
    if not parts or parts["type"] not in _TYPES:
        raise ContractError(
            f"not a parameter: {words!r}",
            path=path,
            line=line,
            hint=f"name TYPE = default | doc, with a type of {', '.join(_TYPES)}",
        )
    plain = Parameter(parts["name"], parts["type"], None, parts["doc"])
    if parts["default"] == "NULL":
        return plain
    try:
        default = plain.read(str(json.loads(parts["default"])))
    except (ValueError, UsageError) as error:
        raise ContractError(
            f"the default of {plain.name} is not a {plain.type}", path=path, line=line
        ) from error
    return Parameter(plain.name, plain.type, default, plain.doc)
