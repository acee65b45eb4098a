"""Values of options, read without pydantic where they are plain.

Typer has pydantic look at every value, also at those that the user did not give. To import it takes
a tenth of a second, as long as all else that a short command does before its work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, get_args, get_origin


class _Doubtful(Exception):  # noqa: N818 - no error: Typer reads the value
    pass


class _Plain:
    """Reads the values of a parameter; Typer reads those that are not plain."""

    def __init__(self, annotation: object, typers: Callable[[], Any]) -> None:
        self._annotation = annotation
        self._typers = typers

    def __call__(self) -> _Plain:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as what the parameter asks for; see `typer.core`."""
        try:
            return _read(value, self._annotation, several=param.multiple or param.nargs != 1)
        except _Doubtful:
            return self._typers().coerce(value, param=param, ctx=ctx)


def read_plainly(parameters: Sequence[Any]) -> Sequence[Any]:
    """Has the parameters of a command read plain values themselves, and gives them back."""
    for parameter in parameters:
        typers = parameter.get_runtime_param
        if not isinstance(typers, _Plain):
            parameter.get_runtime_param = _Plain(parameter.type_descriptor.annotation, typers)
    return parameters


def _read(value: object, annotation: object, *, several: bool) -> object:
    if value is None:
        return () if several else None
    if several:
        if get_origin(annotation) is not list or not isinstance(value, list | tuple):
            raise _Doubtful
        (kind,) = get_args(annotation)
        return [_read_one(one, kind) for one in value]
    return _read_one(value, annotation)


def _read_one(value: object, kind: object) -> object:
    """Takes text where text is asked for, a choice's exact name, and what is read already."""
    if not isinstance(kind, type):
        raise _Doubtful
    if isinstance(value, str) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError:
            raise _Doubtful from None
    if type(value) is not kind:
        raise _Doubtful
    return value
