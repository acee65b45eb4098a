"""Format figures for a terminal: two decimals for times and speeds, one for percentages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tracelake.base.text import amount
from tracelake.schema.tables import reasons


def milliseconds(value: float | None) -> str:
    """Return a time, in seconds from ten seconds on."""
    if value is None:
        return ""
    return f"{value / 1000:,.2f} s" if abs(value) >= 10_000 else f"{value:,.2f} ms"


def percent(value: float | None) -> str:
    """Return a share."""
    return "" if value is None else f"{100 * value:.1f} %"


def signed(value: float | None) -> str:
    """Return a relative change."""
    return "" if value is None else f"{100 * value:+,.1f} %"


def speed(value: float | None) -> str:
    """Return a bandwidth, in 1e9 bytes per second."""
    return "" if value is None else f"{value:,.2f} GB/s"


def count(value: float | None) -> str:
    """Return a number of things."""
    return "" if value is None else f"{value:,.0f}"


def factor(value: float | None) -> str:
    """Return a ratio to something that is not a whole."""
    return "" if value is None else f"{value:.2f} x"


def hours(value: float | None) -> str:
    """Return hours of a device."""
    return "" if value is None else f"{value:.4g} h"


def size(value: int | None) -> str:
    """Return bytes."""
    return "" if value is None else amount(value)


def text(value: object) -> str:
    """Return any other value as text."""
    return "" if value is None else str(value)


_BY_SUFFIX: Mapping[str, Callable[[float | None], str]] = MappingProxyType(
    {
        "_ms": milliseconds,
        "_ratio": percent,
        "_gbps": speed,
        "_hours_lost": hours,
    }
)


def figure(name: str, value: float | None) -> str:
    """Return the value of a model's column, by the unit in its name."""
    shown = next((form for suffix, form in _BY_SUFFIX.items() if name.endswith(suffix)), count)
    return shown(value)


def difference(name: str, value: float | None) -> str:
    """Return a difference of such values; of shares in percentage points."""
    if not value:
        return ""
    if name.endswith("_ratio"):
        return f"{100 * value:+.1f} points"
    return f"{'+' if value > 0 else ''}{figure(name, value)}"


def label(name: str) -> str:
    """Return the name of a column as words, without its unit."""
    for suffix in ("_ms", "_ratio", "_gbps"):
        name = name.removesuffix(suffix)
    return name.replace("gpu", "GPU").replace("micro_batch", "micro-batch").replace("_", " ")


def why(reason: str | None) -> str:
    """Return a reason of the closed list with its meaning."""
    if reason is None:
        return ""
    return f"{reason}, {_within(reasons()[reason])}" if reason in reasons() else reason


def _within(sentence: str) -> str:
    """Return a sentence as a clause of another."""
    first, rest = sentence[:1], sentence[1:].rstrip(".")
    return (first if rest[:1].isupper() else first.lower()) + rest
