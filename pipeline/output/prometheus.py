"""Write figures of a job and its lake as OpenMetrics text, for Prometheus.

The text is also valid in the older text format, which node_exporter's textfile collector reads:
gauges only, without timestamps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import duckdb

Sample: TypeAlias = tuple[Mapping[str, str], float]

_FINDINGS = """
SELECT kind, severity, CASE WHEN incident IS NULL THEN 'no' ELSE 'yes' END, count(*)
FROM findings
WHERE run_id IS NULL OR run_id IN (SELECT unnest($1::VARCHAR[]))
GROUP BY ALL ORDER BY ALL
"""
_REJECTS = """
SELECT coalesce(sum(rejects), 0) FROM run_summary WHERE run_id IN (SELECT unnest($1::VARCHAR[]))
"""
_INCIDENTS = """
SELECT incident, kind, severity, subject, config, cost_gpu_hours_per_day, coalesce(cost_bound, '')
FROM incidents WHERE open ORDER BY incident
"""
# The latest run of each configuration: of several without a date none is known to be it.
_CONFIGS = """
SELECT h.config, s.step_p50_ms / 1e3, s.bubble_ratio, s.busbw_gbps * 1e9, s.gpu_hours_lost
FROM run_summary AS s
JOIN run_history AS h USING (run_id)
WHERE h.config IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY h.config ORDER BY h.run_date DESC NULLS LAST, run_id DESC
) = 1 AND (h.run_date IS NOT NULL OR count(*) OVER (PARTITION BY h.config) = 1)
ORDER BY h.config
"""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric with its samples, each the labels and the value."""

    name: str
    doc: str
    samples: Sequence[Sample]


def job_gauges(version: str, ended: float, seconds: float, exit_code: int) -> list[Gauge]:
    """Return the gauges of a job, however it ended.

    Args:
        ended: Unix time.
        seconds: Duration.
    """
    return [
        Gauge("tracelake_build_info", "Version of tracelake.", [({"version": version}, 1)]),
        Gauge("tracelake_last_run_timestamp_seconds", "End of the last run.", [({}, ended)]),
        Gauge("tracelake_last_run_duration_seconds", "Duration of the last run.", [({}, seconds)]),
        Gauge("tracelake_last_run_exit_code", "Exit code of the last run.", [({}, exit_code)]),
    ]


def report_gauges(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> list[Gauge]:
    """Return the gauges of a report, in a connection of `open_warehouse`.

    Args:
        run_ids: Runs of the report.
    """
    given = [list(run_ids)]
    findings = con.execute(_FINDINGS, given).fetchall()
    ((rejects,),) = con.execute(_REJECTS, given).fetchall()
    return [
        Gauge("tracelake_report_runs", "Runs of the report.", [({}, len(run_ids))]),
        Gauge(
            "tracelake_findings",
            "Findings about the runs of the report, and about files that belong to no run.",
            [
                ({"kind": kind, "severity": severity, "in_incident": joined}, n)
                for kind, severity, joined, n in findings
            ],
        ),
        Gauge(
            "tracelake_rejected_lines",
            "Lines of the runs of the report that were not understood.",
            [({}, rejects)],
        ),
    ]


def lake_gauges(con: duckdb.DuckDBPyConnection) -> list[Gauge]:
    """Return the gauges of a lake, in a connection of `open_warehouse`.

    A figure that a run does not have makes no sample.
    """
    incidents = con.execute(_INCIDENTS).fetchall()
    configs = con.execute(_CONFIGS).fetchall()
    labels = ("incident", "kind", "severity", "subject", "config")

    def of_configs(at: int) -> list[Sample]:
        rows = ((row[0], row[at]) for row in configs)
        return [({"config": config}, value) for config, value in rows if value is not None]

    return [
        Gauge(
            "tracelake_incident_open",
            "Incidents that go on: see the column open of the model incidents.",
            [(dict(zip(labels, row, strict=False)), 1) for row in incidents],
        ),
        Gauge(
            "tracelake_incident_cost_gpu_hours_per_day",
            "GPU hours that the incident costs a day; bound says if at_most or at_least.",
            [
                ({"incident": row[0], "config": row[4], "bound": row[6]}, row[5])
                for row in incidents
                if row[5] is not None
            ],
        ),
        Gauge("tracelake_step_seconds", "Median step time of the latest run.", of_configs(1)),
        Gauge(
            "tracelake_bubble_ratio", "Share of idle time in the latest run, 0 to 1.", of_configs(2)
        ),
        Gauge(
            "tracelake_busbw_bytes_per_second",
            "Median bus bandwidth of collectives in the latest run.",
            of_configs(3),
        ),
        Gauge(
            "tracelake_gpu_hours_lost",
            "GPU hours of the latest run by which slow ranks took longer than their peers.",
            of_configs(4),
        ),
    ]


def openmetrics(gauges: Iterable[Gauge]) -> str:
    """Return the text of gauges.

    Example::

        # HELP tracelake_report_runs Runs of the report.
        # TYPE tracelake_report_runs gauge
        tracelake_report_runs 7
        # EOF
    """
    lines = []
    for gauge in gauges:
        lines += [f"# HELP {gauge.name} {gauge.doc}", f"# TYPE {gauge.name} gauge"]
        lines += [f"{gauge.name}{_labels(labels)} {_number(v)}" for labels, v in gauge.samples]
    return "\n".join([*lines, "# EOF", ""])


def _labels(labels: Mapping[str, str]) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{shown}}}" if shown else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))
