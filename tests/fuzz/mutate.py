"""Ways to damage a file: each takes bytes and gives other bytes, by a seeded generator alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

Pool = list[bytes]
Mutation = Callable[[Random, bytes, Pool], bytes]

MAX_BYTES = 16_000
_EDGES = (
    *(b"0", b"-0", b"-1", b"+1", b"00012", b"1e9", b"1e-9", b"0x10", b".5", b"5.", b"1_000"),
    *(b"nan", b"inf", b"-inf", b"NaN", b"Infinity", b"None", b"null", b"true", b""),
    *(str(n).encode() for p in (31, 32, 53, 63, 64) for n in (2**p - 1, 2**p, 2**p + 1, -(2**p))),
    *(b"9" * n for n in (12, 13, 18, 19, 20, 40, 400)),
    *(b"0." + b"0" * n + b"1" for n in (5, 6, 8, 9, 17, 40)),
    *(b"3999999999999.999999", b"4000000000000", b"1" + b"0" * 30 + b".5"),
)
_BYTES = (
    *(b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf"),
    *(b"\r", b"\r\n", b"\n", b"\n\n\n", b"\t", b"\x0b", b"\x1b[2J", b"\x85", b"\xe2\x80\xa8"),
    *(b" ", b"  ", b",", b"=", b"'", b'"', b"\\", b"\\'", b"(", b")", b"[", b"]", b"[[", b"]]"),
    *(b"{", b"}", b":", b"|", b"/", b">", b"-", b"layer[", b"rank:", b"[rank:", b"| epoch "),
    *(b"sub_operations=[", b"input__shape=[", b"duration=", b"timestamp=", b"forward time "),
    *(b"stage2rank = {", b"NONE\t0\t", b"ALLREDUCE", b"HYBRID_CUSTOMIZED", b"embedding_layer"),
)
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_FIELD = re.compile(rb"[^\s,;|]+")


def _spot(random: Random, data: bytes) -> int:
    return random.randint(0, len(data))


def _range(random: Random, data: bytes) -> tuple[int, int]:
    """A piece, mostly a short one."""
    start = _spot(random, data)
    return start, min(len(data), start + random.choice((1, 2, 8, 40, 200, 2000)))


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True) or [b""]


def cut(random: Random, data: bytes, _: Pool) -> bytes:
    return data[: _spot(random, data)] if random.random() < 0.5 else data[_spot(random, data) :]


def remove(random: Random, data: bytes, _: Pool) -> bytes:
    start, end = _range(random, data)
    return data[:start] + data[end:]


def repeat(random: Random, data: bytes, _: Pool) -> bytes:
    start, end = _range(random, data)
    return data[:end] + data[start:end] * random.choice((1, 2, 30)) + data[end:]


def insert(random: Random, data: bytes, _: Pool) -> bytes:
    at = _spot(random, data)
    return data[:at] + random.choice(_BYTES) * random.choice((1, 1, 1, 2, 50)) + data[at:]


def flip(random: Random, data: bytes, _: Pool) -> bytes:
    changed = bytearray(data)
    for _ignored in range(random.choice((1, 1, 4, 30))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def put_number(random: Random, data: bytes, _: Pool) -> bytes:
    """Another number, or none, where one stood."""
    found = list(_NUMBER.finditer(data))
    chosen = random.sample(found, min(len(found), random.choice((1, 1, 3, 20))))
    for match in sorted(chosen, key=lambda m: -m.start()):
        data = data[: match.start()] + random.choice(_EDGES) + data[match.end() :]
    return data


def swap_fields(random: Random, data: bytes, _: Pool) -> bytes:
    lines = _lines(data)
    chosen = random.randrange(len(lines))
    fields = list(_FIELD.finditer(lines[chosen]))
    if len(fields) < 2:
        return data
    a, b = sorted(random.sample(range(len(fields)), 2))
    line, one, two = lines[chosen], fields[a], fields[b]
    lines[chosen] = (
        line[: one.start()] + two[0] + line[one.end() : two.start()] + one[0] + line[two.end() :]
    )
    return b"".join(lines)


def shuffle_lines(random: Random, data: bytes, _: Pool) -> bytes:
    lines = _lines(data)
    for _ignored in range(random.choice((1, 3, len(lines)))):
        a, b = random.randrange(len(lines)), random.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def repeat_lines(random: Random, data: bytes, _: Pool) -> bytes:
    lines = _lines(data)
    start = random.randrange(len(lines))
    some = lines[start : start + random.choice((1, 2, 10))]
    return b"".join(lines[:start] + some * random.choice((2, 3, 40)) + lines[start:])


def join_lines(random: Random, data: bytes, _: Pool) -> bytes:
    """What several writers do to one another: line ends that are lost."""
    pieces = data.split(b"\n")
    joined = pieces[0]
    for piece in pieces[1:]:
        joined += (b"" if random.random() < 0.2 else b"\n") + piece
    return joined


def splice(random: Random, data: bytes, pool: Pool) -> bytes:
    """A piece of another file, perhaps of another format."""
    other = random.choice(pool)
    start, end = _range(random, other)
    at = _spot(random, data)
    return data[:at] + other[start:end] + data[at:]


def cross(random: Random, data: bytes, pool: Pool) -> bytes:
    """The beginning of one file and the end of another."""
    other = random.choice(pool)
    return data[: _spot(random, data)] + other[_spot(random, other) :]


def dress(random: Random, data: bytes, _: Pool) -> bytes:
    """The same text as another system writes it."""
    return random.choice(
        (
            data.replace(b"\n", b"\r\n"),
            data.replace(b"\n", b"\r"),
            data.rstrip(b"\n"),
            data + b"\r",
            b"\xef\xbb\xbf" + data,
            data.decode("latin-1").encode("utf-16"),
            data.replace(b" ", b"\t"),
            data.replace(b",", b", "),
        )
    )


def nest(random: Random, data: bytes, _: Pool) -> bytes:
    opening = random.choice((b"[", b"(", b"{", b"['", b"\\'", b'"'))
    at = _spot(random, data)
    return data[:at] + opening * random.choice((3, 100, 2000)) + data[at:]


MUTATIONS: tuple[Mutation, ...] = (
    *(cut, remove, repeat, insert, flip, put_number, swap_fields, shuffle_lines),
    *(repeat_lines, join_lines, splice, cross, dress, nest),
)


def mutate(random: Random, data: bytes, pool: Pool) -> bytes:
    """The bytes after one to four mutations, at most `MAX_BYTES` of them."""
    for _ in range(random.choice((1, 1, 2, 4))):
        data = random.choice(MUTATIONS)(random, data, pool)[:MAX_BYTES]
    return data
