"""Compiled passes that make nodes: numbers of keys, operations cut at their calls, and groups.

Nodes are in the order of steps, ranks and starts. Numbers count from 0, and -1 is none.
"""

from __future__ import annotations

from tracelake.kernels.compiled import kernel
from tracelake.models.replay.passes import Int32s, Int64s

OTHER, OPTIMIZER, RECEIVE, SEND = range(4)
"""Roles of nodes where they meet."""
NEVER = -(1 << 62)
"""Before all times."""


@kernel
def number(
    high: Int64s, low: Int64s, slots: Int32s, first: Int32s, numbers: Int32s, found: Int64s
) -> None:
    """Number pairs of keys in the order in which they come first; equal pairs have one number.

    Args:
        slots: Hash table of -1: a power of two, more than there are pairs.
        first: Filled with the first place of every number.
        found: Filled with how many numbers there are.
    """
    mask = slots.shape[0] - 1
    count = 0
    for i in range(high.shape[0]):
        mixed = (high[i] * 0x1E3779B97F4A7C15 + low[i]) * 0x3F58476D1CE4E5B9
        slot = (mixed ^ (mixed >> 32)) & mask
        while slots[slot] >= 0:
            place = first[slots[slot]]
            if high[place] == high[i] and low[place] == low[i]:
                break
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = count
            first[count] = i
            count += 1
        numbers[i] = slots[slot]
    found[0] = count


@kernel
def cut(
    lines: Int32s,
    starts: Int64s,
    ends: Int64s,
    seqs: Int64s,
    messages: Int64s,
    calls_first: Int32s,
    calls_listed: Int32s,
    calls_sub: Int32s,
    calls_begin: Int64s,
    calls_end: Int64s,
    ops: Int32s,
    calls: Int32s,
    pieces: Int32s,
    nodes_from: Int64s,
    nodes_to: Int64s,
) -> None:
    """Cut operations at the calls inside them, and order what a rank did in a step by its start.

    Calls are clipped to the operation, and to what follows the calls before them.

    Args:
        lines: Per operation the number of its step and rank; operations of one are neighbours.
        messages: When the message before it starts; `NEVER` if there is none.
        calls_first: With `calls_listed`, the calls of each operation; see `link`. They are put
            into the order of `calls_sub`.
        ops: Filled with the operation of each node.
        calls: Filled with its call.
        pieces: Filled with its place in the operation: calls are odd, a message before it is -1.
        nodes_from: Filled with its start, and `nodes_to` with its end.
    """
    node = 0
    first = 0
    for op in range(lines.shape[0]):
        if op > 0 and lines[op] != lines[op - 1]:
            first = node
        began = node
        if messages[op] != NEVER:
            pieces[node], nodes_from[node], nodes_to[node] = -1, messages[op], starts[op]
            calls[node] = -1
            node += 1
        free = starts[op]
        latest = starts[op]
        piece = 0
        for i in range(calls_first[op], calls_first[op + 1]):
            call, place = calls_listed[i], i
            while place > calls_first[op] and calls_sub[calls_listed[place - 1]] > calls_sub[call]:
                calls_listed[place] = calls_listed[place - 1]
                place -= 1
            calls_listed[place] = call
        for i in range(calls_first[op], calls_first[op + 1]):
            call = calls_listed[i]
            begin = min(ends[op], max(calls_begin[call], min(ends[op], latest)))
            end = max(min(ends[op], calls_end[call]), begin)
            pieces[node], nodes_from[node], nodes_to[node] = piece, min(ends[op], latest), begin
            calls[node] = -1
            node += 1
            pieces[node], nodes_from[node], nodes_to[node] = piece + 1, begin, end
            calls[node] = call
            node += 1
            piece += 2
            latest = max(latest, calls_end[call])
            free = max(free, end)
        pieces[node], nodes_from[node], nodes_to[node] = piece, free, ends[op]
        calls[node] = -1
        node += 1
        for new in range(began, node):
            ops[new] = op
            place = new
            call, piece, start, end = calls[new], pieces[new], nodes_from[new], nodes_to[new]
            while place > first and (
                nodes_from[place - 1] > start
                or (
                    nodes_from[place - 1] == start
                    and (
                        seqs[ops[place - 1]] > seqs[op]
                        or (ops[place - 1] == op and pieces[place - 1] > piece)
                    )
                )
            ):
                ops[place], calls[place] = ops[place - 1], calls[place - 1]
                pieces[place] = pieces[place - 1]
                nodes_from[place], nodes_to[place] = nodes_from[place - 1], nodes_to[place - 1]
                place -= 1
            ops[place], calls[place], pieces[place] = op, call, piece
            nodes_from[place], nodes_to[place] = start, end


@kernel
def meet(  # noqa: PLR0912 - calls between kernels cost a compilation each
    members: Int32s,
    meetings: Int32s,
    roles: Int32s,
    sides: Int32s,
    ticks: Int64s,
    nodes_from: Int64s,
    nodes_to: Int64s,
    counts: Int64s,
    known: Int64s,
    groups: Int32s,
    latest: Int64s,
    senders: Int32s,
) -> None:
    """Find which nodes end together, and what a receive comes after that began after its send.

    Optimizers do where they end within a tick of the clock. A message has one of `senders` if its
    receive began when the send had ended.

    Args:
        members: A node that is in a meeting, `meetings` the meeting, `roles` what it does there.
        sides: 1 for the send that is fused with the receive, else 0.
        ticks: Of optimizers.
        counts: A row per meeting: how many are in it, and their least role.
        known: A row per meeting: latest start; first and last end; least tick; latest end and
            last node of sends; latest start of receives; first node.
        groups: Filled with the first node of the two groups of each node, and of either whether
            they end together or not.
        latest: Filled with the latest start of those that it ends with, and of either; and with
            the end of its sender's send.
    """
    for meeting in range(counts.shape[0]):
        counts[meeting, 0], counts[meeting, 1] = 0, SEND
        for i in range(8):
            known[meeting, i] = NEVER
    for node in range(groups.shape[0]):
        senders[node] = -1
        for i in range(3):
            groups[node, i], latest[node, i] = -1, NEVER
    for i in range(members.shape[0]):
        n, m, role = members[i], meetings[i], roles[i]
        if counts[m, 0] == 0:
            known[m, 1], known[m, 2] = nodes_to[n], nodes_to[n]
            known[m, 3], known[m, 7] = ticks[i], n
        counts[m, 0] += 1
        counts[m, 1] = min(counts[m, 1], role)
        known[m, 0] = max(known[m, 0], nodes_from[n])
        known[m, 1] = min(known[m, 1], nodes_to[n])
        known[m, 2] = max(known[m, 2], nodes_to[n])
        known[m, 3] = min(known[m, 3], ticks[i])
        known[m, 7] = min(known[m, 7], n)
        if role == SEND:
            known[m, 4] = max(known[m, 4], nodes_to[n])
            known[m, 5] = max(known[m, 5], n)
        elif role == RECEIVE:
            known[m, 6] = max(known[m, 6], nodes_from[n])
    for i in range(members.shape[0]):
        n, m, side = members[i], meetings[i], sides[i]
        together = True
        if counts[m, 1] == OPTIMIZER:
            together = known[m, 2] - known[m, 1] <= known[m, 3] and counts[m, 0] > 1
        elif counts[m, 1] == RECEIVE:
            together = known[m, 5] >= 0 and known[m, 4] >= known[m, 6]
        lead = known[m, 7]
        if together:
            if groups[n, side] < 0 or lead < groups[n, side]:
                groups[n, side] = lead
            latest[n, 0] = max(latest[n, 0], known[m, 0])
        elif counts[m, 1] == RECEIVE and roles[i] == RECEIVE and known[m, 5] >= 0:
            senders[n] = max(senders[n], known[m, 5])
            latest[n, 2] = max(latest[n, 2], known[m, 4])
        if groups[n, 2] < 0 or lead < groups[n, 2]:
            groups[n, 2] = lead
        latest[n, 1] = max(latest[n, 1], known[m, 0])
