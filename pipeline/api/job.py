"""Run the main job from Python."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from tracelake.base.errors import TracelakeError, UsageError, expected
from tracelake.cli import jobs as commands
from tracelake.cli.steps import print_summary

# Types of options: what a value may be, and what it is called.
_KINDS: dict[type, tuple[type | tuple[type, ...], str]] = {
    bool: (bool, "True or False"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    Path: (str, "a path"),
}
# Options of the command that have another name here, or none.
_OWN = ("inputs", "lake", "summary", "post", "given", "quiet")
_COMMAND = inspect.signature(commands.run).parameters
_OPTIONS = {name: option for name, option in _COMMAND.items() if name not in _OWN}


def run(
    inputs: str | Path | Iterable[str | Path],
    lake: str | Path = "lake",
    *,
    topology: str = "",
    quiet: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Ingest, build and report as `tracelake run` does, and return its summary.

    Options are those of the command, with `_` for `-`; `topology` is `--set`. There is no `summary`
    and no `post`: the summary is returned. Warnings go to standard error, with `quiet=False`
    progress too.

    Example::

        summary = tracelake.run(["/logs"], "lake", fail_on="regression")
        assert summary["exit_code"] == 0, summary["errors"]

    Args:
        inputs: Files, directories, globs, archives or URIs.
        lake: A directory or URI; made if it does not exist.
        options: See `help(tracelake.run)`, and `tracelake run --help` for what each means.

    Returns:
        The summary that docs/nightly/summary.schema.json describes. A gate that fails, a run with
        too many bad lines and a run that is left out raise nothing: `exit_code` is what the command
        would end with, and `errors` says why.

    Raises:
        TracelakeError: The work could not be done: nothing usable in the input, a wrong option, a
            lake that cannot be written.
        TypeError: There is no such option.
    """
    if unknown := sorted(options.keys() - _OPTIONS):
        raise TypeError(f"run() got an unexpected keyword argument {unknown[0]!r}")
    named = [inputs] if isinstance(inputs, str | Path) else inputs
    summaries: list[str] = []
    before = print_summary.set(summaries.append)
    try:
        commands.run(
            inputs=[os.fspath(name) for name in named],
            lake=os.fspath(lake),
            given=_value("topology", _COMMAND["given"], topology),
            summary="-",
            post=None,
            quiet=_value("quiet", _COMMAND["quiet"], quiet),
            **{
                name: _value(name, option, options.get(name, option.default))
                for name, option in _OPTIONS.items()
            },
        )
    except (TracelakeError, OSError) as error:
        if not summaries or json.loads(summaries[-1])["verdicts"] is None:
            known = expected(error)
            if known is None or known is error:
                raise
            raise known from error
    finally:
        print_summary.reset(before)
    summary: dict[str, Any] = json.loads(summaries[-1])
    return summary


def _value(name: str, option: inspect.Parameter, value: Any) -> Any:
    """Return a value with the type that the command has for it.

    Raises:
        UsageError: It has another type, or is outside the bounds that the command has for it.
    """
    kinds, info = get_args(option.annotation)
    kind, *others = (kinds,) if get_origin(kinds) is Literal else get_args(kinds) or (kinds,)
    if value is None and others:
        return None
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if choices := get_args(kind):
        fits, wanted = given in choices, f"one of {', '.join(choices)}"
    else:
        type_, wanted = _KINDS.get(kind, (str, "a text"))
        least, most = info.min, info.max
        fits = (
            isinstance(given, type_)
            and (kind is bool or not isinstance(given, bool))
            and (least is None or given >= least)
            and (most is None or given <= most)
        )
        wanted += f" of at least {least}" if least is not None else ""
        wanted += f" and at most {most}" if most is not None else ""
    if not fits:
        raise UsageError(f"{name}={value!r} is not {wanted}", hint=info.help)
    return given if choices else kind(given)


run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        *(p for p in inspect.signature(run).parameters.values() if p.kind != p.VAR_KEYWORD),
        *(p.replace(annotation=get_args(p.annotation)[0]) for p in _OPTIONS.values()),
    ],
    return_annotation=dict[str, Any],
)
