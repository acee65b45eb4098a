"""Measure a command: time per phase, and amounts.

Measures are not passed as arguments: whatever happens in any thread while a command measures
belongs to it. If no command measures, nothing is recorded.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class Measures:
    """The measures of a command.

    Attributes:
        phases: Nanoseconds by phase, added up over all threads.
        amounts: By name; names that were not counted are missing.
    """

    phases: Counter[str] = field(default_factory=Counter)
    amounts: Counter[str] = field(default_factory=Counter)


_lock = threading.Lock()
_listening: list[Measures] = []


@contextmanager
def measuring() -> Iterator[Measures]:
    """Measure what happens inside."""
    measures = listen()
    try:
        yield measures
    finally:
        with _lock:
            _listening.remove(measures)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Add the time of the context to this phase, also if it fails."""
    began = time.perf_counter_ns()
    try:
        yield
    finally:
        passed = time.perf_counter_ns() - began
        with _lock:
            for measures in _listening:
                measures.phases[name] += passed


def count(**amounts: int) -> None:
    """Add to amounts."""
    with _lock:
        for measures in _listening:
            measures.amounts.update(amounts)


def listen() -> Measures:
    """Measure from now on, for the life of the process."""
    measures = Measures()
    with _lock:
        _listening.append(measures)
    return measures


def take_phases(measures: Measures) -> dict[str, int]:
    """Return the nanoseconds by phase so far and reset them."""
    with _lock:
        taken = dict(measures.phases)
        measures.phases.clear()
    return taken


def add_phases(phases: Mapping[str, int]) -> None:
    """Add nanoseconds that another process has measured."""
    with _lock:
        for measures in _listening:
            measures.phases.update(phases)
