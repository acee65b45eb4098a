"""Write a progress bar of NeMo's shape, with Lightning. Used with lightning 2.6.6, torch 2.13.0.

NeMo's bar is Lightning's with these values. The case `nemo_bars` of tests/formats/training_log is
cut from this run of two epochs with 1,010 steps each::

    python tests/nemo_bars.py > bar.log
    python tests/nemo_bars.py cut bar.log tests/formats/training_log/nemo_bars/input/bar.log
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

STEPS, BATCH = 1010, 64


def train() -> None:
    """Train two epochs; Lightning draws the bar."""
    import torch  # type: ignore[import-not-found]
    from lightning import pytorch  # type: ignore[import-not-found]

    class Model(pytorch.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.began = time.perf_counter()

        def training_step(self, batch: Any, _: int) -> Any:
            loss = self.layer(batch[0]).pow(2).mean()
            began, self.began = self.began, time.perf_counter()
            done = self.trainer.global_step
            self.log("reduced_train_loss", loss, prog_bar=True)
            self.log("global_step", float(done), prog_bar=True)
            self.log("consumed_samples", float((done + 1) * BATCH), prog_bar=True)
            self.log("train_step_timing in s", self.began - began, prog_bar=True)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-4)

    data = torch.utils.data.TensorDataset(torch.randn(2 * STEPS, 2))
    pytorch.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[pytorch.callbacks.TQDMProgressBar(refresh_rate=1, leave=True)],
    ).fit(Model(), torch.utils.data.DataLoader(data, batch_size=2))


def cut(log: Path, out: Path) -> None:
    """Keep the first bars of each epoch, and those of the first one around step 1,000."""
    lines = log.read_bytes().decode().split("\n")
    first, second = (
        next(line.split("\r") for line in lines if f"Epoch {epoch}: " in line) for epoch in (0, 1)
    )
    kept = [*first[2:6], *first[2 * 1002 : 2 * 1002 + 7]], second[4:9]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes("".join("\r".join(pieces) + "\n" for pieces in kept).encode())


if __name__ == "__main__":
    if sys.argv[1:2] == ["cut"]:
        cut(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        train()
