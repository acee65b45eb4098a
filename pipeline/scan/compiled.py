"""What kernels are made with.

Kernels run without the GIL and without reference counts (`_nrt=False`): counting the arrays that
pass through small functions costs several times the work they do. The price is that a kernel
cannot allocate: it gets every array it writes from its caller, and copies in loops, not slices.

Compiled code is kept on disk, in a folder named by the hash of this folder's sources: numba itself
looks at the outermost kernel's file only, and would run stale code of the others. Where no folder
can be written, the first use in every process compiles.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_Function = TypeVar("_Function", bound=Callable[..., object])
_njit = cast(Any, njit)
_config = cast(Any, config)


def kernel(function: _Function) -> _Function:
    """Compiles a function on its first call and keeps the code on disk."""
    folder = _cache_folder()
    before = _config.CACHE_DIR
    _config.CACHE_DIR = folder or ""  # read while decorating; others in this process keep theirs
    try:
        compiled = _njit(nogil=True, cache=folder is not None, _nrt=False)(function)
    finally:
        _config.CACHE_DIR = before
    return cast(_Function, compiled)


def inlined(function: _Function) -> _Function:
    """Compiles a small function into the kernels that call it, and keeps none of its own.

    Whether a call is inlined is left to LLVM: forcing it gives the same speed and compiles a third
    longer.
    """
    return cast(_Function, _njit(nogil=True, _nrt=False)(function))


def is_cold() -> bool:
    """Whether the next use of a format compiles, because no code is kept yet."""
    folder = _cache_folder()
    return folder is None or not any(Path(folder).iterdir())


@functools.cache
def _cache_folder() -> str | None:
    """Where compiled code of exactly these sources is kept, or None if nowhere can be written."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(here.glob("*.py")):
        digest.update(source.read_bytes())
    name = f"kernels-{digest.hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for parent in [Path(chosen)] if chosen else [here / "__pycache__", Path(home) / "tracelake"]:
        with contextlib.suppress(OSError):
            (parent / name).mkdir(parents=True, exist_ok=True)
            if os.access(parent / name, os.W_OK):
                return str(parent / name)
    return None


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


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    del typing_context, word
    return types.int64(types.uint64), count


trailing_zeros = cast(Callable[[np.uint64], int], intrinsic(_trailing_zeros))
"""Zero bits below the lowest one of a uint64 that is not 0; only inside kernels."""

word_at = cast(Callable[[npt.NDArray[np.uint8], int], int], intrinsic(_word_at))
"""Eight bytes of a uint8 array from any index on, as one number; only inside kernels."""
