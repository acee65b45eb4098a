"""Group runs into batches: runs that share a tar together, and several small runs at once.

The small runs of a batch are a group of the lake: their rows are written together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tracelake.base.packing import packed
from tracelake.ingest.run_plan import RunPlan
from tracelake.ingest.sniff import InputFile
from tracelake.lake.manifest import group_name
from tracelake.storage.store_path import is_uri

Bundle = Sequence[RunPlan]
"""A run, or all runs that share a tar, which is read once, from beginning to end."""

Batch = Sequence[Bundle]
"""Bundles that are submitted together."""

# Limits of a batch of small runs: submitting a batch costs some milliseconds, and the batch of a
# lost worker is read again.
_BYTES = 64 << 20
_FILES = 512
# A batch of fewer is not worth a worker, and its parts would be small.
_FEW_BYTES = 4 << 20
_FEW_FILES = 64
# Rows of a run with more bytes fill a part of their own.
_SMALL_BYTES = 4 << 20
# Batches per worker, so that all end at about the same time.
_ROUNDS = 4


def batches(plans: Sequence[RunPlan], width: int) -> Iterator[Batch]:
    """Divide runs into batches, in order.

    Args:
        width: Batches that are parsed at the same time.
    """
    rounds = _ROUNDS * width
    most_bytes = min(_BYTES, max(_FEW_BYTES, sum(p.weight for p in plans) // rounds))
    most_files = min(_FILES, max(_FEW_FILES, sum(len(p.sources) for p in plans) // rounds))
    of_bytes = (lambda bundle: sum(p.weight for p in bundle), most_bytes)
    of_files = (lambda bundle: sum(len(p.sources) for p in bundle), most_files)
    return map(_grouped, packed(_bundles(plans), of_bytes, of_files))


def _grouped(batch: Batch) -> Batch:
    """Return a batch in order of run id, in which all small runs are one group."""
    small = [p.run_id for bundle in batch for p in bundle if _is_small(p)]
    bundles = [sorted(bundle, key=lambda p: p.run_id) for bundle in batch]
    if len(small) > 1:
        name = group_name(small)
        bundles = [
            [replace(p, group=name, together=True) if _is_small(p) else p for p in bundle]
            for bundle in bundles
        ]
    return sorted(bundles, key=lambda bundle: bundle[0].run_id)


def _is_small(p: RunPlan) -> bool:
    return p.status.is_read and p.weight < _SMALL_BYTES


def portable(batch: Batch) -> Batch:
    """Return a batch to send to another process, without the records of known inputs."""
    return [
        [
            replace(
                p,
                sources=tuple(map(_portable, p.sources)),
                duplicates=tuple((_portable(copy), source) for copy, source in p.duplicates),
                replaces=(),
                missing=(),
            )
            for p in bundle
        ]
        for bundle in batch
    ]


def _portable(file: InputFile) -> InputFile:
    entry = file.entry
    location = entry.location if is_uri(entry.location) else os.path.abspath(entry.location)
    here = entry._replace(location=location, copy="")
    return file._replace(entry=here, known=None)


def _bundles(plans: Sequence[RunPlan]) -> list[list[RunPlan]]:
    """Return one bundle per run; runs that share a tar are one bundle."""
    bundle_of: dict[str, list[RunPlan]] = {}
    bundles: dict[int, list[RunPlan]] = {}
    for p in plans:
        tars = {c.entry.location for c in p.sources if c.entry.packed}
        joined = {id(bundle_of[tar]): bundle_of[tar] for tar in tars if tar in bundle_of}
        bundle = next(iter(joined.values()), [])
        bundles[id(bundle)] = bundle
        for other in list(joined.values())[1:]:
            bundle.extend(bundles.pop(id(other)))
            bundle_of.update({tar: bundle for tar, owner in bundle_of.items() if owner is other})
        bundle.append(p)
        bundle_of.update(dict.fromkeys(tars, bundle))
    return list(bundles.values())
