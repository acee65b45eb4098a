"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

_LIBRARIES = ("polars", "pyarrow", "duckdb", "numba", "numpy", "isal")


def describe() -> dict[str, str]:
    """Processor, memory, system, Python and the libraries that matter to the figures."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    load = os.getloadavg()[0]
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "memory": f"{pages / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load_at_start": f"{load:.1f}",
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
    }


def line(machine: dict[str, str]) -> str:
    """The same in one line."""
    said = dict(machine)
    head = f"{said.pop('cores')} cores of {said.pop('cpu')}, {said.pop('memory')}"
    return f"{head}; {said.pop('system')}; load at start {said.pop('load_at_start')}; " + ", ".join(
        f"{name} {number}" for name, number in said.items()
    )


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except FileNotFoundError:
        return platform.processor()
    names = [row.partition(":")[2].strip() for row in text.splitlines() if "model name" in row]
    return names[0] if names else platform.processor()
