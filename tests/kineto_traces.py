"""Write traces of the PyTorch profiler: a pipeline of two ranks, on the CPU. For torch 2.13, 2.15.

The case `pipeline` of tests/formats/kineto is cut from such traces: two steps, annotations only::

    torchrun --nproc-per-node 2 tests/kineto_traces.py FOLDER GPipe
    python tests/kineto_traces.py cut FOLDER tests/formats/kineto/pipeline/input
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

LAYERS, MICRO_BATCHES, WIDTH = 4, 4, 512


def trace(folder: Path, schedule: str) -> None:
    """Train for six steps, and write the trace of the last four."""
    import torch  # type: ignore[import-not-found]
    from torch import distributed, nn, profiler
    from torch.distributed import pipelining  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    layers = [
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        for _ in range(LAYERS)
    ]
    numbers = (rank, rank + 2) if schedule == "Interleaved1F1B" else (rank,)
    each = LAYERS // (2 * len(numbers))
    stages: list[Any] = [
        pipelining.PipelineStage(
            nn.Sequential(*layers[each * i : each * i + each]), i, 2 * len(numbers), "cpu"
        )
        for i in numbers
    ]
    made = getattr(pipelining, f"Schedule{schedule}")
    plan = made(
        stages if len(stages) > 1 else stages[0],
        MICRO_BATCHES,
        loss_fn=nn.functional.mse_loss,
    )
    optimizers = [torch.optim.SGD(stage.submod.parameters(), 0.01) for stage in stages]
    given, wanted = torch.randn(256, WIDTH), torch.randn(256, WIDTH)
    folder.mkdir(parents=True, exist_ok=True)
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=0, warmup=1, active=4, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(f"{folder}/rank{rank}.pt.trace.json"),
        record_shapes=True,
    ) as profiled:
        for _ in range(6):
            for optimizer in optimizers:
                optimizer.zero_grad()
            plan.step(given) if rank == 0 else plan.step(target=wanted)
            for optimizer in optimizers:
                optimizer.step()
            profiled.step()
    distributed.destroy_process_group()


def cut(folder: Path, out: Path) -> None:
    """Keep the annotations of the second and the third step as written, without names of places."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.json")):
        text = path.read_text(encoding="utf-8")
        head, rest = text.split('"traceEvents": [', 1)
        events = re.findall(r"  \{\n.*?\n  \}(?=,|\n)", rest, re.DOTALL)
        read = [(event, json.loads(event)) for event in events]
        steps = [e for _, e in read if str(e["name"]).startswith("ProfilerStep#")][1:3]
        begin, end = steps[0]["ts"], steps[1]["ts"] + steps[1]["dur"]
        kept = [
            event
            for event, e in read
            if e.get("cat") == "user_annotation" and begin <= e["ts"] < end
        ]
        tail = re.sub(r"[^\"]*(?=/rank\d)/", "", rest[rest.rindex("\n  ],") :])
        head = re.sub(r'("host_name": )"[^"]*"', r'\1"node0"', head)
        made = head + '"traceEvents": [\n' + ",\n".join(kept) + tail
        (out / path.name).write_text(made, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "cut":
        cut(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        trace(Path(sys.argv[1]), sys.argv[2])
