"""Derive facts about the run from the rows of rank traces."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from tracelake.formats.rank_trace import layout
from tracelake.formats.rank_trace.batches import Numbering, Texts, collective
from tracelake.formats.rank_trace.layout import Rows
from tracelake.kernels.numbers import NULL, Longs

_COMPUTE = layout.FORWARD | layout.BACKWARD
_NO_RANK = 1 << 62


class Observed:
    """Facts that grow with every batch; none depends on where batches end.

    Attributes:
        loss_stages: Printed or known stages of loss_func, which only the last stage runs.
        last_stage: Highest stage seen, -1 for none.
    """

    def __init__(self) -> None:
        self.loss_stages: set[int] = set()
        self.last_stage = -1
        self._forwards: Counter[int] = Counter()
        self._says_simulated = False
        self._p2p = False
        self._phased = False
        self._reduce_placeholder = False
        # First activation of the lowest rank with a pipeline activation, else a tensor-parallel
        # one.
        self._activations = [(_NO_RANK, ""), (_NO_RANK, "")]

    def see(
        self,
        ops: Rows,
        comms: Rows,
        numbering: Numbering,
        forwards: npt.NDArray[np.int32],
        texts: Texts,
    ) -> None:
        """Add the rows of a batch; `forwards` is a result of `number_ops`."""
        n = int(ops.size[layout.ROWS])
        traits = layout.TRAITS[np.minimum(ops.ids[layout.OP, :n], layout.KNOWN_OPS)]
        marks = ops.wide[layout.MARKS, :n]
        loss_stage = numbering.stage[(traits & layout.LOSS) > 0]
        self.loss_stages.update(int(s) for s in np.unique(loss_stage[loss_stage != NULL]))
        self.last_stage = max(self.last_stage, int(numbering.stage.max(initial=-1)))
        counts = np.unique(forwards[forwards >= 0], return_counts=True)
        for value, count in zip(*counts, strict=True):
            self._forwards[int(value)] += int(count)
        described = ops.ids[layout.OP_DESCRIPTION, :n]
        simulated = texts.lookup(described, lambda t: t.startswith("simulation"))
        self._says_simulated |= bool(simulated.any() or (marks & layout.METADATA_PLACEHOLDER).any())
        self._p2p |= bool((traits & layout.P2P).any())
        self._phased |= bool((ops.ids[layout.OP_PHASE, :n][(traits & _COMPUTE) > 0] > 0).any())
        reduced = marks[(traits & layout.REDUCES) > 0]
        self._reduce_placeholder |= bool((reduced & layout.PLACEHOLDER_TIMES).any())
        self._see_activations(ops, comms, (traits & layout.FORWARD_P2P) > 0, texts)

    def _see_activations(
        self, ops: Rows, comms: Rows, sends: npt.NDArray[np.bool_], texts: Texts
    ) -> None:
        n, m = int(ops.size[layout.ROWS]), int(comms.size[layout.ROWS])
        rank = ops.wide[layout.RANK, :n]
        if rank.min(initial=_NO_RANK) >= self._activations[0][0]:
            return
        sent = sends & (ops.ids[layout.OP_DTYPE, :n] > 0)
        self._see_activation(0, ops, rank, sent, layout.OP_DTYPE, texts)
        if rank.min(initial=_NO_RANK) >= self._activations[1][0]:
            return
        parent = comms.wide[layout.OP_ROW, :m]
        tensor = ops.ids[layout.OP, parent] == layout.OPS.index(b"forward_step")
        tensor &= comms.ids[layout.COMM_DTYPE, :m] > 0
        tensor &= comms.wide[layout.SUB_SEQ, :m] != NULL
        tensor &= texts.lookup(comms.ids[layout.COMM_GROUP, :m], lambda t: t == "tp")
        called = comms.ids[layout.COMM_FUNC, :m]
        tensor &= texts.lookup(called, lambda t: collective(t) == "all_reduce")
        self._see_activation(1, comms, rank[parent], tensor, layout.COMM_DTYPE, texts)

    def _see_activation(
        self,
        which: int,
        rows: Rows,
        rank: Longs,
        chosen: npt.NDArray[np.bool_],
        dtype: int,
        texts: Texts,
    ) -> None:
        found = np.flatnonzero(chosen & (rows.wide[layout.ELEMENTS, : rank.size] != NULL))
        if not found.size:
            return
        first = found[np.argmin(rank[found])]
        if rank[first] < self._activations[which][0]:
            start = rows.wide[layout.SHAPE_END, first - 1] if first else 0
            shape = rows.shapes[start : rows.wide[layout.SHAPE_END, first]].tolist()
            name = texts.names[rows.ids[dtype, first]]
            self._activations[which] = (int(rank[first]), f"{name}{shape}".replace(" ", ""))

    @property
    def signature(self) -> str | None:
        """Dtype and shape of the first forward activation of the lowest rank that has one."""
        return self._activations[0][1] or self._activations[1][1] or None

    def simulated(self, pp: int | None) -> bool:
        """Return whether the ranks ran one after another on one device."""
        if self._says_simulated:
            return True
        schedule_missing = not self._phased or self._reduce_placeholder
        return pp is not None and pp > 1 and not self._p2p and schedule_missing

    @property
    def forwards_per_step(self) -> int | None:
        """Forward steps per rank and step, if more than half of the ended steps agree."""
        if not self._forwards:
            return None
        value, count = self._forwards.most_common(1)[0]
        return value if value and 2 * count > self._forwards.total() else None
