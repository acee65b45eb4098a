"""Names of inputs as text: what the system allows in a name and a table does not."""

from __future__ import annotations

import os

from pipeline.faults import escape


def text_name(name: str) -> str:
    r"""A name as the lake has it; one that is not UTF-8 has `\xNN` for its bytes, and `\\`."""
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        return escape(os.fsencode(name))
    return name
