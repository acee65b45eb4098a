"""The example of docs/extend.md works as it is printed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

_CODE = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.DOTALL)
_TEXT = re.compile(r"```text\n(.*?)```", re.DOTALL)
PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the page's files in it, and an archive of its input."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copy(ROOT / "pyproject.toml", root)
    for folder in ("pipeline", "sql", "schemas"):
        shutil.copytree(ROOT / folder, root / folder)
    files = dict(_CODE.findall(PAGE))
    assert set(files) == {"pipeline/formats/step_lines.py", "sql/runs/step_rate.sql"}
    for name, content in files.items():
        (root / name).write_text(content, encoding="utf-8")
    (root / "logs").mkdir()
    (text,) = _TEXT.findall(PAGE)
    (root / "logs" / "job.steps").write_text(f"{text}step=3 ms=800.0 loss=10.1\n\noops\n")
    return root


def tracelake(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from pipeline.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_the_format_and_the_model_are_used_at_once(checkout: Path) -> None:
    done = tracelake(checkout, "run", "logs", "--lake", "lake", "--max-bad-ratio", "0.5")
    assert done.returncode == 0, done.stderr
    query = "SELECT step, step_time_ns, loss, line FROM train_steps ORDER BY step"
    rows = tracelake(checkout, "query", query, "--lake", "lake", "--format", "json").stdout
    assert json.loads(rows) == [
        {"step": 1, "step_time_ns": 812_500_000, "loss": 10.71, "line": 2},
        {"step": 2, "step_time_ns": 796_000_000, "loss": 10.42, "line": 3},
        {"step": 3, "step_time_ns": 800_000_000, "loss": 10.1, "line": 4},
    ]
    query = "SELECT line, byte_offset, reason, text FROM rejects"
    rows = tracelake(checkout, "query", query, "--lake", "lake", "--format", "json").stdout
    offset = (checkout / "logs" / "job.steps").read_bytes().index(b"oops")
    assert json.loads(rows) == [
        {"line": 6, "byte_offset": offset, "reason": "not_a_step", "text": "oops"}
    ]
    query = "SELECT steps, steps_per_hour FROM step_rate"
    rows = tracelake(checkout, "query", query, "--lake", "lake", "--format", "json").stdout
    assert json.loads(rows) == [{"steps": 3, "steps_per_hour": 3.6e6 / 800.0}]
    assert tracelake(checkout, "check", "--lake", "lake").returncode == 0
    assert "Steps per hour" in (checkout / "lake" / "report.html").read_text()
    assert "step_lines" in tracelake(checkout, "formats").stdout


def test_the_example_is_written_as_the_rest_is(checkout: Path) -> None:
    example = checkout / "pipeline" / "formats" / "step_lines.py"
    settings = ["--config", str(ROOT / "pyproject.toml"), "--ignore", "D"]
    for command in (["check", *settings], ["format", "--check", *settings[:2]]):
        ruff = [sys.executable, "-m", "ruff", *command, str(example)]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
