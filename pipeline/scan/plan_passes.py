"""Layer rows of a workload plan as Arrow columns: three passes per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from pipeline.scan import arrow
from pipeline.scan.lines import NULL
from pipeline.scan.plan_repeats import Repeat
from pipeline.scan.plan_rows import DEPENDENCY, EXTENSION, Records, spread_passes
from pipeline.scan.plan_words import COLLECTIVES, GROUPS, MEANING, PASSES

_WIDTH = len(PASSES)
_NUMBERS = np.arange(_WIDTH, dtype=np.int32)
_NAMES = pa.array(PASSES)


def pass_columns(rows: Records, words: Sequence[str], repeat: Repeat | None) -> dict[str, pa.Array]:
    """Columns of `workload_passes` that the rows alone give, 3 values per row.

    Args:
        rows: `ROW` records whose communication tokens begin with those of COMM_WORDS.
        words: Text by token.
        repeat: The plan's micro-batches, where it has any.
    """
    size = len(rows) * _WIDTH
    indices = np.empty((5, size), np.int32)
    values = np.empty((5, size), np.int64)
    spread_passes(rows, MEANING, indices, values)
    row, layer, comm, collective, group = indices
    line, compute, written, moved, update = values
    micro_batch, layer_index = _blocks(rows, repeat)
    return {
        "line": pa.array(line),
        "row": pa.array(row),
        "layer": arrow.words(layer, words),
        "layer_index": layer_index,
        "micro_batch": micro_batch,
        "pass": pa.DictionaryArray.from_arrays(np.tile(_NUMBERS, len(rows)), _NAMES),
        "compute_ns": pa.array(compute),
        "collective": arrow.words(collective, COLLECTIVES),
        "group_kind": arrow.words(group, GROUPS),
        "bytes": arrow.numbers(moved, pa.int64()),
        "raw_comm": arrow.words(comm, words),
        "raw_bytes": pa.array(written),
        "update_ns": pa.array(update),
    }


def attribute_column(rows: Records, describe: Callable[[list[int]], dict[str, str]]) -> pa.Array:
    """Maps for every pass, of what stands in the rows beyond the other columns.

    Args:
        rows: `ROW` records.
        describe: Gives the map for tokens of a dependency and an extension; called once for each
            pair that occurs.
    """
    kind = pa.map_(pa.string(), pa.string())
    written = rows["words"][:, DEPENDENCY : EXTENSION + 1]
    if (written < 0).all():
        return pa.nulls(len(rows) * _WIDTH, kind)
    distinct, where = np.unique(written, axis=0, return_inverse=True)
    maps = [list(describe(tokens).items()) or None for tokens in distinct.tolist()]
    return pa.array(maps, kind).take(pa.array(np.repeat(where.ravel(), _WIDTH)))


def _blocks(rows: Records, repeat: Repeat | None) -> tuple[pa.Array, pa.Array]:
    """Number of the micro-batch and place in it."""
    if repeat is None:
        nothing = pa.nulls(len(rows) * _WIDTH, pa.int32())
        return nothing, nothing
    places, inside = repeat.places(rows)
    found = [np.where(inside, part, NULL) for part in np.divmod(places, repeat.length)]
    block, place = (arrow.numbers(np.repeat(part, _WIDTH), pa.int32()) for part in found)
    return block, place
