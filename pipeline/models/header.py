"""Read a model file: header comments that are data, then one SELECT."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tracelake.base.errors import ContractError
from tracelake.schema.tables import Column, columns

_NAME = re.compile(r"_?[a-z][a-z0-9_]*")
_TAG = re.compile(r"@(\w+)\s*(.*)")
_COLUMN = re.compile(
    r"(?P<name>\w+)\s+(?P<type>[A-Z]+(?:\([^)]*\))?(?:\[\])*)(?:\s+(?P<unit>[^|]+?))?"
    r"\s*\|\s*(?P<doc>\S.*)"
)
_TAGS = ("grain", "column", "order", "report", "scope", "kernel")


@dataclass(frozen=True)
class Model:
    """A relation computed by one SELECT.

    Attributes:
        grain: Key columns that identify a row; unique and never NULL.
        nullable: Key columns that may be NULL, written `name?`; NULL is then a value like others.
        order: Columns by which its rows are stored; the grain unless the header says otherwise.
        declared: Columns documented in the header: new names, and known ones with a narrower doc.
        report: Title of its section in the report, if it has one.
        fleet: Computed over all runs at every build; else per run, for runs that changed.
        kernel: Name of the kernel that takes the rows of the SELECT and gives those of the model.
        sql: The whole file, so that positions are those of the file.
    """

    name: str
    path: Path
    doc: str
    grain: tuple[str, ...]
    nullable: frozenset[str]
    order: tuple[str, ...]
    declared: Mapping[str, Column]
    report: str | None
    fleet: bool
    kernel: str | None
    sql: str

    @property
    def internal(self) -> bool:
        """Tell whether it exists only during a build: its name begins with an underscore."""
        return self.name.startswith("_")


def read_model(path: Path) -> Model:
    """Read a model file.

    Raises:
        ContractError: The header is malformed, or declares a known column with another type.
    """
    sql = path.read_text(encoding="utf-8")
    doc, tags, _ = read_header(path, sql, _TAGS)
    keys = _words(tags["grain"][0][1]) if tags["grain"] else []
    grain = tuple(key.removesuffix("?") for key in keys)
    if not grain:
        raise ContractError("no grain", path=path, line=1, hint="add -- @grain run_id, ...")
    if not _NAME.fullmatch(path.stem):
        raise ContractError(
            "a model's name is lower case with underscores", path=path, hint="rename the file"
        )
    scopes = [value for _, value in tags["scope"]]
    for line, value in tags["scope"]:
        if value not in {"run", "fleet"}:
            raise ContractError(f"scope {value!r}", path=path, line=line, hint="run or fleet")
    model = Model(
        name=path.stem,
        path=path,
        doc=doc,
        grain=grain,
        nullable=frozenset(key.removesuffix("?") for key in keys if key.endswith("?")),
        order=tuple(_words(tags["order"][0][1])) if tags["order"] else grain,
        declared=_declared(path, tags["column"]),
        report=tags["report"][0][1] if tags["report"] else None,
        fleet=scopes == ["fleet"],
        kernel=tags["kernel"][0][1] if tags["kernel"] else None,
        sql=sql,
    )
    if not model.fleet and "run_id" not in grain:
        raise ContractError(
            "the grain of a model per run has run_id",
            path=path,
            line=tags["grain"][0][0],
            hint="add run_id to @grain, or -- @scope fleet",
        )
    return model


def read_header(
    path: Path, sql: str, known: tuple[str, ...], end: str = "."
) -> tuple[str, dict[str, list[tuple[int, str]]], list[str]]:
    """Return what the comment lines say that a file starts with.

    Args:
        known: Tags that it may have.
        end: How its first line ends.

    Returns:
        The first line, by tag every (line, value), and the other lines.

    Raises:
        ContractError: The first line is no sentence, a tag is unknown, or one that is neither a
            column nor a parameter is given twice.
    """
    doc, others = "", list[str]()
    tags: dict[str, list[tuple[int, str]]] = {name: [] for name in known}
    for number, text in enumerate(sql.splitlines(), 1):
        if not text.startswith("--"):
            break
        content = text.removeprefix("--").strip()
        tag = _TAG.match(content)
        if not tag:
            if number == 1:
                doc = content
            else:
                others.append(content)
            continue
        name, value = tag[1], tag[2].strip()
        if name not in tags:
            raise ContractError(
                f"unknown tag @{name}",
                path=path,
                line=number,
                hint=f"one of @{', @'.join(known)}",
            )
        if tags[name] and name not in {"column", "param"}:
            raise ContractError(f"@{name} is given twice", path=path, line=number)
        tags[name].append((number, value))
    if not doc.endswith(end):
        raise ContractError(
            f"the first line is not a sentence that ends with {end!r}", path=path, line=1
        )
    return doc, tags, others


def documented(
    model: Model, inputs: Iterable[str], shown: Mapping[str, Iterable[Column]]
) -> dict[str, Column]:
    """Return columns that a model may have, by name: those of its header and of all tables.

    A private model may also have those of the models that it reads, of equal ones the first's.

    Args:
        shown: Columns of these models.
    """
    read = sorted(inputs, reverse=True) if model.internal else ()
    taken = {column.name: column for name in read for column in shown.get(name, ())}
    return {**columns(), **taken, **model.declared}


def _declared(path: Path, entries: list[tuple[int, str]]) -> dict[str, Column]:
    """Return columns of the `@column` lines by name."""
    found: dict[str, Column] = {}
    for line, value in entries:
        parts = _COLUMN.fullmatch(value)
        if not parts:
            raise ContractError(
                f"not a column: {value!r}", path=path, line=line, hint="name TYPE unit | doc"
            )
        column = Column(parts["name"], parts["type"], parts["doc"], parts["unit"])
        known = columns().get(column.name)
        if known and column.type != known.type:
            raise ContractError(
                f"column {column.name} is {known.type} in schemas/columns.toml, not {column.type}",
                path=path,
                line=line,
                hint="keep its type, or choose another name",
            )
        if column.name in found:
            raise ContractError(f"column {column.name} is declared twice", path=path, line=line)
        if known and not column.unit:  # a narrower doc
            column = replace(column, unit=known.unit)
        found[column.name] = column
    return found


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", text) if word]
