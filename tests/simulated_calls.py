"""Who met whom in a simulated job, from the simulator's own order of events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from tracelake.synth.schedule import Op, Span
from tracelake.synth.spec import Spec


class Member(NamedTuple):
    """One rank's part in a call: line of its trace, and place in it, 0 for the whole line."""

    rank: int
    line: int
    sub: int
    span: Span


def simulated_calls(spec: Spec, ranks: Sequence[Sequence[Op]]) -> list[list[Member]]:
    """Every collective, and every send with the receive it feeds; members in order of rank.

    Ranks meet in a group in the order of their own operations. A channel of the pipeline, known by
    its sender and the direction, delivers in the order of sending.
    """
    calls: dict[Hashable, list[Member]] = defaultdict(list)
    for rank, ops in enumerate(ranks):
        meetings: Counter[Hashable] = Counter()
        for member in _members(rank, ops):
            place = _place(spec, member)
            meetings[place] += 1
            calls[place, meetings[place]].append(member)
    return list(calls.values())


def _members(rank: int, ops: Sequence[Op]) -> Iterator[Member]:
    for line, op in enumerate(ops, start=1):
        if op.own is not None:
            yield Member(rank, line, 0, op.own)
        for sub, span in enumerate(op.spans, start=1):
            yield Member(rank, line, sub, span)


def _place(spec: Spec, member: Member) -> Hashable:
    call = member.span.call
    if call.group != "pp":
        return call.group, spec.group(call.group, member.rank)
    action, direction = call.caller.split("_")
    stage = spec.tp * spec.dp
    behind = -stage if direction == "forward" else stage
    sender = member.rank if action == "send" else (member.rank + behind) % spec.world_size
    return direction, sender
