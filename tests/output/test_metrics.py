"""What `run` tells monitoring: metrics, stable incidents, links, and experiment trackers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

import tracelake as package
from tests.conftest import ROOT, SAMPLE, Command
from tracelake.output.prometheus import Gauge
from tracelake.output.prometheus import openmetrics as written

DOCS = ROOT / "docs"
TRACES, INCIDENT = SAMPLE / "rank_trace", "9a471160"
Samples = dict[str, list[tuple[dict[str, str], float]]]


def parsed(path: Path) -> Samples:
    """The samples, read alike by both parsers."""
    text = path.read_text()
    both = [
        {f.name: [(s.labels, s.value) for s in f.samples] for f in parse(text)}
        for parse in (openmetrics, plain_text)
    ]
    assert both[0] == both[1]
    return both[0]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights of traces and one without input: metrics and summary of each."""
    folder = tmp_path_factory.mktemp("nights")
    for night, inputs in enumerate((TRACES, TRACES, folder / "nowhere"), 1):
        options = {
            "--lake": folder / "lake",
            "--metrics": folder / f"{night}.prom",
            "--summary": folder / f"{night}.json",
            "--report-url": "https://reports.example.com/{date}.html",
        }
        words = [str(word) for pair in options.items() for word in pair]
        code = "from tracelake.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "run", inputs, *words, "--quiet"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == (3 if night == 3 else 0), done.stderr
    return folder


def summary(nights: Path, night: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((nights / f"{night}.json").read_text())
    return found


def test_metrics_of_a_night(nights: Path) -> None:
    found = parsed(nights / "1.prom")
    assert found["tracelake_last_run_exit_code"] == [({}, 0)]
    assert found["tracelake_findings"] == [
        ({"kind": "straggler", "severity": "critical", "in_incident": "yes"}, 1)
    ]
    assert found["tracelake_rejected_lines"] == [({}, 0)]
    ((opened, one),) = found["tracelake_incident_open"]
    assert (opened["incident"], opened["subject"], one) == (INCIDENT, "rank 2", 1)
    with package.open(nights / "lake") as lake:
        ((config, *values),) = lake.sql(
            "SELECT config, step_p50_ms / 1e3, bubble_ratio, busbw_gbps * 1e9, gpu_hours_lost"
            " FROM run_summary WHERE run_id LIKE '%173a3a41'"
        ).fetchall()
    for name, value in zip(
        ("step_seconds", "bubble_ratio", "busbw_bytes_per_second", "gpu_hours_lost"),
        values,
        strict=True,
    ):
        samples = {labels["config"]: v for labels, v in found[f"tracelake_{name}"]}
        assert samples[config] == value


def test_after_a_failure_incidents_stay_and_the_report_is_missing(nights: Path) -> None:
    first, failed = parsed(nights / "1.prom"), parsed(nights / "3.prom")
    assert failed["tracelake_last_run_exit_code"] == [({}, 3)]
    for name in ("tracelake_incident_open", "tracelake_step_seconds"):
        assert failed[name] == first[name]
    assert "tracelake_findings" not in failed


def test_an_incident_is_new_once_and_keeps_its_name(nights: Path) -> None:
    told = [
        [(i["incident"], i["new"]) for i in summary(nights, night)["incidents"]] for night in (1, 2)
    ]
    assert told == [[(INCIDENT, True)], [(INCIDENT, False)]]
    assert summary(nights, 3)["incidents"] is None


def test_the_link_has_the_date_of_the_report(nights: Path) -> None:
    day = summary(nights, 1)["started"][:10]
    assert summary(nights, 1)["report_url"] == f"https://reports.example.com/{day}.html"
    assert summary(nights, 3)["report_url"] is None


def test_a_wrong_file_or_link_is_refused(tmp_path: Path, tracelake: Command) -> None:
    lake = tmp_path / "lake"
    inside = tracelake("run", SAMPLE, "--lake", lake, "--metrics", lake / "x.prom")
    assert (inside.code, "--metrics names a file in the lake" in inside.err) == (2, True)
    link = tracelake("run", SAMPLE, "--lake", lake, "--report-url", "https://x/{day}.html")
    assert (link.code, "no placeholder {day}" in link.err) == (2, True)
    assert not lake.exists()


def test_odd_labels_and_numbers_can_be_read() -> None:
    odd = {"a": 'quote " backslash \\ newline \n end', "b": ""}
    text = written([Gauge("x", "Doc.", [(odd, 1.5e-7), ({"a": "1", "b": "2"}, 3.0)])])
    (family,) = openmetrics(text)  # type: ignore[no-untyped-call]
    assert [(s.labels, s.value) for s in family.samples] == [
        (odd, 1.5e-7),
        ({"a": "1", "b": "2"}, 3.0),
    ]


def expressions() -> Iterator[tuple[str, str]]:
    board = json.loads((DOCS / "metrics" / "board.json").read_text())
    for panel in board["panels"]:
        yield panel["title"], panel["targets"][0]["expr"]
    for variable in board["templating"]["list"][1:]:
        yield variable["name"], variable["query"]["query"]
    alerts = yaml.safe_load((DOCS / "metrics" / "alerts.yaml").read_text())
    for rule in alerts["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"] + rule["annotations"]["summary"]


def test_board_and_alerts_use_metrics_that_exist(nights: Path) -> None:
    found = parsed(nights / "1.prom")
    used = set()
    for title, expression in expressions():
        names = set(re.findall(r"tracelake_\w+", expression))
        assert names <= found.keys(), title
        labels = re.findall(r"by \((\w+)\)|(\w+)=~?['\"]", expression)
        known = {label for name in names for labels, _ in found[name] for label in labels}
        assert {a or b for a, b in labels} <= known, title
        used |= names
    page = (DOCS / "metrics.md").read_text()
    assert all(f"`{name}`" in page for name in found)
    assert found.keys() - used <= {
        "tracelake_build_info",
        "tracelake_last_run_duration_seconds",
        "tracelake_report_runs",
    }


def send(script: str, nights: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, DOCS / "nightly" / script],
        input=(nights / "1.json").read_text(),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="wandb is not installed")
def test_runs_go_to_wandb(nights: Path, tmp_path: Path) -> None:
    send("wandb_post.py", nights, WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    sent = {path.name.split("-", 3)[-1] for path in tmp_path.glob("wandb/offline-run-*")}
    assert sent == {run["run_id"] for run in summary(nights, 1)["runs"]}


@pytest.mark.skipif(not importlib.util.find_spec("mlflow"), reason="mlflow is not installed")
def test_runs_go_to_mlflow_once(nights: Path, tmp_path: Path) -> None:
    place = {"MLFLOW_TRACKING_URI": f"file:{tmp_path}/ml", "MLFLOW_ALLOW_FILE_STORE": "true"}
    send("mlflow_post.py", nights, **place)
    send("mlflow_post.py", nights, **place)
    runs = list(tmp_path.glob("ml/*/*/tags/tracelake.run_id"))
    assert sorted(p.read_text() for p in runs) == sorted(
        run["run_id"] for run in summary(nights, 1)["runs"]
    )
    steps = [path.read_text().split()[1] for path in tmp_path.glob("ml/*/*/metrics/step_p50_ms")]
    assert "201.855" in {f"{float(step):.3f}" for step in steps}
