"""Make record batches of `ops` and `comms` from the columns of rank-trace kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracelake.formats.rank_trace import layout
from tracelake.formats.rank_trace.layout import KINDS, PASSES, Rows
from tracelake.kernels import arrow
from tracelake.kernels.arrow import Mask
from tracelake.kernels.numbers import NULL, Longs
from tracelake.kernels.tokens import TokenTable
from tracelake.schema.tables import tables

Ids = npt.NDArray[np.int32]

GROUPS = {
    "ep": "embedding",
    "pep": "position_embedding",
    "exp": "expert",
    "exp_dp": "expert_dp",
    "ep_dp": "expert_dp",
}
"""Group as printed -> its kind; other spellings are used unchanged."""

_OP_GROUPS = {
    f"{printed}_allreduce": GROUPS.get(printed, printed)
    for printed in ("dp", "exp_dp", "ep_dp", "ep", "pep")
}
_COLLECTIVES = {
    spelling: name
    for name in (
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
        *("broadcast", "reduce", "send", "recv"),
    )
    for spelling in (name, name.replace("_", ""))
}
_CATEGORIES = {
    "forward_step": "compute",
    "backward_step": "compute",
    "loss_func": "compute",
    "get_batch": "data",
    "optimizer_step": "optimizer",
    "ddp_grad_comm": "collective",
}
_OVERLAPPED = "_bwd_async"
CLOCK_TICK_NS = 10_000
"""Traces print milliseconds with two decimals."""
_WIDTHS = {
    **dict.fromkeys(("float64", "int64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}


def group_of_op(op: str) -> str | None:
    """Return group of an operation that is itself a communication."""
    return "pp" if op.startswith(("send_", "recv_")) else _OP_GROUPS.get(op)


def collective(func: str) -> str | None:
    """Return collective by the spelling of a function, or by an operation that is one."""
    if func.startswith(("send_", "recv_")):
        return func[:4]
    return "all_reduce" if func in _OP_GROUPS else _COLLECTIVES.get(func)


def category(op: str) -> str | None:
    """Return category of an operation."""
    if op.startswith(("send_", "recv_")):
        return "p2p"
    return "collective" if op in _OP_GROUPS else _CATEGORIES.get(op)


def overlapped(caller: str) -> bool:
    """Return whether a caller launches a communication and waits for it later."""
    return caller.endswith(_OVERLAPPED)


def earlier() -> dict[str, dict[str, str]]:
    """Return SQL of columns that parts of earlier versions lack, by table and column."""
    return {
        "ops": {"kind": _chosen("op", KINDS), "pass": _chosen("op", PASSES)},
        "comms": {
            "pass": _chosen("coalesce(parent_op, raw_func)", PASSES),
            "overlapped": f"coalesce(ends_with(caller, '{_OVERLAPPED}'), false)",
        },
        "runs": {"clock_tick_ns": f"CASE format WHEN 'rank_trace' THEN {CLOCK_TICK_NS} END"},
    }


def _chosen(column: str, meanings: dict[str, str]) -> str:
    cases = (f"WHEN '{text}' THEN '{meaning}'" for text, meaning in meanings.items())
    return f"CASE {column} {' '.join(cases)} END"


def width(dtype: str) -> int | None:
    """Return bytes per element."""
    return 1 if dtype.startswith("float8") else _WIDTHS.get(dtype)


class Texts:
    """Tokens as text, each decoded once.

    Attributes:
        wrong: Which ones are not UTF-8.
    """

    def __init__(self, names: list[str], wrong: Mask) -> None:
        self.names = names
        self.wrong = wrong

    @classmethod
    def of(cls, table: TokenTable, some: Iterable[int] | None = None) -> Texts:
        """Decode all tokens of a table, or some of them, renumbered."""
        raws = [table.raw(i) for i in (range(len(table)) if some is None else some)]
        wrong = np.array([not arrow.is_utf8(raw) for raw in raws], np.bool_)
        return cls([arrow.text_of(raw) for raw in raws], wrong)

    @functools.cached_property
    def given(self) -> list[str | None]:
        """The texts, except for token 0."""
        return [None, *self.names[1:]]

    def meanings(self, meaning: Callable[[str], str | None]) -> list[str | None]:
        """Return the meanings of tokens; None for token 0."""
        return [None, *map(meaning, self.names[1:])]

    def lookup(self, ids: Ids, test: Callable[[str], bool]) -> Mask:
        """Return whether each token passes a test."""
        passed: Mask = np.array([test(name) for name in self.names], np.bool_)[ids]
        return passed


class Numbering(NamedTuple):
    """Columns of ops that are derived from the order of lines."""

    stage: Longs
    step: Ids
    seq: Longs
    micro_batch: Ids


class Unmade(NamedTuple):
    """Rows that are no batches yet."""

    ops: Rows
    comms: Rows
    numbering: Numbering
    names: Texts
    keys: Texts
    texts: Texts


def build(rows: Unmade) -> tuple[pa.RecordBatch, pa.RecordBatch, Longs, Longs]:
    """Return batches of all rows.

    Returns:
        ops, comms, and the rows of ops with a value that is not UTF-8 and with an unknown dtype,
        in themselves or in one of their communications.
    """
    ops, comms, numbering, names, keys, texts = rows
    n, m = int(ops.size[layout.ROWS]), int(comms.size[layout.ROWS])
    parent = comms.wide[layout.OP_ROW, :m]
    op_ids, comm_ids = ops.ids[:, :n], comms.ids[:, :m]
    sub = comms.wide[layout.SUB_SEQ, :m]
    own = sub == NULL
    types = tables()["ops"].storage_types
    place = {
        "source_id": ops.wide[layout.SOURCE, :n],
        "line": ops.wide[layout.LINE, :n],
        "rank": ops.wide[layout.RANK, :n],
    }
    place |= numbering._asdict()
    passes = [PASSES.get(op) for op in names.names]
    groups = _groups(op_ids, comm_ids, parent, own, names, texts)
    op_part, op_wrong, op_unknown = _shared(ops, op_ids[layout.OP_DTYPE], keys, texts)
    comm_part, comm_wrong, comm_unknown = _shared(comms, comm_ids[layout.COMM_DTYPE], keys, texts)
    op_columns = op_part | {
        **{name: arrow.numbers(values, types[name]) for name, values in place.items()},
        "phase": _text(op_ids[layout.OP_PHASE], texts),
        "op": arrow.words(op_ids[layout.OP], names.names),
        "category": arrow.words(op_ids[layout.OP], [category(op) for op in names.names]),
        "kind": arrow.words(op_ids[layout.OP], [KINDS.get(op) for op in names.names]),
        "pass": arrow.words(op_ids[layout.OP], passes),
        "group_kind": arrow.words(groups[0], groups[2]),
        "description": _text(op_ids[layout.OP_DESCRIPTION], texts),
    }
    comm_columns = comm_part | {
        **{name: arrow.numbers(values, types[name], parent) for name, values in place.items()},
        "sub_seq": arrow.numbers(sub, pa.int32()),
        "phase": _text(op_ids[layout.OP_PHASE][parent], texts),
        "pass": arrow.words(op_ids[layout.OP][parent], passes),
        "parent_op": arrow.words(np.where(own, -1, op_ids[layout.OP][parent]), names.names),
        "collective": arrow.words(comm_ids[layout.COMM_FUNC], texts.meanings(collective)),
        "group_kind": arrow.words(groups[1], groups[2]),
        "raw_func": _text(comm_ids[layout.COMM_FUNC], texts),
        "raw_group": _text(comm_ids[layout.COMM_GROUP], texts),
        "caller": _text(comm_ids[layout.COMM_CALLER], texts),
        "tensor": _text(comm_ids[layout.COMM_TENSOR], texts),
        "overlapped": pa.array(texts.lookup(comm_ids[layout.COMM_CALLER], overlapped)),
    }
    if texts.wrong.any():
        printed = op_ids[[layout.OP_PHASE, layout.OP_DESCRIPTION, layout.OP_GROUP, layout.OP_DTYPE]]
        op_wrong = np.union1d(op_wrong, np.flatnonzero(texts.wrong[printed].any(axis=0)))
        comm_wrong = np.union1d(comm_wrong, np.flatnonzero(texts.wrong[comm_ids].any(axis=0)))
    return (
        tables()["ops"].batch(op_columns),
        tables()["comms"].batch(comm_columns),
        np.union1d(op_wrong, parent[comm_wrong]),
        np.union1d(op_unknown, parent[comm_unknown]),
    )


def _text(ids: Ids, texts: Texts) -> pa.DictionaryArray:
    return arrow.words(ids, texts.given)


def _groups(
    op_ids: Ids, comm_ids: Ids, parent: Longs, own: Mask, names: Texts, texts: Texts
) -> tuple[Ids, Ids, list[str]]:
    """Return group of each op and each communication as codes, and the names of the codes.

    An operation that is a communication and prints no group has the group of its name; functions
    named `*_moe` print the expert group and run on the tensor-and-expert group.
    """
    printed = texts.meanings(lambda printed: GROUPS.get(printed, printed))
    implied = [group_of_op(name) for name in names.names]
    kinds = list(dict.fromkeys(k for k in (*printed, *implied, "expert", "tp_expert") if k))
    codes = {kind: code for code, kind in enumerate(kinds)}
    by_text = np.array([-1 if k is None else codes[k] for k in printed], np.int32)
    by_op = np.array([-1 if k is None else codes[k] for k in implied], np.int32)
    of_op = by_text[op_ids[layout.OP_GROUP]]
    of_op = np.where(of_op < 0, by_op[op_ids[layout.OP]], of_op)
    of_comm = by_text[comm_ids[layout.COMM_GROUP]]
    moe = texts.lookup(comm_ids[layout.COMM_CALLER], lambda caller: caller.endswith("_moe"))
    of_comm = np.where(moe & (of_comm == codes["expert"]), codes["tp_expert"], of_comm)
    return of_op, np.where(own, of_op[parent], of_comm), kinds


def _shared(
    rows: Rows, dtypes: Ids, keys: Texts, texts: Texts
) -> tuple[dict[str, pa.Array], Longs, Longs]:
    """Return columns of both tables, rows with non-UTF-8 values, and rows with unknown dtypes."""
    n, used = int(rows.size[layout.ROWS]), int(rows.size[layout.ATTRIBUTES])
    # Bytes per element; 0 of an unknown dtype, and of none.
    widths = np.array([0] + [width(name) or 0 for name in texts.names[1:]], np.int64)[dtypes]
    elements = rows.wide[layout.ELEMENTS, :n]  # negative without a shape, or where it is too large
    sizes = np.where((elements >= 0) & (widths > 0), elements * widths, NULL)
    values, wrong_values = arrow.strings(
        rows.ends[:used], rows.values[: int(rows.size[layout.VALUE_BYTES])]
    )
    key_column = pa.array(keys.names, pa.string()).take(pa.array(rows.keys[:used]))
    ends, shape_ends = rows.wide[layout.ATTRIBUTE_END, :n], rows.wide[layout.SHAPE_END, :n]
    dimensions = rows.shapes[: rows.size[layout.DIMENSIONS]]
    columns = {
        "start_ns": arrow.numbers(rows.wide[layout.START, :n], pa.int64()),
        "end_ns": arrow.numbers(rows.wide[layout.END, :n], pa.int64()),
        "duration_ns": arrow.numbers(rows.wide[layout.DURATION_NS, :n], pa.int64()),
        "shape": arrow.shapes(shape_ends, dimensions, elements != NULL),
        "dtype": _text(dtypes, texts),
        "bytes": arrow.numbers(sizes, pa.int64()),
        "attributes": arrow.attributes(ends, key_column, values),
    }
    wrong = np.unique(np.searchsorted(ends, wrong_values, side="right"))
    return columns, wrong, np.flatnonzero((dtypes > 0) & (widths == 0))
