"""Convert rows of pipeline-training logs to batches of `layer_times` and `train_steps`."""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.formats.optimus.blocks import BLOCK, BY_PLACE, REJECTED
from tracelake.formats.optimus.lines import LAYER
from tracelake.kernels import arrow
from tracelake.kernels.compiled import kernel
from tracelake.kernels.numbers import NULL
from tracelake.schema.tables import tables

Records = npt.NDArray[np.void]

_OF_RECORDS = ["line", "epoch", "step", "steps_per_epoch", "lr", "step_time_ns", "loss", "ppl"]
_SMALL = ["source_id", "rank", "stage", "step"]
_LARGE = ["line", "layer_index", "ops", "total_ns", "avg_ns", "compute_part_ns", "comm_part_ns"]
_ATTRIBUTIONS = ["block", "merged", "merged_by_place"]


@kernel
def _take(
    pieces: Records,
    details: Records,
    owners: Records,
    source_id: int,
    small: npt.NDArray[np.int32],
    large: npt.NDArray[np.int64],
    missing: npt.NDArray[np.int64],
    turns: npt.NDArray[np.int32],
) -> tuple[int, int]:
    """Copy the layer rows that have an owner into columns.

    Args:
        small: int32 (6, n) out: columns of `_SMALL`, code of the layer, place in `_ATTRIBUTIONS`.
        large: int64 (7, n) out: columns of `_LARGE`, NULL for what was not printed.
        missing: int64 (7) out: number of NULLs.
        turns: int32 (n) out: the rank of the first row, and of each whose rank is another than that
            of the row before.

    Returns:
        Rows, and turns.
    """
    n = turned = 0
    missing[:] = 0
    for i in range(pieces.size):
        piece, owner = pieces[i], owners[i]
        if piece.kind == LAYER and owner.how != REJECTED:
            small[0, n], small[1, n], small[2, n] = source_id, owner.rank, owner.stage
            small[3, n], small[4, n] = owner.step, piece.code
            small[5, n] = 0 if owner.how == BLOCK else 2 if owner.how == BY_PLACE else 1
            detail = details[i]
            large[0, n], large[1, n], large[2, n] = piece.line, piece.place, piece.count
            large[3, n], large[4, n] = detail.total, detail.avg
            large[5, n], large[6, n] = detail.compute, detail.comm
            for k in range(1, 7):
                if large[k, n] < 0:
                    large[k, n] = NULL
                    missing[k] += 1
            if n == 0 or owner.rank != small[1, n - 1]:
                turns[turned] = owner.rank
                turned += 1
            n += 1
    return n, turned


class Layers(dict[int, str]):
    """Names of layers by code; one without a name has its number, which is the code."""

    def __missing__(self, code: int) -> str:
        return str(code)


def layer_rows(
    source_id: int, pieces: Records, details: Records, owners: Records, names: Layers
) -> tuple[pa.RecordBatch, set[int]]:
    """Return the layer rows of a window that have an owner.

    Args:
        pieces: `PIECE` records, with a `DETAIL` and an `OWNER` each.
        names: Of layers.

    Returns:
        A batch of `layer_times`, and the ranks in it.
    """
    small, large = np.empty((6, pieces.size), np.int32), np.empty((7, pieces.size), np.int64)
    missing, turns = np.empty(len(_LARGE), np.int64), np.empty(pieces.size, np.int32)
    taken, turned = _take(pieces, details, owners, source_id, small, large, missing, turns)
    table = tables()["layer_times"]
    *numbers, code, how = small[:, :taken]
    columns = {name: pa.array(column) for name, column in zip(_SMALL, numbers, strict=True)}
    for name, column, absent in zip(_LARGE, large[:, :taken], missing.tolist(), strict=True):
        columns[name] = arrow.counted(column, table.storage_types[name], absent)
    columns["layer"] = arrow.words(code, names)
    columns["attribution"] = arrow.words(how, _ATTRIBUTIONS)
    return table.batch(columns), set(turns[:turned].tolist())


def step_rows(source_id: int, records: Records, copies: npt.NDArray[np.int32]) -> pa.RecordBatch:
    """Return progress records as a batch of `train_steps`; NULL is what they do not print.

    Args:
        records: `PROGRESS` records.
        copies: How often the epoch and step of each came before it.
    """
    columns = {name: records[name] for name in _OF_RECORDS} | {
        "source_id": np.full(records.size, source_id),
        "copy": copies,
        "batches_covered": np.where(records["step"] == 1, 2, 1),
    }
    return tables()["train_steps"].batch(columns)
