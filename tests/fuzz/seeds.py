"""What hostile inputs are made of: small files of each format, real ones where there are some."""

from __future__ import annotations

from pathlib import Path

from pipeline.formats import formats
from tests.corpus import corpus_folder
from tests.golden_cases import GOLDEN
from tests.traces import plan, trace

# Names that say the topology, as the parser of a format would be told it.
NAMES = {
    "rank_trace": "wd8_tp2_pp2_numl4_bs1_Tok_rank0_20250101000000.txt",
    "optimus": "20251224_105911_TP1_DP1_PP8_MBS1_GBS32_log.txt",
    "aicb_workload": "workload.txt",
}
SEED_BYTES = 4_000


def seeds(name: str) -> list[bytes]:
    """Files of a format: golden inputs, generated ones, and pieces of real ones."""
    found = [p.read_bytes() for p in _inputs(GOLDEN / name)]
    found += {"rank_trace": [trace(3, steps=2).encode()], "aicb_workload": [plan().encode()]}.get(
        name, []
    )
    corpus = corpus_folder()
    if corpus is not None:
        for real in _inputs(corpus / name):
            text = real.read_bytes()
            found += [text[:SEED_BYTES], _whole_lines(text, len(text) // 2)]
    return sorted({text[: 2 * SEED_BYTES] for text in found if text})


def every_seed() -> list[tuple[str, bytes]]:
    """The seeds of all formats, each with the name of its format."""
    return [(name, text) for name in formats() for text in seeds(name)]


def _inputs(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.txt") if p.is_file())


def _whole_lines(text: bytes, start: int) -> bytes:
    """Lines from somewhere on."""
    begin = text.find(b"\n", start) + 1
    return text[begin : begin + SEED_BYTES]
