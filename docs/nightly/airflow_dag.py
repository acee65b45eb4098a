"""Ingest logs and write the report every night; the task fails if a gate fails."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

COMMAND = """
/opt/tracelake/bin/tracelake run /logs/cluster7 --lake /data/lake --since 24h \
  --report /var/www/tracelake/{date}.html --summary /var/www/tracelake/{date}.json --keep 30 \
  --fail-on regression,recurring,incomplete --wait 15m --quiet
"""

with DAG(
    dag_id="tracelake",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(
        task_id="nightly",
        bash_command=COMMAND,
        # A retry after a failed gate would find nothing new, and the task would succeed.
        retries=0,
        execution_timeout=timedelta(hours=6),
    )
