"""Run ranks as coroutines that meet in collectives and messages: a dataflow network of clocks.

A rank owns its clock and talks to others only through the three requests here. Nothing in the
model of time is shared between ranks but the moments they meet, so every order in which runnable
ranks are resumed gives the same times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrive:
    """Waits in a collective; the answer is the arrival of its last member."""

    key: Hashable
    members: int
    at: int


@dataclass(frozen=True, slots=True)
class Post:
    """Starts to send; the sender continues at once and the answer is meaningless."""

    key: Hashable
    at: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Waits for a message; the answer is when its sender started."""

    key: Hashable


Program = Generator[Arrive | Post | Receive, int, None]


def run(programs: Mapping[int, Program]) -> None:
    """Run the programs of all ranks to their ends.

    Raises:
        RuntimeError: Ranks wait for each other forever: their schedule is wrong.
    """
    network = _Network(programs)
    for rank in programs:
        network.resume(rank, None)
    while network.ready:
        network.resume(*network.ready.popleft())
    if network.blocked:
        raise RuntimeError(f"ranks wait for each other forever: {sorted(network.blocked)}")


class _Network:
    def __init__(self, programs: Mapping[int, Program]) -> None:
        self.blocked = set(programs)
        self.ready: deque[tuple[int, int]] = deque()
        self._programs = programs
        self._meetings: dict[Hashable, list[tuple[int, int]]] = {}
        self._mail: dict[Hashable, int] = {}
        self._awaited: dict[Hashable, int] = {}

    def resume(self, rank: int, answer: int | None) -> None:
        """Let a rank continue until it has to wait or ends."""
        program = self._programs[rank]
        try:
            request = next(program) if answer is None else program.send(answer)
            while isinstance(request, Post):
                self._post(request)
                request = program.send(0)
        except StopIteration:
            self.blocked.remove(rank)
            return
        if isinstance(request, Receive):
            self._receive(rank, request)
        else:
            self._arrive(rank, request)

    def _post(self, post: Post) -> None:
        receiver = self._awaited.pop(post.key, None)
        if receiver is None:
            self._mail[post.key] = post.at
        else:
            self.ready.append((receiver, post.at))

    def _receive(self, rank: int, request: Receive) -> None:
        sent = self._mail.pop(request.key, None)
        if sent is None:
            self._awaited[request.key] = rank
        else:
            self.ready.append((rank, sent))

    def _arrive(self, rank: int, request: Arrive) -> None:
        meeting = self._meetings.setdefault(request.key, [])
        meeting.append((rank, request.at))
        if len(meeting) == request.members:
            latest = max(at for _, at in meeting)
            self.ready.extend((member, latest) for member, _ in meeting)
            del self._meetings[request.key]
