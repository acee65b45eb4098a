"""Kernels as the campaign runs them: every read within bounds, every branch counted.

`check_bounds` and `count_branches` must be called before any other module of `tracelake.kernels` or
`tracelake.formats` is imported. Both give other machine code from the same sources, so that the
process needs a code folder of its own: set `NUMBA_CACHE_DIR`, and `NUMBA_BOUNDSCHECK=1` before
numba is imported.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from tracelake.kernels import compiled

SITES = 1 << 14
_ROOMS = ("tracelake.kernels.", "tracelake.formats.")
_DECORATORS = {"kernel", "inlined"}
_HITS = np.zeros(SITES, np.uint32)
_ADDRESS = _HITS.ctypes.data


def check_bounds() -> None:
    """Lets reads of whole words and by pointers fail outside their array, as numba does others."""
    assert cast(Any, numba).config.BOUNDSCHECK, "set NUMBA_BOUNDSCHECK=1"
    unchecked = compiled.word_at

    def word_at(array: npt.NDArray[np.uint8], index: int) -> int:
        if index < 0 or index + 8 > array.size:
            raise IndexError("a word outside its array")
        return unchecked(array, index)

    def pointer(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return array

    compiled.word_at = compiled.inlined(word_at)
    compiled.pointer = compiled.inlined(pointer)


@compiled.kernel
def read_word(array: npt.NDArray[np.uint8], index: int) -> int:
    """Eight bytes as the kernels read them, to show that they are checked."""
    return compiled.word_at(array, index)


def _touched(typing_context: Any, site: Any) -> Any:
    def count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        place = builder.add(ir.Constant(ir.IntType(64), _ADDRESS), arguments[0])
        pointer = builder.inttoptr(place, ir.IntType(32).as_pointer())
        builder.store(builder.add(builder.load(pointer), ir.Constant(ir.IntType(32), 1)), pointer)
        return context.get_dummy_value()

    del typing_context, site
    return types.void(types.int64), count


touched = cast(Any, intrinsic)(_touched)
"""Counts that a branch was taken; its site is given in bytes."""


def hits() -> npt.NDArray[np.uint32]:
    """How often each branch was taken since this was zeroed."""
    return _HITS


def count_branches() -> None:
    """Lets every kernel that is compiled from now on count the branches it takes."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._marker = _Marker()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(_ROOMS):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self._marker)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, marker: _Marker) -> None:
        super().__init__(name, path)
        self._own_marker = marker

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        source = self.get_data(self.path)
        tree = self._own_marker.visit(ast.parse(source, self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["_touched"] = touched
        super().exec_module(module)


class _Marker(ast.NodeTransformer):
    """Puts a mark at the beginning of every branch of every kernel."""

    def __init__(self) -> None:
        self._sites = 0
        self._inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        decorators = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
        if not decorators & _DECORATORS:
            return node
        self._inside = True
        self.generic_visit(node)
        self._inside = False
        node.body = self._marked(node.body)
        return node

    def _branching(self, node: ast.If | ast.While | ast.For) -> ast.AST:
        self.generic_visit(node)
        if self._inside:
            node.body = self._marked(node.body)
            node.orelse = self._marked(node.orelse) if node.orelse else []
        return node

    visit_If = visit_While = visit_For = _branching  # noqa: N815

    def _marked(self, body: list[ast.stmt]) -> list[ast.stmt]:
        assert self._sites < SITES
        mark = ast.parse(f"_touched({4 * self._sites})").body
        self._sites += 1
        return mark + body
