"""What the jobs do, once their options are read: call the rooms and print what they give."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline import topology
from pipeline.budget import engine_limit
from pipeline.cli.options import OutputFormat
from pipeline.cli.steps import speak
from pipeline.errors import InputError
from pipeline.gates import Gate, judge
from pipeline.text import counted

if TYPE_CHECKING:
    from pipeline.console import Voice
    from pipeline.ingest import IngestReport, Options
    from pipeline.lake import Lake

HEADLINE_RUNS = 20
# What fits a terminal of run_summary; all of it is a query away.
RUNS_SQL = """
SELECT run_id, format, run_date, steps, step_p50_ms, bubble_ratio, slowest_stage, stragglers,
    comm_ratio, busbw_gbps, coverage_ratio, rejects
FROM run_summary ORDER BY run_date DESC NULLS LAST, run_id
"""


def read_options(
    input_format: str | None,
    run_pattern: str | None,
    hosts: Path | None,
    given: str,
    run_gap: float,
    replace: bool,
    verify: bool,
) -> Options:
    """What shapes an ingest, from its options."""
    from pipeline.ingest import Options, read_hosts

    return Options(
        input_format,
        run_pattern,
        topology.parse_set(given),
        run_gap,
        replace,
        verify,
        None if hosts is None else read_hosts(hosts),
    )


def bring_in(
    inputs: list[str],
    lake: Path,
    options: Options,
    jobs: int | None,
    memory: int | None,
    voice: Voice,
) -> tuple[Lake, IngestReport]:
    """Ingests, with progress, and says what became of it."""
    from pipeline.ingest import Status, ingest
    from pipeline.lake import Lake
    from pipeline.scan.compiled import telling

    opened = Lake.create(lake)
    with voice.bar() as bar, telling(voice.say):
        done = ingest(inputs, opened, options, jobs=jobs, memory=memory, progress=bar)
    for outcome in done.runs:
        if outcome.status is Status.KEPT:
            voice.warn(
                f"{outcome.run_id}: the input lacks {', '.join(outcome.missing[:3])}"
                f"{' ...' if len(outcome.missing) > 3 else ''}; the run in the lake is kept"
                " (--replace takes the input)"
            )
        for fault, count in outcome.faults.items():
            if fault.severity in ("data_loss", "error"):
                voice.warn(f"{outcome.run_id}: {fault.name} ({count}): {fault.doc}")
    for line in done.unplaced:
        voice.warn(line)
    for line in done.told():
        voice.say(line)
    return opened, done


def print_dry_run(inputs: list[str], lake: Path, options: Options) -> None:
    """Prints what an ingest would do, a line per run and per input passed over."""
    import tempfile

    from pipeline.ingest import plan, unplaced

    with tempfile.TemporaryDirectory() as spool:
        plans, skips = plan(inputs, lake, options, Path(spool))
    for line in unplaced(plans, options.hosts):
        speak().warn(line)
    for planned in sorted(plans, key=lambda p: p.run_id):
        files = f"{len(planned.inputs):>6} files"
        typer.echo(f"{planned.status:<9} {planned.format.name:<14} {files}  {planned.run_id}")
    for skip in skips:
        member = f"/{skip['member']}" if skip["member"] else ""
        typer.echo(f"skipped   {skip['reason']:<14} {skip['path']}{member}")


def judge_bad_lines(ingested: IngestReport, max_bad_ratio: float) -> None:
    """Ends with an error if a run has more bad lines than allowed; all of it is in the lake."""
    bad = [outcome for outcome in ingested.runs if outcome.bad_ratio > max_bad_ratio]
    if bad:
        worst = max(bad, key=lambda outcome: outcome.bad_ratio)
        raise InputError(
            f"{counted(len(bad), 'run')} with more bad lines than --max-bad-ratio"
            f" {max_bad_ratio:g} allows; worst is {worst.run_id}:"
            f" {worst.rejected} of its lines rejected ({worst.bad_ratio:.1%})",
            hint="all of it is in the lake; look with: tracelake query"
            " 'FROM rejects JOIN sources USING (run_id, source_id)'",
        )


def judge_runs(lake: Lake, gates: Sequence[Gate], run_ids: Sequence[str]) -> None:
    """Ends with an error if a run fails a gate; by then everything is written."""
    from pipeline.models.base import engine_errors
    from pipeline.query import open_warehouse

    if gates and run_ids:
        with engine_errors("the gates"), open_warehouse(lake) as con:
            judge(con, gates, run_ids, lake.root)


def bring_up(lake: Lake, memory: int | None, voice: Voice, *, full: bool = False) -> None:
    """Builds the warehouse and says what was built."""
    from pipeline.models import build

    limit = None if memory is None else engine_limit(memory)
    built = build(lake, full=full, memory_limit=limit)
    voice.say(built.told())


def write_page(
    lake: Lake,
    page: Path,
    voice: Voice,
    *,
    runs: list[str] | None = None,
    since: timedelta | None = None,
) -> tuple[str, ...]:
    """Writes the report, says where it is, and gives the runs it is about."""
    from pipeline.report import write_report

    written = write_report(lake, page, runs=runs or None, since=since)
    voice.say(
        f"report: {counted(written.runs, 'run')}, {written.bytes / 1e6:.2f} MB, {written.path}"
    )
    return written.run_ids


def print_headline(lake: Lake) -> None:
    """Prints the headline figures of the latest runs."""
    from pipeline.query import run_query, write_result

    latest = f"{RUNS_SQL} LIMIT {HEADLINE_RUNS}"
    write_result(run_query(lake, latest), OutputFormat.TABLE.value, sys.stdout)
    (counts,) = run_query(lake, "SELECT count(*) FROM run_summary")
    more = counts.read_all()[0][0].as_py() - HEADLINE_RUNS
    if more > 0:
        typer.echo(f"... and {more:,} more: tracelake runs --lake {lake.root}")
