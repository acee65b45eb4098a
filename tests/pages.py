"""Reads an HTML page as a browser without scripts would: a tree, its tables, its links."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


@dataclass
class Node:
    tag: str
    attrs: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    @property
    def classes(self) -> list[str]:
        return self.attrs.get("class", "").split()

    def nodes(self) -> Iterator[Node]:
        for child in self.children:
            if isinstance(child, Node):
                yield child
                yield from child.nodes()

    def all(self, tag: str, cls: str | None = None) -> list[Node]:
        return [n for n in self.nodes() if n.tag == tag and (cls is None or cls in n.classes)]

    def by_id(self, name: str) -> Node:
        (found,) = [n for n in self.nodes() if n.attrs.get("id") == name]
        return found

    def section(self, title: str) -> Node:
        """The section under a heading."""
        (found,) = [
            n for n in self.all("section") if any(h.text == title for h in own(n, "h2", "h3"))
        ]
        return found

    def table(self) -> list[dict[str, str]]:
        """Rows of the first table, by heading."""
        table = self.all("table")[0]
        heads = [head.text for head in table.all("th")]
        rows = [row.all("td") for row in table.all("tbody")[0].all("tr")]
        return [dict(zip(heads, [c.text for c in row], strict=True)) for row in rows]

    def terms(self, cls: str) -> dict[str, str]:
        """Entries of definition lists of a class."""
        entries = [entry for shown in self.all("dl", cls) for entry in own(shown, "div")]
        return {e.all("dt")[0].text: e.all("dd")[0].text for e in entries}


def own(node: Node, *tags: str) -> list[Node]:
    return [c for c in node.children if isinstance(c, Node) and c.tag in tags]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_page(text: str) -> Node:
    """The page as a tree; tags that do not match fail."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert len(reader.open) == 1, f"<{reader.open[-1].tag}> is not closed"
    return reader.open[0]


def packed(page: Node, name: str) -> str:
    """What the page's script unpacks from a data block."""
    return gzip.decompress(base64.b64decode(page.by_id(name).text)).decode()


def charts(page: Node) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """Series by run and kind of chart."""
    series: dict[str, dict[str, dict[str, list[Any]]]] = json.loads(packed(page, "chart-data"))[
        "series"
    ]
    return series
