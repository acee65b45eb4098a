"""Compressed, archived, damaged and hostile inputs: what can be read is, the rest is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from tests.lakes import rows, run_ingest, statuses
from tests.traces import plan, trace, trace_name, write
from tracelake.formats import Chunk
from tracelake.formats.ledger import Ledger
from tracelake.inputs.chunks import CHUNK_BYTES, Buffer, ChunkReader
from tracelake.inputs.sources import Opened, Read, Source
from tracelake.inputs.streams import FileRef

ACCOUNTED = (
    "lines = row_lines + context_lines + rejected + coalesce(list_sum(map_values(irrelevant)), 0)"
)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstd,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
# What the standard library still decodes of a stream that ends early.
STREAMING: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: zlib.decompressobj(31).decompress(data),
    ".bz2": lambda data: bz2.BZ2Decompressor().decompress(data),
    ".xz": lambda data: lzma.LZMADecompressor().decompress(data),
}
CODEC_NAMES = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}


def tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


OPS = "rank, step, seq, op, start_ns, end_ns"


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_compressed_file_gives_the_rows_of_the_plain_one(suffix: str, tmp_path: Path) -> None:
    text = trace(0, steps=500).encode()
    name = trace_name(0, world=1)
    run_ingest(write(tmp_path / "plain", {name: text}), tmp_path / "one")
    packed = COMPRESSORS[suffix](text)
    run_ingest(write(tmp_path / "packed", {name + suffix: packed}), tmp_path / "two")
    assert rows(tmp_path / "two", "ops", OPS) == rows(tmp_path / "one", "ops", OPS)
    assert rows(tmp_path / "two", "runs", "run_id") == rows(tmp_path / "one", "runs", "run_id")
    assert rows(tmp_path / "two", "sources", "compression, bytes, lines") == [
        (CODEC_NAMES[suffix], len(text), 1500)
    ]


def test_a_suffix_that_lies_does_not_matter(tmp_path: Path) -> None:
    run_ingest(write(tmp_path / "in", {"plan.txt.gz": plan(3)}), tmp_path / "lake")
    assert rows(tmp_path / "lake", "sources", "compression, row_lines") == [(None, 3)]


@pytest.mark.parametrize("suffix", ["", *COMPRESSORS])
def test_members_of_a_tar_are_read_in_place(suffix: str, tmp_path: Path) -> None:
    members = {
        f"job/{trace_name(1)}": trace(1).encode(),
        "../../plan.txt": plan(3).encode(),
        f"job/{trace_name(0)}": trace(0).encode(),
        "job/readme": b"text\n",
        "inner.tar": tar({"x": b"y" * 600}),
    }
    packed = COMPRESSORS.get(suffix, bytes)(tar(members))
    folder = write(tmp_path / "in", {f"logs.tar{suffix}": packed})
    report = run_ingest(folder, tmp_path / "lake")
    assert statuses(report) == ["new", "new"]
    assert rows(tmp_path / "lake", "sources", "member, row_lines, rank", "ORDER BY member") == [
        ("../../plan.txt", 3, None),
        (f"job/{trace_name(0)}", 3, 0),
        (f"job/{trace_name(1)}", 3, 1),
    ]
    assert rows(tmp_path / "lake", "skipped", "member, reason", "ORDER BY member") == [
        ("inner.tar", "nested_archive"),
        ("job/readme", "no_format"),
    ]
    assert rows(tmp_path / "lake", "runs", "ranks_seen", "WHERE format = 'rank_trace'") == [(2,)]
    assert statuses(run_ingest(folder, tmp_path / "lake")) == ["unchanged", "unchanged"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "lake"]
    plain = {name: data for name, data in members.items() if name.startswith("job/wd")}
    run_ingest(write(tmp_path / "plain", dict(plain)), tmp_path / "other")
    assert rows(tmp_path / "lake", "runs", "run_id", "WHERE format = 'rank_trace'") == rows(
        tmp_path / "other", "runs", "run_id"
    )


def test_an_archive_of_which_a_part_was_committed_is_read_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracelake.ingest.batches._SMALL_BYTES", 0)  # a manifest for each run
    members = {"a.txt": plan(3).encode(), "b.txt": plan(4).encode()}
    folder = write(tmp_path / "in", {"logs.tar": tar(members)})
    run_ingest(folder, tmp_path / "lake")
    manifests = sorted((tmp_path / "lake" / "_manifest").glob("*.json"))
    manifests[0].unlink()
    assert statuses(run_ingest(folder, tmp_path / "lake")) == ["new", "unchanged"]
    assert sorted((tmp_path / "lake" / "_manifest").glob("*.json")) == manifests


def test_members_of_a_zip_are_read_in_place(tmp_path: Path) -> None:
    members = {trace_name(0): trace(0).encode(), trace_name(1): gzip.compress(trace(1).encode())}
    folder = write(tmp_path / "in", {"logs.zip": zipped(members)})
    assert statuses(run_ingest(folder, tmp_path / "lake")) == ["new"]
    assert rows(tmp_path / "lake", "ops", "rank, count(*)", "GROUP BY 1 ORDER BY 1") == [
        (0, 3),
        (1, 3),
    ]
    assert statuses(run_ingest(folder, tmp_path / "lake")) == ["unchanged"]


@pytest.mark.parametrize(("system", "folder"), [(0, "job7"), (3, None)])
def test_a_zip_of_windows_may_have_its_folders_with_backslashes(
    system: int, folder: str | None, tmp_path: Path
) -> None:
    """Elsewhere a backslash is a part of the name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info in (zipfile.ZipInfo("logs\\job7\\"), zipfile.ZipInfo("logs\\job7\\plan.txt")):
            info.create_system = system
            archive.writestr(info, plan(3) if info.filename.endswith("txt") else b"")
    write(tmp_path / "in", {"logs.zip": out.getvalue()})
    assert statuses(run_ingest(tmp_path / "in", tmp_path / "lake")) == ["new"]
    ((member,),) = rows(tmp_path / "lake", "sources", "member")
    ((label,),) = rows(tmp_path / "lake", "runs", "label")
    assert member == ("logs/job7/plan.txt" if folder else "logs\\job7\\plan.txt")
    assert (label == folder) == bool(folder)
    assert statuses(run_ingest(tmp_path / "in", tmp_path / "lake")) == ["unchanged"]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_truncated_stream_gives_all_that_it_still_holds(suffix: str, tmp_path: Path) -> None:
    text = trace(0, steps=4000).encode()
    packed = COMPRESSORS[suffix](text)
    half = packed[: len(packed) // 2]
    folder = write(tmp_path / "in", {trace_name(0, world=1) + suffix: half})
    run_ingest(folder, tmp_path / "lake")
    ((name, severity),) = rows(tmp_path / "lake", "faults", "name, severity")
    assert (name, severity) == ("truncated_compression", "data_loss")
    ((saved, lines, fine),) = rows(tmp_path / "lake", "sources", f"bytes, lines, {ACCOUNTED}")
    assert fine
    assert lines == text[:saved].count(b"\n") + 1
    assert saved == (len(STREAMING[suffix](half)) if suffix in STREAMING else saved)
    assert saved > len(text) // 4


def test_concatenated_gzip_members_are_one_file(tmp_path: Path) -> None:
    first, rest = plan(4).encode()[:100], plan(4).encode()[100:]
    packed = gzip.compress(first) + gzip.compress(rest)
    run_ingest(write(tmp_path / "in", {"plan.txt.gz": packed}), tmp_path / "lake")
    assert rows(tmp_path / "lake", "sources", "lines, row_lines") == [(6, 4)]


def test_bad_neighbours_do_not_cost_good_files(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "in",
        {
            "good.txt": plan(3),
            "binary": bytes(range(256)) * 40,
            "empty.txt": "",
            "utf16.txt": plan(3).encode("utf-16"),
            "broken.gz": b"\x1f\x8b\x08\x00garbage",
        },
    )
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    (folder / "folder").symlink_to(folder, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    write(folder, {".hidden": "x"})
    report = run_ingest(folder, tmp_path / "lake")
    assert statuses(report) == ["new"]
    assert rows(tmp_path / "lake", "skipped", "path, reason", "ORDER BY path") == [
        (".hidden", "hidden"),
        ("binary", "no_format"),
        ("broken.gz", "unreadable"),
        ("dangling", "dangling_link"),
        ("empty.txt", "empty"),
        ("folder", "not_a_file"),
        ("pipe", "not_a_file"),
        ("utf16.txt", "utf_16"),
    ]


def test_a_line_longer_than_a_block_costs_only_itself(tmp_path: Path) -> None:
    long = b"rank:0:" + b"x" * (3 * CHUNK_BYTES) + b"\n"
    text = trace(0).encode() + long + trace(0, start=2000.0).encode() + b"rank:0:bad\n"
    run_ingest(write(tmp_path / "in", {trace_name(0, world=1): text}), tmp_path / "lake")
    found = "line, byte_offset, reason, length(text)"
    assert rows(tmp_path / "lake", "rejects", found, "ORDER BY line") == [
        (4, len(trace(0)), "line_too_long", 4096),
        (8, len(text) - 11, "not_a_record", 10),
    ]
    assert rows(tmp_path / "lake", "ops", "line, step", "ORDER BY line") == [
        (1, 1),
        (2, 1),
        (3, 1),
        (5, 2),
        (6, 2),
        (7, 2),
    ]
    assert rows(tmp_path / "lake", "sources", f"bytes, lines, {ACCOUNTED}") == [
        (len(text), 8, True)
    ]


def test_bytes_that_are_not_utf8_are_kept_without_loss(tmp_path: Path) -> None:
    text = trace(0).encode() + b"rank:0:op(\xff\\x\xfe\n"
    run_ingest(write(tmp_path / "in", {trace_name(0, world=1): text}), tmp_path / "lake")
    assert rows(tmp_path / "lake", "rejects", "line, text") == [(4, r"rank:0:op(\xff\\x\xfe")]


def test_a_byte_order_mark_and_crlf_change_no_row(tmp_path: Path) -> None:
    name = trace_name(0, world=1)
    plain = trace(0, steps=2).encode()
    run_ingest(write(tmp_path / "plain", {name: plain}), tmp_path / "one")
    marked = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n")
    run_ingest(write(tmp_path / "marked", {name: marked}), tmp_path / "two")
    assert rows(tmp_path / "two", "ops", OPS) == rows(tmp_path / "one", "ops", OPS)
    assert rows(tmp_path / "two", "faults", "name") == [("byte_order_mark",)]


def test_a_wrong_forced_format_rejects_or_passes_over(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"plan.txt": plan(3), trace_name(0, world=1): trace(0)})
    report = run_ingest(folder, tmp_path / "lake", input_format="rank_trace")
    assert [s["reason"] for s in report.skips] == ["no_records"]
    assert statuses(run_ingest(folder, tmp_path / "lake")) == ["new", "updated"]


class Bytes(Source):
    def __init__(self, source_id: int, data: bytes) -> None:
        super().__init__(source_id, FileRef("x", "y", "x", 0, 0, 0, 0, limit=0), io.BytesIO(data))
        self.data = data

    def open(self) -> Opened:
        return nullcontext((io.BytesIO(self.data), None))


def read_chunks(
    sources: list[bytes], size: int, *, cut_lines: bool = False
) -> tuple[list[Chunk], dict[int, Read], Ledger]:
    """Copies of the chunks, what was found out about each source, and the accounts."""
    ledger = Ledger()
    given = (Bytes(i, data) for i, data in enumerate(sources))
    reader = ChunkReader(given, ledger, cut_lines=cut_lines)
    with ThreadPoolExecutor(1) as helper:
        buffers = Buffer(size), Buffer(size)
        chunks = [
            replace(c, data=c.data.copy(), ends=c.ends.copy())
            for c, _ in reader.chunks(buffers, helper)
        ]
    return chunks, reader.found, ledger


class Torn(Bytes):
    """Fails behind its bytes, and then has shrunk."""

    def open(self) -> Opened:
        stream = io.BytesIO(self.data)
        read = stream.readinto

        def readinto(view: memoryview) -> int:
            if not (count := read(view)):
                raise EOFError("cut off")
            return count

        stream.readinto = readinto  # type: ignore[method-assign, assignment]
        return nullcontext((stream, None))

    def reopen(self) -> Opened:
        return nullcontext((io.BytesIO(self.data[:3]), None))


def test_a_source_that_fails_and_shrinks_gives_what_was_read() -> None:
    ledger = Ledger()
    reader = ChunkReader([Torn(0, b"ab\ncd\n"), Bytes(1, b"ef\n")], ledger)
    with ThreadPoolExecutor(1) as helper:
        text = [c.data.tobytes() for c, _ in reader.chunks((Buffer(64), Buffer(64)), helper)]
    assert text == [b"ab\ncd\nef\n"]
    assert [fault.name for fault in ledger.fault_totals()] == ["truncated_compression"]


PIECES = [b"", b"\n", b"a", b"a\n", b"ab\ncd\nef", b"\n\n\n", b"abc\n" * 9, b"a\nbcd\n" * 5]


@pytest.mark.parametrize("size", [5, 6, 7, 16, 64, 1024])
@pytest.mark.parametrize("sources", [*([piece] for piece in PIECES), PIECES, PIECES[::-1]])
def test_chunks_cut_at_line_ends_and_add_up(sources: list[bytes], size: int) -> None:
    chunks, found, _ = read_chunks(sources, size)
    seen = [bytearray() for _ in sources]
    lasts: list[int] = []
    for chunk in chunks:
        text = chunk.data.tobytes()
        assert chunk.ends.tolist() == [i for i, byte in enumerate(text) if byte == ord("\n")]
        for span, first in zip(chunk.spans, chunk.firsts.tolist(), strict=True):
            data, block = sources[span.source_id], text[span.start : span.stop]
            assert span.offset == len(seen[span.source_id])
            assert span.line == data[: span.offset].count(b"\n") + 1
            assert first == text[: span.start].count(b"\n")
            assert span.last or block.endswith(b"\n")
            assert block.endswith(b"\n") or not block or text[span.stop] == ord("\n")
            seen[span.source_id] += block
            lasts += [span.source_id] * span.last
    assert seen == sources
    assert lasts == list(range(len(sources)))
    for i, data in enumerate(sources):
        assert found[i] == Read(len(data), len(data.splitlines()), sha256(data).hexdigest())


def test_small_sources_share_a_chunk() -> None:
    chunks, _, _ = read_chunks(PIECES, 1024)
    assert [len(chunk.spans) for chunk in chunks] == [len(PIECES)]


@pytest.mark.parametrize("size", [5, 6, 7, 16, 64])
def test_long_lines_come_in_pieces_where_a_format_takes_them(size: int) -> None:
    sources = [b"ab\n", b"cd\n" + b"x" * 40 + b"\nef", b"y" * 29, b"z" * 30, b"gh\n", b"w" * 15]
    chunks, found, ledger = read_chunks(sources, size, cut_lines=True)
    seen = [bytearray() for _ in sources]
    lasts = []
    for chunk in chunks:
        for span in chunk.spans:
            data = seen[span.source_id]
            assert (span.offset, span.line) == (len(data), data.count(b"\n") + 1)
            data += chunk.data[span.start : span.stop].tobytes()
            lasts += [span.source_id] * span.last
    assert seen == sources
    assert lasts == list(range(len(sources)))
    assert [found[i].lines for i in range(len(sources))] == [1, 3, 1, 1, 1, 1]
    assert ledger.rejected == 0


def test_a_line_that_fills_the_buffer_costs_itself_only() -> None:
    sources = [b"ab\n", b"cd\n" + b"x" * 40 + b"\nef", b"y" * 30, b"gh\n"]
    chunks, found, ledger = read_chunks(sources, 16)
    spans = [
        (s.source_id, s.line, s.offset, chunk.data[s.start : s.stop].tobytes())
        for chunk in chunks
        for s in chunk.spans
        if s.stop > s.start
    ]
    assert spans == [(0, 1, 0, b"ab\n"), (1, 1, 0, b"cd\n"), (1, 3, 44, b"ef"), (3, 1, 0, b"gh\n")]
    rejects = [r for b in ledger.drain_rejects(everything=True) for r in b.to_pylist()]
    assert [(r["source_id"], r["line"], r["byte_offset"], r["reason"]) for r in rejects] == [
        (1, 2, 3, "line_too_long"),
        (2, 1, 0, "line_too_long"),
    ]
    assert [found[i].lines for i in range(4)] == [1, 3, 1, 1]
