"""Rows of pipeline-training logs as batches of `layer_times` and `train_steps`."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.scan.compiled import kernel
from pipeline.scan.log_blocks import BLOCK, BY_PLACE, REJECTED
from pipeline.scan.log_lines import LAYER
from pipeline.schema import tables

Records = npt.NDArray[np.void]

_OF_RECORDS = ["line", "epoch", "step", "steps_per_epoch", "lr", "step_time_ns", "loss", "ppl"]
_SMALL = ["rank", "stage", "step", "layer_index"]
_LARGE = ["line", "ops", "total_ns", "avg_ns", "compute_part_ns", "comm_part_ns"]
_ATTRIBUTIONS = pa.array(["block", "merged", "merged_by_place"])


@kernel
def _take(
    pieces: Records,
    details: Records,
    owners: Records,
    small: npt.NDArray[np.int32],
    large: npt.NDArray[np.int64],
) -> int:
    """Copies the layer rows that have an owner into columns; how many there are.

    Args:
        small: int32 (5, n): rank, stage, step, index, and how: place in `_ATTRIBUTIONS`.
        large: int64 (7, n): line, calls, total, average, compute, comm, code.
    """
    n = 0
    for i in range(pieces.size):
        piece, owner = pieces[i], owners[i]
        if piece.kind == LAYER and owner.how != REJECTED:
            small[0, n], small[1, n], small[2, n] = owner.rank, owner.stage, owner.step
            small[3, n] = piece.place
            small[4, n] = 0 if owner.how == BLOCK else 2 if owner.how == BY_PLACE else 1
            detail = details[i]
            large[0, n], large[1, n] = piece.line, piece.count
            large[2, n], large[3, n] = detail.total, detail.avg
            large[4, n], large[5, n], large[6, n] = detail.compute, detail.comm, piece.code
            n += 1
    return n


def layer_rows(
    source_id: int, pieces: Records, details: Records, owners: Records, names: Mapping[int, str]
) -> pa.RecordBatch:
    """The layer rows of a window that have an owner, as a batch of `layer_times`.

    Args:
        pieces: `PIECE` records, with a `DETAIL` and an `OWNER` each.
        names: Layers whose code is not their number.
    """
    small, large = np.empty((5, pieces.size), np.int32), np.empty((7, pieces.size), np.int64)
    taken = _take(pieces, details, owners, small, large)
    *numbers, how = small[:, :taken]
    *longs, code = large[:, :taken]
    columns: dict[str, Any] = dict(zip(_SMALL + _LARGE, numbers + longs, strict=True))
    codes = pa.array(code).dictionary_encode()
    layers = [names.get(code) or str(code) for code in codes.dictionary.to_pylist()]
    columns["layer"] = pa.DictionaryArray.from_arrays(codes.indices, pa.array(layers, pa.string()))
    columns["attribution"] = pa.DictionaryArray.from_arrays(pa.array(how), _ATTRIBUTIONS)
    return _batch("layer_times", source_id, columns)


def step_rows(source_id: int, records: Records, copies: npt.NDArray[np.int32]) -> pa.RecordBatch:
    """Progress records as a batch of `train_steps`.

    Args:
        records: `PROGRESS` records.
        copies: How often the epoch and step of each came before it.
    """
    columns = {name: records[name] for name in _OF_RECORDS}
    columns["copy"] = copies
    columns["batches_covered"] = np.where(records["step"] == 1, 2, 1)
    return _batch("train_steps", source_id, columns)


def _batch(table: str, source_id: int, columns: dict[str, Any]) -> pa.RecordBatch:
    schema = tables()[table].storage_schema
    source = pa.scalar(source_id, pa.int32())
    columns["source_id"] = pa.repeat(source, len(columns["line"]))
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: npt.NDArray[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as Arrow has it; a negative whole number was not printed."""
    if isinstance(values, pa.Array):
        return values
    stored = values.astype(kind.to_pandas_dtype(), copy=False)
    if not stored.size or stored.dtype.kind == "f" or stored.min() >= 0:
        return pa.array(stored)
    if stored.max() < 0:
        return pa.nulls(stored.size, kind)
    return pa.array(stored, mask=stored < 0)
