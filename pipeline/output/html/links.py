"""Compare bus bandwidth with the rated speed of links, else with the best of the lake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from tracelake.base.errors import UsageError
from tracelake.models.base import own
from tracelake.output.html.reading import PAGE_RUNS
from tracelake.schema.tables import Column

# Classes of links, by what they connect.
_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("nvlink", "nvswitch", "xgmi", "pcie"), "within"),
    **dict.fromkeys(("ib", "infiniband", "roce", "eth", "efa", "slingshot"), "across"),
}
# A table as `PAGE_RUNS`: the speed that a group's bandwidth is compared with, and its name.
PAGE_RATES = own("_page_rates")
OF_RATED = Column(
    "of_rated_ratio",
    "DOUBLE",
    "Median bus bandwidth over the rated speed of the link (`--links`): within a host the"
    " fastest link of a host, across hosts the fastest network. A group whose hosts are unknown has"
    " none.",
)


def parse_links(given: str) -> dict[str, float]:
    """Return speeds in GB/s by class, from text such as `nvlink=450,ib=50` or a file of such lines.

    Raises:
        UsageError: A class is unknown, a speed is not a positive number, or a file is missing.
    """
    text = given
    if "=" not in given:
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"--links: {given!r} is neither speeds nor a text file",
                hint="give speeds in GB/s, like nvlink=450,ib=50",
            ) from error
    lines = [line.partition("#")[0] for line in text.splitlines()]
    found: dict[str, float] = {}
    for item in filter(None, map(str.strip, ",".join(lines).split(","))):
        name, _, speed = (part.strip() for part in item.partition("="))
        if name.lower() not in _CLASSES:
            raise UsageError(
                f"--links: unknown link {name!r}", hint=f"use some of {', '.join(_CLASSES)}"
            )
        found[name.lower()] = _speed(name, speed)
    return found


def _speed(name: str, text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise UsageError(
            f"--links: {name} needs a speed above 0, not {text!r}",
            hint=f"give GB/s of one direction, like {name}=50",
        )
    return speed


def rate_links(con: duckdb.DuckDBPyConnection, links: Mapping[str, float]) -> None:
    """Fill `PAGE_RATES` for the runs of the page."""
    if links:
        fastest = {
            place: max((links[name], name) for name in links if _CLASSES[name] == place)
            for place in {_CLASSES[name] for name in links}
        }
        rows = ", ".join(
            f"('{place}', {speed!r}::DOUBLE, 'rated {name}: {speed:g} GB/s')"
            for place, (speed, name) in sorted(fastest.items())
        )
        rates = f"""
            SELECT g.run_id, g.group_kind, l.gbps, l.said, true AS given
            FROM _group_nodes AS g
            SEMI JOIN {PAGE_RUNS} USING (run_id)
            JOIN (VALUES {rows}) AS l (place, gbps, said)
                ON l.place = CASE WHEN g.nodes = 1 THEN 'within' WHEN g.nodes > 1 THEN 'across' END
        """
    else:
        rates = f"""
            SELECT r.run_id, b.group_kind, b.gbps, b.said, false AS given
            FROM {PAGE_RUNS} AS r
            CROSS JOIN (
                SELECT group_kind, max(busbw_p50_gbps) AS gbps,
                    'best ' || group_kind || ' of the lake' AS said
                FROM collective_bandwidth WHERE 2 * coarse_calls < calls
                GROUP BY group_kind
            ) AS b
            WHERE b.gbps > 0
        """
    con.execute(f"CREATE OR REPLACE TABLE {PAGE_RATES} AS {rates}")
