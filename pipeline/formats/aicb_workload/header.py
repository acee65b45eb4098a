"""Read the name and the first two lines of a workload plan."""

from __future__ import annotations

import re
from dataclasses import dataclass

POLICIES = frozenset(
    {
        "DATA",
        "MODEL",
        "HYBRID_TRANSFORMER",
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
        "HYBRID_DLRM",
        "HYBRID_DLRM_ENHANCED",
        "HYBRID_DATA_MODEL",
        "HYBRID_MODEL_DATA",
        "HYBRID_CUSTOMIZED",
        "MICRO",
        "DISTRIBUTED_INFERENCE",
    }
)
CUSTOMIZED = "HYBRID_CUSTOMIZED"
"""Policy under which each row ends in a policy of its own."""

# If two keys give the same size, the first one in the line counts.
_SIZES = {
    "model_parallel_NPU_group": "tp",
    "ep": "ep",
    "expert_parallel_npu_group": "ep",
    "pp": "pp",
    "vpp": "vpp",
    "ga": "micro_batches",
    "all_gpus": "world_size",
}
_SIZE = re.compile(r"0*([1-9][0-9]{0,8})(\.[0-9]*)?")
_COUNT = re.compile(r"[ \t\v\f\r]*\+?([0-9]+)")
_NAME_SIZES = {
    "world_size": "world_size",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "cp": "cp",
    "dp": "dp",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
}
_NAME_SIZE = re.compile(
    rf"(?<![a-z0-9])({'|'.join(_NAME_SIZES)})([1-9][0-9]{{0,8}})(?![a-z0-9])", re.IGNORECASE
)
_NAME_MODELS = (
    re.compile(r"[^-]+-(.+?)-world_size[0-9]"),
    re.compile(r"(?:.*_)?([^_]+)_(?:megatron|deepspeed)(?:_|$)"),
)
_INT_MAX = (1 << 31) - 1

# Splits a line as the simulator does: at ASCII blanks only.
_fields_of = re.compile(r"[^ \t\n\v\f\r]+").findall


@dataclass(frozen=True, slots=True)
class Header:
    """Line 1.

    Attributes:
        sizes: Positive sizes by topology key; a fraction is cut off, as the simulator does.
        attributes: The policy, and every other key with its values as written.
    """

    policy: str
    sizes: dict[str, int]
    attributes: dict[str, str]


def read_header(line: str) -> Header | None:
    """Read `POLICY key: value ...`; return None if the line begins with no known policy.

    A key ends in a colon or, as in `pp_comm 50331648`, is a word after a complete pair. It may
    have several values (`checkpoints: 2 2 11`). Values before any key belong to `policy_argument`.
    """
    policy, *words = _fields_of(line) or [""]
    if policy not in POLICIES:
        return None
    written: dict[str, list[str]] = {}
    key = "policy_argument"
    for word in words:
        name, colon, value = word.partition(":")
        if name.isidentifier() and (colon or written.get(key, True)):
            key = name
            written.setdefault(key, [])
        else:
            value = word
        if value:
            written.setdefault(key, []).append(value)
    sizes: dict[str, int] = {}
    attributes: dict[str, str] = {}
    for name, values in written.items():
        size = _SIZE.fullmatch(" ".join(values)) if name in _SIZES else None
        if size and _SIZES[name] not in sizes:
            sizes[_SIZES[name]] = int(size[1])
        else:
            attributes[name] = " ".join(values)
    return Header(policy, sizes, {**attributes, "policy": policy})


def read_count(line: str) -> int | None:
    """Return the number of rows at the beginning of line 2; None if there is no integer."""
    count = _COUNT.match(line)
    return int(count[1]) if count and len(count[1]) <= 10 and int(count[1]) <= _INT_MAX else None


def name_sizes(stem: str) -> dict[str, int]:
    """Return sizes by topology key from a file name like `tp8` or `world_size128`."""
    return {_NAME_SIZES[key.lower()]: int(size) for key, size in _NAME_SIZE.findall(stem)}


def name_model(stem: str) -> str | None:
    """Return the model in a file name of AICB (`GPU-MODEL-world_size8-...`) or its suite."""
    found = (pattern.match(stem) for pattern in _NAME_MODELS)
    return next((match[1] for match in found if match), None)
