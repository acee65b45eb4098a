"""Convert layer rows of a workload plan to columns: three passes per row, and micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from tracelake.formats.aicb_workload.rows import Layers
from tracelake.kernels.arrow import Mask
from tracelake.kernels.numbers import Longs
from tracelake.schema.tables import tables

# Of each pass, the group of a collective without a suffix.
PASSES = {"forward": "tp", "input_grad": "tp", "weight_grad": "dp"}
_WIDTH = len(PASSES)

_WORDS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}
_SUFFIXES = {"": None, "_EP": "expert", "_DP_EP": "dp_ep"}
_Meaning = tuple[str | None, str | None]  # a collective and its group
_MEANINGS: Sequence[Mapping[str, _Meaning]] = [
    {
        word + suffix: (collective, group or default)
        for (word, collective), (suffix, group) in product(_WORDS.items(), _SUFFIXES.items())
    }
    for default in PASSES.values()
]
_NOTHING: _Meaning = (None, None)


@dataclass(frozen=True, slots=True)
class Rows:
    """Layer rows of a plan.

    Attributes:
        line: Number of each row's line.
        row: Number of the row.
        which: Index of its layer.
    """

    line: Longs
    row: Longs
    which: Longs
    layers: Layers


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` blocks of `length` rows each, from row `first` on."""

    first: int
    length: int
    count: int

    def places(self, rows: Longs) -> tuple[Longs, Mask]:
        """Return each row's distance from the first block's start, and whether it is in a block."""
        places = rows - self.first
        return places, (places >= 0) & (places < self.count * self.length)


def find_repeat(rows: Longs, layers: Longs, count: int) -> Repeat | None:
    """Return the blocks that a layer begins.

    Args:
        rows: Numbers of all rows of the plan.
        layers: A number for the name of each row's layer: 0 for the one that begins a block.
        count: Number of blocks there must be, at least 2.

    Returns:
        None unless exactly so many rows have that name, at equal distance, with the same layers
        between them.
    """
    starts = rows[layers == 0]
    if len(starts) != count or (np.diff(starts, 2) != 0).any():
        return None
    repeat = Repeat(int(starts[0]), int(starts[1] - starts[0]), count)
    places, inside = repeat.places(rows)
    _, example, kind = np.unique(
        places[inside] % repeat.length, return_index=True, return_inverse=True
    )
    found = layers[inside]
    return repeat if (found == found[example][kind]).all() else None


def pass_rows(rows: Rows, source_id: int, repeat: Repeat | None) -> pa.RecordBatch:
    """Return the passes of rows, three of each, as a batch of `workload_passes`.

    Args:
        repeat: The plan's micro-batches, if it has any.
    """
    table = tables()["workload_passes"]
    types = table.storage_types
    layers, each = rows.layers, np.arange(_WIDTH)
    of_layer = np.repeat(rows.which, _WIDTH)
    of_pass = (_WIDTH * rows.which[:, None] + each).ravel()
    words = layers.comm.dictionary.to_pylist()
    meanings = [known.get(word, _NOTHING) for known in _MEANINGS for word in words]
    meant = (layers.comm.indices.to_numpy().reshape(-1, _WIDTH) + each * len(words)).ravel()
    meaning = meant.take(of_pass)
    collectives, groups = zip(*meanings, strict=True)
    without = np.array([collective is None for collective in collectives]).take(meaning)
    size = layers.size.take(of_pass)
    columns: dict[str, Any] = {
        "source_id": np.full(of_pass.size, source_id, np.int32),
        "line": np.repeat(rows.line, _WIDTH),
        "row": np.repeat(rows.row.astype(np.int32), _WIDTH),
        "layer": layers.name.take(pa.array(of_layer)),
        "pass": pa.array([*PASSES], types["pass"]).take(pa.array(np.tile(each, rows.line.size))),
        "compute_ns": layers.compute_ns.take(of_pass),
        "collective": pa.array(collectives, types["collective"]).take(pa.array(meaning)),
        "group_kind": pa.array(groups, types["group_kind"]).take(pa.array(meaning)),
        "bytes": pa.array(size, mask=without),
        "raw_comm": layers.comm.take(pa.array(of_pass)),
        "raw_bytes": size,
        "update_ns": layers.update_ns.take(of_layer),
    }
    if any(layers.attributes):
        attributes = pa.array(layers.attributes, types["attributes"])
        columns["attributes"] = attributes.take(pa.array(of_layer))
    if repeat is not None:
        places, inside = repeat.places(rows.row)
        outside = np.repeat(~inside, _WIDTH)
        blocks, index = np.divmod(places, repeat.length)
        for name, part in (("micro_batch", blocks), ("layer_index", index)):
            columns[name] = pa.array(np.repeat(part.astype(np.int32), _WIDTH), mask=outside)
    return table.batch(columns)
