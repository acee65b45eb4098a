"""Small wrong changes of source code, of the kinds that people make."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Edit(NamedTuple):
    """A change of one place of a file: bytes from `begin` to `end` become `new`."""

    path: str
    line: int
    begin: int
    end: int
    new: str
    kind: str

    def of(self, text: bytes) -> bytes:
        """The changed file."""
        return text[: self.begin] + self.new.encode() + text[self.end :]


def edits_of(root: Path, path: Path) -> list[Edit]:
    """Every change of a Python or SQL file that leaves it one."""
    text = path.read_bytes()
    name = path.relative_to(root).as_posix()
    if path.suffix == ".sql":
        return list(_sql_edits(name, text.decode()))
    return [edit for edit in _python_edits(name, text) if _compiles(edit.of(text))]


def _compiles(text: bytes) -> bool:
    try:
        compile(text, "", "exec")
    except SyntaxError:
        return False
    return True


# --- Python ---------------------------------------------------------------------------------------

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


def _python_edits(path: str, text: bytes) -> Iterator[Edit]:
    starts = [0]
    for line in text.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    module = ast.parse(text)
    # What a module names are mostly bounds of effort, with which the code does the same.
    module.body = [part for part in module.body if not isinstance(part, ast.Assign | ast.AnnAssign)]
    for node in _running_code(module):
        for place, new, kind in _changes(node):
            begin = starts[place.lineno - 1] + place.col_offset
            end = starts[(place.end_lineno or place.lineno) - 1] + (place.end_col_offset or 0)
            yield Edit(path, place.lineno, begin, end, new, kind)


def _running_code(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is in it, without types and decorators, which decide nothing."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _running_code(child)


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Each change of a node: what is replaced, by what, and its kind."""
    match node:
        case ast.Compare(left, [op], [right]):
            yield node, _code(ast.Compare(left, [_COMPARED[type(op)]()], [right])), "comparison"
        case ast.BinOp(left, op, right) if type(op) in _COMPUTED and not _is_text(left):
            yield node, _code(ast.BinOp(left, _COMPUTED[type(op)](), right)), "arithmetic"
        case ast.BoolOp(op, values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, _code(ast.BoolOp(other, values)), "and, or"
        case ast.UnaryOp(ast.Not(), operand):
            yield node, _code(operand), "not"
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield test, f"(not {_code(test)})", "condition"
        case ast.Constant(bool() as value):
            yield node, str(not value), "constant"
        case ast.Constant(int() as value):
            yield node, str(value + 1), "constant"
        case ast.Expr(ast.Call()) | ast.AugAssign():
            yield node, "pass", "statement left out"
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield node, "return None", "nothing returned"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _code(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


# --- SQL ------------------------------------------------------------------------------------------

_NO_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_WORDS = {
    r"<=": "<",
    r">=": ">",
    r"(?<![<>=!-])<(?![=>])": "<=",
    r"(?<![<>=-])>(?!=)": ">=",
    r"(?<![<>!=:])=(?![=>])": "<>",
    r"<>": "=",
    r"\bAND\b": "OR",
    r"\bOR\b(?! REPLACE)": "AND",
    r"\bIS NOT NULL\b": "IS NULL",
    r"\bIS NULL\b": "IS NOT NULL",
    r"\bIS NOT DISTINCT FROM\b": "=",
    r"\bNOT (?!NULL|DISTINCT|IN\b|EXISTS|MATERIALIZED)": "",
    r" - ": " + ",
    r" \+ ": " - ",
    r" \* ": " / ",
    r" / ": " * ",
    r"\bmin\(": "max(",
    r"\bmax\(": "min(",
    r"\bsum\(": "avg(",
    r"\bmedian\(": "avg(",
    r"\bcount\(DISTINCT ": "count(",
    r"\bLEFT JOIN\b": "JOIN",
    r"\bUNION ALL\b": "EXCEPT",
    r"\bDESC\b": "ASC",
}


def _sql_edits(path: str, text: str) -> Iterator[Edit]:
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", "\0", found[0]), text)
    changes = [(found, new) for old, new in _WORDS.items() for found in re.finditer(old, code)]
    changes += [(found, str(int(found[0]) + 1)) for found in _NUMBER.finditer(code)]
    for found, new in changes:
        begin = len(text[: found.start()].encode())
        line = code.count("\n", 0, found.start()) + 1
        yield Edit(path, line, begin, begin + len(found[0]), new, f"{found[0].strip()} -> {new}")
