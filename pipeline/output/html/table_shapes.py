"""Define how the page shows base tables: the files and lines of a run."""

from __future__ import annotations

from collections.abc import Mapping

from tracelake.output.html.shape import Shape

TABLES: Mapping[str, Shape] = {
    "rejects": Shape(
        title="Rejected lines",
        columns="sources.path, line, reason, text",
        order="path, line",
        rows=12,
        empty="No line was rejected.",
        source="""
            SELECT r.run_id, concat_ws('/', s.path, s.member) AS path, r.line, r.reason, r.text
            FROM rejects AS r LEFT JOIN sources AS s USING (run_id, source_id)
        """,
    ),
    "faults": Shape(
        title="Faults tolerated",
        columns="severity, name, count, sources.path, line, text",
        order="severity, name, path",
        pick="array_position(['error', 'data_loss', 'notice', 'info'], severity), name, path",
        rows=24,
        empty="No faults.",
        source="""
            SELECT f.* EXCLUDE (source_id), concat_ws('/', s.path, s.member) AS path
            FROM faults AS f LEFT JOIN sources AS s USING (run_id, source_id)
        """,
        note="`tracelake formats NAME` explains each fault and what to do about it.",
    ),
    "sources": Shape(
        title="Files",
        columns=(
            "path, member, rank, host, device, bytes, lines, row_lines, context_lines, rejected, "
            "rows, duplicate_of"
        ),
        order="path, member",
        rows=24,
        empty="The run has no files.",
        folded=True,
    ),
}
