"""Write structured logs with torchtitan's logger. Used with torchtitan 0.3.0 and torch 2.13.0.

Two ranks train a small model on the CPU. The spans and their nesting are those of torchtitan's
trainer, which itself wants a GPU. The case `two_ranks` of tests/formats/torchtitan_spans is::

    torchrun --nproc-per-node 2 tests/titan_logs.py FOLDER
    python tests/titan_logs.py cut FOLDER tests/formats/torchtitan_spans/two_ranks/input
"""

from __future__ import annotations

import sys
from pathlib import Path

STEPS, WIDTH, BATCH = 3, 64, 32


def train(folder: Path) -> None:
    """Train for some steps; the logger writes a file per rank."""
    import torch  # type: ignore[import-not-found]
    from torch import distributed
    from torchtitan.observability import (  # type: ignore[import-not-found]
        structured_logger as log,
    )

    log.init_structured_logger(source="training", output_dir=str(folder))
    log.log_trace_instant("structured_logger_started")
    with log.log_trace_span("torch_distributed_init"):
        distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    log.log_trace_instant("training_start")
    for step in range(1, STEPS + 1):
        log.set_step(step)
        with log.log_trace_span("step"):
            optimizer.zero_grad()
            with log.log_trace_span("fetching_batch"):
                batch = torch.randn(BATCH, WIDTH)
            log.log_trace_scalar({"local_valid_tokens": BATCH})
            with log.log_trace_span("fwd_bwd"):
                with log.log_trace_span("post_dataloading_process"):
                    given = batch.clone()
                loss = model(given).pow(2).mean()
                loss.backward()
            with log.log_trace_span("optim"):
                optimizer.step()
            with log.log_trace_span("collect_dist_metrics"):
                log.log_trace_scalar({"global_valid_tokens": 2 * BATCH})
                distributed.all_reduce(loss.detach())
    distributed.destroy_process_group()


def cut(folder: Path, out: Path) -> None:
    """Copy the files as written, with another name of the host."""
    import socket

    name = f'"host_name": "{socket.gethostname()}"'
    for path in sorted(folder.rglob("*.jsonl")):
        text = path.read_text(encoding="utf-8").replace(name, '"host_name": "node0"')
        (out / "structured_logs").mkdir(parents=True, exist_ok=True)
        (out / "structured_logs" / path.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "cut":
        cut(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        train(Path(sys.argv[1]))
