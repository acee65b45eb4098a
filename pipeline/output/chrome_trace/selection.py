"""Select the part of a run that a timeline shows, and the pieces in which it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import duckdb

from tracelake.base.errors import UsageError
from tracelake.base.packing import packed
from tracelake.models.catalog import catalog
from tracelake.output.chrome_trace import queries

# Number of slices to read at once: some tens of MB with their joins.
PIECE_SLICES = 100_000

# Ranks of the run with a time, each with the clock that it is drawn on and what is zero there: the
# run's earliest operation on the reference clock, or the clock's own where it cannot be related.
_RANKS = """
CREATE TEMP TABLE timeline_ranks AS
WITH starts AS (
    SELECT rank, min(stage) AS stage, min(start_ns) AS first_ns
    FROM ops
    WHERE run_id = $run AND start_ns IS NOT NULL AND end_ns IS NOT NULL AND step IS NOT NULL
    GROUP BY rank
),
places AS (
    SELECT o.rank, s.host, s.device
    FROM (SELECT DISTINCT rank, source_id FROM ops WHERE run_id = $run) AS o
    JOIN sources AS s ON s.run_id = $run AND s.source_id = o.source_id
    QUALIFY row_number() OVER (
        PARTITION BY o.rank ORDER BY s.host DESC NULLS LAST, s.device DESC NULLS LAST
    ) = 1
)
SELECT
    s.rank, s.stage, p.host, p.device,
    k.clock, k.offset_ns, k.drift, k.origin_ns, k.basis, k.reason,
    k.offset_ms, k.drift_ppm, k.uncertainty_ms,
    k.offset_ns IS NOT NULL AS aligned,
    min(aligned_ns(s.first_ns, k.offset_ns, k.drift, k.origin_ns)) OVER (
        PARTITION BY CASE WHEN k.offset_ns IS NULL THEN k.clock END
    ) AS zero_ns
FROM starts AS s
JOIN clock_offsets AS k ON k.run_id = $run AND k.rank = s.rank
LEFT JOIN places AS p ON p.rank = s.rank
"""

# Slices by step of the chosen ranks, to read them in pieces.
_STEPS = """
SELECT step, sum(slices)::BIGINT AS slices
FROM (
    SELECT step, count(*) AS slices
    FROM ops SEMI JOIN timeline_chosen USING (rank)
    WHERE run_id = $run AND step IS NOT NULL GROUP BY step
    UNION ALL
    SELECT step, count(*) AS slices
    FROM comms SEMI JOIN timeline_chosen USING (rank)
    WHERE run_id = $run AND step IS NOT NULL AND sub_seq IS NOT NULL GROUP BY step
)
GROUP BY step
ORDER BY step
"""

# Runs that have a timeline, the newest first.
_WITH_TIMES = """
SELECT run_id
FROM runs SEMI JOIN clock_offsets AS k USING (run_id)
ORDER BY run_date DESC NULLS LAST, run_id
LIMIT 3
"""

_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class StepRange:
    """Steps that are read together, in blocks of ranks; calls never reach into other steps."""

    first_step: int
    last_step: int
    blocks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a run to draw.

    Attributes:
        ranks: Chosen ranks that have operations with times, ascending.
        steps: Chosen steps and the number of their slices, ascending.
        pid: Process id of the pipeline, above those of all ranks of the run.
    """

    run_id: str
    ranks: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    pid: int

    def pieces(self) -> Iterator[StepRange]:
        """Yield pieces of about `PIECE_SLICES`: several steps, or one in blocks of ranks."""
        for steps in packed(self.steps, (itemgetter(1), PIECE_SLICES)):
            slices = sum(slices for _, slices in steps)
            size = -(-len(self.ranks) // -(-slices // PIECE_SLICES))
            starts = range(0, len(self.ranks), size)
            blocks = tuple((self.ranks[i], self.ranks[i : i + size][-1]) for i in starts)
            yield StepRange(steps[0][0], steps[-1][0], blocks)


def parse_span(text: str, option: str) -> range:
    """Read `N`, or `A-B` with both ends.

    Raises:
        UsageError: It is neither.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None or (found[2] and int(found[2]) < int(found[1])):
        raise UsageError(f"{option} {text!r} is not a number or a range", hint="give 3, or 3-7")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def select(
    con: duckdb.DuckDBPyConnection, run_id: str, steps: range | None, ranks: Sequence[range]
) -> Selection:
    """Find what to draw, and prepare the connection for the queries of a timeline.

    Args:
        steps: Only these; all by default.
        ranks: Only these; all by default.

    Raises:
        UsageError: The run has no operations with times, or no such step or rank.
    """
    con.execute(catalog().macros)
    con.execute(queries.MACROS)
    con.execute(_RANKS, {"run": run_id})
    there = [
        rank for (rank,) in con.execute("SELECT rank FROM timeline_ranks ORDER BY 1").fetchall()
    ]
    if not there:
        raise _without_times(con, run_id)
    chosen = set(there)
    if ranks:
        for span in ranks:
            _require(any(rank in span for rank in there), "rank", span, there)
        chosen = {rank for rank in there if any(rank in span for span in ranks)}
    con.execute(
        "CREATE TEMP TABLE timeline_chosen AS"
        " SELECT * FROM timeline_ranks WHERE list_contains($1::INTEGER[], rank)",
        [sorted(chosen)],
    )
    counts = con.execute(_STEPS, {"run": run_id}).fetchall()
    kept = tuple((step, slices) for step, slices in counts if steps is None or step in steps)
    if steps is not None:
        _require(bool(kept), "step", steps, [step for step, _ in counts])
    return Selection(run_id, tuple(sorted(chosen)), kept, there[-1] + 2)


def _require(found: bool, what: str, span: range, there: Sequence[int]) -> None:
    if not found:
        asked = f"{span[0]}" if len(span) == 1 else f"{span[0]}-{span[-1]}"
        raise UsageError(
            f"the run has no {what} {asked}", hint=f"it has {what}s {there[0]} to {there[-1]}"
        )


def _without_times(con: duckdb.DuckDBPyConnection, run_id: str) -> UsageError:
    """Return the error for a run without times; it names runs with a timeline."""
    (found,) = con.execute(
        "SELECT format, (SELECT count(*) FROM ops WHERE run_id = $1) FROM runs WHERE run_id = $1",
        [run_id],
    ).fetchall()
    fmt, operations = found
    others = [name for (name,) in con.execute(_WITH_TIMES).fetchall() if name != run_id]
    return UsageError(
        f"{run_id} has no timeline: "
        + (
            "none of its operations has a time"
            if operations
            else f"its format, {fmt}, has durations but no points in time"
        ),
        hint=f"runs with a timeline: {', '.join(others)}"
        if others
        else "only traces of operations have a timeline; see: tracelake formats",
    )
