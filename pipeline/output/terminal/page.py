"""Print a page of text: on a terminal with colours and a width, elsewhere without.

Names in a table that is too wide are cut in the middle, then columns are left out.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, TextIO

from rich.cells import cell_len
from rich.text import Text

from tracelake.base.drawing import console_of
from tracelake.base.figures import figure, unit_of
from tracelake.base.text import cut_middle, pasteable, printable

GAP = 2


class Cell(NamedTuple):
    """A printed value.

    Attributes:
        style: A style of rich; empty for plain text.
    """

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        of: The value that it shows: a name of the row, which also says its unit, or what gives the
            text of a row; `name` by default.
        style: Style of its cells, or what gives that of a row.
        right: Aligned to the right, for numbers; those with a unit always are.
        spare: Left out if there is no space, those with the highest number first; 0 never.
        least: Minimum width when it is cut in the middle; None if it is never cut.
    """

    name: str
    of: str | Callable[[Any], str] = ""
    style: str | Callable[[Any], str] = ""
    right: bool = False
    spare: int = 0
    least: int | None = None

    @property
    def aligned_right(self) -> bool:
        """Return whether it holds numbers."""
        return self.right or (isinstance(self.of, str) and unit_of(self.of) is not None)

    def cell(self, row: Mapping[str, Any]) -> Cell:
        """Return its cell of a row."""
        style = self.style if isinstance(self.style, str) else self.style(row)
        if not isinstance(self.of, str):
            return Cell(self.of(row), style)
        name = self.of or self.name
        value = row[name]
        return Cell(plain(value) if unit_of(name) is None else figure(name, value), style)


def fit(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None
) -> dict[int, int]:
    """Return the widths of the columns of a table that are shown, by their index.

    Args:
        width: Width of a line; None without a limit.
    """
    natural = [
        max([cell_len(column.name), *(cell_len(row[place].text) for row in rows)])
        for place, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    while True:
        widths = {place: natural[place] for place in shown}
        line = sum(widths.values()) + GAP * (len(shown) - 1)
        over = 0 if width is None else max(0, line - width)
        for place in shown:
            least = columns[place].least
            if least is not None:
                cut = min(over, max(0, widths[place] - least))
                widths[place] -= cut
                over -= cut
        spare = max(shown, key=lambda place: (columns[place].spare, place))
        if not over or not columns[spare].spare:
            return widths
        shown.remove(spare)


def plain(value: object) -> str:
    """Return a value as text; a missing one as none."""
    return "" if value is None else str(value)


BAD, WARN, GOOD, DIM = "bold red", "yellow", "green", "dim"
SEVERITIES = {"critical": BAD, "warning": WARN, "notice": DIM}
_BAR = 48
_BAR_LEAST = 8
_BESIDE_BAR = 62


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters for bars, curves and signs.

    Attributes:
        full: A cell of a bar.
        rest: A cell of a bar that is empty.
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
    """The output of `show`, `diff` and `runs`.

    Attributes:
        width: Width of the terminal; None elsewhere, where nothing is cut.
        glyphs: Block characters, or ASCII if the encoding lacks them.
    """

    def __init__(self, out: TextIO) -> None:
        self._console = console_of(out)
        self.width = self._console.width if out.isatty() else None
        self.glyphs = _BLOCKS if _carries_blocks(out) else _ASCII

    @property
    def bar_width(self) -> int:
        """Width of a bar beside a few figures."""
        return _BAR if self.width is None else max(_BAR_LEAST, min(_BAR, self.width - _BESIDE_BAR))

    def line(self, *pieces: str | Cell) -> None:
        """Print a line unchanged, but for the lake that its commands name."""
        cells = (Cell(piece) if isinstance(piece, str) else piece for piece in pieces)
        self._line(*(Cell(pasteable(cell.text), cell.style) for cell in cells))

    def heading(self, title: str, note: str = "") -> None:
        """Print a title after an empty line, with a short explanation."""
        self.line()
        self.prose(note, first=f"{title}  ", mark="bold", style=DIM)

    def prose(self, text: str, *, first: str = "  ", style: str = "", mark: str = "") -> None:
        """Print sentences, wrapped on a terminal.

        Args:
            first: Prefix of the first line; the others are indented by its width.
            mark: Style of `first`.
        """
        lines = self._wrapped(printable(pasteable(text)), len(first)) or [""]
        for number, line in enumerate(lines):
            self._line(Cell(" " * len(first) if number else first, mark), Cell(line, style))

    def table(
        self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], *, indent: int = 2
    ) -> None:
        """Print a table without empty columns; name those of the others that did not fit."""
        drawn = [[_flat(column.cell(row)) for column in columns] for row in rows]
        full = [place for place in range(len(columns)) if any(row[place].text for row in drawn)]
        if not full:
            return
        wanted = [columns[place] for place in full]
        cells = [[row[place] for place in full] for row in drawn]
        widths = fit(wanted, cells, None if self.width is None else self.width - indent)
        head = [Cell(column.name, "bold") for column in wanted]
        right = {place for place in widths if wanted[place].aligned_right}
        lines = []
        for row in [head, *cells]:
            pieces = [Cell(" " * indent)]
            for place, width in widths.items():
                text = cut_middle(row[place].text, width)
                space = " " * (width - cell_len(text))
                text = space + text if place in right else text + space
                pieces.append(Cell(text + " " * GAP, row[place].style))
            lines.append(_text(pieces))
        self._console.print(Text("\n").join(lines))
        if dropped := [c.name for place, c in enumerate(wanted) if c.name and place not in widths]:
            note = f"columns that do not fit: {', '.join(dropped)}"
            self.prose(note, first=" " * indent, style=DIM)

    def legend(self, pairs: Sequence[tuple[Cell, str]], *, indent: int) -> None:
        """Print the meaning of signs, in as many lines as necessary."""
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

    def bar(self, share: float, width: int) -> str:
        """Return a share of a whole as a bar."""
        filled = round(min(1.0, max(0.0, share)) * width)
        return self.glyphs.full * filled + self.glyphs.rest * (width - filled)

    def stack(self, parts: Sequence[float], width: int) -> Iterator[tuple[int, str]]:
        """Yield the parts of a bar: for each part its index and its text; no part disappears."""
        whole, end, drawn = sum(parts), 0.0, 0
        for place, part in enumerate(parts):
            end += part
            upto = round(width * end / whole) if whole else 0
            yield place, self.glyphs.parts[place] * (upto - drawn)
            drawn = upto

    def curve(self, values: Sequence[float], width: int) -> str:
        """Return values as a curve of limited width; each point is the maximum of its span."""
        if not values:
            return ""
        cells = min(width, len(values))
        spans = [len(values) * i // cells for i in range(cells + 1)]
        highest = [max(values[a:b]) for a, b in itertools.pairwise(spans)]
        low, steps = min(highest), len(self.glyphs.curve) - 1
        # Differences below 1 % are drawn flat.
        reach = max(max(highest) - low, 0.01 * abs(low)) or 1.0
        return "".join(self.glyphs.curve[round((v - low) / reach * steps)] for v in highest)

    def _line(self, *cells: Cell) -> None:
        self._console.print(_text(cells))

    def _wrapped(self, text: str, indent: int) -> list[str]:
        if self.width is None:
            return [" ".join(text.split("\n"))]
        return textwrap.wrap(text, max(20, self.width - indent), break_on_hyphens=False)


def _text(cells: Iterable[Cell]) -> Text:
    """Return a line without blanks at its end."""
    text = Text()
    for cell in cells:
        text.append(printable(cell.text), style=cell.style)
    text.rstrip()
    return text


def _flat(cell: Cell) -> Cell:
    return Cell(pasteable(printable(cell.text)).replace("\n", " "), cell.style)


def _carries_blocks(out: TextIO) -> bool:
    try:
        "".join(astuple(_BLOCKS)).encode(getattr(out, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
