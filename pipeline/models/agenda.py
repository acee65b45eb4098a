"""Say which model can be computed next, and which relations no model reads any more."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence


class Agenda:
    """Models in the order in which they are begun, each when its inputs are there.

    Threads may share one.

    Attributes:
        empty: Relations that are known to have no rows.
    """

    def __init__(
        self,
        models: Sequence[str],
        inputs: Mapping[str, frozenset[str]],
        given: Mapping[str, str],
        without_rows: Collection[str],
    ) -> None:
        """Plan the computation of models.

        Args:
            inputs: Per model, the relations that it reads.
            given: Relations that are there -> TABLE or VIEW.
            without_rows: Those of them without rows.
        """
        self.empty = {*without_rows}
        names = {*models}
        self._waiting = {name: inputs[name] & names for name in models}
        self._readers = {
            name: {model for model in models if name in inputs[model]} for name in (*given, *models)
        }
        self._there = dict(given)
        self._lock = threading.Lock()

    def next(self) -> str | None:
        """Return the next model whose inputs are there; None if there is none now."""
        with self._lock:
            ready = (name for name, inputs in self._waiting.items() if inputs <= self._there.keys())
            name = next(ready, None)
            if name:
                del self._waiting[name]
            return name

    def leave_out(self, models: Collection[str]) -> None:
        """Take models off that are not begun yet."""
        with self._lock:
            for name in models:
                self._waiting.pop(name, None)

    def add(self, model: str, rows: int) -> list[tuple[str, str]]:
        """Note that a model is there.

        Returns:
            The relations that no other model reads, and whether each is a TABLE or a VIEW.
        """
        with self._lock:
            self._there[model] = "TABLE"
            if not rows:
                self.empty.add(model)
            done = [model] if not self._readers[model] else []
            for name, readers in self._readers.items():
                if model in readers:
                    readers.discard(model)
                    if not readers:
                        done.append(name)
            return [(name, self._there.pop(name)) for name in done]

    def left(self) -> list[tuple[str, str]]:
        """Return the relations that are there, and whether each is a TABLE or a VIEW."""
        with self._lock:
            return [*self._there.items()]
