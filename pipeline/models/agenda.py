"""Say which model is to be computed next, and which relations no model reads any more."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from tracelake.models.needs import Needs, can_have_rows


class Agenda:
    """Models in the order in which they are begun, each when its inputs are there.

    DuckDB plans a model in milliseconds whatever its rows, so those are left out that cannot have
    any, because a relation that they need has none. Threads may share an agenda.

    Attributes:
        left_out: Models that have no rows without being computed.
    """

    def __init__(
        self,
        models: Sequence[str],
        inputs: Mapping[str, frozenset[str]],
        needs: Mapping[str, Needs],
        given: Mapping[str, str],
        without_rows: Collection[str],
    ) -> None:
        """Plan the computation of models.

        Args:
            inputs: Per model, the relations that it reads.
            needs: Per model, the relations without whose rows it has none.
            given: Relations that were made for them -> TABLE or VIEW.
            without_rows: Relations that have no rows.
        """
        self.left_out: list[str] = []
        self._inputs = inputs
        self._needs = needs
        self._waiting = {name: set(inputs[name]).intersection(models) for name in models}
        self._readers: dict[str, set[str]] = defaultdict(set)
        for model in models:
            for name in inputs[model]:
                self._readers[name].add(model)
        self._there = dict(given)
        self._empty = {*without_rows}
        self._lock = threading.Lock()
        self._leave_out(models)

    def next(self) -> str | None:
        """Return the next model whose inputs are there; None if there is none now."""
        with self._lock:
            name = next((name for name, missing in self._waiting.items() if not missing), None)
            if name:
                del self._waiting[name]
            return name

    def cancel(self, models: Collection[str]) -> None:
        """Take models off that are not begun yet."""
        with self._lock:
            for name in models:
                self._waiting.pop(name, None)

    def add(self, model: str, rows: int, kind: str = "TABLE") -> list[tuple[str, str]]:
        """Note that a model was computed, as a TABLE or a VIEW.

        Returns:
            The relations that no other model reads, and whether each is a TABLE or a VIEW.
        """
        with self._lock:
            self._there[model] = kind
            self._end(model)
            if not rows:
                self._empty.add(model)
                self._leave_out(self._readers[model])
            done = [name for name in self._there if not self._readers[name]]
            return [(name, self._there.pop(name)) for name in done]

    def left(self) -> list[tuple[str, str]]:
        """Return the relations that are there, and whether each is a TABLE or a VIEW."""
        with self._lock:
            return [*self._there.items()]

    def _end(self, model: str) -> None:
        """Let the readers of a model begin, and its inputs go."""
        for reader in self._readers[model] & self._waiting.keys():
            self._waiting[reader].discard(model)
        for name in self._inputs[model]:
            self._readers[name].discard(model)

    def _leave_out(self, models: Collection[str]) -> None:
        """Leave those of some models out that cannot have rows, and then those that need them."""
        pending = [*models]
        while pending:
            name = pending.pop()
            if name in self._waiting and not can_have_rows(self._needs[name], self._empty):
                del self._waiting[name]
                self.left_out.append(name)
                self._empty.add(name)
                pending.extend(self._readers[name])
                self._end(name)
