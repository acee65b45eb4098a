"""Small rank traces, logs and plans for tests of the packages after the parsers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def op(rank: int, name: str, end: float, duration: float, *, stage: int = 0) -> str:
    return (
        f"rank:{rank}:{name}(stage_id={stage},batch_id=0,mg_state=steady,duration={duration},"
        f"description=None,group_kind=None,input__shape=None,input__dtype=None,timestamp={end},"
        "sub_operations=[])\n"
    )


def trace(rank: int, *, steps: int = 1, start: float = 1000.0) -> str:
    """A rank that computes for 10 + 20 ms and steps its optimizer, per step."""
    lines = []
    for _ in range(steps):
        lines.append(op(rank, "forward_step", start + 10, 10.0))
        lines.append(op(rank, "backward_step", start + 30, 20.0))
        lines.append(op(rank, "optimizer_step", start + 35, 5.0))
        start += 40
    return "".join(lines)


def trace_name(rank: int, *, world: int = 2, stamp: str = "20250101000000") -> str:
    return f"wd{world}_tp{world}_pp1_numl4_bs1_Tok_rank{rank}_{stamp}.txt"


def plan(rows: int = 3, *, declared: int | None = None, name: str = "layer") -> str:
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 ga: 1"
    body = "".join(
        f"{name}{i}\t-1\t{2000 + i}\tALLREDUCE\t4096\t1\tNONE\t0\t1\tNONE\t0\t100\n"
        for i in range(rows)
    )
    return f"{header} all_gpus: 2\n{rows if declared is None else declared}\n{body}"


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder
