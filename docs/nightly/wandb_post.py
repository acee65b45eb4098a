"""Send the runs of a night to Weights & Biases: for --post. Needs wandb and WANDB_API_KEY.

Each run of the report is one run there, with the id that it has in the lake: sent twice, it is
still one. WANDB_MODE=offline writes it to a folder, for `wandb sync`.
"""

from __future__ import annotations

import json
import os
import sys

import wandb

# Columns of run_summary that are figures of a run.
FIGURES = ("step_p50_ms", "bubble_ratio", "comm_ratio", "busbw_gbps", "gpu_hours_lost", "rejects")

summary = json.load(sys.stdin)
for run in summary["runs"] or []:
    with wandb.init(
        project=os.environ.get("WANDB_PROJECT", "tracelake"),
        id=run["run_id"],
        name=run["run_id"],
        group=run["format"],
        resume="allow",
        config={"config": run["config"], "run_date": run["run_date"]},
    ) as sent:
        sent.summary.update({name: run[name] for name in FIGURES if run[name] is not None})
        sent.summary["findings"] = sum(
            run["run_id"] in kind["runs"] for kind in summary["attention"]
        )
        sent.summary["report"] = summary["report_url"] or summary["report"]
