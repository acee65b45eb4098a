"""Read parameters of a query: named values that are bound, not pasted into the SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from tracelake.base.errors import UsageError

Value: TypeAlias = "str | int | float | bool | datetime | list[Value] | None"
Parameters: TypeAlias = Mapping[str, Value]

_NAME = re.compile(r"[A-Za-z_]\w*")
_INT128 = 1 << 127


def split_parameters(texts: Iterable[str]) -> dict[str, str]:
    """Return texts `name=value` as a dictionary; names are lower case, as SQL ignores case.

    Raises:
        UsageError: One is not `name=value`, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        given, equals, value = text.partition("=")
        name = given.strip().lower()
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(
                f"{text!r} is not a parameter",
                hint="give name=value; the SQL refers to it as $name",
            )
        if name in found:
            raise UsageError(
                f"parameter {name!r} is given twice",
                hint=f"give several values as a list: {name}='[1, 2]'",
            )
        found[name] = value
    return found


def read_value(text: str) -> Value:
    """Return a JSON value (number, true, false, null, list, quoted text), else the text.

    So `7` is a number, `"7"` and `007` are text, and `[1, 2]` is a list.
    """
    try:
        value: Value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return value if _has_type(value) else text


def _refuse(word: str) -> None:
    """Reject NaN and infinities, which are not JSON."""
    raise ValueError(word)


def _has_type(value: object) -> bool:
    """Return whether SQL has a type for it; an object stays the text as given."""
    if isinstance(value, list):
        return all(map(_has_type, value))
    if isinstance(value, int):
        return -_INT128 <= value < _INT128
    return not isinstance(value, dict)


def bound(names: Iterable[str], parameters: Parameters) -> dict[str, Value]:
    """Return the parameters of one statement.

    Raises:
        UsageError: One is missing, or the statement has a `?` or `$1`.
    """
    wanted = sorted({name.lower() for name in names})
    if positional := [name for name in wanted if name.isdigit()]:
        raise UsageError(
            f"the parameter ${positional[0]} has no name",
            hint="write $name, and give --param name=VALUE",
        )
    if missing := [name for name in wanted if name not in parameters]:
        raise UsageError(
            f"the query takes a parameter ${missing[0]}",
            hint="give " + " ".join(f"--param {name}=VALUE" for name in missing),
        )
    return {name: parameters[name] for name in wanted}
