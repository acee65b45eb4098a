"""Import Altair when a chart is drawn: what it draws is stored, and its import takes longer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["alt"]

if TYPE_CHECKING:
    import altair as alt
else:

    class _Altair:
        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("altair"), name)

    alt = _Altair()
