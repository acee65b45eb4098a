"""Run all checks of a lake."""

from __future__ import annotations

from collections.abc import Iterator

from tracelake.base.errors import LakeError
from tracelake.lake.dropped import dropped_runs
from tracelake.lake.losses import find_losses
from tracelake.lake.store import Lake
from tracelake.models.base import point_views
from tracelake.models.build import same_code, wanted_state
from tracelake.models.catalog import catalog
from tracelake.models.state import State, examined, named_parts
from tracelake.schema.tables import tables
from tracelake.warehouse.check.findings import BUILD, BUILD_FULL, Finding, error, some
from tracelake.warehouse.check.parts import check_model_parts, check_parts, check_strays
from tracelake.warehouse.check.rows import (
    check_counts,
    check_failures,
    check_grains,
    check_reasons,
    check_rows,
)
from tracelake.warehouse.warehouse import ATTEMPTS, built_anew, edition, open_warehouse


def check_lake(lake: Lake, *, quick: bool = False) -> list[Finding]:
    """Run every check of a lake; an empty list means that all passed.

    If a build replaces the warehouse meanwhile, it may have removed what is found missing, so
    everything is checked again.

    Args:
        quick: Do not read part files in full to check that they are intact.

    Raises:
        LakeError: The manifests cannot be read.
        ContractError: A check or a model is broken.
    """
    for _ in range(ATTEMPTS):
        opened = edition(lake)
        findings = _check(lake, quick=quick)
        if not findings or edition(lake) == opened:
            return findings
    raise built_anew(lake)


def _check(lake: Lake, *, quick: bool) -> list[Finding]:
    snapshot = lake.snapshot()
    dropped_runs(lake)
    lake.skipped_inputs()
    record = examined(lake.warehouse)
    state, trouble = record.state, record.trouble
    before = state.lost if state else frozenset()
    # A quick check does not read those parts that the build could read.
    there = lake.part_files.marks(snapshot.all_parts) if quick else {}
    trusted = {part: mark for part, mark in there.items() if part not in before}
    losses = find_losses(lake.part_files, snapshot, trusted)
    findings = list(check_parts(lake, snapshot, losses, quick=quick))
    all_read = not findings
    findings += check_strays(lake, snapshot, named_parts(lake.warehouse))
    unreadable = list(check_model_parts(lake, quick=quick))
    findings += unreadable
    if trouble:
        findings.append(error("warehouse", f"the warehouse cannot be used: {trouble}", 1, BUILD))
        if state is None:
            return findings
    if not lake.warehouse.is_file():
        return [*findings, error("warehouse", "there is no warehouse", 1, BUILD)]
    wanted = wanted_state(lake, snapshot, catalog(), losses.among(before))
    findings += _check_current(state, wanted)
    if unreadable:
        return findings
    try:
        con = open_warehouse(lake)
    except LakeError as problem:
        return [*findings, error("warehouse", problem.message, 1, BUILD_FULL)]
    with con:
        con.execute(catalog().macros)
        findings += check_failures(con)
        findings += check_reasons(con, catalog())
        findings += check_grains(con, catalog())
        if all_read:
            findings += check_rows(con)
            if state and state.stamp == wanted.stamp:
                findings += check_counts(con, snapshot)
    return findings


def _check_current(state: State | None, wanted: State) -> Iterator[Finding]:
    """Check that the warehouse was built from the present lake, here, by this tracelake."""
    if state is None or state == wanted:
        return
    if state.root != wanted.root:
        message = (
            f"the lake was moved from {state.root}; other programs find its files after"
            f" {point_views(wanted.root)}"
        )
        yield Finding("views_found", "warning", message, len(tables()), BUILD)
    if not same_code(state, wanted):
        yield error("warehouse_current", "models or schemas have changed since the build", 1, BUILD)
    elif state.stamp != wanted.stamp:
        stale = sorted({run for run, _ in state.runs.items() ^ wanted.runs.items()})
        changed = some(stale) if stale else "rows are in other files"
        message = f"the lake changed since the build ({changed})"
        yield error("warehouse_current", message, max(1, len(stale)), BUILD)
