"""Gates: what a scheduler may ask of runs, answered by the models and told as one error."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pipeline.errors import CheckFailedError, UsageError
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


def judge(
    con: duckdb.DuckDBPyConnection, gates: Sequence[Gate], run_ids: Sequence[str], lake: Path
) -> None:
    """Ends with an error if one of the runs fails a gate.

    Args:
        con: To the warehouse of the lake.
        run_ids: Runs that are judged; others may fail unnoticed.
        lake: Where the warehouse is, for the message.

    Raises:
        CheckFailedError: It says which gates and runs, what was seen, and where to look.
    """
    failed = {gate: seen for gate in gates if (seen := _seen(con, gate, run_ids))}
    if not failed:
        return
    where = shlex.quote(str(lake))
    queries = [f'tracelake query --lake {where} "{gate.query}"' for gate in failed]
    raise CheckFailedError(
        "\n".join(
            [
                f"{counted(len(failed), 'gate')} of {len(gates)} failed",
                *(line for gate, seen in failed.items() for line in _told(gate, seen)),
            ]
        ),
        path=lake,
        hint="all of it is written; see the report, or\n         " + "\n         ".join(queries),
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


def _told(gate: Gate, by_run: Mapping[str, Sequence[str]]) -> list[str]:
    lines = [f"  {gate.name}: {counted(len(by_run), 'run')}"]
    for run_id, seen in list(by_run.items())[:_RUNS]:
        more = f" (and {len(seen) - _SEEN} more)" if len(seen) > _SEEN else ""
        lines.append(f"    {run_id}: {'; '.join(seen[:_SEEN])}{more}")
    if len(by_run) > _RUNS:
        lines.append(f"    ... and {counted(len(by_run) - _RUNS, 'run')} more")
    return lines
