"""Send the runs of a night to MLflow: for --post. Needs mlflow or mlflow-skinny.

MLFLOW_TRACKING_URI says where; MLFLOW_EXPERIMENT_NAME is the experiment, else tracelake. A run of
the report that was sent before is updated: the tag `tracelake.run_id` finds it.
"""

from __future__ import annotations

import json
import os
import sys

from mlflow import MlflowClient

# Columns of run_summary that are figures of a run.
FIGURES = ("step_p50_ms", "bubble_ratio", "comm_ratio", "busbw_gbps", "gpu_hours_lost", "rejects")
TAG = "tracelake.run_id"

summary = json.load(sys.stdin)
client = MlflowClient()
name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "tracelake")
known = client.get_experiment_by_name(name)
experiment = known.experiment_id if known else client.create_experiment(name)
for run in summary["runs"] or []:
    found = client.search_runs([experiment], f"tags.`{TAG}` = '{run['run_id']}'")
    tags = {TAG: run["run_id"], "config": run["config"], "format": run["format"]}
    sent = found[0] if found else client.create_run(experiment, run_name=run["run_id"])
    for key, value in tags.items():
        client.set_tag(sent.info.run_id, key, value)
    client.set_tag(sent.info.run_id, "report", summary["report_url"] or summary["report"])
    for figure in FIGURES:
        if run[figure] is not None:
            client.log_metric(sent.info.run_id, figure, run[figure])
    client.set_terminated(sent.info.run_id)
