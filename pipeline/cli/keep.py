"""Define the commands that delete or compact data of a lake."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tracelake.base.errors import UsageError
from tracelake.base.figures import amount
from tracelake.base.metrics import count, phase
from tracelake.base.text import counted
from tracelake.cli.app import command, recorded
from tracelake.cli.complete import complete_run
from tracelake.cli.options import DryRun, Format, LakeName, MemoryOptions, Quiet, grouped
from tracelake.cli.steps import bring_up, open_console, open_lake, print_table, read_age
from tracelake.nightly.gates import lost_data

if TYPE_CHECKING:
    from tracelake.lake.store import Lake
    from tracelake.warehouse.retention import DropCandidate


@command(epilog="Example: tracelake drop --lake lake --older-than 90d --dry-run")
@recorded
@grouped
def drop(
    lake: LakeName,
    memory: MemoryOptions,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="A run id, a unique part of one, or latest.",
            autocompletion=complete_run,
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Delete every run with a date more than 90d, 12w, ... ago."
        ),
    ] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Let the next ingest add them again; also for runs deleted before."
        ),
    ] = False,
    dry_run: DryRun = False,
    output_format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Delete runs; they stay deleted on the next ingest unless you pass --forget."""
    from tracelake.warehouse.retention import candidates_table
    from tracelake.warehouse.retention import drop as drop_runs

    limit, console, opened = memory.read_memory(), open_console(quiet=quiet), open_lake(lake)
    chosen = _choose(opened, runs, older_than, forget=forget)
    if chosen or output_format != "table":
        print_table(candidates_table(chosen), output_format, None)
    there = [run for run in chosen if run.status == "run"]
    gone = counted(len(chosen) - len(there), "run")
    amounts = (
        f"{counted(len(there), 'run')}, {counted(sum(run.files for run in there), 'file')},"
        f" {amount(sum(run.bytes for run in there))}"
        f"{'' if there == chosen else f'; {gone} of earlier deletions forgotten'}"
    )
    if dry_run:
        console.say(f"would delete {amounts}")
    elif chosen:
        drop_runs(opened, chosen, forget=forget)
        console.say(f"deleted {amounts}")
        built = bring_up(opened, limit, console)
        if lost := lost_data(built.lost):  # of other runs
            console.warn(str(lost))


@command(epilog="Example: tracelake gc --lake lake --dry-run")
@recorded
def gc(
    lake: LakeName,
    dry_run: DryRun = False,
    output_format: Format = "table",
    quiet: Quiet = False,
) -> None:
    """Remove unused files: without a manifest or warehouse, or left by dead processes."""
    from tracelake.warehouse.retention import collect, leftovers_table

    opened = open_lake(lake)
    with phase("collect"):
        found = collect(opened, dry_run=dry_run)
    files, size = sum(f.files for f in found), sum(f.bytes for f in found)
    count(files_removed=files, bytes_removed=size)
    if found or output_format != "table":
        print_table(leftovers_table(found), output_format, None)
    done = "would remove" if dry_run else "removed"
    open_console(quiet=quiet).say(f"{done} {counted(files, 'file')}, {amount(size)}")


@command(hidden=True, epilog="Example: tracelake compact --lake lake")
def compact(lake: LakeName, quiet: Quiet = False) -> None:
    """Do nothing: run and build keep small Parquet files together."""
    open_lake(lake)
    open_console(quiet=quiet).say("a lake needs no compaction: run and build merge small files")


def _choose(
    lake: Lake, names: list[str] | None, older_than: str | None, *, forget: bool
) -> list[DropCandidate]:
    from tracelake.warehouse.retention import choose_old, choose_runs

    age = read_age(older_than, "--older-than")
    if age is not None and names:
        raise UsageError("runs and --older-than exclude each other", hint="give one of them")
    if age is None and not names:
        raise UsageError("give runs or --older-than", hint="list runs with: tracelake runs")
    if age is None:
        return choose_runs(lake, names or [], forget=forget)
    return choose_old(lake, age, datetime.now())
