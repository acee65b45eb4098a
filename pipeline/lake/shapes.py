"""Read JSON of a lake, with the version of its format, and check its shape.

A shape is a type or types, `[shape]` for a list, `{name: shape}` for an object with at least these
fields, or `{...: shape}` for an object with any fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tracelake.base.errors import LakeError, next_step
from tracelake.lake.layout import SKIPPED_PARTITION, is_part, names_runs, run_folder
from tracelake.schema.tables import SCHEMA_VERSION

_Nullable = (str, type(None))
_STAT = {"size": int, "mtime_ns": int, "inode": (int, type(None)), "members": int}
# Of the facts of an input; they have no other fields.
_FACTS = {
    "path": str,
    "stem": str,
    "rank": (int, type(None)),
    "host": _Nullable,
    "device": _Nullable,
    "stamp": _Nullable,
    "topology": dict,
}
# Of the record of an input that was read.
_SOURCE = {
    "path": str,
    "member": _Nullable,
    **_STAT,
    "weight": int,
    "position": (int, type(None)),
    "packed": bool,
    "head_hash": str,
    "place": (list, type(None)),
    "bytes": int,
    "lines": int,
    "content_hash": _Nullable,
    "duplicate_of": _Nullable,
    "facts": _FACTS,
}
# Of the options of a run that has inputs, those that a later ingest compares.
_OPTIONS = {"format": str, "parser": int, "schema": int, "forced": bool}
# Fields that the records of earlier versions lack.
_LATER = {"place", "device"}
_TEXTS = {str}
_good: set[tuple[object, ...]] = set()
_DROPPED = {"generation": str, "options": dict, "sources": list}
_RUN = {**_DROPPED, "parts": dict}
_PARTS = {...: [str]}
_GROUP = {"runs": {...: dict}, "listed": [str], "parts": {...: [[int]]}}
_SKIPPED = {"inputs": [{"path": str, "member": _Nullable, "reason": str}], "parts": [str]}
_PACKS = {"runs": {...: str}, "packs": {...: [[int]]}}


def read_versioned(
    path: Path,
    what: str,
    versions: Sequence[int],
    repair: str,
    check: Callable[[Any], str | None],
) -> dict[str, Any] | None:
    """Return the content of a file; None if it does not exist.

    Args:
        what: Name of the file in an error.
        versions: Those that are read, the newest last.
        repair: What to do if it is damaged.
        check: Returns what is wrong with content of this version.

    Raises:
        LakeError: It is damaged, or of another version.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        hint = (next_step(error) if isinstance(error, OSError) else None) or repair
        raise LakeError(f"{what} cannot be read: {error}", path=path, hint=hint) from error
    if not isinstance(content, dict):
        raise LakeError(f"{what} is damaged: it is not an object", path=path, hint=repair)
    if content.get("version") not in versions:
        raise LakeError(
            f"{what} has version {content.get('version')}, this tracelake reads {versions[-1]}",
            path=path,
            hint="use the tracelake that wrote it or a newer one, or ingest into a new lake",
        )
    if wrong := check(content):
        raise LakeError(f"{what} is damaged: {wrong}", path=path, hint=repair)
    return content


def group_damage(content: Any) -> str | None:
    """Return what is wrong with the manifest of a group."""
    if content.get("version") == 1:
        content = {**content, "listed": [], "parts": {}}
    return (
        _misfit(content, _GROUP)
        or _misplaced(content["parts"], len(content["listed"]))
        or _first(
            _entry_damage(run_id, run, content["parts"]) for run_id, run in content["runs"].items()
        )
    )


def dropped_damage(content: Any) -> str | None:
    """Return what is wrong with the list of dropped runs."""
    return _misfit(content, {"runs": {...: _DROPPED}}) or _first(
        "it is the manifest of a group" if "parts" in run else _of_run(run_id, run)
        for run_id, run in content["runs"].items()
    )


def skipped_damage(content: Any) -> str | None:
    """Return what is wrong with the list of skipped inputs."""
    return (
        _misfit(content, _SKIPPED)
        or _first(
            _misfit(one, {**_STAT, "formats": str}) for one in content["inputs"] if "size" in one
        )
        or _misnamed(None, {"skipped": content["parts"]})
        or (
            "it has inputs, but no rows of them"
            if content["inputs"] and not content["parts"]
            else None
        )
    )


def packs_damage(content: Any) -> str | None:
    """Return what is wrong with the list of packs."""
    return _misfit(content, _PACKS) or _misplaced(content["packs"], len(content["runs"]))


def _entry_damage(run_id: str, run: Mapping[str, Any], listed: Container[str]) -> str | None:
    """Return what is wrong with a run of a group."""
    if wrong := _unlike(run, "run", _RUN):
        return f"runs: {run_id}: {wrong}"
    for names in run["parts"].values():
        if type(names) is not list or not _TEXTS.issuperset(map(type, names)):
            return f"runs: {run_id}: parts: {_misfit(run['parts'], _PARTS)}"
    return _of_run(run_id, run) or _misnamed(run_id, run["parts"], listed)


def _of_run(run_id: str, run: Mapping[str, Any]) -> str | None:
    if not run_id or "/" in run_id or "\0" in run_id:
        return f"{run_id[:100]!r} is no run id"
    version = run["options"].get("schema", SCHEMA_VERSION)
    if not isinstance(version, int):
        return f"runs.{run_id}.options.schema has the wrong type: {str(version)[:40]!r}"
    if not run["sources"]:
        read = "format" in run["options"]
        return f"runs: {run_id}: it was read, but from no input" if read else None
    if wrong := _unlike(run["options"], "options", _OPTIONS):
        return f"runs: {run_id}: options: {wrong}"
    for source in run["sources"]:
        if wrong := _source_damage(source):
            return f"runs: {run_id}: sources: {wrong}"
    return None


def _misfit(value: Any, shape: Any) -> str | None:
    """Return what of a value does not have a shape; None if all of it has."""
    if isinstance(shape, (type, tuple)):
        return None if isinstance(value, shape) else f"wrong type: {str(value)[:40]!r}"
    if not isinstance(value, type(shape)):
        return "not an object" if isinstance(shape, dict) else "not a list"
    if isinstance(shape, list):
        fields = ((number, one, shape[0]) for number, one in enumerate(value))
    elif ... in shape:
        fields = ((name, one, shape[...]) for name, one in value.items())
    elif lacking := shape.keys() - value.keys() - _LATER:
        return f"lacks {min(lacking)}"
    else:
        fields = ((name, value[name], of) for name, of in shape.items() if name in value)
    for name, one, of in fields:
        if isinstance(of, (type, tuple)) and isinstance(one, of):
            continue
        if wrong := _misfit(one, of):
            return f"{name}: {wrong}"
    return None


def _unlike(value: Mapping[str, Any], what: str, shape: Mapping[str, Any]) -> str | None:
    """Return what `_misfit` does for an object whose fields have types alone.

    A large lake has 10,000 runs, with few different lists of types.

    Args:
        what: Name of the shape.
    """
    types = (what, *value, *map(type, value.values()))
    if types not in _good:
        if wrong := _misfit(value, shape):
            return wrong
        _good.add(types)
    return None


def _source_damage(source: Any) -> str | None:
    """Return what is wrong with the record of an input.

    A large lake has 100,000 of them, with few different lists of types.
    """
    if not isinstance(source, dict) or not isinstance(facts := source.get("facts"), dict):
        return "not the record of an input"
    types = (*source, *map(type, source.values()), *facts, *map(type, facts.values()))
    if types not in _good:
        if wrong := _misfit(source, _SOURCE):
            return wrong
        if unknown := facts.keys() - _FACTS.keys():
            return f"facts: unknown field {min(unknown)[:40]!r}"
        _good.add(types)
    for value in facts["topology"].values():
        if not isinstance(value, int):
            return f"topology: wrong type: {str(value)[:40]!r}"
    if stamp := facts["stamp"]:
        try:
            datetime.fromisoformat(stamp)
        except ValueError:
            return f"{stamp[:40]!r} is no date"
    return None


def _misplaced(parts: Mapping[str, list[list[int]]], runs: int) -> str | None:
    """Return what is wrong with the list of the runs of parts."""
    for part, spans in parts.items():
        if not is_part(part) or not names_runs(part):
            return f"{part[:100]!r} is no part file whose rows name their run"
        for span in spans:
            if len(span) != 2 or not 0 <= span[0] <= span[1] < runs:
                return f"{span} of {part} is no span of runs"
    return None


def _misnamed(
    run_id: str | None, parts: Mapping[str, list[str]], listed: Container[str] = ()
) -> str | None:
    """Return the first name that no part file of a run can have; None if there is none.

    Args:
        listed: Part files of several runs, whose names `_misplaced` has checked.
    """
    for table, names in parts.items():
        folder = f"{table}/{SKIPPED_PARTITION}" if run_id is None else run_folder(table, run_id)
        for name in names:
            known = name in listed or (name.startswith(f"{folder}/") and is_part(name))
            if not (known and name.startswith(f"{table}/")):
                return f"{name[:100]!r} is no part file of {table}"
    return None


def _first(found: Iterable[str | None]) -> str | None:
    return next((problem for problem in found if problem), None)
