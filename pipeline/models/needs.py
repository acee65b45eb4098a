"""Find out which relations must have rows for a SELECT to have any."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Any

import duckdb

from tracelake.models.graph import select_tree, walk

Needs = frozenset[frozenset[str]]
"""Sets of relations: the SELECT can only have rows if all relations of one of the sets have rows.

With the empty set among them it may have rows whatever it reads."""

ANYTHING: Needs = frozenset({frozenset()})
_CALLED = re.compile(r'(\w+)"?\(')


def can_have_rows(needs: Needs, empty: Collection[str]) -> bool:
    """Return whether a SELECT with these needs can have rows although some relations have none.

    Example:
        >>> needs = frozenset({frozenset({"ops", "runs"}), frozenset({"comms"})})
        >>> can_have_rows(needs, {"ops"}), can_have_rows(needs, {"ops", "comms"})
        (True, False)
    """
    return any(alternative.isdisjoint(empty) for alternative in needs)


class NeedsFinder:
    """Derives needs from the syntax of a SELECT: what it joins, unites and groups."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        """Ask a connection that has the macros for its functions."""
        self._con = con
        self._aggregates = _aggregates(con)

    def of(self, sql: str) -> Needs:
        """Return the needs of a valid SELECT.

        What is not understood is taken as a SELECT that may have rows whatever it reads.
        """
        return self._query(select_tree(self._con, sql)["statements"][0]["node"], {})

    def _query(self, node: dict[str, Any], ctes: Mapping[str, Needs]) -> Needs:
        known = dict(ctes)
        for entry in node["cte_map"]["map"]:
            known[entry["key"]] = self._query(entry["value"]["query_node"], known)
        match node["type"]:
            case "SELECT_NODE":
                return self._from(node["from_table"], known) if self._keeps(node) else ANYTHING
            case "RECURSIVE_CTE_NODE":
                return self._query(node["left"], known)
            case "SET_OPERATION_NODE":
                children = [self._query(child, known) for child in node["children"]]
                return children[0] if node["setop_type"] == "EXCEPT" else _either(children)
        return ANYTHING

    def _keeps(self, select: dict[str, Any]) -> bool:
        """Return whether a SELECT makes no rows from none: it does where it groups all as one."""
        if select["group_sets"]:
            return all(select["group_sets"])
        if select["aggregate_handling"] == "FORCE_AGGREGATES":  # GROUP BY ALL
            named = {item["alias"] for item in select["select_list"]}
            plain = [i for i in select["select_list"] if i["class"] == "COLUMN_REF"]
            return not named.issuperset(item["column_names"][-1] for item in plain)
        own = [select[name] for name in ("select_list", "having", "qualify", "modifiers")]
        return not any(
            node.get("class") == "FUNCTION" and node.get("function_name") in self._aggregates
            for node in walk(own)
        )

    def _from(self, table: dict[str, Any], ctes: Mapping[str, Needs]) -> Needs:
        match table["type"]:
            case "BASE_TABLE":
                name = ".".join(table["qualified_name"]["path"])
                return ctes.get(name, frozenset({frozenset({name})}))
            case "SUBQUERY":
                return self._query(table["subquery"]["node"], ctes)
            case "JOIN":
                return self._join(table, ctes)
        return ANYTHING

    def _join(self, join: dict[str, Any], ctes: Mapping[str, Needs]) -> Needs:
        left, right = self._from(join["left"], ctes), self._from(join["right"], ctes)
        match join["join_type"]:
            case "INNER" | "SEMI" if join["ref_type"] != "POSITIONAL":
                return _least(a | b for a, b in product(left, right))
            case "LEFT" | "ANTI":
                return left
            case "RIGHT":
                return right
        return _either((left, right))


def _either(several: Iterable[Needs]) -> Needs:
    return _least(alternative for needs in several for alternative in needs)


def _least(alternatives: Iterable[frozenset[str]]) -> Needs:
    """Return the sets that contain no other one of them."""
    found = set(alternatives)
    return frozenset(a for a in found if not any(b < a for b in found))


def _aggregates(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return functions that make one value of all rows, and macros that may call one."""
    rows = con.execute(
        "SELECT DISTINCT function_name, macro_definition FROM duckdb_functions()"
        " WHERE function_type IN ('aggregate', 'macro')"
    ).fetchall()
    found = {name for name, definition in rows if definition is None}
    called = {name: {*_CALLED.findall(definition)} for name, definition in rows if definition}
    while more := {n for n, names in called.items() if n not in found and names & found}:
        found |= more
    return frozenset(found)
