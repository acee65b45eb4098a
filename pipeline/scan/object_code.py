"""A compiled kernel as bytes: a line of JSON, machine code, and code for linking.

numba's own form is a pickle, which runs what it is told to. Here everything but the code is taken
from the function itself, from the types it is called with, or from plain names and numbers.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any, cast

from numba import types
from numba.core.compiler import CompileResult
from numba.core.environment import Environment
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.sigutils import normalize_signature
from numba.core.typing.templates import Signature

# Where numba is annotated, it is so by halves.
_types, _environments = cast(Any, types), cast(Any, Environment)._memo
_described, _normalized = cast(Any, PythonFunctionDescriptor), cast(Any, normalize_signature)
_signature, _rebuilt = cast(Any, Signature), cast(Any, CompileResult)._rebuild
_SCALARS = {str(t): t for t in (_types.none, _types.boolean, *_types.number_domain)}
# Of numba's function descriptor: what neither the function nor its types say.
_DESCRIBED = ("unique_name", "uid", "abi_tags", "args", "mangled_name", "env_name")


def packed(compiled: Any) -> bytes:
    """The result of a compilation as bytes.

    Args:
        compiled: numba's result, without Python objects in its code.

    Raises:
        ValueError: The code needs more than can be kept: Python objects, or a returned array.
    """
    name, _, (machine, linking) = compiled.library.serialize_using_object_code()
    environments = compiled._find_referenced_environments()
    if compiled.objectmode or compiled.lifted or compiled.reload_init:
        raise ValueError(f"{name} is not machine code alone")
    if any(list(environment.consts) for environment in environments):
        raise ValueError(f"{name} has Python objects")
    described = {field: getattr(compiled.fndesc, field) for field in _DESCRIBED}
    head = {
        **described,
        "library": name,
        "returns": _spelled(compiled.signature.return_type),
        "modules": {e.env_name: e.globals["__name__"] for e in environments},
        "machine_bytes": len(machine),
    }
    return b"".join((json.dumps(head).encode(), b"\n", machine, linking))


def unpacked(content: bytes, function: Callable[..., object], signature: Any, target: Any) -> Any:
    """The result of a compilation from its bytes; None where this process cannot use it.

    Args:
        signature: Types of the arguments.
        target: numba's context of the processor.
    """
    line, _, code = content.partition(b"\n")
    head = json.loads(line)
    for module in set(head["modules"].values()) - sys.modules.keys():
        if not module.startswith("numba."):
            return None
        importlib.import_module(module)
    arguments, _ = _normalized(signature)
    returns = _meant(head["returns"])
    described = _described(
        native=True,
        modname=function.__module__,
        qualname=function.__qualname__,
        unique_name=head["unique_name"],
        doc=function.__doc__ or "",
        typemap=None,
        restype=returns,
        calltypes=None,
        args=tuple(head["args"]),
        kws=(),
        argtypes=arguments,
        env_name=head["env_name"],
        abi_tags=tuple(head["abi_tags"]),
        uid=head["uid"],
    )
    described.mangled_name = head["mangled_name"]  # it has numbers that every process counts anew
    cut = head["machine_bytes"]
    return _rebuilt(
        target,
        libdata=(head["library"], "object", (code[:cut], code[cut:])),
        fndesc=described,
        env=_environment(described.env_name, function.__module__),
        signature=_signature(returns, arguments, recvr=None),
        objectmode=False,
        lifted=(),
        typeann="",
        reload_init=(),
        referenced_envs=[_environment(*named) for named in head["modules"].items()],
    )


def _environment(name: str, module: str) -> Any:
    """Where compiled code finds its module, shared by all code of that name."""
    found = _environments.get(name)
    if found is None:
        found = cast(Any, Environment)(vars(sys.modules[module]))
        found.env_name = name
        _environments[name] = found
    return found


def _spelled(type_: Any) -> Any:
    if isinstance(type_, _types.BaseTuple):
        return [_spelled(part) for part in type_.types]
    if str(type_) not in _SCALARS:
        raise ValueError(f"a kernel returns numbers, not {type_}")
    return str(type_)


def _meant(spelled: Any) -> Any:
    if isinstance(spelled, list):
        return _types.Tuple([_meant(part) for part in spelled])
    return _SCALARS[spelled]
