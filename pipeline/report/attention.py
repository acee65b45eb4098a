"""What a reader must look at first: slow ranks, lost data, runs and inputs that lack something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.report.cells import LIST_ITEMS, Row, some
from pipeline.report.reading import PAGE_RUNS, Warehouse

_ITEMS = 12
_TEXT = 160


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to look at; `run_id` is NULL for inputs that belong to no run."""

    run_id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """Things of one kind.

    Attributes:
        kind: Name of the kind, as class and anchor.
        level: bad, warn or note.
        count: How many there are, shown or not.
        items: The first of them.
        query: What lists them all.
        runs: Runs that have one.
    """

    kind: str
    title: str
    level: str
    count: int
    items: Sequence[Item]
    query: str
    runs: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a kind is found and told.

    Attributes:
        sql: Its rows, the worst first.
        query: What a reader would type to list them.
        amount: Column that counts in place of rows.
    """

    name: str
    title: str
    level: str
    sql: str
    query: str
    tell: Callable[[Row], str]
    amount: str | None = None


def read_attention(warehouse: Warehouse, *, inputs: bool) -> list[Group]:
    """What needs attention among the runs of the page; kinds without any are left out.

    Args:
        inputs: Also tell of inputs that no format took: they belong to no run.
    """
    groups = []
    for kind in _KINDS:
        if kind.name == "skipped" and not inputs:
            continue
        rows = warehouse.rows(kind.sql)
        if not rows:
            continue
        groups.append(
            Group(
                kind.name,
                kind.title,
                kind.level,
                sum(row[kind.amount] for row in rows) if kind.amount else len(rows),
                [Item(row.get("run_id"), kind.tell(row)) for row in rows[:_ITEMS]],
                kind.query,
                frozenset(row["run_id"] for row in rows if row.get("run_id")),
            )
        )
    return groups


def _regressed(row: Row) -> str:
    return "; ".join(row["regressions"])


def _recurring(row: Row) -> str:
    cost = row["gpu_hours_lost"]
    hours = "" if cost is None else f", {cost:,.2f} GPU hours"
    lost = f"Time lost: {row['time_lost_ms']:,.2f} ms{hours}."
    return f"{row['subject']}: {row['evidence']} {lost}"


def _slow(row: Row) -> str:
    where = f"rank {row['rank']}" + ("" if row["stage"] is None else f" of stage {row['stage']}")
    lost = "" if row["time_lost_ms"] is None else f" Time lost: {row['time_lost_ms']:,.2f} ms."
    why = f" Only suspect: {row['reason']}." if row["verdict"] == "suspect" else ""
    return f"{where}: {row['evidence']}{lost}{why}"


def _fault(row: Row) -> str:
    where = row["path"] if row["line"] is None else f"{row['path']}:{row['line']}"
    said = f": {_cut(row['text'])}" if row["text"] else ""
    grade = row["severity"].replace("_", " ")
    return f"{row['name']} ({grade}), {_many(row['count'], 'time')} in {where}{said}"


def _incomplete(row: Row) -> str:
    seen, expected = row["ranks_seen"], row["ranks_expected"]
    if seen is None:
        ranks = "the input does not have all that it declares"
    elif expected is None:
        ranks = f"{_many(seen, 'rank')} seen, of how many is unknown"
    else:
        ranks = f"{seen:,} of {_many(expected, 'rank')} seen"
    if seen is not None and seen == expected:
        ranks += ", but a step or a rank has not ended"
    for what in ("ranks", "stages"):
        if missing := row[f"missing_{what}"]:
            ranks += f"; missing {what}: {some(missing)}"
    return f"{ranks}{' (simulated)' if row['simulated'] else ''}."


def _rejected(row: Row) -> str:
    lines = "line was" if row["rejects"] == 1 else "lines were"
    first = f"; first {row['path']}:{row['line']}: {_cut(row['text'])}" if row["path"] else ""
    return (
        f"{row['rejects']:,} {lines} not understood ({row['share']:.2%} of its record lines;"
        f" {some(row['reasons'])}){first}"
    )


def _skipped(row: Row) -> str:
    files = some(row["paths"])
    more = row["inputs"] - len(row["paths"])
    return f"{row['reason']}: {files}{f' and {more:,} more' if more > 0 else ''}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _verdicts(verdict: str) -> str:
    return f"""
        SELECT * FROM straggler_ranks SEMI JOIN {PAGE_RUNS} USING (run_id)
        WHERE verdict = '{verdict}'
        ORDER BY time_lost_ms DESC NULLS LAST, run_id, rank
    """


_REGRESSIONS = f"""
    SELECT * FROM run_history SEMI JOIN {PAGE_RUNS} USING (run_id)
    WHERE verdict = 'regressed'
    ORDER BY len(regressions) DESC, run_date DESC, run_id
"""
# A subject stands once, beside the latest of its slow runs that the page is about.
_RECURRING = f"""
    WITH slow AS (
        SELECT *, unnest(slow_run_ids) AS run_id FROM straggler_history WHERE verdict = 'recurring'
    )
    SELECT * FROM slow SEMI JOIN {PAGE_RUNS} USING (run_id)
    QUALIFY row_number() OVER (
        PARTITION BY config, subject ORDER BY list_position(slow_run_ids, run_id)
    ) = 1
    ORDER BY gpu_hours_lost DESC NULLS LAST, time_lost_ms DESC, config, subject
"""
_FAULTS = f"""
    SELECT f.*, concat_ws('/', s.path, s.member) AS path
    FROM faults AS f
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    LEFT JOIN sources AS s USING (run_id, source_id)
    WHERE f.severity IN ('data_loss', 'error')
    ORDER BY f.severity DESC, f.count DESC, f.run_id, f.source_id, f.name
"""
_INCOMPLETE = f"""
    SELECT c.*, r.simulated
    FROM coverage AS c
    SEMI JOIN {PAGE_RUNS} USING (run_id)
    JOIN runs AS r USING (run_id)
    WHERE NOT c.complete
    ORDER BY coalesce(r.simulated, false), r.run_date DESC NULLS LAST, c.run_id
"""
_REJECTS = f"""
    WITH bad AS (
        SELECT run_id, sum(rejected)::BIGINT AS rejects,
            sum(rejected) / sum(row_lines + rejected) AS share
        FROM sources SEMI JOIN {PAGE_RUNS} USING (run_id)
        GROUP BY run_id HAVING sum(rejected) > 0
    ),
    kept AS (
        SELECT run_id, list(DISTINCT reason ORDER BY reason) AS reasons,
            arg_min(struct_pack(source_id, line, text), (source_id, line)) AS "first"
        FROM rejects SEMI JOIN {PAGE_RUNS} USING (run_id)
        GROUP BY run_id
    )
    SELECT b.run_id, b.rejects, b.share, coalesce(k.reasons, []) AS reasons,
        concat_ws('/', s.path, s.member) AS path, k.first.line AS line, k.first.text AS text
    FROM bad AS b
    LEFT JOIN kept AS k USING (run_id)
    LEFT JOIN sources AS s ON s.run_id = b.run_id AND s.source_id = k.first.source_id
    ORDER BY b.share DESC, b.run_id
"""
_SKIPPED = f"""
    SELECT reason, count(*) AS inputs,
        list(concat_ws('/', path, member) ORDER BY path, member)[:{LIST_ITEMS}] AS paths
    FROM skipped GROUP BY reason ORDER BY inputs DESC, reason
"""

_KINDS = (
    _Kind(
        "regressions",
        "Regressions",
        "bad",
        _REGRESSIONS,
        "FROM run_history WHERE verdict = 'regressed'",
        _regressed,
    ),
    _Kind(
        "recurring",
        "Recurring stragglers",
        "bad",
        _RECURRING,
        "FROM straggler_history WHERE verdict = 'recurring'",
        _recurring,
    ),
    _Kind(
        "stragglers",
        "Stragglers",
        "bad",
        _verdicts("straggler"),
        "FROM straggler_ranks WHERE verdict = 'straggler'",
        _slow,
    ),
    _Kind(
        "faults",
        "Data lost or unreadable",
        "bad",
        _FAULTS,
        "FROM faults WHERE severity IN ('data_loss', 'error')",
        _fault,
    ),
    _Kind(
        "rejects",
        "Lines not understood",
        "warn",
        _REJECTS,
        "FROM rejects JOIN sources USING (run_id, source_id)",
        _rejected,
        amount="rejects",
    ),
    _Kind(
        "suspects",
        "Suspected stragglers",
        "warn",
        _verdicts("suspect"),
        "FROM straggler_ranks WHERE verdict = 'suspect'",
        _slow,
    ),
    _Kind(
        "incomplete",
        "Incomplete runs",
        "warn",
        _INCOMPLETE,
        "FROM coverage WHERE NOT complete",
        _incomplete,
    ),
    _Kind(
        "skipped",
        "Inputs passed over",
        "note",
        _SKIPPED,
        "FROM skipped",
        _skipped,
        amount="inputs",
    ),
)
