"""Run ranks as coroutines that meet in collectives and messages: a dataflow network of clocks.

A rank owns its clock and talks to others only by meeting them. Nothing in the model of time is
shared between ranks but the moments they meet, so every order in which runnable ranks are resumed
gives the same times.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meet:
    """Comes to a meeting and waits for others; the answer is when the last of them came.

    A message is a meeting of its sender alone: a sender goes on at once.

    Attributes:
        at: When this rank comes; None for a receiver, which only waits.
        members: How many have to come.
    """

    key: Hashable
    at: int | None = None
    members: int = 1


Program = Generator[Meet, int, None]


def run(programs: Mapping[int, Program]) -> None:
    """Run the programs of all ranks to their ends.

    Raises:
        RuntimeError: Ranks wait for each other forever: their schedule is wrong.
    """
    came: dict[Hashable, list[int]] = defaultdict(list)
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    ready: deque[tuple[int, int | None]] = deque((rank, None) for rank in programs)
    while ready:
        rank, answer = ready.popleft()
        try:
            meet = programs[rank].send(answer)  # type: ignore[arg-type] # None begins it
        except StopIteration:
            continue
        waiting[meet.key].append(rank)
        if meet.at is not None:
            came[meet.key].append(meet.at)
        if len(came[meet.key]) == meet.members:
            latest = max(came[meet.key])
            ready.extend((member, latest) for member in waiting.pop(meet.key))
    if blocked := sorted(rank for ranks in waiting.values() for rank in ranks):
        raise RuntimeError(f"ranks wait for each other forever: {blocked}")
