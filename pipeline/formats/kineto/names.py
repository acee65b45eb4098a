"""Tell what names in a PyTorch profiler trace mean: kernels, collectives, types, groups, files."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

_COMMUNICATION = re.compile(r"(?:nccl|rccl|msccl)\w*", re.ASCII | re.IGNORECASE)
# Kernels that reach other devices by themselves: of inference engines (vLLM, SGLang, AITER,
# FlashInfer, TensorRT-LLM), of symmetric memory, of DeepEP for experts, of Transformer Engine
# (userbuffers), of MSCCL++, of NVSHMEM and of oneCCL; and copies to the memory of another device.
_EXCHANGE = re.compile(
    r"(?:\w+::)*(?:cross_device_reduce_\w+"
    r"|(?:multimem|one_shot|two_shot)_\w*(?:all_reduce|all_gather|reduce_scatter)\w*"
    r"|allreduce_fusion_kernel\w*|quickreduce::allreduce_\w+|\w*(?:one|two)ShotAllReduceKernel\w*"
    r"|(?:intranode|internode|internode_ll)::\w*(?:dispatch|combine)\w*"
    r"|hybrid_ep::(?:dispatch|combine|device_sync)_kernel\w*"
    r"|k?userbuffers_\w+|mscclpp::[\w:]+|nvshmem[\w:]+|oneccl_\w+|Memcpy PtoP)",
    re.ASCII | re.IGNORECASE,
)
_COLLECTIVES = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("crossdevicereduce", "all_reduce"),
    ("deepep::", "all_to_all"),
    ("hybridep::", "all_to_all"),
    ("onecclreduce", None),  # a part of several collectives
    ("broadcast", "broadcast"),
    ("sendrecv", None),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)
_TYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "half": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "int": ("int32", 4),
    "long": ("int64", 8),
    "longint": ("int64", 8),
    "short": ("int16", 2),
    "shortint": ("int16", 2),
    "byte": ("uint8", 1),
    "unsignedchar": ("uint8", 1),
    "char": ("int8", 1),
    "signedchar": ("int8", 1),
    "bool": ("bool", 1),
    "float8_e4m3fn": ("float8_e4m3fn", 1),
    "float8_e4m3fnuz": ("float8_e4m3fnuz", 1),
    "float8_e5m2": ("float8_e5m2", 1),
    "float8_e5m2fnuz": ("float8_e5m2fnuz", 1),
}
_WIDTHS = dict(_TYPES.values())
# Descriptions of Megatron-LM and of torch's DeviceMesh.
GROUPS = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "DATA_PARALLEL_GROUP": "dp",
    "EMBEDDING_GROUP": "embedding",
    "POSITION_EMBEDDING_GROUP": "position_embedding",
    "EXPERT_MODEL_PARALLEL_GROUP": "expert",
    "EXPERT_DATA_PARALLEL_GROUP": "expert_dp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "tp_expert",
    "mesh_tp": "tp",
    "mesh_pp": "pp",
    "mesh_dp": "dp",
}
# Group kind -> the size that its number of ranks is.
SIZES = {"tp": "tp", "pp": "pp", "dp": "dp", "expert": "ep"}

# Annotations of torch.distributed.pipelining: `Forward 3`, or `PP:2F3` in stage 2 of all.
_PASS = re.compile(r"(?:PP:(\d{1,9}))?(F|B|Forward |Backward )(\d{1,9})", re.ASCII)
_PASSES = {"F": "forward_step", "B": "backward_step"}
# Of zero-bubble schedules: backward for inputs and for weights, and two passes at once.
_SPLIT_PASS = re.compile(r"PP:(?:\d{1,9}[IW]\d{1,9}|\(.{1,80}\)OVERLAP_F_B)", re.ASCII)

_ENDING = re.compile(r"(?:\.pt)?(?:\.trace)?\.json$")
_WORKER = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*)_(\d+)\.(\d{10,19})")
_RANK = re.compile(r"(?:^|(?<=[._-]))rank[._-]?(\d{1,9})(?=[._-]|$)", re.ASCII)
_FOLDER = re.compile(r"(?:rank[._-]?)?(\d{1,9})", re.ASCII)
_WRITTEN = re.compile(r"\.(?:[A-Z][a-z]{2}_\d{1,2}(?:_\d{1,2}){3}\.\d+|\d{10,19})$")


class Name(NamedTuple):
    """The facts in the path of a trace.

    Attributes:
        folder: Folder of the run: the file's, or the one above where its name is the rank.
        stem: What is left without rank, process and time; the run's folder if nothing is.
    """

    folder: str
    stem: str
    rank: int | None
    host: str | None


def name_of(path: str) -> Name:
    """Return the facts in names `[NAME.]rankN...json`, `HOST_PID.TIME.pt.trace.json`, `rankN/`."""
    place = PurePosixPath(path)
    plain = _ENDING.sub("", place.name)
    worker = None if _RANK.search(plain) else _WORKER.fullmatch(plain)
    host = worker[1] if worker else None
    stem = "" if worker else plain
    found = _RANK.search(stem)
    rank = int(found[1]) if found else None
    if found:
        stem = _WRITTEN.sub("", stem[: found.start()] + stem[found.end() :]).strip("._-")
    folder, named = place.parent, _FOLDER.fullmatch(place.parent.name)
    if rank is None and named:
        rank, folder = int(named[1]), folder.parent
    return Name(str(folder), stem or folder.name or "kineto", rank, host)


class Pass(NamedTuple):
    """A forward or backward pass of a pipeline.

    Attributes:
        virtual_stage: Stage among those of all ranks, where a rank may have several.
    """

    op: str
    micro_batch: int
    virtual_stage: int | None

    @property
    def kind(self) -> str:
        """Return what it does, as `ops.kind`."""
        return self.op.removesuffix("_step")


def pass_of(text: str) -> Pass | None:
    """Return the pass that an annotation of a pipeline names."""
    found = _PASS.fullmatch(text)
    if not found or (found[1] is None) != (len(found[2]) > 1):
        return None
    stage = None if found[1] is None else int(found[1])
    return Pass(_PASSES[found[2][0]], int(found[3]), stage)


def is_split_pass(text: str) -> bool:
    """Return whether an annotation of a pipeline names a part of a pass, or two of them."""
    return _SPLIT_PASS.fullmatch(text) is not None


@functools.lru_cache(4096)
def kernel_name(text: str) -> str:
    """Return the name of a kernel without its return type, template arguments and parameters."""
    name = text.removeprefix("void ")
    for unnamed in ("(anonymous namespace)::", "<unnamed>::"):
        name = name.replace(unnamed, "")
    return re.split(r"[<(]", name, maxsplit=1)[0].strip() or text


def is_communication(text: str) -> bool:
    """Return whether a kernel is one of NCCL or RCCL, whose arguments say what it does."""
    return _COMMUNICATION.match(text) is not None


def is_exchange(name: str) -> bool:
    """Return whether a kernel exchanges data with other devices, and nothing says more of it.

    Args:
        name: As `kernel_name` gives it.
    """
    return _EXCHANGE.fullmatch(name) is not None


def collective_of(text: str) -> str | None:
    """Return the collective that a name of a call or of a kernel says; None if it says none."""
    plain = text.partition("(")[0].replace("_", "").lower()
    return next((name for word, name in _COLLECTIVES if word in plain), None)


def dtype_of(text: str | None) -> str | None:
    """Return the element type as tracelake names it."""
    if not text:
        return None
    plain = text.removeprefix("c10::").replace(" ", "").lower()
    return _TYPES.get(plain, (text, 0))[0]


def width_of(dtype: str | None) -> int | None:
    """Return the bytes of an element; None of an unknown type."""
    return _WIDTHS.get(dtype or "")


def group_of(description: str | None) -> str | None:
    """Return the kind of a group that is described so."""
    return GROUPS.get(description or "")


def group_by_ranks(ranks: object, rank: int, sizes: Mapping[str, int]) -> str | None:
    """Return which group of a rank has these ranks, in Megatron's order (tp, cp, dp, pp)."""
    tp, dp = sizes.get("tp"), sizes.get("dp")
    if tp is None or dp is None or not isinstance(ranks, list):
        return None
    stride = tp * sizes.get("cp", 1)
    first = rank // tp * tp
    if 1 < tp == len(ranks) and ranks == list(range(first, first + tp)):
        return "tp"
    first = rank // (stride * dp) * stride * dp + rank % stride
    if 1 < dp == len(ranks) and ranks == list(range(first, first + stride * dp, stride)):
        return "dp"
    return None
