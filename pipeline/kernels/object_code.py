"""Store a compiled kernel as bytes, and load it as a function without numba.

numba's own form is a pickle, which can run any code, and reading it needs numba: a fifth of a
second, more than a small input takes. Here the form is a line of JSON with names, and machine code
that LLVM links. The code needs only C functions of numba: how an array is read.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import os
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.metadata import version
from typing import Any, NamedTuple

Entry = Callable[[None, tuple[object, ...], None], Any]
_ENTRY = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
_engines: list[Any] = []  # code exists as long as its engine


class ObjectCode(NamedTuple):
    """Machine code of a kernel for the types of its arguments, which it does not check itself.

    Attributes:
        entry: Symbol of the function that takes a tuple of Python objects.
        environment: Symbol for a Python object: the code does not use it, but fails without it.
        needs: Symbols that the process must have.
        machine: An object file.
    """

    entry: str
    environment: str
    needs: tuple[str, ...]
    machine: bytes

    def packed(self) -> bytes:
        """Return the code as bytes."""
        head = {"entry": self.entry, "environment": self.environment, "needs": self.needs}
        return b"\n".join((json.dumps(head).encode(), self.machine))

    @classmethod
    def unpacked(cls, content: bytes) -> ObjectCode:
        """Return the code that `packed` converted to bytes."""
        head, _, machine = content.partition(b"\n")
        return cls(**json.loads(head), machine=machine)


def linked(code: ObjectCode) -> Entry | None:
    """Return the function, called as `entry(None, arguments, None)`; None without a symbol."""
    llvm = _prepared()
    if not all(llvm.address_of_symbol(n) or hasattr(ctypes.pythonapi, n) for n in code.needs):
        return None
    # One engine per kernel, because the code of each contains shared functions under the same
    # names.
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.machine))
    engine.finalize_object()
    place = engine.get_global_value_address(code.environment)
    ctypes.c_void_p.from_address(place).value = id(None)
    _engines.append(engine)
    return _ENTRY(engine.get_function_address(code.entry))


def _llvm() -> Any:
    """Return LLVM, which takes a tenth of the start of a command that needs no kernel."""
    import llvmlite.binding  # type: ignore[import-untyped]  # noqa: PLC0415

    return llvmlite.binding


@functools.cache
def _prepared() -> Any:
    """Return LLVM, initialised for this processor, with numba's C functions that read objects."""
    llvm = _llvm()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Only its folder: importing it takes a fifth of a second.
    numba = importlib.util.find_spec("numba")
    assert numba is not None
    spec = PathFinder.find_spec("_helperlib", numba.submodule_search_locations)
    assert spec is not None
    assert spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    for name, address in library.c_helpers.items():
        llvm.add_symbol(f"numba_{name}", address)
    return llvm


def tools() -> tuple[str, ...]:
    """Return versions of the tools that compile the code."""
    return version("numba"), version("llvmlite")


def processor() -> tuple[str, ...]:
    """Return the target of the code: this processor, or the one that numba is configured for."""
    llvm = _llvm()
    return (
        llvm.get_process_triple(),
        os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name(),
        os.environ.get("NUMBA_CPU_FEATURES") or llvm.get_host_cpu_features().flatten(),
    )
