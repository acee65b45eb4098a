"""Text as the page holds it: compressed, and the hash by which its policy lets a script run."""

from __future__ import annotations

import base64
import gzip
import hashlib


def packed(text: str) -> str:
    """Return text as the page's script unpacks it: gzip in base64, 10 to 50 % of its size."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def digest(script: str) -> str:
    """Return the SHA-256 of a script in base64."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
