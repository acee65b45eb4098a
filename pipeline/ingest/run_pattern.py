"""Check the regular expression of `--run-pattern` and its groups."""

from __future__ import annotations

import re
import warnings

from tracelake.base.errors import UsageError
from tracelake.schema import topology

TEXT_GROUPS = ("run", "host", "device")
_PATTERN_GROUPS = (*TEXT_GROUPS, "rank", *topology.KEYS)


def compile_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """Return the pattern, if one is given.

    Raises:
        UsageError: It is not a regular expression, or has unknown groups.
    """
    if pattern is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            compiled = re.compile(pattern)
    except FutureWarning as warning:
        raise UsageError(
            f"--run-pattern is ambiguous: {warning}",
            hint=r"write [a-zA-Z] for [[:alpha:]], and \[ for a bracket in brackets",
        ) from None
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--run-pattern is not a regular expression: {error}") from error
    unknown = sorted(set(compiled.groupindex) - set(_PATTERN_GROUPS))
    if unknown or not compiled.groupindex:
        problem = f"has an unknown group {unknown[0]!r}" if unknown else "has no named group"
        raise UsageError(
            f"--run-pattern {problem}", hint=f"groups are {', '.join(_PATTERN_GROUPS)}"
        )
    return compiled
