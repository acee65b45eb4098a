"""The examples of docs/scale.md: on the page as in their files, with options that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker
from typer.main import get_command

from tests.conftest import ROOT
from tracelake.cli import app

FOLDER = ROOT / "docs" / "scale"
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
BATCH_SYSTEMS = {"slurm.py": "SLURMCluster", "pbs.py": "PBSCluster", "lsf.py": "LSFCluster"}
# Arguments of dask-jobqueue 0.9: of every cluster, and of those of one batch system.
OF_ALL = {
    *("queue", "cores", "processes", "memory", "walltime", "interface", "local_directory"),
    *("job_script_prologue", "job_extra_directives", "worker_extra_args", "log_directory"),
}
OF_ONE = {
    "SLURMCluster": {"account", "job_cpu", "job_mem"},
    "PBSCluster": {"account", "resource_spec"},
    "LSFCluster": {"project", "ncpus", "mem", "use_stdin", "lsf_units"},
}


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_the_page_shows_the_file(name: str) -> None:
    shown = re.findall(
        rf"\[scale/{re.escape(name)}\]\(scale/{name}\)\n\n```\w+\n(.*?)```", PAGE, re.DOTALL
    )
    assert shown == [text(name)]


def options_of(command: str) -> set[str]:
    found = get_command(app).commands[command]  # type: ignore[attr-defined]
    return {option for parameter in found.params for option in parameter.opts}


def given(words: list[str]) -> Iterator[str]:
    return (word.partition("=")[0] for word in words if word.startswith("--"))


def test_every_option_on_the_page_is_one() -> None:
    for line in re.findall(r"^tracelake run .*$", PAGE, re.MULTILINE):
        assert set(given(line.split())) <= options_of("run")


@pytest.mark.parametrize("name", BATCH_SYSTEMS)
def test_a_batch_system_is_asked_for_what_it_knows(name: str) -> None:
    tree = ast.parse(text(name))
    (asked,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == BATCH_SYSTEMS[name]
    ]
    arguments = {keyword.arg: keyword.value for keyword in asked.keywords}
    assert set(arguments) <= OF_ALL | OF_ONE[BATCH_SYSTEMS[name]]
    assert ast.literal_eval(arguments["cores"]) == ast.literal_eval(arguments["processes"])
    words = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    said = [word for word in words if isinstance(word, str)]
    assert f"python {name} " in said[0]
    assert set(given(said)) == {"--memory", "--engine", "--scheduler"}
    assert set(given(said)) <= options_of("run")


def test_the_cluster_of_kubernetes_is_one_that_the_job_finds() -> None:
    cluster, job = yaml.safe_load_all(text("kubernetes.yaml"))
    assert (cluster["apiVersion"], cluster["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    assert set(cluster["spec"]) == {"worker", "scheduler"}
    assert set(cluster["spec"]["worker"]) == {"replicas", "spec"}
    assert set(cluster["spec"]["scheduler"]) == {"spec", "service"}
    service, name = cluster["spec"]["scheduler"]["service"], cluster["metadata"]["name"]
    assert service["selector"] == {
        "dask.org/cluster-name": name,
        "dask.org/component": "scheduler",
    }
    (worker,), (scheduler,), (command,) = (
        part["spec"]["containers"]
        for part in (
            cluster["spec"]["worker"],
            cluster["spec"]["scheduler"],
            job["spec"]["template"],
        )
    )
    assert worker["image"] == scheduler["image"] == command["image"]
    assert {p["name"] for p in scheduler["ports"]} == {p["targetPort"] for p in service["ports"]}
    (port,) = [p["port"] for p in service["ports"] if p["name"] == "tcp-comm"]
    assert f"--scheduler=tcp://{name}-scheduler:{port}" in command["args"]
    assert set(given(command["args"])) <= options_of("run")
    for container, program in ((worker, dask_worker), (scheduler, dask_scheduler)):
        known = {option for parameter in program.params for option in parameter.opts}
        assert container["args"][:2] == ["dask", program.name.removeprefix("dask-")]
        assert set(given(container["args"])) <= known


def test_workers_of_kubernetes_see_what_the_command_sees() -> None:
    cluster, job = yaml.safe_load_all(text("kubernetes.yaml"))

    def mounts(pod: dict[str, Any]) -> set[tuple[str, str]]:
        claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"]}
        (container,) = pod["containers"]
        return {(claims[m["name"]], m["mountPath"]) for m in container["volumeMounts"]}

    there = mounts(job["spec"]["template"]["spec"])
    assert mounts(cluster["spec"]["worker"]["spec"]) == there
    folders = {path for _, path in there}
    (_, source, lake, *_) = job["spec"]["template"]["spec"]["containers"][0]["args"]
    for path in (source, lake.partition("=")[2]):
        assert any(path.startswith(f"{folder}/") for folder in folders)
