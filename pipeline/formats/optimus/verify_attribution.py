"""Check again the rows of a pipeline-training log in which ranks wrote over each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracelake.formats.optimus.blocks import BLOCK, BY_PLACE, REJECTED
from tracelake.formats.optimus.lines import LAYER
from tracelake.formats.optimus.owners import AMBIGUOUS

_ENOUGH_STEPS = 32  # more than the profiler prints by default


def doubt(pieces: npt.NDArray[np.void], out: npt.NDArray[np.void]) -> bool:
    """Reject rows of a log that its other steps do not confirm; return whether there were any.

    In a log of few steps the list of a rank comes from few blocks, and may be wrong.
    From where ranks first wrote over each other, a row that is not known by its place stays only if
    its rank prints the same layer with the same number of calls in another step, and no other rank
    ever does.
    """
    rows = np.flatnonzero(pieces["kind"] == LAYER)
    if (out["how"][rows] == BLOCK).all():
        return False
    given = rows[out["how"][rows] != REJECTED]
    if np.unique(out["step"][given]).size >= _ENOUGH_STEPS:
        return False
    seen: dict[tuple[int, int], set[tuple[int, int, int]]] = {}
    keys = list(zip(pieces["code"][rows].tolist(), pieces["count"][rows].tolist(), strict=True))
    owners = out[["rank", "stage", "step"]][rows].tolist()
    how = out["how"][rows].tolist()
    for key, owner, known in zip(keys, owners, how, strict=True):
        if known != REJECTED:
            seen.setdefault(key, set()).add(owner)
    disorder = doubted = False
    for i, key, known in zip(rows.tolist(), keys, how, strict=True):
        disorder |= known != BLOCK
        if known in (REJECTED, BY_PLACE) or not disorder:
            continue
        if len(seen[key]) < 2 or len({owner[:2] for owner in seen[key]}) > 1:
            out["how"][i], pieces["reason"][i] = REJECTED, AMBIGUOUS
            doubted = True
    return doubted
