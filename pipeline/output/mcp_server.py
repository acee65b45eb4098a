"""Offer a lake to language models by the Model Context Protocol: a tool per question.

Every answer has `reasons`, why figures of its runs are missing, and `evidence`, the file and line
where one can look.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeAlias, TypeVar

import duckdb
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool

from tracelake import __version__
from tracelake.base.errors import TracelakeError, UsageError
from tracelake.base.signals import stop_all
from tracelake.lake.store import Lake
from tracelake.models.describe import describe, relation_columns
from tracelake.output.terminal.changes import read_changes
from tracelake.output.terminal.facts import Document, read_run
from tracelake.schema.tables import reasons
from tracelake.warehouse.examples import example, examples_table
from tracelake.warehouse.headline import MOST_URGENT_FIRST
from tracelake.warehouse.names import resolve_run, run_before
from tracelake.warehouse.running import query_error
from tracelake.warehouse.statements import Parameters, read_statements
from tracelake.warehouse.values import named_rows
from tracelake.warehouse.warehouse import ask, run_rows
from tracelake.warehouse.whatif import answer, read_fix, read_scale

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Con: TypeAlias = duckdb.DuckDBPyConnection

MAX_ROWS = 1000
_SECONDS = 60.0
_MEMORY = 1_000_000_000
# Runs of an answer whose reasons and evidence are given.
_RUNS = 10
_REASONS = 50
_INSTRUCTIONS = """\
A lake holds logs of distributed training jobs as tables, and models that say where the time went.
Begin with findings or incidents; show explains one run, diff compares two. describe names tables
and columns with units; query runs SQL of DuckDB. A figure that is NULL was not computed: `reasons`
says why. `evidence` says in which file and line one can look."""
# Hosts and links that bandwidth tests show to be slow are findings of no run.
_FINDINGS = """
FROM (
    FROM findings WHERE $run IS NULL OR run_id = $run
    UNION ALL BY NAME
    SELECT
        coalesce($run, latest_run) AS run_id, kind, severity, level, subject, since, evidence,
        advice, cause, incident
    FROM incidents
    WHERE runs_unit = 'test' AND ($run IS NULL OR list_contains(run_ids, $run))
)
ORDER BY level, cost_gpu_hours DESC NULLS LAST, run_id, kind, subject
"""
_INCIDENTS = f"""
SELECT * EXCLUDE (run_ids) FROM incidents WHERE open OR $closed
ORDER BY {MOST_URGENT_FIRST}
"""
# Tables whose longest row shows where time went, with that time.
_TIMED = {"ops": "duration_ns", "layer_times": "total_ns", "train_steps": "step_time_ns"}
# Lines that show a finding, by its kind: what it is, the table, which rows, and the line.
_LINES = {
    "rejects": ("first rejected line", "rejects", "true", "line"),
    "incomplete": (
        "end of the first file", "sources",
        "run_id IN (SELECT run_id FROM runs WHERE coalesce("
        "attributes['ended_by'], attributes['last_step']) IS NOT NULL)", "lines",
    ),
    "loss_not_finite": (
        "first record whose loss is not finite", "train_steps", "NOT isfinite(loss)", "line",
    ),
}  # fmt: skip


def server(lake: Lake) -> MCPServer[Any]:
    """Return a server whose tools read the lake as it is at each call."""
    tools = _Tools(lake)
    functions = (
        tools.query,
        tools.ask,
        tools.describe,
        tools.findings,
        tools.incidents,
        tools.show,
        tools.diff,
        tools.whatif,
    )
    return MCPServer(
        "tracelake",
        version=__version__,
        instructions=_INSTRUCTIONS,
        log_level="WARNING",
        tools=[_tool(function) for function in functions],
    )


def _tool(function: Callable[..., Document]) -> Tool:
    """Return a tool that refuses arguments it does not know: without them it would answer more."""
    tool = Tool.from_function(_answering(function))
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters["additionalProperties"] = False
    return tool


def _answering(tool: Callable[_P, Document]) -> Callable[_P, Document]:
    """Make errors of tracelake answers, which say what to do; others are bugs."""

    @functools.wraps(tool)
    def call(*args: _P.args, **given: _P.kwargs) -> Document:
        try:
            return tool(*args, **given)
        except TracelakeError as error:
            raise ToolError(str(error)) from error

    return call


class _Tools:
    """The tools; their docstrings are what a model reads."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def query(
        self, sql: str, params: dict[str, Any] | None = None, max_rows: int = 100
    ) -> Document:
        """Run one SELECT of DuckDB SQL over tables and models; see describe for their columns.

        The query can read the lake only. $name in it takes values from params. At most 1000 rows
        are returned; `truncated` says whether there are more.
        """
        return self._rows(sql, params or {}, max_rows)

    def ask(self, name: str = "", run: str = "", max_rows: int = 100) -> Document:
        """Answer a saved question, optionally about one run; without a name, list the questions."""
        if not name:
            return {"questions": examples_table().to_pylist()}
        saved = example(name)
        named = {"run": self._do(lambda con: resolve_run(con, run))} if run else {}
        values = saved.bind(named)
        if "top" in values:
            values["top"] = MAX_ROWS + 1  # it is max_rows that cuts, and that says so
        answer = self._rows(saved.body, values, max_rows)
        return {"question": saved.question, "reading": saved.reading, **answer}

    def describe(self, table: str = "") -> Document:
        """List tables and models, or the columns of one with type, unit and meaning."""
        return {"rows": describe(table or None).to_pylist()}

    def findings(self, run: str = "", max_rows: int = 100) -> Document:
        """List what is wrong with one run or all, the most severe first: why, cost, what to do."""
        run_id = self._do(lambda con: resolve_run(con, run)) if run else None
        return self._rows(_FINDINGS, {"run": run_id}, max_rows)

    def incidents(self, closed: bool = False, max_rows: int = 100) -> Document:
        """List findings joined over runs of a configuration: since when, how often, cause, cost."""
        return self._rows(_INCIDENTS, {"closed": closed}, max_rows)

    def show(self, run: str) -> Document:
        """Show one run: where the time went, what is missing.

        A run is named by its id, a unique part of one, or latest; latest~1 is the one before it.
        """

        def read(con: _Con) -> Document:
            run_id = resolve_run(con, run)
            return {**read_run(con, run_id), **self._grounds(con, [{"run_id": run_id}])}

        return self._do(read)

    def diff(self, run: str, other: str = "") -> Document:
        """Compare two runs, operation by operation.

        Without other, the run is compared with the one before it of its configuration.
        """

        def read(con: _Con) -> Document:
            one = resolve_run(con, run)
            pair = (one, resolve_run(con, other)) if other else (run_before(con, one), one)
            both = [{"run_id": run_id} for run_id in pair]
            return {**read_changes(con, *pair), **self._grounds(con, both)}

        return self._do(read)

    def whatif(self, run: str, fix: str = "", scale: str = "") -> Document:
        """Say how long steps would have taken with equal peers, or with one change.

        fix gives something the speed of its peers: rank=7, stage=3, kind=all_reduce:tp. scale lets
        a kind of operation take a factor as long: forward=0.9.
        """
        changes = [*map(read_fix, fix.split()), *map(read_scale, scale.split())]
        document, _ = answer(self._lake, run, changes)
        ground = [{"run_id": document["run_id"]}]
        return {**document, **self._do(lambda con: self._grounds(con, ground))}

    def _rows(self, sql: str, params: Parameters, most: int) -> Document:
        if not 1 <= most <= MAX_ROWS:
            raise UsageError(f"max_rows is {most}", hint=f"give 1 to {MAX_ROWS}")

        def read(con: _Con) -> Document:
            values = {name.lower(): value for name, value in params.items()}
            statements = read_statements(con, sql, values)
            if len(statements) > 1:
                raise UsageError("there are several queries", hint="call query once for each")
            (statement,) = statements
            relation = con.sql(statement.sql, params=dict(statement.parameters))
            reader = relation.to_arrow_reader(most + 1)
            rows: list[Document] = []
            for batch in reader:
                rows += named_rows(batch)
                if len(rows) > most:
                    reader.close()  # the connection answers one query at a time
                    break
            shown = rows[:most]
            counts = {"row_count": len(shown), "truncated": len(rows) > most}
            return {"rows": shown, **counts, **self._grounds(con, shown)}

        return self._do(read)

    def _do(self, work: Callable[[_Con], _T]) -> _T:
        """Return the result of the work on the warehouse that is in place now."""

        def once(con: _Con) -> _T:
            ended: Future[None] = Future()
            ends = threading.Timer(_SECONDS, stop_all, ([ended], con.interrupt))
            ends.start()
            try:
                return work(con)
            except duckdb.InterruptException as error:
                raise UsageError(
                    f"no answer within {_SECONDS:g} s", hint="query fewer runs or rows"
                ) from error
            except duckdb.Error as error:
                raise query_error(self._lake, str(error), limited=True) from error
            finally:
                ends.cancel()
                ended.set_result(None)

        return ask(self._lake, "the lake", once, memory=_MEMORY)

    def _grounds(self, con: _Con, rows: Sequence[Mapping[str, Any]]) -> Document:
        """Return why figures of the rows' runs are missing, and where one can look."""
        found = (row.get("run_id") or row.get("latest_run") for row in rows)
        runs = list(dict.fromkeys(run for run in found if isinstance(run, str)))[:_RUNS]
        why = con.execute(
            "SELECT run_id, figure, reason, remedy FROM abstentions"
            " WHERE run_id IN (SELECT unnest($1::VARCHAR[])) ORDER BY ALL LIMIT $2",
            [runs, _REASONS],
        ).fetchall()
        docs = reasons()
        return {
            "reasons": [
                {
                    "run_id": run,
                    "figure": figure,
                    "reason": f"{name}: {docs[name]}",
                    "remedy": remedy,
                }
                for run, figure, name, remedy in why
            ],
            "evidence": self._evidence(con, rows, runs),
        }

    def _evidence(
        self, con: _Con, rows: Sequence[Mapping[str, Any]], runs: Sequence[str]
    ) -> list[Document]:
        """Return a file and line per row that has them, else per run where one can look."""
        lines = [
            (row["run_id"], row["source_id"], row["line"])
            for row in rows
            if all(row.get(name) is not None for name in ("run_id", "source_id", "line"))
        ]
        if lines:
            return [_place(con, "the row", *line) for line in lines[:_REASONS]]
        of_runs = {str(row.get("run_id") or row.get("latest_run")): row for row in reversed(rows)}
        return [self._shown(con, run, of_runs[run]) for run in runs]

    def _shown(self, con: _Con, run: str, row: Mapping[str, Any]) -> Document:
        """Return where one can look for what a row says, or the finding that it is of."""
        finding = _finding(con, run, row)
        if known := _LINES.get(str(finding.get("kind"))):
            shows, table, which, line = known
            found = con.execute(
                f"SELECT source_id, {line} FROM ({run_rows(con, self._lake, table, run)})"
                f" WHERE {which} ORDER BY ALL LIMIT 1"
            ).fetchall()
            if found:
                return _place(con, shows, run, *found[0])
        about_all = finding and finding["rank"] is None and finding["op"] is None
        known_of = {name: (finding or row).get(name) for name in ("rank", "op")}
        for table, time in () if about_all else _TIMED.items():
            columns = {column.name for column in relation_columns(table)}
            about = {k: v for k, v in known_of.items() if k in columns and v is not None}
            wanted = " AND ".join(f"{key} = ${key}" for key in about) or "true"
            found = con.execute(
                f"SELECT source_id, line FROM ({run_rows(con, self._lake, table, run)})"
                f" WHERE {wanted} ORDER BY {time} DESC NULLS LAST, line LIMIT 1",
                about,
            ).fetchall()
            if found:
                asked = "".join(f" of {key} {value}" for key, value in about.items())
                return _place(con, f"longest row in {table}{asked}", run, *found[0])
        return _place(con, "first file of the run", run, 0, 1)


def _finding(con: _Con, run: str, row: Mapping[str, Any]) -> Document:
    """Return kind, rank and operation of the finding or incident of a run that a row is of."""
    if row.keys() >= {"latest_run", "incident"}:
        which, values = "incident = $2", [row["incident"]]
    elif row.keys() >= {"kind", "subject"}:
        which, values = "(kind, subject) = ($2, $3)", [row["kind"], row["subject"]]
    else:
        return {}
    found = con.execute(
        f"SELECT kind, rank, op FROM findings WHERE run_id = $1 AND {which}"
        " ORDER BY rank IS NULL, op IS NULL LIMIT 1",
        [run, *values],
    ).fetchall()
    return dict(zip(("kind", "rank", "op"), found[0], strict=True)) if found else {}


def _place(con: _Con, shows: str, run: str, source: int, line: int) -> Document:
    """Return where a line of a run is, as `path:line`, and what it shows."""
    found = con.execute(
        "SELECT concat_ws('/', path, member) FROM sources WHERE run_id = $1 AND source_id = $2",
        [run, source],
    ).fetchall()
    return {"run_id": run, "where": f"{found[0][0] if found else run}:{line}", "shows": shows}
