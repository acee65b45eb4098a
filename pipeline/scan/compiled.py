"""What kernels are made with.

Kernels run without the GIL and without reference counts (`_nrt=False`): counting the arrays that
pass through small functions costs several times the work they do. The price is that a kernel
cannot allocate: it gets every array it writes from its caller, and copies in loops, not slices.

Compiled code is kept on disk, for exactly these sources, this numba and this processor. numba's own
cache would look at the outermost kernel's file only and run stale code of the others, it ends the
process where it cannot write or where a file is damaged, and it is read by unpickling.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from pipeline.kept import Kept, places
from pipeline.scan.object_code import packed, unpacked

_Function = TypeVar("_Function", bound=Callable[..., object])
_compile = functools.partial(cast(Any, njit), nogil=True, _nrt=False, no_cfunc_wrapper=True)
_listeners: list[Callable[[str], None]] = []


def kernel(function: _Function) -> _Function:
    """Compiles a function on its first call and keeps the code on disk."""
    compiled = _compile()(function)
    compiled._cache = _Code(function)  # where numba looks for code before it compiles
    return cast(_Function, compiled)


def inlined(function: _Function) -> _Function:
    """Compiles a small function into the kernels that call it, and keeps none of its own.

    Not to be called from Python: it would compile in every process. Whether a call is inlined is
    left to LLVM: forcing it gives the same speed and compiles a third longer.
    """
    return cast(_Function, _compile()(function))


@contextlib.contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """While this lasts, `tell` gets a line when kernels compile, and one if they cannot be kept."""
    said: set[str] = set()

    def tell_once(line: str) -> None:
        if line not in said:
            said.add(line)
            tell(line)

    _listeners.append(tell_once)
    try:
        yield
    finally:
        _listeners.remove(tell_once)


def _tell(line: str) -> None:
    for listener in _listeners:
        listener(line)


class _Code:
    """The code of one kernel on disk, as numba asks for it: a file per signature and processor."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"

    def load_overload(self, signature: object, target: Any) -> object:
        code = _kept().read(self._file(signature, target.codegen()))
        compiled = code and unpacked(code, self._function, signature, target)
        if not compiled:
            _tell("compiling the parsers for this machine: once, some 10 seconds per format")
            return None
        return cast(object, compiled)

    def save_overload(self, signature: object, compiled: Any) -> None:
        kept = _kept()
        kept.write(self._file(signature, compiled.codegen), packed(compiled))
        if kept.trouble:
            _tell(f"compiled parsers cannot be kept, every start compiles them: {kept.trouble}")

    def _file(self, signature: object, codegen: Any) -> str:
        key = hashlib.sha256(repr((str(signature), codegen.magic_tuple())).encode())
        return f"{self._name}-{key.hexdigest()[:16]}"


@functools.cache
def _kept() -> Kept:
    """Compiled code of exactly these sources and tools."""
    tools = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, np.__version__)
    digest = hashlib.sha256(repr(tools).encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return Kept("kernels", digest.hexdigest()[:16], places())


def typed(value: int) -> int:
    """A constant for arguments of kernels: each literal would compile a version of its own."""
    return cast(int, np.int64(value))


def _word_at(typing_context: Any, array: Any, index: Any) -> Any:
    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = cast(Any, make_array)(signature.args[0])(context, builder, arguments[0]).data
        at = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(at, align=1)

    del typing_context, index
    return types.uint64(array, types.int64), load


def _eight_at(typing_context: Any, address: Any, index: Any) -> Any:
    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        at = builder.gep(arguments[0], [arguments[1]])
        return builder.load(builder.bitcast(at, ir.IntType(64).as_pointer()), align=1)

    del typing_context, index
    return types.uint64(address, types.int64), load


def _leading_zeros(typing_context: Any, word: Any) -> Any:
    def count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    del typing_context, word
    return types.int64(types.uint64), count


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    del typing_context, word
    return types.int64(types.uint64), count


eight_at = cast(Callable[[Any, int], int], intrinsic(_eight_at))
"""Eight bytes behind an address and an index, as one number; only inside kernels."""

leading_zeros = cast(Callable[[np.uint64], int], intrinsic(_leading_zeros))
"""Zero bits above the highest one of a uint64, 64 where there is none; only inside kernels."""

trailing_zeros = cast(Callable[[np.uint64], int], intrinsic(_trailing_zeros))
"""Zero bits below the lowest one of a uint64 that is not 0; only inside kernels."""

word_at = cast(Callable[[npt.NDArray[np.uint8], int], int], intrinsic(_word_at))
"""Eight bytes of a uint8 array from any index on, as one number; only inside kernels."""
