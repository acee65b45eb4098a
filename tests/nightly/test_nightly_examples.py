"""The examples of docs/nightly.md: on the page as in their files, and fit for what reads them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest
import yaml  # type: ignore[import-untyped]
from typer.main import get_group

from tests.conftest import ROOT
from tracelake.cli import app
from tracelake.cli.steps import read_age
from tracelake.nightly.gates import parse_gates
from tracelake.nightly.series import Series

FOLDER = ROOT / "docs" / "nightly"
PAGE = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")
EXAMPLES = sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".json")
INSTALLED = "/opt/tracelake/bin/tracelake"
EXPECTED = ["--fail-on", "--keep", "--lake", "--quiet", "--report", "--since", "--summary"]


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_shows_the_file(name: str) -> None:
    shown = re.findall(
        rf"\[nightly/{re.escape(name)}\]\(nightly/{name}\)\n\n```\w+\n(.*?)```", PAGE, re.DOTALL
    )
    assert shown == [text(name)]


def test_the_page_tells_every_key_of_the_summary() -> None:
    assert "(nightly/summary.schema.json)" in PAGE
    for key in json.loads(text("summary.schema.json"))["properties"]:
        assert f"`{key}`" in PAGE


# --- command lines -----------------------------------------------------------------------------


def service() -> dict[str, str]:
    joined = text("tracelake.service").replace("\\\n", " ")
    return dict(
        line.split("=", 1) for line in joined.splitlines() if "=" in line and line[0] != "#"
    )


def cron_line() -> str:
    (line,) = (line for line in text("crontab").splitlines() if re.match(r"[\d*]", line))
    return line


class Task:
    """What an operator was made with."""

    made: list[dict[str, Any]]

    def __init__(self, **options: Any) -> None:
        self.made.append(options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def dag(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the DAG and of its only task, against stand-ins for what it imports."""
    made: list[dict[str, Any]] = []
    stand_in = type("StandIn", (Task,), {"made": made})
    for name, attribute in {
        "airflow": "",
        "airflow.sdk": "DAG",
        "airflow.providers": "",
        "airflow.providers.standard": "",
        "airflow.providers.standard.operators": "",
        "airflow.providers.standard.operators.bash": "BashOperator",
    }.items():
        module = ModuleType(name)
        if attribute:
            setattr(module, attribute, stand_in)
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text("airflow_dag.py"), "airflow_dag.py", "exec"), {"__name__": "dag"})
    graph, task = made
    return graph, task


def cron_job() -> dict[str, Any]:
    (document,) = yaml.safe_load_all(text("cronjob.yaml"))
    job: dict[str, Any] = document
    return job


def container() -> dict[str, Any]:
    (only,) = cron_job()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = only
    return found


def command_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    if name == "page":
        for block in re.findall(r"```sh\n(tracelake .*?)```", PAGE, re.DOTALL):
            yield shlex.split(block)
    elif name == "crontab":
        yield shlex.split(cron_line().split(maxsplit=5)[5].removesuffix(" > /dev/null"))
    elif name == "tracelake.service":
        yield shlex.split(service()["ExecStart"])
    elif name == "airflow_dag.py":
        yield shlex.split(dag(monkeypatch)[1]["bash_command"])
    else:
        yield [*container()["command"], *container()["args"]]


@pytest.mark.parametrize(
    "name", ["page", "crontab", "tracelake.service", "airflow_dag.py", "cronjob.yaml"]
)
def test_the_command_takes_what_the_example_gives_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lines = list(command_lines(name, monkeypatch))
    assert lines
    for program, command, *arguments in lines:
        assert (Path(program).name, command) == ("tracelake", "run")
        given = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        assert given.issuperset(EXPECTED)
        options = get_group(app).commands["run"].make_context("run", arguments).params
        assert options["inputs"] == ["/logs/cluster7"]
        assert [gate.name for gate in parse_gates(options["fail_on"])] == [
            "regression",
            "recurring",
            "incomplete",
        ]
        assert read_age(options["since"])
        assert read_age(options["wait"])
        for template in (options["report"], options["summary"]):
            assert template.startswith("/")
            assert Series(template, datetime(2026, 11, 21, tzinfo=UTC)).dated


# --- what reads the examples -------------------------------------------------------------------


def test_cron_reads_the_line() -> None:
    assert re.fullmatch(r"(?:(?:\*|\d+) ){5}/\S+ .*", cron_line())
    assert "%" not in cron_line()


def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    for unit in ("tracelake.service", "tracelake.timer"):
        here = text(unit).replace(INSTALLED, str(Path(sys.executable).with_name("tracelake")))
        (tmp_path / unit).write_text(here)
    done = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            tmp_path / "tracelake.timer",
            tmp_path / "tracelake.service",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_airflow_starts_one_at_a_time_and_retries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, task = dag(monkeypatch)
    assert (graph["max_active_runs"], graph["catchup"]) == (1, False)
    assert (task["task_id"], task["retries"]) == ("nightly", 0)
    assert not re.search(r"\{[{%#]", task["bash_command"])


def test_kubernetes_retries_only_pods_that_were_lost() -> None:
    job = cron_job()
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    work = job["spec"]["jobTemplate"]["spec"]
    (rule,) = work["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {"operator": "In", "values": [1, 2, 3, 4, 5]}
    pod = work["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # what podFailurePolicy asks for
    assert {m["name"] for m in container()["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


# --- what --post calls ------------------------------------------------------------------------

ACCOUNT: dict[str, Any] = {
    "exit_code": 5,
    "lake": "/data/lake",
    "ended": "2026-11-21T02:10:00+01:00",
    "report": "/r/2026-11-21.html",
    "report_url": "https://reports.example.com/2026-11-21.html",
    "errors": [{"what": 'says "no"', "where": None, "next": "look"}],
    "attention": [
        {"kind": "straggler", "count": 3, "runs": ["a", "b"]},
        {"kind": "rejects", "count": 0, "runs": []},
    ],
    "incidents": [
        {
            "incident": "9a471160",
            "kind": "straggler",
            "severity": "critical",
            "subject": "rank 2",
            "evidence": "rank 2 <stage 0> is slow.",
            "advice": None,
            "cost_gpu_hours_per_day": 18.2,
            "cost_bound": "at_most",
            "new": True,
        },
        {"incident": "aaaaaaaa", "new": False},
    ],
}


def post(script: str, account: dict[str, Any], tmp_path: Path) -> tuple[int, list[str], str] | None:
    """Exit code of a script and what the program that it calls is given; None if it calls none."""
    for tool in ("jq", "bash"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    for program in ("curl", "mail"):
        stub = tmp_path / program
        stub.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\ncat > {tmp_path}/input\n'
        )
        stub.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TRACELAKE_EXIT_CODE": str(account["exit_code"]),
        "WEBHOOK_URL": "https://chat.example.com/hook",
    }
    done = subprocess.run(
        [FOLDER / script], input=json.dumps(account), env=environment, text=True, check=False
    )
    if not (tmp_path / "arguments").exists():
        return None
    arguments = (tmp_path / "arguments").read_text().splitlines()
    return done.returncode, arguments, (tmp_path / "input").read_text()


def test_a_channel_is_told_what_went_wrong(tmp_path: Path) -> None:
    called = post("slack.sh", ACCOUNT, tmp_path)
    assert called is not None
    code, arguments, given = called
    assert (code, arguments[-1]) == (0, "https://chat.example.com/hook")
    assert json.loads(given)["text"].splitlines() == [
        "tracelake ended with 5 on /data/lake",
        'says "no"',
        "straggler: 3 in 2 runs",
        "2 open incidents, 1 new",
        "<https://reports.example.com/2026-11-21.html|report>",
    ]
    blocks = [block["text"]["text"] for block in json.loads(given)["blocks"]]
    assert blocks[1:] == [
        "*rank 2* (straggler, critical, incident 9a471160): up to 18.2 GPU h a day\n"
        "rank 2 &lt;stage 0&gt; is slow.\n"
    ]


def test_a_channel_is_told_of_a_new_incident_once(tmp_path: Path) -> None:
    fine = {**ACCOUNT, "exit_code": 0, "errors": []}
    called = post("slack.sh", fine, tmp_path)
    assert called is not None
    assert json.loads(called[2])["text"].startswith("tracelake: 1 new incident on /data/lake\n")
    (tmp_path / "arguments").unlink()
    assert post("slack.sh", {**fine, "incidents": ACCOUNT["incidents"][1:]}, tmp_path) is None


def test_a_channel_is_told_of_a_failure_without_a_page(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("report", "report_url", "attention", "incidents"))
    called = post("slack.sh", {**ACCOUNT, **nothing}, tmp_path)
    assert called is not None
    assert json.loads(called[2])["text"].splitlines()[1:] == ['says "no"']


def test_a_mail_tells_what_went_wrong(tmp_path: Path) -> None:
    called = post("mail.sh", ACCOUNT, tmp_path)
    assert called is not None
    code, arguments, given = called
    assert (code, arguments[:2]) == (0, ["-s", "tracelake ended with 5"])
    assert 'says "no"\nlook\n' in given


@pytest.mark.parametrize("script", ["slack.sh", "mail.sh"])
def test_nobody_is_told_when_all_is_fine(tmp_path: Path, script: str) -> None:
    assert (
        post(script, {**ACCOUNT, "exit_code": 0, "errors": [], "incidents": []}, tmp_path) is None
    )
