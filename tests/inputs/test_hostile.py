"""Inputs that were made to do harm, or broke in the worst place: each costs itself alone."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.inputs.test_inputs import ACCOUNTED, COMPRESSORS, tar, zipped
from tests.lakes import rows, run_ingest, statuses
from tests.parsing import parse
from tests.traces import op, plan, trace, trace_name, write
from tracelake.base.errors import UsageError
from tracelake.ingest.identity import content_hash
from tracelake.inputs.archives import open_zip_member, walk_tar
from tracelake.inputs.expand import ALWAYS_BYTES, DecompressionLimit
from tracelake.inputs.sources import open_entry
from tracelake.inputs.streams import FileRef

BIG = plan(4000).encode()
SMALL = DecompressionLimit(factor=None, size=100_000)


def ingested(
    folder: Path, *, again: str = "unchanged", **options: Any
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Sources and skips of a folder with one good plan more, whose lines are all accounted for.

    Nothing but the lake is written, and a second ingest finds nothing new, or what `again` says.
    """
    write(folder / "in", {"good.txt": plan(2)})
    run_ingest(folder / "in", folder / "lake", **options)
    lake = folder / "lake"
    assert rows(lake, "sources", f"count(*) FILTER (NOT ({ACCOUNTED}))") == [(0,)]
    found = rows(lake, "sources", "path, member, rows > 0", "ORDER BY ALL")
    assert ("good.txt", None, True) in found
    assert sorted(p.name for p in folder.iterdir()) == ["in", "lake"]
    second = run_ingest(folder / "in", folder / "lake", **options)
    assert set(statuses(second)) == {"unchanged", again}
    skips = [(s["path"], s["member"], s["reason"]) for s in second.skips]
    return [row for row in found if row[0] != "good.txt"], skips


def faults(folder: Path) -> set[str]:
    return {name for (name,) in rows(folder / "lake", "faults", "name")}


# --- compression ------------------------------------------------------------------------------


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("at", [4, 11, 0.2, 0.5, 0.9, -5])
def test_a_flipped_byte_costs_no_neighbour(suffix: str, at: float, tmp_path: Path) -> None:
    packed = COMPRESSORS[suffix](BIG)
    index = int(at * len(packed)) if isinstance(at, float) else at % len(packed)
    write(tmp_path / "in", {f"x{suffix}": flipped(packed, index)})
    found, skips = ingested(tmp_path)
    assert len(found) + len(skips) == 1


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_streams_one_behind_the_other_are_one_file(suffix: str, tmp_path: Path) -> None:
    compress = COMPRESSORS[suffix]
    write(tmp_path / "in", {f"x{suffix}": compress(BIG[:999]) + compress(BIG[999:])})
    assert ingested(tmp_path) == ([(f"x{suffix}", None, True)], [])
    assert rows(tmp_path / "lake", "sources", "bytes", "WHERE path != 'good.txt'") == [(len(BIG),)]
    assert faults(tmp_path) == set()


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_what_stands_before_rubbish_is_kept(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / "in", {f"x{suffix}": COMPRESSORS[suffix](BIG) + b"rubbish behind"})
    assert ingested(tmp_path) == ([(f"x{suffix}", None, True)], [])
    assert rows(tmp_path / "lake", "sources", "bytes", "WHERE path != 'good.txt'") == [(len(BIG),)]


def bomb(compress: Callable[[bytes], bytes], size: int = 400_000) -> bytes:
    """Compressed bytes that begin as a plan and go on for long."""
    return compress(plan(3, declared=9).encode() + b"\n" * size)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_file_that_expands_too_far_is_cut(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / "in", {f"x{suffix}": bomb(COMPRESSORS[suffix])})
    assert ingested(tmp_path, max_expand=SMALL) == ([(f"x{suffix}", None, True)], [])
    assert rows(tmp_path / "lake", "faults", "name, severity", "ORDER BY ALL") == [
        ("expanded_too_far", "error"),
        ("row_count_mismatch", "incomplete"),
    ]
    found = rows(tmp_path / "lake", "sources", "bytes, row_lines", "WHERE path != 'good.txt'")
    assert found == [(100_000, 3)]


def test_a_file_of_just_the_size_is_whole(tmp_path: Path) -> None:
    text = plan(3).encode()
    write(tmp_path / "in", {"x.gz": gzip.compress(text)})
    assert ingested(tmp_path, max_expand=DecompressionLimit(None, len(text)))[1] == []
    assert faults(tmp_path) == set()


def test_plain_files_have_no_limit(tmp_path: Path) -> None:
    write(tmp_path / "in", {"x.txt": plan(30)})
    ingested(tmp_path, max_expand=DecompressionLimit(None, 100))
    assert faults(tmp_path) == set()


@pytest.mark.parametrize("command", ["run", "ingest"])
def test_a_file_that_was_cut_ends_the_command_with_3(
    command: str, tracelake: Command, tmp_path: Path
) -> None:
    folder = write(tmp_path / "in", {"x.gz": bomb(gzip.compress), "y.txt": plan(3)})
    lake = tmp_path / "lake"
    code, _, err = tracelake(command, folder, "--lake", lake, "--max-expand", "100kB")
    assert code == 3
    assert "expands further than --max-expand allows" in err
    assert len(rows(lake, "runs", "run_id")) == 2
    verified = tracelake("ingest", folder, "--lake", lake, "--verify")
    assert (verified.code, rows(lake, "faults", "count(*)", "WHERE name LIKE 'exp%'")) == (
        0,
        [(0,)],
    )


def test_the_limit_is_a_multiple_or_a_size() -> None:
    assert DecompressionLimit.parse("20x").bytes_of(10**9) == 20 * 10**9
    assert DecompressionLimit.parse("1000X").bytes_of(1) == ALWAYS_BYTES
    assert DecompressionLimit.parse("50GB").bytes_of(1) == 50 * 10**9
    with pytest.raises(UsageError, match="--max-expand 'much' is not a limit"):
        DecompressionLimit.parse("much")


def test_a_tar_of_bombs_ends_at_the_limit(tmp_path: Path) -> None:
    members = {"a.txt": plan(3).encode(), "b.gz": bomb(gzip.compress), "c.txt": bytes(500_000)}
    write(tmp_path / "in", {"x.tar.gz": gzip.compress(tar(members))})
    found, skips = ingested(tmp_path, again="updated", max_expand=SMALL)
    assert found == [("x.tar.gz", "a.txt", True), ("x.tar.gz", "b.gz", True)]
    assert ("x.tar.gz", None, "expands_too_far") in skips
    assert "expanded_too_far" in faults(tmp_path)


@pytest.mark.parametrize("command", ["run", "ingest"])
def test_a_zip_that_expands_too_far_gives_the_members_that_fit(
    command: str, tracelake: Command, tmp_path: Path
) -> None:
    big = plan(4).encode() + b"\n" * 200_000
    packed = zipped({"a.txt": big, "b.txt": plan(3).encode(), "c.txt": big, "d": plan(5).encode()})
    lake = tmp_path / "lake"
    words = (write(tmp_path / "in", {"x.zip": packed}), "--lake", lake, "--max-expand", "100kB")
    for _ in range(2):
        done = tracelake(command, *words, "--quiet")
        assert done.code == 3
        told = "expands further than --max-expand allows: 2 files skipped; one is x.zip/a.txt"
        assert told in done.err
    assert rows(lake, "sources", "member", "ORDER BY ALL") == [("b.txt",), ("d",)]
    assert rows(lake, "skipped", "member, reason", "ORDER BY ALL") == [
        ("a.txt", "expands_too_far"),
        ("c.txt", "expands_too_far"),
    ]


@pytest.mark.parametrize("size", [200, 500])
def test_a_gzip_that_is_torn_in_its_first_block_gives_what_can_be_decoded(
    size: int, tmp_path: Path
) -> None:
    text = plan(200, declared=200).encode()
    write(tmp_path / "in", {"x.gz": gzip.compress(text)[:size]})
    found, skips = ingested(tmp_path)
    assert (found, skips) == ([("x.gz", None, True)], [])
    assert "truncated_compression" in faults(tmp_path)
    ((lines,),) = rows(tmp_path / "lake", "sources", "row_lines", "WHERE path = 'x.gz'")
    assert lines > 0


def test_a_zip_member_gives_no_more_than_it_says(tmp_path: Path) -> None:
    packed = zipped({"a.txt": BIG})
    lying = packed.replace(struct.pack("<I", len(BIG)), struct.pack("<I", 80_000))
    write(tmp_path / "in", {"x.zip": lying})
    ingested(tmp_path, max_expand=SMALL)
    assert rows(tmp_path / "lake", "sources", "max(bytes)") <= [(80_000,)]
    assert "truncated_compression" in faults(tmp_path)


# --- archives ---------------------------------------------------------------------------------


def headed(*members: tuple[str, bytes, bytes]) -> bytes:
    """A tar of members of any type: name, type, content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", errors="surrogateescape") as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(content), "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_names_in_a_tar_are_labels_and_links_are_not_followed(tmp_path: Path) -> None:
    special = {
        "link": tarfile.SYMTYPE,
        "hard": tarfile.LNKTYPE,
        "disk": tarfile.BLKTYPE,
        "tty": tarfile.CHRTYPE,
        "pipe": tarfile.FIFOTYPE,
    }
    packed = headed(
        ("/abs.txt", tarfile.REGTYPE, plan(3).encode()),
        ("../../up.txt", tarfile.REGTYPE, plan(4).encode()),
        ("bad\udcff\n\x1b[2J.txt", tarfile.REGTYPE, plan(5).encode()),
        *((name, kind, b"") for name, kind in special.items()),
        ("folder/", tarfile.DIRTYPE, b""),
    )
    write(tmp_path / "in", {"x.tar": packed})
    found, skips = ingested(tmp_path)
    assert found == [
        ("x.tar", "../../up.txt", True),
        ("x.tar", "/abs.txt", True),
        ("x.tar", "bad\\xff\n\x1b[2J.txt", True),
    ]
    assert sorted(skips) == sorted(("x.tar", name, "not_a_file") for name in special)


def test_members_of_one_name_are_told_apart(tmp_path: Path) -> None:
    text = [plan(n).encode() for n in (3, 4, 3)]
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for content in text:
            archive.writestr("a.txt", content)
    write(tmp_path / "in", {"x.zip": out.getvalue()})
    write(tmp_path / "in", {"x.tar": headed(*(("a.txt", tarfile.REGTYPE, t) for t in text))})
    found, _ = ingested(tmp_path)
    assert len(found) == 6
    assert sorted(rows(tmp_path / "lake", "workload_passes", "count(*)", "GROUP BY run_id")) == [
        *((6,), (9,), (12,))
    ]


@pytest.mark.parametrize("suffix", ["", *COMPRESSORS])
def test_a_torn_tar_gives_what_stands_before_the_tear(suffix: str, tmp_path: Path) -> None:
    noise = os.urandom(300_000)  # so that the tear is behind it, whatever the blocks of the codec
    members = {"a.txt": plan(3).encode(), "noise": noise, "b.txt": BIG, "c.txt": plan(4).encode()}
    packed = COMPRESSORS.get(suffix, bytes)(tar(members))
    torn = packed[: -(12_000 if suffix else 60_000)]
    write(tmp_path / "in", {f"x.tar{suffix}": torn})
    found, skips = ingested(tmp_path)
    assert ("c.txt", True) not in [row[1:] for row in found]
    if suffix != ".bz2":  # which gives nothing of its last block
        assert (f"x.tar{suffix}", "a.txt", True) in found
    assert (f"x.tar{suffix}", None, "unreadable") in skips
    if (f"x.tar{suffix}", "b.txt", True) in found:
        assert "truncated_compression" in faults(tmp_path)


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    packed = bytearray(tar({"a.txt": plan(3).encode(), "b.txt": plan(4).encode()}))
    packed[1024 + 150] ^= 0xFF  # in the checksum of the second header
    write(tmp_path / "in", {"x.tar": bytes(packed)})
    assert ingested(tmp_path) == ([("x.tar", "a.txt", True)], [("x.tar", None, "unreadable")])


def test_tars_one_behind_the_other_are_read_to_the_end(tmp_path: Path) -> None:
    packed = tar({"a.txt": plan(3).encode()}) + tar({"b.txt": plan(4).encode()})
    write(tmp_path / "in", {"x.tar": packed})
    assert ingested(tmp_path) == ([("x.tar", "a.txt", True), ("x.tar", "b.txt", True)], [])


def raw_header(kind: bytes, size: bytes, name: bytes = b"evil") -> bytes:
    """A header with any size field, its checksum right."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = size
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[257:265] = b"ustar  \0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


NEGATIVE = b"\xff" * 10 + b"\xfe\x00"


@pytest.mark.parametrize(
    "header",
    [
        raw_header(tarfile.REGTYPE, NEGATIVE),
        raw_header(tarfile.GNUTYPE_LONGNAME, NEGATIVE),
        raw_header(tarfile.GNUTYPE_LONGNAME, b"77777777777\0"),
        raw_header(tarfile.XHDTYPE, b"77777777777\0"),
        raw_header(tarfile.XHDTYPE, b"%011o\0" % 19) + b"19 size=-1234567890" + bytes(493),
        raw_header(tarfile.XHDTYPE, b"%011o\0" % 12) + b"12 size=zwei" + bytes(500),
        raw_header(tarfile.REGTYPE, b"what is it?\0"),
        raw_header(tarfile.GNUTYPE_LONGNAME, b"%011o\0" % 0) * 3000,
    ],
)
def test_impossible_headers_end_a_tar(header: bytes, tmp_path: Path) -> None:
    good = tar({"a.txt": plan(3).encode()})[:1024]
    write(tmp_path / "in", {"x.tar": good + header + tar({"b.txt": plan(4).encode()})})
    found, _ = ingested(tmp_path)
    assert ("x.tar", "a.txt", True) in found


def test_a_sparse_member_ends_at_the_limit(tmp_path: Path) -> None:
    block = bytearray(raw_header(tarfile.GNUTYPE_SPARSE, b"%011o\0" % 512, b"s.txt"))
    block[386:410] = b"%011o\0%011o\0" % (0, 512)
    block[483:495] = b"77777777777\0"  # 8 GiB, of which 512 bytes stand in the archive
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    text = plan(3).encode().ljust(512, b"\n")
    write(tmp_path / "in", {"x.tar": bytes(block) + text + bytes(1024)})
    assert ingested(tmp_path, max_expand=SMALL)[0] == [("x.tar", "s.txt", True)]
    assert "expanded_too_far" in faults(tmp_path)


def entry_of(zip_file: bytes, name: bytes) -> int:
    """Where the directory's entry of a member begins."""
    at = zip_file.index(b"PK\x01\x02")
    while zip_file[at + 46 : at + 46 + len(name)] != name:
        at = zip_file.index(b"PK\x01\x02", at + 1)
    return at


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (8, b"\x01\x00"),  # encrypted
        (10, b"\x63\x00"),  # an unknown method
        (42, struct.pack("<I", 10**6)),  # begins outside the archive
        (42, struct.pack("<I", 0)),  # is where another is
    ],
)
def test_a_bad_member_of_a_zip_costs_no_neighbour(
    offset: int, value: bytes, tmp_path: Path
) -> None:
    packed = bytearray(zipped({"a.txt": plan(3).encode(), "b.txt": plan(4).encode()}))
    at = entry_of(bytes(packed), b"b.txt") + offset
    packed[at : at + len(value)] = value
    write(tmp_path / "in", {"x.zip": bytes(packed)})
    assert ingested(tmp_path) == ([("x.zip", "a.txt", True)], [("x.zip", "b.txt", "unreadable")])


def test_a_zip_with_a_name_that_is_none_is_passed_over(tmp_path: Path) -> None:
    packed = bytearray(zipped({"a.txt": plan(3).encode()}))
    at = entry_of(bytes(packed), b"a.txt")
    packed[at + 9] |= 8
    packed[at + 46] = 0xFF
    write(tmp_path / "in", {"x.zip": bytes(packed)})
    assert ingested(tmp_path) == ([], [("x.zip", None, "unreadable")])


@pytest.mark.parametrize("member", ["archive/data.pkl", "weights.npy"])
def test_a_checkpoint_that_was_cut_is_of_no_format(member: str, tmp_path: Path) -> None:
    """As a whole one is: it is no log that was lost."""
    whole = zipped({member: b"\x80\x02}q\x00." * 99, "archive/version": b"3\n"})
    files = {"a.txt": plan(3).encode(), "cut.pt": whole[:-30], "whole.pt": whole}
    write(tmp_path / "in", files)
    read, skips = ingested(tmp_path)
    assert read == [("a.txt", None, True)]
    assert ("cut.pt", None, "no_format") in skips
    assert {reason for *_, reason in skips} == {"no_format"}


def test_the_directory_of_a_zip_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    read = zipfile.ZipFile._RealGetContents  # type: ignore[attr-defined]

    def counted(archive: zipfile.ZipFile) -> None:
        opened.append(archive.filename)
        read(archive)

    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", counted)
    members = {f"{n}.txt": plan(n).encode() for n in range(1, 40)}
    run_ingest(write(tmp_path / "in", {"x.zip": zipped(members)}), tmp_path / "lake")
    assert len(opened) == 1


def test_twins_in_a_tar_are_found_in_few_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    following = tarfile.TarFile.next

    def counted(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
        passes.append(archive)
        return following(archive)

    monkeypatch.setattr(tarfile.TarFile, "next", counted)
    members = {f"{n}/a.txt": plan(3 + n % 2).encode() for n in range(40)}
    run_ingest(write(tmp_path / "in", {"x.tar": tar(members)}), tmp_path / "lake")
    assert len(passes) <= 4 * (len(members) + 2)
    assert len(rows(tmp_path / "lake", "runs", "run_id")) == 2


def test_an_archive_that_is_replaced_is_not_mistaken(tmp_path: Path) -> None:
    write(tmp_path, {"x.zip": zipped({"a": b"1", "b": b"2"}), "x.tar": tar({"a": b"1", "b": b"2"})})
    base = FileRef("x", "b", str(tmp_path / "x.zip"), 0, 0, 0, 0, limit=100, position=1)
    packed = base._replace(location=str(tmp_path / "x.tar"), packed=True)
    with open_zip_member(base) as stream:
        assert stream.read() == b"2"
    assert content_hash(packed) is not None
    write(tmp_path, {"x.zip": zipped({"a": b"1"}), "x.tar": tar({"a": b"1"})})
    with pytest.raises(zipfile.BadZipFile, match="changed"):
        open_zip_member(base)
    assert content_hash(packed) is None


def test_a_tar_of_many_members_holds_none(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar({str(n): b"" for n in range(100)}))
    walk = walk_tar(FileRef("x", None, str(path), 0, 0, 0, 0, limit=10**6))
    assert [info.name for info, _ in walk] == [str(n) for n in range(100)]


# --- the file system --------------------------------------------------------------------------


def test_names_of_any_bytes_are_kept_as_text(tmp_path: Path) -> None:
    names = {
        b"line\nend.txt": "line\nend.txt",
        b"\x1b[31mred.txt": "\x1b[31mred.txt",
        b"bad\xff\xfe.txt": r"bad\xff\xfe.txt",
        b"folder\xff/a.txt": r"folder\xff/a.txt",
        b"a*?[1] 'q'\"\\.txt": "a*?[1] 'q'\"\\.txt",
        b"run_id=x.txt": "run_id=x.txt",
        b"n" * 240 + b".txt": "n" * 240 + ".txt",
    }
    (tmp_path / "in").mkdir()
    for number, name in enumerate(names):
        path = os.path.join(os.fsencode(tmp_path / "in"), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(plan(number + 3).encode())
    found, skips = ingested(tmp_path)
    assert [row[0] for row in found] == sorted(names.values())
    assert skips == []
    inside = {p.name for p in (tmp_path / "lake" / "runs").iterdir()}
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-=") for name in inside)


def test_a_file_with_any_name_can_be_named(tracelake: Command, tmp_path: Path) -> None:
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"bad\xff\n.txt"))
    Path(path).write_text(plan(3))
    assert tracelake("ingest", path, "--lake", tmp_path / "lake").code == 0
    assert rows(tmp_path / "lake", "sources", "path") == [("bad\\xff\n.txt",)]


def test_links_that_go_round_and_devices_are_passed_over(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"a/b/x.txt": plan(3)})
    (folder / "a" / "round").symlink_to(folder)
    (folder / "itself").symlink_to(folder / "itself")
    (folder / "endless").symlink_to("/dev/zero")
    (folder / "again.txt").symlink_to(folder / "a" / "b" / "x.txt")
    found, skips = ingested(tmp_path)
    # The file has its own name, though the link to it is found first.
    assert found == [("a/b/x.txt", None, True)]
    assert sorted(skips) == [
        ("a/round", None, "not_a_file"),
        ("endless", None, "not_a_file"),
        ("itself", None, "unreadable"),
    ]


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"secret.txt": plan(3)})
    (folder / "broken").symlink_to("/proc/self/mem")  # reads of it fail
    (folder / "secret.txt").chmod(0)
    if os.geteuid() == 0:  # who may read everything
        (folder / "secret.txt").unlink()
    _, skips = ingested(tmp_path)
    assert {reason for _, _, reason in skips} == {"unreadable"}


def test_a_file_that_has_become_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    entry = FileRef("pipe", None, str(tmp_path / "pipe"), 9, 0, 0, 9, limit=9)
    with pytest.raises(OSError, match="seek"):
        open_entry(entry)


# --- numbers ----------------------------------------------------------------------------------

EDGES = [2**31 - 1, 2**31, 2**53, 4 * 10**12 - 1, 4 * 10**12, 2**63 - 1, 2**63, 2**64, 10**40]
WORDS = ["nan", "inf", "-inf", "-0", "-5", "1e5", "", "None", "0x10", "1_000", "٣"]


@pytest.mark.parametrize("number", [*map(str, EDGES), *WORDS])
def test_a_number_out_of_range_costs_its_line_alone(number: str, tmp_path: Path) -> None:
    fields = ("stage_id=0", "batch_id=0", "duration=10.0", "timestamp=1010.0")
    good = trace(0).splitlines(keepends=True)[0]
    lines = [good.replace(f, f"{f.split('=')[0]}={number}") for f in fields]
    text = "".join(f"{bad}{good}" for bad in lines)
    log = (
        f"[rank:0 stage:0] forward time = 5.0 step {number}\n"
        f"| epoch   1 |     1/    9 batches | lr {number} | ms/batch {number} | loss {number}"
        f" | ppl {number}\n> TP: {number}\n> PP: 2\n"
    )
    header = plan(3).replace("ga: 1", f"ga: {number}").replace("4096", number)
    write(tmp_path / "in", {trace_name(0, world=1): text, "log.txt": log, "plan.txt": header})
    ingested(tmp_path)
    assert rows(tmp_path / "lake", "ops", "count(*) FILTER (line % 2 = 0)") == [(4,)]
    assert rows(tmp_path / "lake", "ops", "count(*) FILTER (duration_ns < 0)") == [(0,)]


def test_times_that_run_backwards_are_kept_as_they_are(tmp_path: Path) -> None:
    text = trace(0, start=5000.0) + trace(0, start=1000.0)
    write(tmp_path / "in", {trace_name(0, world=1): text})
    ingested(tmp_path)
    assert rows(tmp_path / "lake", "ops", "line, end_ns", "ORDER BY line") == [
        *((1, 5_010_000_000), (2, 5_030_000_000), (3, 5_035_000_000)),
        *((4, 1_010_000_000), (5, 1_030_000_000), (6, 1_035_000_000)),
    ]


@pytest.mark.parametrize("batch", ["None", "0.5", "1e3"])
def test_a_record_takes_no_number_from_the_one_before_it(batch: str) -> None:
    without = op(0, "get_batch", 10.0, 5.0).replace("batch_id=0", f"batch_id={batch}")
    between = "rank:0:odd(batch_id=7,timestamp=20.0)\n"
    text = without + between + without.replace("=10.0", "=30.0")
    parsed = parse("rank_trace", {trace_name(0, world=1): text.encode()}).only
    first, _, again = parsed.rows("ops")
    assert first.get("attributes") == again.get("attributes")
    assert parsed.rejects() == []


def test_a_record_of_too_many_fields_costs_itself_alone() -> None:
    good = op(0, "get_batch", 10.0, 5.0)
    many = good.replace("description=None", ",".join(f"k{i}=1" for i in range(2000)))
    few = good.replace("description=None", ",".join(f"k{i}=1" for i in range(1000)))
    parsed = parse("rank_trace", {trace_name(0, world=1): f"{good}{many}{few}".encode()}).only
    assert [row["line"] for row in parsed.rows("ops")] == [1, 3]
    assert [(line, reason) for _, line, _, reason, _ in parsed.rejects()] == [(2, "bad_field")]
