"""Read small JSON files that contain the version of their format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracelake.base.errors import LakeError


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
        raise LakeError(f"{what} cannot be read: {error}", path=path, hint=repair) from error
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
