"""Find `schemas/` and `sql/`: beside the package in a wheel, at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

from tracelake.base.errors import ContractError

_PACKAGE = Path(__file__).resolve().parent.parent


def resource_dir(name: str) -> Path:
    """Return the directory of a shipped resource folder.

    A checkout is recognised by its `pyproject.toml`, so that a stale copy inside the package
    never wins over the files being edited.

    Raises:
        ContractError: The installation lacks the folder.
    """
    top = _PACKAGE.parent
    found = top / name if (top / "pyproject.toml").is_file() else _PACKAGE / "_resources" / name
    if not found.is_dir():
        raise ContractError(
            f"the installation has no {name}/ folder", path=found, hint="reinstall tracelake"
        )
    return found
