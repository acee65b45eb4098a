"""Read paths of rank traces: sizes, rank and date in a name, host and device in folders."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

_SIZES = {
    "wd": "world_size",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "cp": "cp",
    "vpp": "vpp",
    "exp": "ep",
    "ep": "ep",
    "numl": "layers",
    "bs": "micro_batch_size",
}
_PART = re.compile(r"([A-Za-z]+)(\d{1,9})")
_RANK, _DIGITS = "_rank", "0123456789"
_STAMP_DIGITS = 14
_NODE = re.compile(r"(node|host|worker)[-_]?\d+", re.IGNORECASE)
_DEVICE = re.compile(r"(gpu|cuda|device)[-_]?\d+", re.IGNORECASE)
_PART_OF_JOB = re.compile(
    r"(node|host|worker|machine|server|gpu|cuda|device|rank)([-_.]?\d+|[-_.]\w+)", re.IGNORECASE
)
_HOST_OR_DEVICE = "gpu"

# Ranks of a run share all but one part of their names, and their folders.
_CACHED = 1 << 12


class Name(NamedTuple):
    """The facts in a file's name.

    Attributes:
        stem: The name without rank, stamp and suffix.
        sizes: By topology key.
        attributes: Number of experts, tokenizer.
        rank, stamp: Their digits.
    """

    stem: str
    sizes: Mapping[str, int]
    attributes: Mapping[str, str]
    rank: str | None = None
    stamp: str | None = None


def name_of(path: str) -> Name:
    """Return the facts in the name of the file at this path; its parts may be in any order."""
    base = path[path.rfind("/") + 1 :]
    # The names of a run's files differ only in the digits of the rank, so the rest is cached.
    before, _, behind = base.partition(_RANK)
    after = behind.lstrip(_DIGITS)
    rank = behind[: len(behind) - len(after)]
    alike = _around(before, after) if 0 < len(rank) < 10 else None
    if alike is None:
        return _parsed(base)
    return Name(alike.stem, alike.sizes, alike.attributes, rank, alike.stamp)


@functools.lru_cache(_CACHED)
def _around(before: str, after: str) -> Name | None:
    """Return the facts in names with a rank between these texts; None for another rank."""
    several = {rank: _parsed(f"{before}{_RANK}{rank}{after}") for rank in ("0", "1")}
    own = all(name.rank == rank for rank, name in several.items())
    return several["0"] if own else None


def _parsed(base: str) -> Name:
    rank = stamp = None
    kept = []
    for part in posixpath.splitext(base)[0].split("_"):
        if part.startswith("rank") and 0 < len(part) - 4 < 10 and _is_number(part[4:]):
            rank = rank or part[4:]
        elif len(part) == _STAMP_DIGITS and _is_number(part):
            stamp = stamp or part
        else:
            kept.append(part)
    return _configuration("_".join(kept))._replace(rank=rank, stamp=stamp)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


@functools.lru_cache(_CACHED)
def _configuration(stem: str) -> Name:
    sizes: dict[str, int] = {}
    attributes: dict[str, str] = {}
    for part in stem.split("_"):
        sized = _PART.fullmatch(part)
        word, number = sized.groups() if sized else ("", "")
        if word in _SIZES and int(number) > 0:
            sizes.setdefault(_SIZES[word], int(number))
        elif word == "expNum":
            attributes["experts"] = number
        elif part.lower().endswith("tokenizer"):
            attributes["tokenizer"] = part
    return Name(stem, sizes, attributes)


class Folder(NamedTuple):
    """The facts in the folder of a file.

    Attributes:
        node: Folder of the file's node: its own, or the one above a device's.
        parent: The folder above the node's.
        node_name: Base name of the node's.
        host: Host that it names: node3, worker-12.
        device: cuda3, device3, and gpu3 below a folder per node; elsewhere gpu3 may be a host.
        names_part: The name of the node's folder says that it holds a part of a job: node3, gpu3,
            rank3.
    """

    node: str
    parent: str
    node_name: str
    host: str | None
    device: str | None
    names_part: bool


def folder_of(path: str) -> Folder:
    """Return the facts in the folder of the file at this path."""
    return _folder(path[: path.rfind("/") + 1])


@functools.lru_cache(_CACHED)
def _folder(name: str) -> Folder:
    folder = PurePosixPath(name)
    named = _DEVICE.fullmatch(folder.name)
    if named and named[1].lower() == _HOST_OR_DEVICE and not _NODE.fullmatch(folder.parent.name):
        named = None
    device = None if named is None else folder.name
    node = folder if named is None else folder.parent
    host = node.name if _NODE.fullmatch(node.name) else None
    part = _PART_OF_JOB.fullmatch(node.name) is not None
    return Folder(str(node), str(node.parent), node.name, host, device, part)
