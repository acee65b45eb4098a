"""Apply what the user says of files over what their names and heads say."""

from __future__ import annotations

import re
import warnings

from tracelake.base.errors import UsageError
from tracelake.formats import FileFacts
from tracelake.ingest.hosts import Place
from tracelake.ingest.options import Options
from tracelake.schema import topology

_TEXT_GROUPS = ("run", "host", "device")
_PATTERN_GROUPS = (*_TEXT_GROUPS, "rank", *topology.KEYS)


class Overrides:
    """The values of `--run-pattern`, `--hosts` and `--set`.

    Raises:
        UsageError: The pattern is not a regular expression, or has unknown groups.
    """

    def __init__(self, options: Options) -> None:
        self._pattern = None if options.run_pattern is None else _compiled(options.run_pattern)
        self._hosts = options.hosts
        self._given = options.given

    def apply(self, base: FileFacts) -> tuple[FileFacts, Place | None]:
        """Return facts with the user's values over `--run-pattern` over the format's facts.

        Raises:
            UsageError: A number of the pattern is none, or out of range.
        """
        if not (self._pattern or self._hosts or self._given):
            return base, None
        matched = self._pattern.search(base.path) if self._pattern else None
        groups = {k: v for k, v in matched.groupdict().items() if v is not None} if matched else {}
        try:
            numbers = {k: int(v) for k, v in groups.items() if k not in _TEXT_GROUPS}
        except ValueError as error:
            raise UsageError(
                f"--run-pattern on {base.path}: {error}", hint="let the group match digits only"
            ) from None
        least = {"rank": 0}
        if out := [
            f"{k}={v}" for k, v in numbers.items() if not least.get(k, 1) <= v <= topology.LARGEST
        ]:
            raise UsageError(
                f"--run-pattern on {base.path}: {out[0]:.40} is out of range",
                hint=f"a rank is from 0, a size from 1 to {topology.LARGEST}",
            )
        rank = numbers.pop("rank", base.rank)
        hosts = self._hosts
        place = None if hosts is None or rank is None else hosts.place(base.path, rank)
        if place is not None:
            groups |= {k: v for k, v in (("host", place.host), ("device", place.device)) if v}
        facts = base._replace(
            rank=rank,
            run=groups.get("run"),
            host=groups.get("host", base.host),
            device=groups.get("device", base.device),
            stem=groups.get("run", base.stem),
            given={**numbers, **self._given},
        )
        return facts, place


def _compiled(pattern: str) -> re.Pattern[str]:
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
        raise UsageError(
            f"--run-pattern is not a regular expression: {error}",
            hint=r"it is one of Python, in quotes: --run-pattern '(?P<run>job\d+)/'",
        ) from error
    unknown = sorted(set(compiled.groupindex) - set(_PATTERN_GROUPS))
    if unknown or not compiled.groupindex:
        problem = f"has an unknown group {unknown[0]!r}" if unknown else "has no named group"
        raise UsageError(
            f"--run-pattern {problem}", hint=f"groups are {', '.join(_PATTERN_GROUPS)}"
        )
    return compiled
