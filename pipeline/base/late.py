"""Import a library when it is first used: some take longer than the command that may need them."""

from __future__ import annotations

import importlib
from typing import Any


class Late:
    """Stands for a module, and imports it when one of its attributes is read.

    Example:
        >>> Late("json").loads("[1]")
        [1]
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """Return an attribute of the module."""
        return getattr(importlib.import_module(self._name), attribute)
