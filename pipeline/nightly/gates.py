"""Judge which findings fail a job, and make the error that says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tracelake.base.errors import CheckFailedError, InputError, UsageError
from tracelake.base.figures import percent
from tracelake.base.text import counted, printable, some

if TYPE_CHECKING:
    import duckdb

    from tracelake.ingest.run_result import RunResult
    from tracelake.models.failures import Failure as LeftOut

# Of a gate that failed: runs that are named, and what was seen of each.
_RUNS = 5
_SEEN = 3
# Stands for the run of a finding about a file that belongs to none.
NO_RUN = "no run"


@dataclass(frozen=True, slots=True)
class Gate:
    """Findings that no run may have: the rows of `findings` that name the gate.

    Attributes:
        doc: What a run that fails has.
        kinds: Kinds of its findings, where they are not called as the gate is.
    """

    name: str
    doc: str
    kinds: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """Return what a reader would type to list the findings."""
        return f"FROM findings WHERE gate = '{self.name}'"


_GATES = (
    Gate("regression", "a figure worse than its baseline allows, confirmed", ("regressed",)),
    Gate("drift", "a figure that got worse little by little over many runs", ("drifted",)),
    Gate("straggler", "a rank with the verdict straggler"),
    Gate("suspect", "a rank with the verdict suspect"),
    Gate("recurring", "a rank, device or host that is slow in run after run of its configuration"),
    Gate(
        "incomplete",
        "ranks, steps or declared rows missing; simulated runs never fail",
        ("incomplete", "contradiction"),
    ),
    Gate(
        "faults",
        "data that is lost, that cannot be read or that a model fails on; wrong values in tests;"
        " a loss that is not finite to the end",
        (
            *("unreadable", "data_lost", "model_failed", "wrong_values", "loss_not_finite"),
            "contradiction",
        ),
    ),
    Gate("rejects", "a line that was not understood"),
)
GATES: Mapping[str, Gate] = MappingProxyType({gate.name: gate for gate in _GATES})


def parse_gates(text: str) -> tuple[Gate, ...]:
    """Read `regression,straggler`; without a name there is no gate.

    Raises:
        UsageError: No gate has that name.
    """
    names = dict.fromkeys(name.strip() for name in text.split(",")) if text.strip() else ()
    for name in names:
        if name not in GATES:
            of = [gate.name for gate in _GATES if name in gate.kinds]
            raise UsageError(
                f"no gate {name!r}",
                hint=f"findings of this kind are of the gate {' or '.join(of)}"
                if of
                else f"one of {', '.join(GATES)}",
            )
    return tuple(GATES[name] for name in names)


@dataclass(frozen=True, slots=True)
class Failure:
    """A gate that runs have failed, and what was seen of each, the gravest first."""

    gate: Gate
    seen: Mapping[str, Sequence[str]]


def failures(
    con: duckdb.DuckDBPyConnection,
    gates: Collection[Gate],
    run_ids: Sequence[str],
    *,
    inputs: bool = False,
) -> list[Failure]:
    """Return the gates that some of the runs fail.

    Args:
        con: To the warehouse of a lake.
        run_ids: Runs that are judged; others may fail unnoticed.
        inputs: Judge also files that belong to no run, because they cannot be read.
    """
    rows = con.execute(
        """
        SELECT gate, coalesce(run_id, $1), evidence
        FROM findings
        WHERE gate IN (SELECT unnest($2::VARCHAR[]))
            AND (run_id IN (SELECT unnest($3::VARCHAR[])) OR $4 AND run_id IS NULL)
        -- The runs that lose most first.
        ORDER BY max(lost_ratio) OVER (PARTITION BY gate, run_id) DESC NULLS LAST, run_id,
            lost_ratio DESC NULLS LAST, slowdown DESC NULLS LAST, subject
        """,
        [NO_RUN, [gate.name for gate in gates], list(run_ids), inputs],
    ).fetchall()
    seen: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for gate, run_id, evidence in rows:
        seen[gate][run_id].append(evidence)
    return [Failure(gate, seen[gate.name]) for gate in gates if gate.name in seen]


def failed_gates(failed: Sequence[Failure], gates: int, lake: str) -> CheckFailedError:
    """Return the error that says which gates and runs failed, what was seen, and where to look.

    Args:
        gates: How many were judged.
        lake: Name of the lake.
    """
    queries = [f'tracelake query "{failure.gate.query}"' for failure in failed]
    lines = [line for failure in failed for line in _told(failure)]
    return CheckFailedError(
        "\n".join([f"{counted(len(failed), 'gate')} of {gates} failed", *lines]),
        path=lake,
        hint="all of it is written; see the report, or\n         " + "\n         ".join(queries),
    )


class BadLines(NamedTuple):
    """A run that has lines that were not understood."""

    run_id: str
    rejected: int
    bad_ratio: float


def bad_lines(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> list[BadLines]:
    """Return those of the runs that have lines that were not understood."""
    rows = con.execute(
        "SELECT run_id, sum(rejected)::BIGINT, sum(rejected) / sum(row_lines + rejected)"
        " FROM sources WHERE run_id IN (SELECT unnest($1::VARCHAR[]))"
        " GROUP BY run_id HAVING sum(rejected) > 0 ORDER BY run_id",
        [list(run_ids)],
    ).fetchall()
    return [BadLines(*row) for row in rows]


def too_many_bad_lines(
    runs: Iterable[RunResult | BadLines], max_bad_ratio: float
) -> InputError | None:
    """Return the error that says that a run has more bad lines than allowed; None if none has."""
    bad = [run for run in runs if run.bad_ratio > max_bad_ratio]
    if not bad:
        return None
    worst = max(bad, key=lambda run: run.bad_ratio)
    return InputError(
        f"{counted(len(bad), 'run')} with more bad lines than --max-bad-ratio"
        f" {max_bad_ratio:g} allows; worst is {worst.run_id}:"
        f" {worst.rejected} of its lines rejected ({percent(worst.bad_ratio)})",
        hint="all of it is in the lake; look with: tracelake query"
        " 'FROM rejects JOIN sources USING (run_id, source_id)'",
    )


def lost_data(lost: Sequence[tuple[str | None, str, str]]) -> InputError | None:
    """Return the error that says which part files are lost; None if there are none.

    Args:
        lost: See `BuildResult`.
    """
    if not lost:
        return None
    from tracelake.lake.losses import UNNAMED  # noqa: PLC0415 - slow to import

    runs = sorted({run_id for run_id, _, _ in lost if run_id is not None})
    parts = sorted({f"{part} is {damage}" for _, part, damage in lost})
    left_out = f"{counted(len(runs), 'run')} left out, because" if runs else "skipped files:"
    named = sorted({run_id for run_id, _, damage in lost if run_id and damage != UNNAMED})
    drop = f", or drop them: tracelake drop --forget {' '.join(named[:_RUNS])}" if named else ""
    if len(named) < len(runs):
        drop += ", or remove files without a manifest: tracelake gc"
    return InputError(
        f"{left_out} {counted(len(parts), 'part file')} cannot be used: {some(parts, _SEEN)}",
        hint="all others are in the warehouse; give their input to tracelake run again, put the"
        f" files or manifests back from a backup{drop}",
    )


def cut_short(run_ids: Sequence[str], skipped: Sequence[str]) -> InputError | None:
    """Return the error that says that inputs expand too far; None if there are none.

    Args:
        run_ids: Runs of inputs that were cut.
        skipped: Inputs that were skipped as a whole.
    """
    if not run_ids and not skipped:
        return None
    runs = [f"{counted(len(run_ids), 'run')} cut"] if run_ids else []
    files = [f"{counted(len(skipped), 'file')} skipped"] if skipped else []
    return InputError(
        f"input expands further than --max-expand allows: {', '.join(runs + files)};"
        f" one is {printable([*run_ids, *skipped][0])}",
        hint="the rest is in the lake; if it is no bomb, give a higher --max-expand, and --verify",
    )


def left_out(failed: Sequence[LeftOut]) -> InputError | None:
    """Return the error for runs that a model fails on; None if there are none."""
    if not failed:
        return None
    named = [
        f"\n  {run.run_id} ({run.input}): {run.failed_model}: {run.message}"
        for run in failed[:_RUNS]
    ]
    more = f"\n  ... and {counted(len(failed) - _RUNS, 'run')} more" if len(failed) > _RUNS else ""
    return InputError(
        f"{counted(len(failed), 'run')} without figures, because a model failed on the data;"
        f" all other runs were computed{''.join(named)}{more}",
        hint="mend the input and ingest it again, or delete the run: tracelake drop RUN; all of"
        " them: tracelake query 'FROM model_failures'",
    )


def _told(failure: Failure) -> list[str]:
    by_run = failure.seen
    files = by_run.get(NO_RUN, ())
    runs = len(by_run) - bool(files)
    failed = [counted(runs, "run")] if runs else []
    failed += [counted(len(files), "file")] if files else []
    lines = [f"  {failure.gate.name}: {' and '.join(failed)}"]
    for run_id, seen in list(by_run.items())[:_RUNS]:
        more = f" (and {len(seen) - _SEEN} more)" if len(seen) > _SEEN else ""
        lines.append(f"    {run_id}: {' '.join(seen[:_SEEN])}{more}")
    if len(by_run) > _RUNS:
        lines.append(f"    ... and {counted(len(by_run) - _RUNS, 'run')} more")
    return lines
