"""Read small JSON files that contain the version of their format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.errors import LakeError


def read_versioned(path: Path, what: str, version: int, repair: str) -> dict[str, Any] | None:
    """Return the content of a file; None if it does not exist.

    Args:
        what: Name of the file in an error.
        version: The only one that is read.
        repair: What to do if it is damaged.

    Raises:
        LakeError: It is damaged, or of another version.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LakeError(f"{what} cannot be read: {error}", path=path, hint=repair) from error
    if content.get("version") != version:
        raise LakeError(
            f"{what} has version {content.get('version')}, this tracelake reads {version}",
            path=path,
            hint="use the tracelake that wrote it or a newer one, or ingest into a new lake",
        )
    return content
