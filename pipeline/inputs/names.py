"""Convert names of inputs to text that a table can store."""

from __future__ import annotations

import os

from tracelake.formats.ledger import escape


def text_name(name: str) -> str:
    r"""Return a name as the lake stores it: `\\xNN` for non-UTF-8 bytes, and `\\\\`."""
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        return escape(os.fsencode(name))
    return name
