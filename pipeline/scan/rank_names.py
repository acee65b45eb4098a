"""What the paths of rank traces say: sizes, rank and date in a name, host and device in folders."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import PurePosixPath

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
_STAMP = re.compile(r"\d{14}")
_NODE = re.compile(r"(node|host|worker)[-_]?\d+", re.IGNORECASE)
_DEVICE = re.compile(r"(gpu|cuda|device)[-_]?\d+", re.IGNORECASE)
_HOST_OR_DEVICE = "gpu"


def parts_of(path: str) -> tuple[dict[str, int], dict[str, str]]:
    """Sizes by topology key, and the other parts of a file's name by meaning."""
    sizes: dict[str, int] = {}
    others: dict[str, str] = {}
    kept = []
    for part in PurePosixPath(path).stem.split("_"):
        sized = _PART.fullmatch(part)
        word = sized[1] if sized else None
        if sized and word in _SIZES and int(sized[2]) > 0:
            sizes.setdefault(_SIZES[word], int(sized[2]))
        elif sized and word == "expNum":
            others["experts"] = sized[2]
        elif part.lower().endswith("tokenizer"):
            others["tokenizer"] = part
        if sized and word == "rank":
            others.setdefault("rank", sized[2])
        elif _STAMP.fullmatch(part):
            others.setdefault("stamp", part)
        else:
            kept.append(part)
    others["stem"] = "_".join(kept)
    return sizes, others


def date_of(stamp: str | None) -> datetime | None:
    """The date of a stamp; None for digits that are none."""
    if stamp is None:
        return None
    try:
        return datetime.strptime(stamp, "%Y%m%d%H%M%S")
    except ValueError:
        return None


def device_of(path: str) -> str | None:
    """Device that a file's folder names: cuda3, device3, and gpu3 below a folder per node.

    Elsewhere gpu3 may as well be a host.
    """
    folder = PurePosixPath(path).parent
    named = _DEVICE.fullmatch(folder.name)
    if named and named[1].lower() == _HOST_OR_DEVICE and not _NODE.fullmatch(folder.parent.name):
        named = None
    return None if named is None else folder.name


def node_folder(path: str) -> PurePosixPath:
    """Folder of a file's node: its own, or the one above a device's."""
    folder = PurePosixPath(path).parent
    return folder if device_of(path) is None else folder.parent


def host_of(path: str) -> str | None:
    """Host that a file's folder names: node3, worker-12."""
    name = node_folder(path).name
    return name if _NODE.fullmatch(name) else None
