"""Convert what the scan found in pipeline-training logs to rows."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.formats.optimus import scan
from tracelake.kernels import arrow
from tracelake.kernels.compiled import kernel
from tracelake.kernels.numbers import Bytes, Floats, Longs
from tracelake.schema.tables import tables

_OF_PIECES = {
    "line": scan.LINE,
    "rank": scan.RANK,
    "stage": scan.STAGE,
    "step": scan.STEP,
    "layer_index": scan.INDEX,
    "ops": scan.CALLS,
    "total_ns": scan.TOTAL,
    "avg_ns": scan.AVG,
    "compute_part_ns": scan.COMPUTE,
    "comm_part_ns": scan.COMM,
}
_ATTRIBUTIONS = ["block", "merged", "merged_by_place"]
_OF_RECORDS = {
    "line": scan.AT_LINE,
    "epoch": scan.EPOCH,
    "step": scan.NUMBER,
    "steps_per_epoch": scan.NUMBERS,
    "step_time_ns": scan.TIME,
}
_FLOATS = ["lr", "loss", "ppl"]
_TEXT = re.compile(rb"(?:lr|loss|ppl) *(-?(?:nan|inf|\d*\.?\d*(?:e[+-]?\d+)?))")
_TEXT_BYTES = 4096
_RECENT = 1 << 12
_STEP_BITS = 32  # the key of a record is its epoch, then its step


class Layers(dict[int, str]):
    """Names of layers by code; the others are numbers."""

    def __missing__(self, code: int) -> str:
        return str(code - 1)


def layer_rows(pieces: Longs, names: Layers) -> pa.RecordBatch:
    """Return the layer rows of a window that have an owner; NULL is what they do not print."""
    given = np.flatnonzero((pieces[scan.KIND] == scan.LAYER) & (pieces[scan.FATE] < 0))
    table = tables()["layer_times"]
    columns = {
        name: arrow.numbers(pieces[row], table.storage_types[name], given)
        for name, row in _OF_PIECES.items()
    }
    columns["source_id"] = pa.array(np.zeros(given.size, np.int32))
    columns["layer"] = arrow.words(pieces[scan.CODE].take(given), names)
    columns["attribution"] = arrow.words(~pieces[scan.FATE].take(given), _ATTRIBUTIONS)
    return table.batch(columns)


class Steps:
    """Converts the progress records of a log; of a step that is repeated it counts the copies."""

    def __init__(self) -> None:
        self._recent = np.zeros((_RECENT, 2), np.int64)
        self._total = np.array([0, -1])

    def rows(self, data: Bytes, records: Longs, floats: Floats) -> pa.RecordBatch:
        """Return records and their floats as a batch of `train_steps`, which refers to them."""
        for i in np.flatnonzero(records[scan.TEXT] >= 0).tolist():
            # Python prints up to 309 digits before the point.
            text = data[records[scan.TEXT, i] :][:_TEXT_BYTES].tobytes()
            floats[:, i] = [float(value) for value in _TEXT.findall(text)[: len(_FLOATS)]]
        copies = np.empty(records.shape[1], np.int32)
        keys = (records[scan.EPOCH] << _STEP_BITS) | records[scan.NUMBER]
        _number_copies(keys, self._recent, self._total, copies)
        columns = {name: records[row] for name, row in _OF_RECORDS.items()} | {
            "source_id": np.zeros(copies.size, np.int32),
            "copy": copies,
            "batches_covered": np.where(records[scan.NUMBER] == 1, 2, 1),
            **dict(zip(_FLOATS, floats, strict=True)),
        }
        return tables()["train_steps"].batch(columns)


@kernel
def _number_copies(keys: Longs, recent: Longs, total: Longs, copies: npt.NDArray[np.int32]) -> None:
    """Write for each progress record how often its key came before it.

    Args:
        recent: The latest distinct keys, and the copy that the latest record with each is.
        total: Number of distinct keys, and the highest one.
    """
    for i in range(keys.size):
        k, oldest = total[0] - 1, max(0, total[0] - _RECENT)
        if keys[i] > total[1]:  # higher than any: cannot be a repeat
            k, total[1] = oldest - 1, keys[i]
        while k >= oldest and recent[k % _RECENT, 0] != keys[i]:
            k -= 1
        if k < oldest:
            k = total[0]
            recent[k % _RECENT, 0], recent[k % _RECENT, 1] = keys[i], -1
            total[0] += 1
        recent[k % _RECENT, 1] += 1
        copies[i] = recent[k % _RECENT, 1]
