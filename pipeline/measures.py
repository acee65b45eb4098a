"""What a command does, measured where it is done: time per phase and amounts.

Nobody passes the measures along: what happens while a command measures is its own, in whatever
thread. Without one that measures, nothing is kept.
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
    """What was measured.

    Attributes:
        phases: Nanoseconds by phase, added up over all threads.
        amounts: By name; a name that nobody counted is not there.
    """

    phases: Counter[str] = field(default_factory=Counter)
    amounts: Counter[str] = field(default_factory=Counter)


_lock = threading.Lock()
_listening: list[Measures] = []


@contextmanager
def measuring() -> Iterator[Measures]:
    """Measures what happens inside."""
    measures = Measures()
    with _lock:
        _listening.append(measures)
    try:
        yield measures
    finally:
        with _lock:
            _listening.remove(measures)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """The time of what happens inside belongs to this phase, also if it fails."""
    began = time.perf_counter_ns()
    try:
        yield
    finally:
        passed = time.perf_counter_ns() - began
        with _lock:
            for measures in _listening:
                measures.phases[name] += passed


def count(**amounts: int) -> None:
    """Adds to amounts."""
    with _lock:
        for measures in _listening:
            measures.amounts.update(amounts)


def listen() -> Measures:
    """Measures what happens from now on, as long as the process lives."""
    measures = Measures()
    with _lock:
        _listening.append(measures)
    return measures


def take_phases(measures: Measures) -> dict[str, int]:
    """The nanoseconds by phase so far, which begin anew: nobody gets them twice."""
    with _lock:
        taken = dict(measures.phases)
        measures.phases.clear()
    return taken


def add_phases(phases: Mapping[str, int]) -> None:
    """Adds nanoseconds that another process has measured."""
    with _lock:
        for measures in _listening:
            measures.phases.update(phases)
