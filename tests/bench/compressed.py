"""Compressed input: tracelake compared with its own rate on plain input and with decompressors.

Rates are of decompressed bytes. A compressed stream can be no faster than the plain rate and the
fastest decompressor.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tests.bench import answers
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.inputs import Prepared, prepare
from tests.bench.measure import Candidate, run_rounds, warm
from tests.bench.throughput import ingest, limit, warm_kernels

NAME = "compressed"
_COPY_BYTES = 1 << 22
_GZIP_LEVEL = 6
_PLAIN = "tracelake, plain"


def run(settings: Settings) -> list[Result]:
    """Measures every format in every compression."""
    return [
        row
        for name in settings.formats
        for suffix in _COMPRESS
        for row in _measure(settings, name, suffix)
    ]


def _gzip(plain: Path, target: Path) -> None:
    with plain.open("rb") as source, gzip.open(target, "wb", _GZIP_LEVEL) as sink:
        shutil.copyfileobj(source, sink, _COPY_BYTES)


def _zstd(plain: Path, target: Path) -> None:
    with plain.open("rb") as source, pa.CompressedOutputStream(str(target), "zstd") as sink:
        shutil.copyfileobj(source, sink, _COPY_BYTES)


_COMPRESS: dict[str, Callable[[Path, Path], None]] = {"gz": _gzip, "zst": _zstd}
_DECOMPRESSORS = {"gz": ("isal", "zlib"), "zst": ("pyarrow",)}
_PROGRAMS = {"gz": {"gzip -dc": ("gzip", "-dc")}, "zst": {"zstd -dc": ("zstd", "-dc")}}


def compress(prepared: Prepared, suffix: str) -> Path:
    """The compressed file beside the plain one's folder, made if it is not there."""
    target = prepared.path.parent.parent / suffix / f"{prepared.path.name}.{suffix}"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        unfinished = target.with_suffix(".part")
        _COMPRESS[suffix](prepared.path, unfinished)
        unfinished.rename(target)
    return target


def _measure(settings: Settings, name: str, suffix: str) -> Iterator[Result]:
    prepared = prepare(settings.work, name, settings.size_bytes)
    packed = compress(prepared, suffix)
    warm_kernels(settings, name)
    warm([prepared.path, packed])
    ours = ingest(settings, prepared, packed)
    rivals = [
        ingest(settings, prepared, prepared.path, _PLAIN),
        *(limit(one, packed, str(prepared.size_bytes)) for one in _DECOMPRESSORS[suffix]),
        *_programs(suffix, packed, prepared.size_bytes),
    ]
    candidates = [ours, *(rivals if settings.rivals else [])]
    samples = run_rounds(candidates, repeat=settings.repeat, scratch=settings.scratch)
    for one in candidates:
        yield Result(
            NAME,
            f"{name} .{suffix}",
            one.name,
            Role.OURS if one is ours else Role.LIMIT,
            samples[one.name],
            prepared.size_bytes / 1e6,
            facts={"input_mb": packed.stat().st_size / 1e6} if one is ours else {},
        )


def _programs(suffix: str, packed: Path, size_bytes: int) -> Iterator[Candidate]:
    for name, line in _PROGRAMS[suffix].items():
        if shutil.which(line[0]):
            # Counted by a small reader behind it, as a pipe would be read.
            script = f"set -o pipefail; {line[0]} {line[1]} '{packed}' | wc -c"
            yield Candidate(
                name,
                lambda _, script=script: ["bash", "-c", script],  # type: ignore[misc]
                lambda _, text: answers.check_text(str(size_bytes), text),
            )


BENCH = Bench(NAME, __doc__ or "", run)
