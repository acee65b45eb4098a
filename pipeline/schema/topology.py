"""Resolve the sizes of a parallel job, the source of each, and the stage of a rank."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tracelake.base.errors import UsageError

KEYS = (
    "world_size",
    "tp",
    "pp",
    "dp",
    "ep",
    "cp",
    "vpp",
    "micro_batches",
    "micro_batch_size",
    "global_batch_size",
    "layers",
)


# What the column of a size holds.
LARGEST = 2**31 - 1


def parse_set(text: str) -> dict[str, int]:
    """Read the value of `--set`, e.g. `tp=2,pp=4`.

    Raises:
        UsageError: Not a list of known keys with positive whole numbers, each key once, a number is
            too large, or the sizes do not fit into world_size.
    """
    given: dict[str, int] = {}
    for piece in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = (s.strip() for s in piece.partition("="))
        if key not in KEYS:
            raise UsageError(f"--set: unknown key {key!r}", hint=f"one of {', '.join(KEYS)}")
        if not equals or not value.isascii() or not value.isdigit() or not value.strip("0"):
            raise UsageError(
                f"--set: {piece!r} is not {key}=NUMBER with a positive whole number",
                hint="give sizes with commas between them, like tp=2,pp=4",
            )
        if len(value.lstrip("0")) > len(str(LARGEST)) or int(value) > LARGEST:
            raise UsageError(f"--set: {key} is too large", hint=f"at most {LARGEST}")
        if key in given:
            raise UsageError(f"--set: {key} is given twice", hint="leave one of them out")
        given[key] = int(value)
    parts = [key for key in ("tp", "cp", "dp", "pp") if key in given]
    needed = math.prod(given[key] for key in parts)
    if "world_size" in given and needed > given["world_size"]:
        raise UsageError(
            f"--set: {' x '.join(parts)} is {needed} ranks, more than world_size"
            f" {given['world_size']}",
            hint="mend one of the sizes, or leave world_size out",
        )
    return given


def resolve(
    *, printed: Mapping[str, int], named: Mapping[str, int], given: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, str]]:
    """Merge the known topology of a run: set over printed over name, then derived values.

    Derived: tp = 1 and pp = 1 where the other sizes fill the world; world_size = tp * pp * dp * cp
    and dp = world_size / (tp * pp * cp), with cp = 1 unless known; micro_batches =
    global_batch_size / (micro_batch_size * dp) where that divides. A number that is no size, such
    as 0 or a product that is too large, is left out.

    Returns:
        Values by key, and by key the source: `set`, `printed`, `name` or `derived`.
    """
    values: dict[str, int] = {}
    sources: dict[str, str] = {}
    for source, sizes in (("name", named), ("printed", printed), ("set", given)):
        for key, value in sizes.items():
            if 1 <= value <= LARGEST:
                values[key], sources[key] = value, source

    def derive(key: str, numerator: int, denominator: int = 1) -> None:
        size, rest = divmod(numerator, denominator)
        if key not in values and not rest and 1 <= size <= LARGEST:
            values[key], sources[key] = size, "derived"

    ranks = math.prod(values[key] for key in ("tp", "cp", "dp", "pp") if key in values)
    if values.get("world_size") == ranks:
        derive("tp", 1)
        derive("pp", 1)
    if "tp" in values and "pp" in values:
        model_parallel = values["tp"] * values["pp"] * values.get("cp", 1)
        if "world_size" in values:
            derive("dp", values["world_size"], model_parallel)
        elif "dp" in values:
            derive("world_size", values["dp"] * model_parallel)
    if {"global_batch_size", "micro_batch_size", "dp"} <= values.keys():
        derive(
            "micro_batches", values["global_batch_size"], values["micro_batch_size"] * values["dp"]
        )
    return values, sources


def stage_of(rank: int, topology: Mapping[str, int]) -> int | None:
    """Return the pipeline stage of a rank in Megatron's order (tp, cp, dp, pp, fastest first).

    stage = rank div (world_size / pp); None if either is unknown or the rank is outside.
    """
    world, stages = topology.get("world_size"), topology.get("pp")
    if not world or not stages or world % stages or not 0 <= rank < world:
        return None
    return rank // (world // stages)
