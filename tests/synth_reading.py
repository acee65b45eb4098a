"""Reads generated archives with regular expressions, apart from every parser of the project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tracelake.synth.spec import Spec

Row = dict[str, Any]
SMALL = Spec(pp=2, layers=4, micro_batches=4, steps=2, hidden=64, sequence=128, log_steps=4)


@dataclass(frozen=True)
class Line:
    """A line of a rank trace, read by regular expressions; times in ticks of 0.01 ms."""

    rank: int
    op: str
    fields: dict[str, str]
    calls: list[dict[str, str]]

    @property
    def end(self) -> int:
        return ticks(self.fields["timestamp"])

    @property
    def start(self) -> int:
        return self.end - ticks(self.fields["duration"])

    @property
    def inner(self) -> int:
        return sum(ticks(call["duration"]) for call in self.calls)


def ticks(text: str) -> int:
    amount = Decimal(text) * 100
    assert amount == int(amount)
    return int(amount)


def fields(text: str) -> dict[str, str]:
    return dict(piece.split("=", 1) for piece in re.split(r",(?=[A-Za-z_]\w*=)", text))


def read_trace(path: Path) -> list[Line]:
    lines = []
    for text in path.read_text().splitlines():
        found = re.fullmatch(r"rank:(\d+):(\w+)\((.*),sub_operations=\[(.*)\]\)", text)
        assert found, text
        rank, op, head, calls = found.groups()
        inner = [fields(call) for call in re.findall(r"'([^']*)'", calls)]
        lines.append(Line(int(rank), op, fields(head), inner))
    return lines


def by_step(lines: list[Line]) -> Iterator[tuple[int, list[Line]]]:
    """A step of a rank ends with its optimizer_step."""
    step, open_lines = 1, []
    for line in lines:
        open_lines.append(line)
        if line.op == "optimizer_step":
            yield step, open_lines
            step, open_lines = step + 1, []
    assert not open_lines


def run_of(answers: Row, format_name: str, index: int = 0) -> Row:
    runs = [run for run in answers["runs"] if run["format"] == format_name]
    found: Row = runs[index]
    return found


def traces(root: Path, run: Row) -> list[list[Line]]:
    return [read_trace(root / file["path"]) for file in run["files"]]


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
