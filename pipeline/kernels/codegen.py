"""Compile kernels to machine code with numba.

This module is imported only when a kernel has to be compiled.
"""

from __future__ import annotations

import contextlib
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
    return intrinsic_type(call)


def intrinsic_type(function: _Function) -> object:
    """Return numba's type of the intrinsic that `function` defines."""
    made = cast(Any, intrinsic)(function)
    context = cast(Any, cpu_target).typing_context
    context.refresh()
    return context.resolve_value_type(made)


def _built(instructions: Callable[..., Any]) -> Callable[..., Any]:
    """Return the code of an intrinsic that only the values of its arguments decide."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return instructions(builder, *arguments)

    return code


def word_at(typing_context: Any, array: Any, index: Any) -> Any:
    """Return eight bytes of an array, as one number."""

    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = cast(Any, make_array)(signature.args[0])(context, builder, arguments[0]).data
        return _eight_bytes(builder, data, arguments[1])

    del typing_context, index
    return types.uint64(array, types.int64), load


def eight_at(typing_context: Any, address: Any, index: Any) -> Any:
    """Return eight bytes at an address, as one number."""
    del typing_context, index
    return types.uint64(address, types.int64), _built(_eight_bytes)


def _eight_bytes(builder: Any, data: Any, index: Any) -> Any:
    at = builder.bitcast(builder.gep(data, [index]), ir.IntType(64).as_pointer())
    return builder.load(at, align=1)


def equal_at(typing_context: Any, array: Any, index: Any, byte: Any) -> Any:
    """Return which of 64 bytes of an array equal a byte, the first as the lowest bit."""

    def compare(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, byte = arguments
        data = cast(Any, make_array)(signature.args[0])(context, builder, array).data
        many = ir.VectorType(ir.IntType(8), 64)
        at = builder.bitcast(builder.gep(data, [index]), many.as_pointer())
        same = _repeated(builder, many, byte)
        found = builder.icmp_unsigned("==", builder.load(at, align=1), same)
        return builder.bitcast(found, ir.IntType(64))

    del typing_context, index, byte
    return types.uint64(array, types.int64, types.uint8), compare


def leading_zeros(typing_context: Any, word: Any) -> Any:
    """Return zero bits above the highest one, also of 0."""
    del typing_context, word
    counted = _built(lambda builder, bits: builder.ctlz(bits, ir.Constant(ir.IntType(1), 0)))
    return types.int64(types.uint64), counted


def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Return zero bits below the lowest one."""
    del typing_context, word
    counted = _built(lambda builder, bits: builder.cttz(bits, ir.Constant(ir.IntType(1), 1)))
    return types.int64(types.uint64), counted


_MANY = ir.VectorType(ir.IntType(64), LANES)


class _LanesType(types.Type):
    """As many int64 as a row has, in registers of the processor."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


_lanes = _LanesType()


@cast(Any, register_model)(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        cast(Any, super()).__init__(manager, type_, _MANY)


def lanes_at(typing_context: Any, array: Any, row: Any) -> Any:
    """Return a row of an array of `LANES` columns."""

    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_row(context, builder, signature, arguments), align=8)

    del typing_context, row
    return _lanes(array, types.int64), load


def put_lanes(typing_context: Any, array: Any, row: Any, lanes: Any) -> Any:
    """Store a row of an array of `LANES` columns."""

    def store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _row(context, builder, signature, arguments), align=8)
        return context.get_dummy_value()

    del typing_context, row
    return types.none(array, types.int64, lanes), store


def _row(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = cast(Any, make_array)(signature.args[0])(context, builder, arguments[0])
    return builder.gep(builder.bitcast(array.data, _MANY.as_pointer()), [arguments[1]])


def equal_lanes(typing_context: Any, value: Any) -> Any:
    """Return a row of one number."""
    del typing_context, value
    return _lanes(types.int64), _built(lambda builder, one: _repeated(builder, _MANY, one))


def add_lanes(typing_context: Any, one: Any, other: Any) -> Any:
    """Return the sums of two rows."""
    del typing_context
    return _lanes(one, other), _built(lambda builder, *rows: builder.add(*rows))


def largest_lanes(typing_context: Any, one: Any, other: Any) -> Any:
    """Return the larger numbers of two rows."""

    def larger(builder: Any, *rows: Any) -> Any:
        return builder.select(builder.icmp_signed(">", *rows), *rows)

    del typing_context
    return _lanes(one, other), _built(larger)


def choose_lanes(typing_context: Any, keys: Any, wanted: Any, same: Any, other: Any) -> Any:
    """Return a row of `same` where the keys of two rows are equal, else of `other`."""

    def choose(builder: Any, *rows: Any) -> Any:
        return builder.select(builder.icmp_signed("==", *rows[:2]), *rows[2:])

    del typing_context
    return _lanes(keys, wanted, same, other), _built(choose)


def _repeated(builder: Any, many: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(many, ir.Undefined), value, ir.IntType(32)(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), many.count), [0] * many.count)
    return builder.shuffle_vector(first, ir.Constant(many, ir.Undefined), places)


def pointer(typing_context: Any, address: Any) -> Any:
    """Return an address as a pointer that kernels can index."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    del typing_context, address
    return cast(Any, types).CPointer(types.uint8)(types.uintp), code
