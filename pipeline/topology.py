"""Resolve the sizes of a parallel job, the source of each, and the stage of a rank."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.errors import UsageError

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


def parse_set(text: str) -> dict[str, int]:
    """Read the value of `--set`, e.g. `tp=2,pp=4`.

    Raises:
        UsageError: Not a list of known keys with positive whole numbers.
    """
    given: dict[str, int] = {}
    for piece in filter(None, (p.strip() for p in text.split(","))):
        key, equals, value = (s.strip() for s in piece.partition("="))
        if key not in KEYS:
            raise UsageError(f"--set: unknown key {key!r}", hint=f"one of {', '.join(KEYS)}")
        if not equals or not value.isascii() or not value.isdigit() or int(value) < 1:
            raise UsageError(f"--set: {piece!r} is not {key}=NUMBER with a positive whole number")
        given[key] = int(value)
    return given


def resolve(
    *, printed: Mapping[str, int], named: Mapping[str, int], given: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, str]]:
    """Merge the known topology of a run: set over printed over name, then derived values.

    Derived: world_size = tp * pp * dp * cp and dp = world_size / (tp * pp * cp), with cp = 1 unless
    known; micro_batches = global_batch_size / (micro_batch_size * dp) where that divides.

    Returns:
        Values by key, and by key the source: `set`, `printed`, `name` or `derived`.
    """
    values: dict[str, int] = {}
    sources: dict[str, str] = {}
    for source, known in (("name", named), ("printed", printed), ("set", given)):
        for key, value in known.items():
            values[key], sources[key] = value, source

    def derive(key: str, numerator: int, denominator: int = 1) -> None:
        if key not in values and numerator % denominator == 0 and numerator >= denominator:
            values[key], sources[key] = numerator // denominator, "derived"

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
    if world is None or stages is None or world % stages or not 0 <= rank < world:
        return None
    return rank // (world // stages)
