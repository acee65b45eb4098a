"""Random jobs with known answers: a seed decides everything about its job."""

from __future__ import annotations

import random
from typing import Any

from tracelake.synth.spec import SLOWABLE, Spec

_MOST_RANKS = 16
# Nothing but the schedule takes time: what is measured is theory.
_FREE: dict[str, Any] = {"busbw_gbps": None, "overhead_ms": 0.0, "gap_ms": 0.0, "optimizer_ms": 1.0}


def random_spec(seed: int) -> Spec:
    """The job of a seed: sizes, schedule, costs, clocks, and what of it is slow.

    Passes are long enough for a rank that computes 1.2 times as long to exceed its peers by over
    1 ms in every step, also where a part of its backward pass runs beside communication.
    """
    draw = random.Random(f"spec/{seed}")
    sizes = _sizes(draw)
    world = sizes["tp"] * sizes["pp"] * sizes["dp"]
    costs: dict[str, Any] = {
        "forward_ms": draw.randint(600, 1500) / 100,
        "backward_ms": draw.randint(600, 3000) / 100,
    }
    if draw.random() < 0.3:
        return Spec(**_common(seed), **sizes, **costs, **_FREE, **_clocks(draw, world))
    drift_ppm = draw.choice((0.0, 0.0, draw.uniform(-100, 100)))
    slow: dict[str, Any] = {}
    if draw.random() < 0.5:
        slow |= {
            "slow_rank": draw.randrange(world),
            "slow_factor": draw.choice((1.2, 1.25, 1.3, 1.5, 2.0, 3.0)),
        }
    slowable = [name for name, size in SLOWABLE.items() if sizes.get(size, 1) > 1]
    if slowable and draw.random() < 0.3:
        slow |= {
            "slow_collective": draw.choice(slowable),
            "slow_collective_factor": draw.choice((1.5, 4.0, 10.0)),
        }
    return Spec(
        **_common(seed),
        **sizes,
        **costs,
        **slow,
        **_clocks(draw, world, drift_ppm),
        noise=draw.choice((0.0, 0.0, 0.01, 0.03, 0.05)),
        busbw_gbps=draw.choice((2.0, 20.0, 200.0)),
        overhead_ms=draw.randint(0, 100) / 100,
        # Stamps drift and durations do not: without a gap, operations would share a clock tick.
        gap_ms=draw.randint(5 if drift_ppm else 0, 20) / 100,
        optimizer_ms=draw.randint(0, 1000) / 100,
        synchronous_steps=draw.random() < 0.7,
    )


def _common(seed: int) -> dict[str, Any]:
    return {"formats": ("rank_trace",), "seed": seed}


def _sizes(draw: random.Random) -> dict[str, Any]:
    pp = draw.choice((1, 2, 2, 3, 4))
    dp = draw.choice((1, 2, 3, 4))
    tp = draw.choice([tp for tp in (1, 2, 3, 4) if tp * pp * dp <= _MOST_RANKS])
    vpp = draw.choice((1, 1, 2, 3)) if pp > 1 else 1
    sizes = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "vpp": vpp,
        "micro_batches": pp * draw.randint(1, 3) if vpp > 1 else draw.randint(1, 8),
        "micro_batch_size": draw.randint(1, 3),
        "layers": pp * vpp * draw.randint(1, 2),
        "steps": draw.randint(1, 5),
        "hidden": 64 * draw.randint(1, 32),
        "sequence": 128 * draw.randint(1, 16),
    }
    if draw.random() < 0.4:
        ep = draw.choice([ep for ep in (1, 2, 3, 4) if dp % ep == 0])
        sizes |= {"ep": ep, "experts": ep * draw.randint(1, 3)}
    return sizes


def _clocks(draw: random.Random, world: int, drift_ppm: float = 0.0) -> dict[str, Any]:
    """One host, or several whose clocks differ by up to days; drift is that of the last one."""
    if world == 1 or draw.random() < 0.5:
        return {}
    ranks_per_host = draw.randint(1, world - 1)
    return {
        "ranks_per_host": ranks_per_host,
        "clock_offset_ms": draw.choice((-1, 1)) * round(10 ** draw.uniform(-1, 8), 2),
        "clock_drift_ppm": round(drift_ppm / ((world - 1) // ranks_per_host), 3),
    }
