"""Gates: what a scheduler may ask of runs, answered by the models and told as one error."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pipeline.errors import CheckFailedError, InputError, UsageError
from pipeline.text import counted

if TYPE_CHECKING:
    import duckdb

# Of a gate that failed: runs that are named, and what was seen of each.
_RUNS = 5
_SEEN = 3


@dataclass(frozen=True, slots=True)
class Gate:
    """Something that no run may have.

    Attributes:
        doc: What a run that fails has.
        sql: What fails: run_id, what was `seen` there in words, and its `weight`, the gravest most.
        query: What a reader would type to list it.
    """

    name: str
    doc: str
    sql: str
    query: str


def _verdict(name: str, doc: str) -> Gate:
    return Gate(
        name,
        doc,
        f"""
        SELECT run_id, format('rank {{}}: {{}}', rank, evidence) AS seen, time_lost_ms AS weight
        FROM straggler_ranks
        WHERE verdict = '{name}'
        """,
        f"FROM straggler_ranks WHERE verdict = '{name}'",
    )


_GATES = (
    Gate(
        "regression",
        "a figure worse than its baseline allows",
        """
        SELECT run_id, array_to_string(regressions, '; ') AS seen, len(regressions) AS weight
        FROM run_history
        WHERE verdict = 'regressed'
        """,
        "FROM run_history WHERE verdict = 'regressed'",
    ),
    _verdict("straggler", "a rank with the verdict straggler"),
    _verdict("suspect", "a rank with the verdict suspect"),
    Gate(
        "recurring",
        "a slow rank, device or host that is slow in half of its configuration's latest runs",
        """
        SELECT unnest(slow_run_ids) AS run_id, concat(subject, ': ', evidence) AS seen,
            time_lost_ms AS weight
        FROM straggler_history
        WHERE verdict = 'recurring'
        """,
        "FROM straggler_history WHERE verdict = 'recurring'",
    ),
    Gate(
        "incomplete",
        "ranks or steps missing; simulated runs never fail",
        """
        SELECT c.run_id, 1 - c.coverage_ratio AS weight,
            CASE
                WHEN c.ranks_seen IS NULL THEN 'the input does not have all that it declares'
                WHEN c.ranks_expected IS NULL
                    THEN format('ranks seen: {}, of how many is unknown', c.ranks_seen)
                WHEN c.ranks_seen < c.ranks_expected
                    THEN format('{} of {} ranks seen', c.ranks_seen, c.ranks_expected)
                ELSE 'a step or a rank has not ended'
            END AS seen
        FROM coverage AS c JOIN runs AS r USING (run_id)
        WHERE NOT c.complete AND NOT coalesce(r.simulated, false)
        """,
        "FROM coverage WHERE NOT complete",
    ),
    Gate(
        "faults",
        "data that is lost or unreadable",
        """
        SELECT run_id, format('{}: {}', name, count) AS seen, count AS weight
        FROM faults
        WHERE severity IN ('data_loss', 'error')
        """,
        "FROM faults WHERE severity IN ('data_loss', 'error')",
    ),
    Gate(
        "rejects",
        "a line that was not understood",
        """
        SELECT run_id, format('lines not understood: {}', rejects) AS seen, rejects AS weight
        FROM coverage
        WHERE rejects > 0
        """,
        "FROM rejects JOIN sources USING (run_id, source_id)",
    ),
)
GATES: Mapping[str, Gate] = MappingProxyType({gate.name: gate for gate in _GATES})


def parse_gates(text: str) -> tuple[Gate, ...]:
    """Reads `regression,straggler`; without a name there is no gate.

    Raises:
        UsageError: No gate has that name.
    """
    names = dict.fromkeys(name.strip() for name in text.split(",")) if text.strip() else ()
    for name in names:
        if name not in GATES:
            raise UsageError(f"no gate {name!r}", hint=f"one of {', '.join(GATES)}")
    return tuple(GATES[name] for name in names)


@dataclass(frozen=True, slots=True)
class Failure:
    """A gate that runs have failed, and what was seen of each, the gravest first."""

    gate: Gate
    seen: Mapping[str, Sequence[str]]


def failures(
    con: duckdb.DuckDBPyConnection, gates: Iterable[Gate], run_ids: Sequence[str]
) -> list[Failure]:
    """Gates that some of the runs fail.

    Args:
        con: To the warehouse of a lake.
        run_ids: Runs that are judged; others may fail unnoticed.
    """
    judged = (Failure(gate, _seen(con, gate, run_ids)) for gate in gates)
    return [failure for failure in judged if failure.seen]


def failed_gates(failed: Sequence[Failure], gates: int, lake: str) -> CheckFailedError:
    """The error that says which gates and runs have failed, what was seen, and where to look.

    Args:
        gates: How many were judged.
        lake: Name of the lake.
    """
    where = shlex.quote(lake)
    queries = [f'tracelake query --lake {where} "{failure.gate.query}"' for failure in failed]
    return CheckFailedError(
        "\n".join(
            [
                f"{counted(len(failed), 'gate')} of {gates} failed",
                *(line for failure in failed for line in _told(failure)),
            ]
        ),
        path=lake,
        hint="all of it is written; see the report, or\n         " + "\n         ".join(queries),
    )


class Understood(Protocol):
    """How much of a run was understood."""

    @property
    def run_id(self) -> str:
        """The run."""

    @property
    def rejected(self) -> int:
        """Lines that were not understood."""

    @property
    def bad_ratio(self) -> float:
        """Their share: rejected over record lines and rejected."""


class BadLines(NamedTuple):
    """A run that has lines that were not understood."""

    run_id: str
    rejected: int
    bad_ratio: float


def bad_lines(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> list[BadLines]:
    """Those of the runs that have lines that were not understood."""
    rows = con.execute(
        "SELECT run_id, sum(rejected)::BIGINT, sum(rejected) / sum(row_lines + rejected)"
        " FROM sources WHERE run_id IN (SELECT unnest($1::VARCHAR[]))"
        " GROUP BY run_id HAVING sum(rejected) > 0 ORDER BY run_id",
        [list(run_ids)],
    ).fetchall()
    return [BadLines(*row) for row in rows]


def too_many_bad_lines(runs: Iterable[Understood], max_bad_ratio: float) -> InputError | None:
    """The error that says that a run has more bad lines than allowed; None if none has."""
    bad = [run for run in runs if run.bad_ratio > max_bad_ratio]
    if not bad:
        return None
    worst = max(bad, key=lambda run: run.bad_ratio)
    return InputError(
        f"{counted(len(bad), 'run')} with more bad lines than --max-bad-ratio"
        f" {max_bad_ratio:g} allows; worst is {worst.run_id}:"
        f" {worst.rejected} of its lines rejected ({worst.bad_ratio:.1%})",
        hint="all of it is in the lake; look with: tracelake query"
        " 'FROM rejects JOIN sources USING (run_id, source_id)'",
    )


def cut_short(run_ids: Sequence[str]) -> InputError | None:
    """The error that says that inputs of these runs expand too far; None if there are none."""
    if not run_ids:
        return None
    return InputError(
        f"{counted(len(run_ids), 'run')} with input that expands further than --max-expand allows;"
        f" one is {run_ids[0]}",
        hint="what came before is in the lake; if it is no bomb, give a higher --max-expand, and"
        " --verify",
    )


def _seen(
    con: duckdb.DuckDBPyConnection, gate: Gate, run_ids: Sequence[str]
) -> dict[str, list[str]]:
    """What fails the gate by run, the gravest first."""
    rows = con.execute(
        f"SELECT run_id, seen FROM ({gate.sql}) WHERE run_id IN (SELECT unnest($1::VARCHAR[]))"
        " ORDER BY max(weight) OVER (PARTITION BY run_id) DESC NULLS LAST, run_id,"
        " weight DESC NULLS LAST, seen",
        [list(run_ids)],
    ).fetchall()
    by_run: dict[str, list[str]] = defaultdict(list)
    for run_id, seen in rows:
        by_run[run_id].append(seen)
    return by_run


def _told(failure: Failure) -> list[str]:
    by_run = failure.seen
    lines = [f"  {failure.gate.name}: {counted(len(by_run), 'run')}"]
    for run_id, seen in list(by_run.items())[:_RUNS]:
        more = f" (and {len(seen) - _SEEN} more)" if len(seen) > _SEEN else ""
        lines.append(f"    {run_id}: {'; '.join(seen[:_SEEN])}{more}")
    if len(by_run) > _RUNS:
        lines.append(f"    ... and {counted(len(by_run) - _RUNS, 'run')} more")
    return lines
