"""What hostile inputs are made of: small files of each format, real ones where there are some."""

from __future__ import annotations

from pathlib import Path

from tests.corpus import corpus_folder
from tests.golden_cases import GOLDEN
from tests.parsing import large_formats
from tests.traces import plan, trace

SEED_BYTES = 4_000


def file_name(name: str) -> str:
    """The name of a golden input of the format, the longest: it may say the topology."""
    return max((path.name for path in _golden(name)), key=len)


def seeds(name: str) -> list[bytes]:
    """Files of a format: golden inputs, generated ones, and pieces of real ones."""
    found = [path.read_bytes() for path in _golden(name)]
    found += {"rank_trace": [trace(3, steps=2).encode()], "aicb_workload": [plan().encode()]}.get(
        name, []
    )
    corpus = corpus_folder()
    if corpus is not None:
        for real in sorted((corpus / name).rglob("*.txt")):
            text = real.read_bytes()
            found += [text[:SEED_BYTES], _whole_lines(text, len(text) // 2)]
    return sorted({text[: 2 * SEED_BYTES] for text in found if text})


def every_seed() -> list[tuple[str, bytes]]:
    """The seeds of all large formats, each with the name of its format."""
    return [(name, text) for name in large_formats() for text in seeds(name)]


def _golden(name: str) -> list[Path]:
    return sorted(p for p in GOLDEN.glob(f"{name}/*/input/**/*") if p.is_file())


def _whole_lines(text: bytes, start: int) -> bytes:
    """Lines from somewhere on."""
    begin = text.find(b"\n", start) + 1
    return text[begin : begin + SEED_BYTES]
