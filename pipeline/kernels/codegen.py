"""Compile kernels to machine code with numba.

This module is imported only when a kernel has to be compiled.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.codegen import AOTCodeLibrary, JITCPUCodegen
from numba.core.compiler import Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

from tracelake.kernels.compiled import LANES
from tracelake.kernels.object_code import ObjectCode

_Function = Callable[..., object]


class _Codegen(JITCPUCodegen):
    """Makes machine code of a kernel, but none of the functions in it, which do not run alone."""

    _library_class = AOTCodeLibrary  # type: ignore[assignment]

    def _add_module(self, module: Any) -> None:
        """Do not load code, because it does not run here."""


_codegen = cast(Any, _Codegen)("kernels")
_config = cast(Any, numba).config


@contextlib.contextmanager
def _unoptimised() -> Iterator[None]:
    """Have numba not optimise functions: it would do so once more for each one that calls them."""
    level = _config.OPT
    _config.OPT = type(level)(0)
    try:
        yield
    finally:
        _config.OPT = level


@contextlib.contextmanager
def _rarely_collected() -> Iterator[None]:
    """Have Python rarely look for garbage among the many objects that numba makes."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _code(function: _Function, arguments: tuple[Any, ...], *, wrapped: bool = False) -> Any:
    """Return the code of a function for arguments of these types; `wrapped` if Python calls it."""
    flags, target = cast(Any, Flags)(), cast(Any, cpu_target)
    flags.no_compile = flags.no_cfunc_wrapper = flags.release_gil = True
    flags.no_cpython_wrapper = not wrapped
    return cast(Any, compile_extra)(
        target.typing_context,
        target.target_context,
        function,
        arguments,
        return_type=None,
        flags=flags,
        locals={},
        library=_codegen.create_library(function.__qualname__),
    )


def machine_code(function: _Function, arguments: tuple[object, ...]) -> ObjectCode:
    """Compile a function for the types of these arguments.

    Raises:
        ValueError: The code cannot be cached: it needs Python objects, or returns an array.
    """
    signature = tuple(map(cast(Any, numba).typeof, arguments))
    with global_compiler_lock, _rarely_collected():
        with _unoptimised():
            compiled = _code(function, signature, wrapped=True)
        machine = compiled.library.emit_native_object()
    name = compiled.library.name
    environments = compiled._find_referenced_environments()
    if compiled.objectmode or compiled.lifted or compiled.reload_init:
        raise ValueError(f"{name} is not only machine code")
    if any(list(environment.consts) for environment in environments):
        raise ValueError(f"{name} has Python objects")
    _refuse_objects(compiled.signature.return_type)
    module = compiled.library._final_module
    declared = [*module.functions, *module.global_variables]
    return ObjectCode(
        compiled.fndesc.llvm_cpython_wrapper_name,
        compiled.fndesc.env_name,
        tuple(d.name for d in declared if d.is_declaration and not d.name.startswith("llvm.")),
        machine,
    )


def _refuse_objects(returned: Any) -> None:
    parts = returned.types if isinstance(returned, cast(Any, types).BaseTuple) else [returned]
    for part in parts:
        if part is not returned:
            _refuse_objects(part)
        elif not isinstance(part, types.Number | types.Boolean | types.NoneType):
            raise ValueError(f"a kernel returns numbers, not {part}")


def called_type(function: _Function) -> object:
    """Return numba's type of a function that kernels call."""

    def call(typing_context: Any, *arguments: Any) -> Any:
        compiled = _code(function, arguments)

        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            context.active_code_library.add_linking_library(compiled.library)
            return context.call_internal(builder, compiled.fndesc, signature, values)

        del typing_context
        return compiled.signature, code

    first, _ = inspect.signature(call).parameters.values()
    own = inspect.signature(function).parameters.values()
    call.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    return _type_of(call)


def intrinsic_type(name: str) -> object:
    """Return numba's type of an intrinsic, one of `_INTRINSICS`."""
    returned, *kinds, instructions = _INTRINSICS[name]

    @functools.wraps(instructions)  # numba reads the parameters, of which the first is no argument
    def call(typing_context: Any, *given: Any) -> Any:
        del typing_context
        taken = (one if kind is None else kind for kind, one in zip(kinds, given, strict=True))
        return returned(*taken), code

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        plain = (
            cast(Any, make_array)(kind)(context, builder, value).data
            if isinstance(kind, types.Array)
            else value
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        made = instructions(builder, *plain)
        return context.get_dummy_value() if returned is types.none else made

    return _type_of(call)


def _type_of(function: _Function) -> object:
    """Return numba's type of the intrinsic that `function` defines."""
    made = cast(Any, intrinsic)(function)
    context = cast(Any, cpu_target).typing_context
    context.refresh()
    return context.resolve_value_type(made)


_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_BYTES, _MANY = ir.VectorType(_BYTE, 64), ir.VectorType(_WORD, LANES)
_NO, _YES = (ir.Constant(ir.IntType(1), flag) for flag in range(2))


class _LanesType(types.Type):
    """As many int64 as a row has, in registers of the processor."""


_lanes = _LanesType("Lanes")


@cast(Any, register_model)(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        cast(Any, super()).__init__(manager, type_, _MANY)


def _load(b: Any, data: Any, index: Any, kind: Any) -> Any:
    return b.load(b.bitcast(b.gep(data, [index]), kind.as_pointer()), align=1)


def _row(b: Any, data: Any, row: Any) -> Any:
    return b.gep(b.bitcast(data, _MANY.as_pointer()), [row])


def _repeated(b: Any, many: Any, value: Any) -> Any:
    first = b.insert_element(ir.Constant(many, ir.Undefined), value, ir.IntType(32)(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), many.count), [0] * many.count)
    return b.shuffle_vector(first, ir.Constant(many, ir.Undefined), places)


def _equal_at(b: Any, data: Any, index: Any, byte: Any) -> Any:
    found = b.icmp_unsigned("==", _load(b, data, index, _BYTES), _repeated(b, _BYTES, byte))
    return b.bitcast(found, _WORD)


# What an intrinsic returns, its arguments (None: of any type; an array is passed as the address of
# its data), and how a builder makes it; `compiled` says what each does.
_INTRINSICS: dict[str, tuple[Any, ...]] = {
    "word_at": (types.uint64, None, types.int64, lambda b, data, i: _load(b, data, i, _WORD)),
    "equal_at": (types.uint64, None, types.int64, types.uint8, _equal_at),
    "leading_zeros": (types.int64, types.uint64, lambda b, bits: b.ctlz(bits, _NO)),
    "trailing_zeros": (types.int64, types.uint64, lambda b, bits: b.cttz(bits, _YES)),
    "pointer": (cast(Any, types).CPointer(types.uint8), None, lambda _, data: data),
    "lanes_at": (_lanes, None, types.int64, lambda b, data, i: b.load(_row(b, data, i), align=8)),
    "put_lanes": (
        types.none,
        *(None, types.int64, _lanes),
        lambda b, data, i, lanes: b.store(lanes, _row(b, data, i), align=8),
    ),
    "equal_lanes": (_lanes, types.int64, lambda b, value: _repeated(b, _MANY, value)),
    "add_lanes": (_lanes, _lanes, _lanes, lambda b, one, other: b.add(one, other)),
    "largest_lanes": (
        *(_lanes, _lanes, _lanes),
        lambda b, one, other: b.select(b.icmp_signed(">", one, other), one, other),
    ),
    "choose_lanes": (
        *(_lanes, _lanes, _lanes, _lanes, _lanes),
        lambda b, keys, wanted, same, other: b.select(
            b.icmp_signed("==", keys, wanted), same, other
        ),
    ),
}
