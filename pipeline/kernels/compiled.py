"""Compile kernels and cache their code.

Kernels run without the GIL and without reference counts (`_nrt=False`): counting the arrays that
pass through small functions costs several times their own work. The price is that a kernel
cannot allocate: it gets every array it writes from its caller, and copies in loops, not slices.

Compiled code is cached on disk, for exactly these sources, this numba and this processor, and runs
without numba, which is imported only to compile a kernel. numba's own cache would check
only the file of the outermost kernel and run stale code of the others; it ends the process if it
cannot write or a file is damaged; and it unpickles.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, NewType, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tracelake.base.disk_cache import DiskCache, cache_of
from tracelake.kernels.object_code import Entry, ObjectCode, linked, processor, tools

_Function = TypeVar("_Function", bound=Callable[..., object])
_listeners: list[Callable[[str], None]] = []
_linking = threading.RLock()
_C, _F, _ALIGNED, _WRITEABLE = 0x1, 0x2, 0x100, 0x400  # from NumPy's flags of an array
LANES = 16
"""Numbers of a row that kernels compute with at once: two lines of a processor's cache."""
_NUMBERS = {kind: np.dtype(kind) for kind in (bool, int, float)}


def kernel(function: _Function) -> _Function:
    """Compile a function on its first call with arguments of new types, and cache the code."""
    return cast(_Function, _Kernel(function))


def inlined(function: _Function) -> _Function:
    """Compile a small function into the kernels that call it; only inside kernels.

    LLVM decides whether to inline a call: forcing it gives the same speed and compiles a third
    longer.
    """
    return cast(_Function, _Inside(lambda codegen: codegen.called_type(function)))


@contextlib.contextmanager
def on_message(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` with a line when kernels compile, and one if they cannot be cached."""
    heard: set[str] = set()

    def tell_once(line: str) -> None:
        if line not in heard:
            heard.add(line)
            tell(line)

    _listeners.append(tell_once)
    try:
        yield
    finally:
        _listeners.remove(tell_once)


def tell(line: str) -> None:
    """Pass a line to all who listen."""
    for listener in _listeners:
        listener(line)


class _Inside:
    """A function that kernels call; numba learns about it when one of them compiles."""

    def __init__(self, known: Callable[[Any], object]) -> None:
        self._known = known

    @functools.cached_property
    def _numba_type_(self) -> object:
        from tracelake.kernels import codegen  # noqa: PLC0415 - imports numba

        return self._known(codegen)


class _Kernel(_Inside):
    """A kernel: its code by the kinds of the arguments, the only properties the code relies on."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(lambda codegen: codegen.called_type(function))
        functools.update_wrapper(self, function)
        self._function = function
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._folder = Path(function.__code__.co_filename).parent
        self._entries: dict[Hashable, Entry] = {}

    def __call__(self, *arguments: object) -> object:
        kinds = tuple(map(_kind, arguments))
        entry = self._entries.get(kinds) or self._entry(kinds, arguments)
        return entry(None, arguments, None)

    def _entry(self, kinds: Hashable, arguments: tuple[object, ...]) -> Entry:
        with _linking:
            if kinds not in self._entries:
                key = hashlib.sha256(repr((kinds, processor())).encode())
                file = f"{self._name}-{key.hexdigest()[:16]}"
                code = _kept(self._folder).read(file)
                entry = linked(ObjectCode.unpacked(code)) if code else None
                self._entries[kinds] = entry or self._compiled(file, arguments)
            return self._entries[kinds]

    def _compiled(self, file: str, arguments: tuple[object, ...]) -> Entry:
        tell("compiling the parsers for this machine on first use: 2 to 20 s per format")
        from tracelake.kernels import codegen  # noqa: PLC0415 - imports numba

        code, kept = codegen.machine_code(self._function, arguments), _kept(self._folder)
        kept.write(file, code.packed())
        if kept.trouble:
            tell(f"compiled parsers cannot be cached, every start compiles them: {kept.trouble}")
        entry = linked(code)
        assert entry is not None
        return entry


def _kind(value: Any) -> Hashable:
    """Return all properties of an argument that code depends on; equal if numba's types are equal.

    Raises:
        TypeError: A kernel takes arrays, numbers, and tuples of them.
    """
    if isinstance(value, np.ndarray):
        flags = value.flags.num
        layout = flags & _C or flags & _F
        return value.dtype, value.ndim, layout | flags & (_ALIGNED | _WRITEABLE)
    if isinstance(value, tuple):
        return type(value), *map(_kind, value)
    if isinstance(value, np.number | np.bool_):
        return value.dtype
    if type(value) in _NUMBERS:
        return _NUMBERS[type(value)]
    raise TypeError(f"a kernel takes arrays and numbers, not {type(value)}")


@functools.cache
def _kept(folder: Path) -> DiskCache:
    """Return the cached code of exactly the sources in a folder and in this one."""
    versions = (sys.implementation.cache_tag, np.__version__, *tools())
    sources = sorted({*Path(__file__).parent.glob("*.py"), *folder.glob("*.py")})
    texts = (source.read_text(encoding="latin-1") for source in sources)
    return cache_of("kernels", repr(versions), *texts)


def typed(value: int) -> int:
    """Return a typed constant for kernel arguments; a literal would compile a new version."""
    return cast(int, np.int64(value))


def _intrinsic(name: str) -> Any:
    return _Inside(lambda codegen: codegen.intrinsic_type(name))


equal_at: Callable[[npt.NDArray[np.uint8], int, int], np.uint64] = _intrinsic("equal_at")
"""Which of 64 bytes of a uint8 array from any index on equal a byte, the first as the lowest bit;
only inside kernels."""

leading_zeros: Callable[[np.uint64], int] = _intrinsic("leading_zeros")
"""Zero bits above the highest one of a uint64, 64 where there is none; only inside kernels."""

trailing_zeros: Callable[[np.uint64], int] = _intrinsic("trailing_zeros")
"""Zero bits below the lowest one of a uint64 that is not 0; only inside kernels."""

Lanes = NewType("Lanes", object)
"""A row of `LANES` int64 in registers of the processor; only inside kernels."""

lanes_at: Callable[[npt.NDArray[np.int64], int], Lanes] = _intrinsic("lanes_at")
"""A row of an array of `LANES` columns."""

put_lanes: Callable[[npt.NDArray[np.int64], int, Lanes], None] = _intrinsic("put_lanes")
"""Store a row of an array of `LANES` columns."""

equal_lanes: Callable[[int], Lanes] = _intrinsic("equal_lanes")
"""A row of one number."""

add_lanes: Callable[[Lanes, Lanes], Lanes] = _intrinsic("add_lanes")
"""The sums of two rows."""

largest_lanes: Callable[[Lanes, Lanes], Lanes] = _intrinsic("largest_lanes")
"""The larger numbers of two rows."""

choose_lanes: Callable[[Lanes, Lanes, Lanes, Lanes], Lanes] = _intrinsic("choose_lanes")
"""The numbers of a third row where two rows are equal, else those of a fourth."""

word_at: Callable[[npt.NDArray[np.uint8], int], int] = _intrinsic("word_at")
"""Eight bytes of a uint8 array or a `pointer` from any index on, as one number; only inside
kernels."""

pointer: Callable[[npt.NDArray[np.uint8]], Any] = _intrinsic("pointer")
"""Pointer to a uint8 array: reads by an index from 0 on are faster than those of the array, which
may count from its end; only inside kernels."""
