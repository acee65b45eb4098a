"""Traces of ByteDance-Seed/StragglerAnalysis: `trace-X.parquet`, and `meta-X.yaml` with its sizes.

The trace has a row per operation of one rank of each tensor-parallel group. Times are seconds as
float32 from the start of the step, so steps are placed one after another here. Operations of a rank
run on several streams. `line` is the number of the row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tracelake.formats import Claim, FileFacts, Format, Run, RunFacts
from tracelake.formats.documents import BadDocumentError, DocumentParser, Documents, Tables

_SIZES = {
    "world_size": "world_size",
    "dp_size": "dp",
    "pp_size": "pp",
    "tp_size": "tp",
    "vpp_size": "vpp",
}
_META = re.compile(
    rb"""(?m)^(?:\xef\xbb\xbf)?([a-z_]+):[ \t]*["']?([^\s"'#]*)["']?[ \t]*(?:#.*)?\r?$"""
)
_MAGIC = b"PAR1"


def _sniff(head: bytes) -> Claim:
    if head.startswith(_MAGIC):
        return Claim.MAYBE
    if b"trial_name" not in head:
        return Claim.NO
    keys = {key for key, _ in _META.findall(head[:4096])}
    return Claim.YES if {b"trial_name", b"dp_size", b"pp_size"} <= keys else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    del head
    name = PurePosixPath(path).stem
    return FileFacts(path, name.removeprefix("trace-").removeprefix("meta-") or name)


def _group(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Join a trace and the sizes of the same name in the same folder."""
    del gap_seconds
    found: dict[tuple[str, str], list[FileFacts]] = {}
    for file in files:
        found.setdefault((str(PurePosixPath(file.path).parent), file.stem), []).append(file)
    return list(found.values())


def _read(run: Run, documents: Documents) -> tuple[RunFacts, Tables]:
    """Return facts and rows of a run."""
    from tracelake.formats.straggler_analysis.rows import (  # noqa: PLC0415 - imports polars
        read_traces,
    )

    del run
    meta: dict[str, str] = {}
    traces: dict[int, bytes] = {}
    for source, data in documents.items():
        if data.startswith(_MAGIC):
            traces[source] = data
        else:
            found = _META.findall(data)
            meta |= {key.decode(): value.decode(errors="replace") for key, value in found}
    sizes = {
        key: int(meta[name])
        for name, key in _SIZES.items()
        if meta.get(name, "").isascii() and meta.get(name, "").isdigit() and len(meta[name]) < 9
    }
    try:
        ranks, whole, batches, rows = read_traces(traces, sizes.get("vpp", 1))
    except BadDocumentError as error:
        if error.reason == "not_parquet" and not meta:  # nothing says that it was a trace
            raise BadDocumentError("other_parquet", foreign=True) from error
        raise
    facts = RunFacts(
        topology={**sizes, **batches},
        ranks=ranks,
        # A worker of each data-parallel rank and stage has rows.
        ranks_expected=sizes["dp"] * sizes["pp"] if {"dp", "pp"} <= sizes.keys() else None,
        ended=whole,
        simulated=False,
        attributes={"trial_name": meta["trial_name"]} if meta.get("trial_name") else {},
    )
    return facts, rows


FORMAT = Format(
    name="straggler_analysis",
    doc="Published traces of StragglerAnalysis: Parquet with a row per operation, and its sizes.",
    version=2,
    tables=("ops", "comms"),
    sniff=_sniff,
    facts=_facts,
    group=_group,
    parser=lambda run, ledger: DocumentParser(_read, run, ledger),
    rejects={
        "not_parquet": "The file is no Parquet, or is damaged.",
        "other_columns": "A column of the trace has another type.",
        "out_of_range": "A value of the trace is missing, negative or too large.",
        "ranks_contradict": "A rank has several places, or a place several ranks.",
    },
    irrelevant={
        "other_parquet": "A Parquet file that is no trace, or is damaged without sizes beside it.",
        "unread": "The rest of a document that cannot be read.",
    },
    volume="document",
    clock_tick_ns=10_000,
)
