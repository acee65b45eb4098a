"""Print figures by their unit: the one place for the page, the terminal, mails and messages.

A missing value is printed as empty text, and a value that is not zero never as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType

from tracelake.base.text import counted

_BYTES = ("kB", "MB", "GB", "TB")
# Below this, GPU hours are printed as GPU seconds.
_LEAST_HOURS = 0.01
# Decimals of units; numbers without a unit have those of "".
_DECIMALS: Mapping[str, int] = MappingProxyType({"ms": 2, "GB/s": 2, "%": 1, "": 3})
# Units by the end of a column's name.
_UNITS: Mapping[str, str] = MappingProxyType(
    {"_ms": "ms", "_gbps": "GB/s", "_ratio": "%", "_bytes": "bytes", "_hours_lost": "GPU hours"}
)
# Ratios that can exceed 1 and are no shares.
_FACTORS = frozenset({"imbalance_ratio", "bubble_over_ideal_ratio", "theory_over_ideal_ratio"})


@cache
def unit_of(name: str, declared: str | None = None) -> str | None:
    """Return the unit of a column: as declared, else as its name says; "%" for a share."""
    if declared or name in _FACTORS:
        return declared
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)


def label(name: str) -> str:
    """Return the name of a column as words, without its unit."""
    for end in ("_ms", "_gbps", "_ratio", "_bytes"):
        name = name.removesuffix(end)
    return name.replace("gpu", "GPU").replace("micro_batch", "micro-batch").replace("_", " ")


def number(value: float, unit: str) -> str:
    """Return a value with the decimals of its unit, for a column whose heading has the unit."""
    digits = _DECIMALS[unit]
    shown, smallest = 100 * value if unit == "%" else value, 10.0**-digits
    if 0 < abs(shown) < smallest / 2:
        return f"{'<' if shown > 0 else '>-'}{smallest:.{digits}f}"
    return f"{shown:,.{digits}f}"


def milliseconds(value: float | None) -> str:
    """Return a time, in seconds from ten seconds on."""
    if value is None:
        return ""
    return f"{value / 1000:,.2f} s" if abs(value) >= 10_000 else f"{number(value, 'ms')} ms"


def percent(value: float | None) -> str:
    """Return a share."""
    return "" if value is None else f"{number(value, '%')} %"


def signed(value: float | None) -> str:
    """Return a relative change."""
    shown = percent(value)
    return f"+{shown}" if shown[:1].isdigit() else shown


def minute(date: datetime | None) -> str:
    """Return when a run began."""
    return "" if date is None else f"{date:%Y-%m-%d %H:%M}"


def speed(value: float | None) -> str:
    """Return a bandwidth, in 1e9 bytes per second."""
    return "" if value is None else f"{number(value, 'GB/s')} GB/s"


def count(value: float | None) -> str:
    """Return a number of things."""
    return "" if value is None else f"{value:,.0f}"


def factor(value: float | None) -> str:
    """Return a ratio to something that is not a whole."""
    return "" if value is None else f"{value:.2f} x"


def slowdown(value: float) -> str:
    """Return the S of `tracelake whatif`: a time over what it would be, to a thousandth."""
    return f"{value:.3f}"


def gpu_hours(value: float | None) -> str:
    """Return the time of devices with three digits, in seconds where it is short."""
    if value is None:
        return ""
    if 0 < abs(value) < _LEAST_HOURS:
        return f"{short(3600 * value)} GPU s"
    return f"{short(value)} GPU h"


def certainty(basis: str | None, bound: str | None) -> str:
    """Return how sure a cost is: at most, at least, or by replay.

    Args:
        basis: `cost_basis` of a finding or incident.
        bound: Its `cost_bound`.
    """
    return (bound or ("by replay" if basis == "replay" else "")).replace("_", " ")


def lost(hours: float | None, basis: str | None, bound: str | None, per: str = "") -> str:
    """Return the cost of a finding or incident; of a replay that names nobody, its limit.

    Args:
        per: What the hours are for, such as `a day`; nothing for the run itself.
    """
    if hours == 0 and basis == "replay" and bound is None:
        return "less than 3 % of the steps"
    return f"{gpu_hours(hours)} {per}".strip() if hours else ""


def cost(hours: float | None, basis: str | None, bound: str | None, per: str = "") -> str:
    """Return the cost as `lost` does, and how sure it is as `certainty` does."""
    sure = certainty(basis, bound) if hours else ""
    return " ".join(filter(None, (lost(hours, basis, bound, per), sure)))


def seen_in(slow: int, runs: int, unit: str) -> str:
    """Return in how many of its runs an incident was seen: of those since it began, or of tests.

    Nothing where its run is the only one.

    Args:
        slow: `slow_runs` of the incident.
        runs: Its `runs`.
        unit: Its `runs_unit`.
    """
    share = f"{count(slow)} of {counted(runs, unit)}"
    if unit != "run":
        return share
    return f"{share} since then" if runs > 1 else ""


def short(value: float) -> str:
    """Return a number with three digits, or more where it is a hundred or more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def amount(size: float | None) -> str:
    """Return bytes in the unit that leaves one to three digits before the point."""
    if size is None:
        return ""
    if abs(size) < 1000:
        return f"{size:.0f} B"
    power = 1
    while power < len(_BYTES) and abs(size) >= 999_995 * 1000 ** (power - 1):
        power += 1
    return f"{size / 1000**power:.2f} {_BYTES[power - 1]}"


_PRINTERS: Mapping[str | None, Callable[[float | None], str]] = MappingProxyType(
    {"ms": milliseconds, "%": percent, "GB/s": speed, "bytes": amount, "GPU hours": gpu_hours}
)


def figure(name: str, value: float | None) -> str:
    """Return the value of a column with the unit that its name says."""
    return _PRINTERS.get(unit_of(name), count)(value)


def difference(name: str, value: float | None) -> str:
    """Return a difference of such values; of shares in percentage points."""
    if not value:
        return ""
    if unit_of(name) == "%":
        return f"{100 * value:+.1f} points"
    return f"{'+' if value > 0 else ''}{figure(name, value)}"
