"""Define colours of the page and its charts by name: one set for light mode, one for dark mode."""

from __future__ import annotations

from collections.abc import Mapping

# Name -> light mode, dark mode. `var(--name)` in the page's style and in chart specs.
COLORS: Mapping[str, tuple[str, str]] = {
    "ink": ("#1c2128", "#e3e8ee"),
    "soft": ("#57606a", "#9aa5b1"),
    "paper": ("#ffffff", "#12161b"),
    "raised": ("#f6f8fa", "#1a2027"),
    "line": ("#d8dee4", "#313a44"),
    "link": ("#0b5cad", "#79b8ff"),
    "bad": ("#b42318", "#ff8b80"),
    "warn": ("#8a5a00", "#efc15b"),
    "fine": ("#1a7f37", "#6fd08c"),
    "bad-paper": ("#fdecea", "#3a1a18"),
    "warn-paper": ("#fff4d6", "#33290f"),
    "note-paper": ("#eef2f6", "#1f2730"),
    # Parts of a rank's time; kinds of operations have the colour of their part.
    "compute": ("#2f6fb5", "#4d94dd"),
    "backward": ("#7fb2e5", "#2c6396"),
    "comm": ("#7a4fb0", "#a983e0"),
    "recv": ("#e08a2e", "#e59a4a"),
    "send": ("#f2c14e", "#d9b450"),
    "finalize": ("#3f9b6c", "#58b886"),
    "data": ("#58b0b8", "#62bfc7"),
    "gap": ("#c3cad2", "#4a5561"),
    # Series, and what belongs to none of them.
    "c0": ("#2f6fb5", "#6cb0f5"),
    "c1": ("#c2571a", "#f3955a"),
    "c2": ("#7a4fb0", "#b892ec"),
    "c3": ("#3f9b6c", "#58b886"),
    "c4": ("#b23a6f", "#ef7fae"),
    "c5": ("#6b7280", "#9aa5b1"),
    "other": ("#b3bcc6", "#4a5561"),
    # From faster than its peers to slower.
    "cold": ("#2f6fb5", "#4d94dd"),
    "even": ("#f3f5f7", "#222a32"),
    "hot": ("#c0321f", "#ff7a5c"),
    "hottest": ("#4a0703", "#ffe3da"),
}


def var(name: str) -> str:
    """Return a colour as the page's style and its charts refer to it.

    Raises:
        KeyError: There is no such colour.
    """
    COLORS[name]
    return f"var(--{name})"


def properties(*, dark: bool) -> str:
    """Return all colours as CSS custom properties."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in COLORS.items())


def resolved(text: str) -> str:
    """Return text with `var(--name)` replaced by light colours, for pictures."""
    for name, (light, _) in COLORS.items():
        text = text.replace(var(name), light)
    return text
