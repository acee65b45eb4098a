"""A page of text on a terminal, or the same without colours and limits anywhere else."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from pipeline.drawing import console_of
from pipeline.terminal.grid import GAP, Cell, Column, fit, laid_out
from pipeline.text import printable

BAD, WARN, GOOD, DIM = "bold red", "yellow", "green", "dim"
_BAR = 48
_BAR_LEAST = 8
_BESIDE_BAR = 62


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What bars, curves and signs are drawn with.

    Attributes:
        full: A cell of a bar.
        rest: A cell of a bar that is left.
        parts: Cells of a bar of several parts, in the order of the parts.
        curve: Cells of a curve, from low to high.
    """

    full: str
    rest: str
    parts: str
    curve: str
    dot: str
    nothing: str
    arrow: str


_BLOCKS = Glyphs("█", "░", "█▤▓▒░▞╌·", "▁▂▃▄▅▆▇█", "·", "–", "→")  # noqa: RUF001 - as drawn
_ASCII = Glyphs("#", ".", "#%=<>+~.", "_.-=+*%#", "|", "-", "->")


class Page:
    """Where `show`, `diff` and `runs` print.

    Attributes:
        width: Cells of a line of a terminal; None elsewhere: nothing is cut there.
        glyphs: Blocks, or ASCII where the encoding lacks them.
    """

    def __init__(self, out: TextIO) -> None:
        self._console = console_of(out)
        self._out = out
        self.width = self._console.width if out.isatty() else None
        self.glyphs = _BLOCKS if _carries(out, _BLOCKS) else _ASCII

    @property
    def bar_width(self) -> int:
        """Cells of a bar beside a few figures."""
        return _BAR if self.width is None else max(_BAR_LEAST, min(_BAR, self.width - _BESIDE_BAR))

    def line(self, *pieces: str | Cell) -> None:
        """A line as it is."""
        text = Text()
        for piece in pieces:
            cell = Cell(piece) if isinstance(piece, str) else piece
            text.append(printable(cell.text), style=cell.style)
        text.rstrip()
        self._console.print(text)

    def heading(self, title: str, note: str = "") -> None:
        """A title after an empty line, and what it is about."""
        self.line()
        self.prose(note, first=f"{title}  ", mark="bold", style=DIM)

    def prose(self, text: str, *, first: str = "  ", style: str = "", mark: str = "") -> None:
        """Sentences, wrapped on a terminal.

        Args:
            first: What the first line begins with; the others are indented as far.
            mark: Style of `first`.
        """
        for number, line in enumerate(self._wrapped(printable(text), len(first)) or [""]):
            self.line(Cell(" " * len(first) if number else first, mark), Cell(line, style))

    def table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, indent: int = 2
    ) -> None:
        """A table without the columns that have no value; says which of the others had no room."""
        full = [place for place in range(len(columns)) if any(row[place].text for row in rows)]
        if not full:
            return
        wanted = [columns[place] for place in full]
        cells = [[_flat(row[place]) for place in full] for row in rows]
        fitted = fit(wanted, cells, None if self.width is None else self.width - indent)
        head = [Cell(column.name, "bold") for column in wanted]
        for row in [head, *cells]:
            pieces: list[Cell] = [Cell(" " * indent)]
            for place, width in zip(fitted.places, fitted.widths, strict=True):
                text = laid_out(row[place], width, right=wanted[place].right)
                pieces += [Cell(text, row[place].style), Cell(" " * GAP)]
            self.line(*pieces)
        if fitted.dropped:
            dropped = f"no room for: {', '.join(fitted.dropped)}"
            self.prose(dropped, first=" " * indent, style=DIM)

    def legend(self, pairs: Sequence[tuple[Cell, str]], *, indent: int) -> None:
        """What signs mean, in as many lines as it takes."""
        lines: list[list[Cell]] = [[]]
        used = indent
        for sign, name in pairs:
            length = cell_len(sign.text) + 1 + cell_len(name)
            if self.width is not None and lines[-1] and used + length > self.width:
                lines.append([])
                used = indent
            lines[-1] += [sign, Cell(f" {name}  ", DIM)]
            used += length + GAP
        for line in lines:
            self.line(" " * indent, *line)

    def bar(self, share: float | None, width: int) -> str:
        """A share of a whole as a bar."""
        if share is None:
            return ""
        filled = round(min(1.0, max(0.0, share)) * width)
        return self.glyphs.full * filled + self.glyphs.rest * (width - filled)

    def stack(self, parts: Sequence[float], width: int) -> Iterator[tuple[int, str]]:
        """Parts of a whole as one bar: for each part its place and its cells; none get lost."""
        whole, end, drawn = sum(parts), 0.0, 0
        for place, part in enumerate(parts):
            end += part
            upto = round(width * end / whole) if whole else 0
            yield place, self.glyphs.parts[place] * (upto - drawn)
            drawn = upto

    def curve(self, values: Sequence[float], width: int) -> str:
        """Values as a curve of at most so many cells, of the largest of each span of values."""
        if not values:
            return ""
        cells = min(width, len(values))
        spans = [len(values) * i // cells for i in range(cells + 1)]
        highest = [max(values[a:b]) for a, b in itertools.pairwise(spans)]
        low, steps = min(highest), len(self.glyphs.curve) - 1
        # Less than 1 % apart is level, not a mountain range.
        reach = max(max(highest) - low, 0.01 * abs(low)) or 1.0
        return "".join(self.glyphs.curve[round((v - low) / reach * steps)] for v in highest)

    def end(self) -> None:
        """Nothing follows."""
        self._out.flush()

    def _wrapped(self, text: str, indent: int) -> list[str]:
        if self.width is None:
            return [" ".join(text.split("\n"))]
        return textwrap.wrap(text, max(20, self.width - indent), break_on_hyphens=False)


def _flat(cell: Cell) -> Cell:
    return Cell(printable(cell.text).replace("\n", " "), cell.style)


def _carries(out: TextIO, glyphs: Glyphs) -> bool:
    try:
        "".join((glyphs.full, glyphs.rest, glyphs.parts, glyphs.curve, glyphs.dot)).encode(
            getattr(out, "encoding", None) or "utf-8"
        )
    except UnicodeEncodeError:
        return False
    return True
