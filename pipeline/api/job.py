"""Run the main job from Python."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tracelake.base.errors import TracelakeError
from tracelake.cli import jobs as commands
from tracelake.cli.options import MAX_BAD_RATIO, MAX_EXPAND, RUN_GAP_SECONDS, EngineName
from tracelake.cli.steps import print_summary


def run(
    inputs: str | Path | Iterable[str | Path],
    lake: str | Path = "lake",
    *,
    report: str | Path | None = None,
    since: str | None = None,
    fail_on: str = "",
    max_bad_ratio: float = MAX_BAD_RATIO,
    input_format: str | None = None,
    run_pattern: str | None = None,
    hosts: str | Path | None = None,
    fabric: str | None = None,
    topology: str = "",
    run_gap: float = RUN_GAP_SECONDS,
    replace: bool = False,
    verify: bool = False,
    check: bool = False,
    max_expand: str = MAX_EXPAND,
    jobs: int | None = None,
    memory: str | None = None,
    engine: str = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    metrics: str | Path | None = None,
    report_url: str | None = None,
    price: float | None = None,
    links: str | None = None,
    keep: int | None = None,
    wait: str = "1h",
    quiet: bool = True,
) -> dict[str, Any]:
    """Ingest, build and report as `tracelake run` does, and return its summary.

    Options are those of the command; `topology` is `--set`. Warnings go to standard error, with
    `quiet=False` progress too.

    Example::

        summary = tracelake.run(["/logs"], "lake", fail_on="regression")
        assert summary["exit_code"] == 0, summary["errors"]

    Args:
        inputs: Files, directories, globs, archives or URIs.
        lake: A directory or URI; made if it does not exist.

    Returns:
        The summary that docs/nightly/summary.schema.json describes. A gate that fails, a run with
        too many bad lines and a run that is left out raise nothing: `exit_code` is what the command
        would end with, and `errors` says why.

    Raises:
        TracelakeError: The work could not be done: nothing usable in the input, a wrong option, a
            lake that cannot be written.
    """
    named = [inputs] if isinstance(inputs, str | Path) else inputs
    summaries: list[str] = []
    before = print_summary.set(summaries.append)
    try:
        commands.run(
            inputs=[os.fspath(name) for name in named],
            lake=str(lake),
            report=None if report is None else str(report),
            since=since,
            max_bad_ratio=max_bad_ratio,
            input_format=input_format,
            run_pattern=run_pattern,
            hosts=None if hosts is None else Path(hosts),
            fabric=fabric,
            given=topology,
            run_gap=run_gap,
            replace=replace,
            verify=verify,
            max_expand=max_expand,
            jobs=jobs,
            memory=memory,
            engine=EngineName(engine),
            scheduler=scheduler,
            workers=workers,
            fail_on=fail_on,
            summary="-",
            metrics=None if metrics is None else Path(metrics),
            report_url=report_url,
            price=price,
            links=links,
            keep=keep,
            check=check,
            wait=wait,
            quiet=quiet,
        )
    except TracelakeError:
        if not summaries or json.loads(summaries[-1])["verdicts"] is None:
            raise
    finally:
        print_summary.reset(before)
    summary: dict[str, Any] = json.loads(summaries[-1])
    return summary
