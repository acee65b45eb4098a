"""Make the row of a run in `runs` from its files, its lines and the user's options."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tracelake.formats import FileFacts, RunFacts
from tracelake.formats.starts import stamp_in
from tracelake.ingest.run_plan import RunPlan
from tracelake.schema import topology
from tracelake.schema.tables import PARTITION_KEY

# Sizes in the order in which `runs.config` has them.
_CONFIG_SIZES = (
    *("world_size", "tp", "pp", "dp", "cp", "ep", "vpp"),
    *("micro_batches", "micro_batch_size", "global_batch_size", "layers"),
)
_LABEL_LENGTH = 80
# A scheduler's job: slurm-4711.out, slurm_4711_3, job-4711, jobid=4711.
_SLURM = re.compile(r"(?:slurm|job|jobid|job_id)[-_.=]\d{3,}(?:_\d+)?", re.IGNORECASE)
# Folders that are named for what is in them, not for a job.
_GENERIC = re.compile(
    r"\.+|logs?|traces?|data|outputs?|out|stdout|stderr|results?|profiles?|raw|files?"
    r"|(?:ranks?|workers?|stages?|nodes?|hosts?|gpus?|tp|pp|dp)[-_]?\d*"
    # torchrun --log-dir: a job without a name, and the attempt; torchtitan.
    r"|none_\w{8}|attempt_\d+|structured_logs",
    re.IGNORECASE,
)
# A folder of a night or a start: 2026-01-28, 20260128-010702, 12-30-45.
_DATED = re.compile(
    r"20\d\d[-_.]?\d\d[-_.]?\d\d(?:[-_.T]?\d\d[-_.]?\d\d(?:[-_.]?\d\d)?)?|\d\d([-_.])\d\d\1\d\d",
    re.ASCII,
)
_PROCESS = re.compile(r"\b(attempt_\d+)/\d+$", re.ASCII)
_NUMBERED = re.compile(r".*\d", re.DOTALL)
# A folder that is named for a run or job although its files have names of their own.
_JOB = re.compile(r"(?:job|run|exp|experiment|trial|night|jobid)[-_.]?\w*\d\w*", re.IGNORECASE)
_PACKED = re.compile(r"\.(?:tar|tgz|zip|tar\.\w+)$", re.IGNORECASE)


def is_complete(facts: RunFacts) -> bool | None:
    """Return whether everything expected is there; False for a per-rank run of unknown size."""
    if facts.ranks is None and facts.ranks_expected is None:
        return facts.ended
    if facts.ranks_expected is None:
        return False
    return facts.ended is not False and len(facts.ranks or ()) >= facts.ranks_expected


def run_row(plan: RunPlan, facts: RunFacts, fabric: str | None) -> dict[str, Any]:
    """Return the run's values by column of `runs`."""
    run = plan.run
    sizes, origin = topology.resolve(printed=facts.topology, named=run.named, given=run.given)
    ordered = sorted(run.sources, key=lambda s: (s.order, s.path))
    first = ordered[0]
    stamp = next((source.stamp for source in ordered if source.stamp), None)
    date = stamp or stamp_in(first.path)
    dated_by = plan.format.dated_by if stamp else "name"
    return {
        PARTITION_KEY: plan.run_id,
        **{key: sizes.get(key) for key in topology.KEYS},
        "format": plan.format.name,
        "name": first.stem,
        "label": _label([source for source in ordered if not source.beside], first),
        "config": _config(plan.format.name, facts, sizes),
        "run_date": date,
        "date_source": dated_by if date else None,
        "model": facts.model,
        "params": facts.params,
        "topology_source": sorted(origin.items()),
        "ranks_seen": None if facts.ranks is None else len(facts.ranks),
        "ranks_expected": facts.ranks_expected,
        "complete": is_complete(facts),
        "simulated": facts.simulated,
        "profiled": facts.profiled,
        "fabric": fabric or None,
        "attributes": sorted(facts.attributes.items()),
        "clock_tick_ns": plan.format.clock_tick_ns,
    }


def _config(format_name: str, facts: RunFacts, sizes: Mapping[str, int]) -> str:
    """Return what makes runs comparable as `key=value` words; what is not known is left out."""
    tokenizer = facts.attributes.get("tokenizer")
    values: dict[str, object] = {
        "format": format_name,
        "simulated": "true" if facts.simulated else None,
        "model": facts.model,
        "params": facts.params if facts.model is None else None,
        "tokenizer": None if tokenizer is None else tokenizer.lower(),
        **{key: sizes.get(key) for key in _CONFIG_SIZES},
        "hidden": facts.attributes.get("hidden_size"),
        "ffn": facts.attributes.get("ffn_hidden_size"),
        "experts": facts.attributes.get("num_experts"),
        "sequence": facts.attributes.get("seq_length"),
        "tensor": facts.signature,
    }
    words = ((key, "_".join(str(v).split())) for key, v in values.items() if v is not None)
    return " ".join(f"{key}={value}" for key, value in words)


def _label(sources: Sequence[FileFacts], first: FileFacts) -> str:
    """Return what people call a run of these files.

    That is the value of `--run-pattern`'s group `run`, else a Slurm job in the path, else the
    job's folder (that of a date only where there is no other), else the name. It depends on the
    run's own files only, so that a run has the same label whatever is ingested with it.
    """
    if first.run:
        return first.run[:_LABEL_LENGTH]
    hosts = {source.host for source in sources if source.host}
    folders = _folders(sources, hosts)
    file_name = posixpath.basename(first.path) if len(sources) == 1 else ""
    for piece in filter(None, [file_name, *reversed(folders)]):
        if found := _SLURM.search(piece):
            return found[0][:_LABEL_LENGTH]
    # What is dated tells the runs of a job from each other, not the job.
    folders = [piece for piece in folders if _DATED.fullmatch(piece) is None] or folders
    # The folder of a run of one file may say less than the file's name.
    alone = first.rank is None and _NUMBERED.match(first.stem)
    if folders and (not alone or _JOB.fullmatch(folders[-1])):
        return folders[-1][:_LABEL_LENGTH]
    return first.stem[:_LABEL_LENGTH] or "run"


def _folders(sources: Sequence[FileFacts], hosts: set[str]) -> list[str]:
    """Return the folders that all files share, the innermost last, without hosts and the like."""
    shared = os.path.commonpath([posixpath.dirname(source.path) or "." for source in sources])
    pieces = [_PACKED.sub("", piece) for piece in _PROCESS.sub(r"\1", shared).split("/")]
    return [
        piece
        for piece in pieces
        if piece and piece not in hosts and _GENERIC.fullmatch(piece) is None
    ]
