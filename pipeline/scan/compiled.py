"""What kernels are made with.

Kernels run without the GIL and without reference counts (`_nrt=False`): counting the arrays that
pass through small functions costs several times the work they do. The price is that a kernel
cannot allocate: it gets every array it writes from its caller, and copies in loops, not slices.

The code that numba keeps on disk is checked against the file of the outermost kernel only: after a
change to another file of this folder, remove `__pycache__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_Function = TypeVar("_Function", bound=Callable[..., object])
_njit = cast(Any, njit)


def kernel(function: _Function) -> _Function:
    """Compiles a function on its first call and keeps the code on disk."""
    return cast(_Function, _njit(nogil=True, cache=True, _nrt=False)(function))


def inlined(function: _Function) -> _Function:
    """Compiles a small function into the kernels that call it."""
    return cast(_Function, _njit(nogil=True, _nrt=False, forceinline=True)(function))


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


word_at = cast(Callable[[npt.NDArray[np.uint8], int], int], intrinsic(_word_at))
"""Eight bytes of a uint8 array from any index on, as one number; only inside kernels."""
