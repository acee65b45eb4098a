"""Make the row of a run in `runs` from its files, its lines and the user's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracelake.formats import RunFacts
from tracelake.ingest.labels import label_of_run
from tracelake.ingest.plan import RunPlan
from tracelake.schema import topology

# Sizes in the order in which `runs.config` has them.
_CONFIG_SIZES = (
    *("world_size", "tp", "pp", "dp", "cp", "ep", "vpp"),
    *("micro_batches", "micro_batch_size", "global_batch_size", "layers"),
)


def is_complete(facts: RunFacts) -> bool | None:
    """Return whether everything expected is there; False for a per-rank run of unknown size."""
    if facts.ranks is None and facts.ranks_expected is None:
        return facts.ended
    if facts.ranks_expected is None:
        return False
    return facts.ended is not False and len(facts.ranks or ()) >= facts.ranks_expected


def run_row(
    plan: RunPlan, facts: RunFacts, complete: bool | None, fabric: str | None
) -> dict[str, Any]:
    """Return the run's values by column of `runs`."""
    run = plan.run
    sizes, origin = topology.resolve(printed=facts.topology, named=run.named, given=run.given)
    first = min(run.sources, key=lambda s: (s.rank is None, s.rank or 0, s.path))
    return {
        **{key: sizes.get(key) for key in topology.KEYS},
        "format": plan.format.name,
        "name": first.stem,
        "label": label_of_run(run.sources),
        "config": _config(plan.format.name, facts, sizes),
        "run_date": first.stamp,
        "date_source": None if first.stamp is None else plan.format.dated_by,
        "model": facts.model,
        "params": facts.params,
        "topology_source": sorted(origin.items()),
        "ranks_seen": None if facts.ranks is None else len(facts.ranks),
        "ranks_expected": facts.ranks_expected,
        "complete": complete,
        "simulated": facts.simulated,
        "profiled": facts.profiled,
        "fabric": fabric or None,
        "attributes": sorted(facts.attributes.items()),
    }


def _config(format_name: str, facts: RunFacts, sizes: Mapping[str, int]) -> str:
    """Returns what makes runs comparable as `key=value` words; what is not known is left out."""
    tokenizer = facts.attributes.get("tokenizer")
    values: dict[str, object] = {
        "format": format_name,
        "simulated": "true" if facts.simulated else None,
        "model": facts.model,
        "tokenizer": None if tokenizer is None else tokenizer.lower(),
        **{key: sizes.get(key) for key in _CONFIG_SIZES},
        "tensor": facts.signature,
    }
    words = ((key, "_".join(str(v).split())) for key, v in values.items() if v is not None)
    return " ".join(f"{key}={value}" for key, value in words)
