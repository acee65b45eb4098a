"""Compute the true figures of a simulated job, which models should find in its files.

Definitions are those of the project's definitions page. They are implemented a second time from its
text alone, and differently from the models: from the simulator's own record of who waited for whom.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from tracelake.synth.schedule import Op, Span
from tracelake.synth.spec import NS_PER_TICK, TICKS_PER_MS, Spec, ticks

Ranks = Sequence[Sequence[Op]]
Row = dict[str, Any]

_COMPUTE = {"get_batch", "forward_step", "loss_func", "backward_step"}
_OWN = {"forward_step", "backward_step"}
_PHASES = ("warmup", "steady", "cooldown")
_DECLARED = {"dp", "expert_dp"}


def theory(stages: int, micro_batches: int, chunks: int = 1) -> Row:
    """Return bubble of 1F1B with that many chunks per rank (Narayanan et al. 2021, section 2.2)."""
    idle, busy = stages - 1, chunks * micro_batches
    return {"bubble_ratio": idle / (busy + idle), "bubble_over_ideal_ratio": idle / busy}


def step_rows(ranks: Ranks) -> list[Row]:
    """Return per step: its length, and the window from first start to last backward end."""
    last: dict[int, int] = defaultdict(int)
    for op in (op for ops in ranks for op in ops):
        last[op.step] = max(last[op.step], op.end)
    return [
        {
            "step": step,
            "step_ns": (last[step] - opens) * NS_PER_TICK,
            "window_ns": (closes - opens) * NS_PER_TICK,
        }
        for step, (opens, closes) in _windows(ranks).items()
    ]


def rank_step_rows(spec: Spec, ranks: Ranks) -> list[Row]:
    """Return per step and rank: parts of the window, waits, own compute, slowdown among peers.

    The busy time (compute, data and in_op_comm) also by phase of the schedule.
    """
    rows = []
    starts = [[op.start for op in ops] for ops in ranks]
    ends = [[op.end for op in ops] for ops in ranks]
    own = [_own_compute(ops) for ops in ranks]
    for step, window in _windows(ranks).items():
        for rank, ops in enumerate(ranks):
            near = slice(bisect_right(ends[rank], window[0]), bisect_left(starts[rank], window[1]))
            parts = _parts(ops[near], step, window)
            busy = parts["compute"] + parts["data"] + parts["in_op_comm"]
            idle = parts["window"] - busy
            others = [own[peer][step] for peer in _peers(spec, rank)]
            usual = median(others) if others else None
            lost = max(0, own[rank][step] - usual) if usual is not None else 0
            rows.append(
                {
                    "step": step,
                    "rank": rank,
                    "stage": spec.stage(rank),
                    **{f"{name}_ns": amount * NS_PER_TICK for name, amount in parts.items()},
                    "own_compute_ns": own[rank][step] * NS_PER_TICK,
                    "lost_ns": round(lost * NS_PER_TICK),
                    "slowdown": own[rank][step] / usual if usual else None,
                    "bubble_ratio": idle / parts["window"],
                    "bubble_over_ideal_ratio": idle / busy,
                    "bubble_with_wait_ratio": (idle + parts["in_op_wait"]) / parts["window"],
                }
            )
    return rows


def clock_rows(spec: Spec) -> list[Row]:
    """Return per rank: its host, its clock's lead over rank 0's at the start, and its drift."""
    return [
        {
            "rank": rank,
            "host": spec.host_name(rank),
            "offset_ms": spec.host(rank) * ticks(spec.clock_offset_ms) / TICKS_PER_MS,
            "drift_ppm": spec.host(rank) * spec.clock_drift_ppm,
        }
        for rank in range(spec.world_size)
    ]


def stage_rows(rank_steps: Sequence[Row]) -> list[Row]:
    """Return per step and stage: mean, minimum and maximum bubble of its ranks."""
    bubbles = defaultdict(list)
    for row in rank_steps:
        bubbles[row["step"], row["stage"]].append(row["bubble_ratio"])
    return [
        {
            "step": step,
            "stage": stage,
            "bubble_ratio": fmean(ratios),
            "bubble_min_ratio": min(ratios),
            "bubble_max_ratio": max(ratios),
        }
        for (step, stage), ratios in sorted(bubbles.items())
    ]


def rank_rows(spec: Spec, rank_steps: Sequence[Row]) -> list[Row]:
    """Return per rank: slowdown over the steps, and whether it was injected."""
    by_rank = defaultdict(list)
    for row in rank_steps:
        by_rank[row["rank"]].append(row)
    return [
        {
            "rank": rank,
            "stage": spec.stage(rank),
            "peers": len(_peers(spec, rank)),
            "injected_factor": spec.slow_factor if rank == spec.slow_rank else None,
            "slowdown": median(row["slowdown"] for row in rows) if _peers(spec, rank) else None,
            "lost_ns": sum(row["lost_ns"] for row in rows),
        }
        for rank, rows in sorted(by_rank.items())
    ]


def collective_rows(spec: Spec, ranks: Ranks, repeats: int) -> list[Row]:
    """Return per kind and size of communication: calls, time without waits, and bandwidth."""
    seen: dict[tuple[str, str, str, int, bool], tuple[int, Span, int]] = {}
    for rank, ops in enumerate(ranks):
        for span in (span for op in ops for span in (*op.spans, *([op.own] if op.own else []))):
            call = span.call
            members = 2 if call.group == "pp" else len(spec.group(call.group, rank))
            size = call.size_bytes(members)
            key = (call.collective, call.group, call.dtype, size, call.hidden is not None)
            seen[key] = (seen[key][0] + 1 if key in seen else 1, span, members)
    rows = []
    for (collective, group, dtype, size, overlapped), (count, span, members) in seen.items():
        reason = _no_bandwidth(span, group, members)
        seconds = span.cost * NS_PER_TICK / 1e9
        bandwidth = None if reason else size / seconds / 1e9
        rows.append(
            {
                "collective": collective,
                "group_kind": group,
                "dtype": dtype,
                "size_bytes": size,
                "overlapped": overlapped,
                "group_size": members,
                "calls": count // members * repeats,
                "time_ns": None if overlapped else span.cost * NS_PER_TICK,
                "algbw_gbps": bandwidth,
                "busbw_gbps": None
                if bandwidth is None
                else bandwidth * span.call.bus_factor(members),
                "reason": reason,
            }
        )
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def _no_bandwidth(span: Span, group: str, members: int) -> str | None:
    if members == 1:
        return "group_of_one"
    if span.call.hidden is not None:
        return "overlaps_compute"
    if group in _DECLARED and span.call.caller.endswith("dp_allreduce"):
        return "declared_size"
    return None if span.cost else "below_clock_resolution"


def _windows(ranks: Ranks) -> dict[int, tuple[int, int]]:
    windows: dict[int, tuple[int, int]] = {}
    for op in (op for ops in ranks for op in ops):
        opens, closes = windows.get(op.step, (op.start, op.start))
        if op.name == "backward_step":
            closes = max(closes, op.end)
        windows[op.step] = (min(opens, op.start), closes)
    return dict(sorted(windows.items()))


def _parts(ops: Sequence[Op], step: int, window: tuple[int, int]) -> dict[str, int]:
    opens, closes = window
    names = ("compute", "data", "in_op_comm", "p2p_recv", "p2p_send", "finalize", "other_step")
    parts = {"window": closes - opens, **dict.fromkeys(names, 0)}
    waits = overlap = receive_waits = 0
    phases = dict.fromkeys(_PHASES, 0)
    for op in ops:
        inside = min(op.end, closes) - max(op.start, opens)
        if inside <= 0 or (op.fused and op.name.startswith("send")):
            continue
        if op.step != step:
            parts["other_step"] += inside
        elif op.name in _COMPUTE:
            phases[op.phase] += inside
            inner = sum(span.end - span.start for span in op.spans)
            parts["data" if op.name == "get_batch" else "compute"] += inside - inner
            parts["in_op_comm"] += inner
            for span in op.spans:
                if span.call.hidden is not None:
                    overlap += span.end - span.start
                elif span.call.word != "broadcast":
                    waits += span.latest - span.start
        elif op.name.startswith("recv"):
            parts["p2p_recv"] += inside
            receive_waits += 0 if op.own is None else op.own.latest - op.own.start
        elif op.name.startswith("send"):
            parts["p2p_send"] += inside
        else:
            parts["finalize"] += inside
    parts["gap"] = parts["window"] - sum(parts[name] for name in names)
    waited = {"in_op_wait": waits, "in_op_overlap": overlap, "recv_wait": receive_waits}
    return {**parts, **waited, **phases}


def _own_compute(ops: Sequence[Op]) -> Counter[int]:
    """Return forward and backward time outside communication, by step."""
    own: Counter[int] = Counter()
    for op in ops:
        if op.name in _OWN:
            own[op.step] += op.end - op.start - sum(span.end - span.start for span in op.spans)
    return own


def _peers(spec: Spec, rank: int) -> list[int]:
    return [
        peer
        for peer in range(spec.world_size)
        if peer != rank and spec.stage(peer) == spec.stage(rank)
    ]
