"""Write tables as HTML: a large page has 100,000 cells, too many for a template."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat

from markupsafe import Markup, escape

from tracelake.base.text import printable
from tracelake.output.html.cells import SPARK, Bar, Cell, Grid, Head


def heads_html(grid: Grid) -> Markup:
    """Return the headings of a table."""
    return Markup("".join(map(_head, grid.heads)))


def rows_html(grid: Grid) -> Markup:
    """Return the rows of a table, a line each; see `cells_html`."""
    words = (f' data-words="{_safe(words)}"' for words in grid.words) if grid.words else repeat("")
    rows = zip(words, grid.rows, strict=False)
    return Markup("\n".join(f"<tr{words}>{cells_html(row)}</tr>" for words, row in rows))


def cells_html(cells: Iterable[Cell]) -> Markup:
    """Return the cells of a row; texts are escaped and have no control characters.

    Example:
        >>> cells_html([Cell("a < b", look="num")])
        Markup('<td class="num">a &lt; b</td>')
    """
    return Markup("".join(map(_cell, cells)))


@lru_cache(1 << 10)
def _head(head: Head) -> str:
    style = ' class="num"' if head.numeric else ""
    unit = f" <small>({_safe(head.unit)})</small>" if head.unit else ""
    return f'<th scope="col"{style}>{_safe(head.label)}{unit}</th>'


def _cell(cell: Cell) -> str:
    if cell.bar:
        opened, bar = f'<td class="{_safe(cell.look)} barred"', _bar(cell.bar)
    else:
        opened, bar = f'<td class="{_safe(cell.look)}"' if cell.look else "<td", ""
    if cell.title:
        opened += f' title="{_safe(cell.title)}"'
    if cell.sort is not None:
        opened += f' data-v="{cell.sort}"'
    return f"{opened}>{_inside(cell)}{bar}</td>"


def _inside(cell: Cell) -> str:
    if cell.parts:
        pieces = "".join(
            f'<i class="p{part.number}" style="width:{part.width}%"'
            f' title="{_safe(part.title)}"></i>'
            for part in cell.parts
        )
        return f'<span class="stack" aria-hidden="true">{pieces}</span>'
    if cell.spark:
        width, height = SPARK
        return (
            f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
            f' aria-label="{_safe(cell.title or "")}"><polyline points="{cell.spark}"/></svg>'
        )
    text = _safe(cell.text)
    return f'<a href="#{_safe(cell.link)}">{text}</a>' if cell.link else text


def _bar(bar: Bar) -> str:
    mark = "" if bar.mark is None else f'<b style="left:{bar.mark}%"></b>'
    return f'<span class="bar" aria-hidden="true"><i style="width:{bar.width}%"></i>{mark}</span>'


@lru_cache(1 << 16)  # figures and names of a page repeat
def _safe(text: str) -> str:
    return str(escape(printable(text)))
