"""Hold the rows of small runs back, and make the columns of many runs at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tracelake.formats.rank_trace import layout
from tracelake.formats.rank_trace.batches import Ids, Numbering, Texts, Unmade, build, width
from tracelake.formats.rank_trace.layout import Rows
from tracelake.kernels.numbers import Longs


def held(rows: Unmade) -> Unmade | None:
    """Return a copy of the rows; None if a line of theirs has a fault, which `build` finds."""
    tables = (rows.ops, layout.OP_DTYPE), (rows.comms, layout.COMM_DTYPE)
    if rows.texts.wrong.any() or any(_has_fault(table, d, rows.texts) for table, d in tables):
        return None
    return rows._replace(ops=_copy(rows.ops), comms=_copy(rows.comms))


def make(runs: Sequence[Unmade]) -> dict[str, pa.RecordBatch]:
    """Return the rows of runs, one after the other, by table."""
    fixed = [text.decode() for text in layout.TEXTS]
    names, keys, texts = ({name: i for i, name in enumerate(own)} for own in ((), (), fixed))
    ops, comms = [], []
    for run in runs:
        of_names, of_texts = _places(run.names, names), _places(run.texts, texts)
        of_keys = _places(run.keys, keys)
        op_ids = of_texts[run.ops.ids]
        op_ids[layout.OP] = of_names[run.ops.ids[layout.OP]]
        ops.append(run.ops._replace(ids=op_ids, keys=of_keys[run.ops.keys]))
        comm_ids = of_texts[run.comms.ids]
        comms.append(run.comms._replace(ids=comm_ids, keys=of_keys[run.comms.keys]))
    all_ops, all_comms = _joined(ops), _joined(comms)
    before = _starts(rows.size[layout.ROWS] for rows in ops)
    all_comms.wide[layout.OP_ROW] += np.repeat(before, [rows.size[layout.ROWS] for rows in comms])
    numbering = Numbering(*map(np.concatenate, zip(*(r.numbering for r in runs), strict=True)))
    unions = (Texts([*all_], np.zeros(len(all_), np.bool_)) for all_ in (names, keys, texts))
    made = build(Unmade(all_ops, all_comms, numbering, *unions))
    return {"ops": made[0], "comms": made[1]}


def _places(texts: Texts, among: dict[str, int]) -> Ids:
    """Return the place of each text among those of several runs, new ones at the end."""
    return np.array([among.setdefault(name, len(among)) for name in texts.names], np.int32)


def _has_fault(rows: Rows, dtype: int, texts: Texts) -> bool:
    """Return whether a value is perhaps not UTF-8, or a dtype unknown."""
    dtypes = rows.ids[dtype, : rows.size[layout.ROWS]]
    return bool(
        (rows.values[: rows.size[layout.VALUE_BYTES]] & 0x80).any()
        or ((dtypes > 0) & texts.lookup(dtypes, lambda name: width(name) is None)).any()
    )


def _copy(rows: Rows) -> Rows:
    """Return a copy of what is used of the columns."""
    used = {name: getattr(rows, name)[..., : rows.size[by]] for name, by in layout.COUNTED.items()}
    return Rows(**{name: array.copy() for name, array in used.items()}, size=rows.size.copy())


def _joined(runs: Sequence[Rows]) -> Rows:
    """Return the rows of runs, one after the other."""
    arrays = {
        name: np.concatenate([getattr(rows, name) for rows in runs], axis=-1)
        for name in layout.COUNTED
    }
    sizes = np.array([rows.size for rows in runs]).T
    before = [_starts(size) for size in sizes]
    arrays["wide"][layout.SHAPE_END] += np.repeat(before[layout.DIMENSIONS], sizes[layout.ROWS])
    arrays["wide"][layout.ATTRIBUTE_END] += np.repeat(before[layout.ATTRIBUTES], sizes[layout.ROWS])
    moved = np.repeat(before[layout.VALUE_BYTES], sizes[layout.ATTRIBUTES])
    arrays["ends"] += np.where(arrays["ends"] < 0, -moved, moved)
    return Rows(**arrays, size=sizes.sum(axis=1))


def _starts(sizes: Iterable[int]) -> Longs:
    """Return the sum of the sizes before each one."""
    counts = np.array([*sizes], np.int64)
    return np.cumsum(counts) - counts
