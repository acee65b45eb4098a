"""Workload plans read one line after the other, in plain Python: slow and easy to check."""

from __future__ import annotations

from dataclasses import dataclass, field

Row = dict[str, object]

POLICIES = [
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
]
SIZES = {
    "model_parallel_NPU_group": "tp",
    "ep": "ep",
    "expert_parallel_npu_group": "ep",
    "pp": "pp",
    "vpp": "vpp",
    "ga": "micro_batches",
    "all_gpus": "world_size",
}
COLLECTIVES = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}


@dataclass
class Plan:
    rows: list[Row] = field(default_factory=list)
    rejects: list[tuple[int, int, str, str]] = field(default_factory=list)
    context_lines: int = 0
    blank_lines: int = 0
    unfinished_lines: int = 0
    row_lines: int = 0
    declared: int | None = None
    topology: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def profiled(self) -> bool:
        return any(isinstance(r["compute_ns"], int) and r["compute_ns"] >= 1000 for r in self.rows)


class RefusedError(Exception):
    """Why a line is no row."""


def read(raw: bytes, held_rows: int) -> Plan:
    """Rows (without the id of their source), rejects as (line, offset, reason, text), accounts."""
    plan = Plan()
    offset = 0
    kept = []
    lines = raw.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for line, text in enumerate(lines, 1):
        try:
            if line == 1:
                header(plan, text)
                plan.context_lines += 1
            elif line == 2:
                plan.declared = count(text)
                plan.context_lines += 1
            elif not text.split():
                plan.blank_lines += 1
            else:
                row = fields(text, customized=plan.attributes.get("policy") == "HYBRID_CUSTOMIZED")
                row.update(line=line, row=line - 2 - plan.blank_lines)
                kept.append(row)
        except RefusedError as refusal:
            if line == len(lines) and not raw.endswith(b"\n") and str(refusal) == "too_few_fields":
                plan.unfinished_lines += 1
                continue
            shown = (
                text.removesuffix(b"\r")[:4096]
                .replace(b"\\", b"\\\\")
                .decode("utf-8", "backslashreplace")
            )
            plan.rejects.append((line, offset, str(refusal), shown))
        offset += len(text) + 1
    plan.row_lines = len(kept)
    number_micro_batches(kept, plan.topology.get("micro_batches"), held_rows)
    for row in kept:
        for name, (compute, comm, size) in row.pop("passes").items():  # type: ignore[attr-defined]
            collective, group = meaning(comm, name)
            plan.rows.append(
                {
                    **row,
                    "pass": name,
                    "compute_ns": compute,
                    "raw_comm": comm,
                    "raw_bytes": size,
                    "collective": collective,
                    "group_kind": group,
                    "bytes": size if collective else None,
                }
            )
    return plan


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def header(plan: Plan, text: bytes) -> None:
    words = [decoded(word) for word in text.split()]
    if not words or words[0] not in POLICIES:
        raise RefusedError("bad_header")
    values: dict[str, list[str]] = {}
    current = None
    for word in words[1:]:
        name, colon, rest = word.partition(":")
        complete = current is None or bool(values[current])
        if name.isidentifier() and (colon or complete):
            current = name
            values.setdefault(current, [])
            values[current] += [rest] if rest else []
        else:
            current = current or "policy_argument"
            values.setdefault(current, []).append(word)
    for name, given in values.items():
        value = " ".join(given)
        whole = value.partition(".")[0]
        fraction = value.partition(".")[2]
        digits = (whole + fraction).isascii() and whole.isdigit() and (fraction + "0").isdigit()
        if (
            name in SIZES
            and digits
            and int(whole) > 0
            and len(str(int(whole))) <= 9
            and SIZES[name] not in plan.topology
        ):
            plan.topology[SIZES[name]] = int(whole)
        else:
            plan.attributes[name] = value
    plan.attributes["policy"] = words[0]


def count(text: bytes) -> int:
    digits = text.lstrip(b" \t\v\f\r").removeprefix(b"+")
    number = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    if not number or len(number) > 10 or int(number) >= 1 << 31:
        raise RefusedError("bad_count")
    return int(number)


def number(word: bytes) -> int:
    if not word.isdigit() or len(word) > 19 or int(word) >= 1 << 63:
        raise RefusedError("bad_number")
    return int(word)


def fields(text: bytes, *, customized: bool) -> Row:
    words = text.split()
    if len(words) < 12 + customized:
        raise RefusedError("too_few_fields")
    if len(words) >= 24:
        raise RefusedError("several_rows")
    attributes = {}
    number(words[1].removeprefix(b"-"))
    if words[1] != b"-1":
        attributes["dependency"] = decoded(words[1])
    for column, word in enumerate(words[12:], 13):
        name = "policy" if customized and column == 13 else f"column_{column}"
        attributes[name] = decoded(word)
    return {
        "layer": decoded(words[0]),
        "passes": {
            name: (number(words[k]), decoded(words[k + 1]), number(words[k + 2]))
            for name, k in (("forward", 2), ("input_grad", 5), ("weight_grad", 8))
        },
        "update_ns": number(words[11]),
        "attributes": attributes or None,
    }


def meaning(comm: str, name: str) -> tuple[str | None, str | None]:
    for suffix, group in (("_DP_EP", "dp_ep"), ("_EP", "expert"), ("", None)):
        word = comm.removesuffix(suffix) if suffix else comm
        if comm.endswith(suffix) and word in COLLECTIVES:
            return COLLECTIVES[word], group or ("dp" if name == "weight_grad" else "tp")
    return None, None


def number_micro_batches(rows: list[Row], ga: int | None, held_rows: int) -> None:
    for row in rows:
        row.update(micro_batch=None, layer_index=None)
    at = {row["row"]: row for row in rows}
    starts = sorted(int(str(k)) for k, row in at.items() if row["layer"] == "embedding_layer")
    if ga is None or ga < 2 or len(starts) != ga or len(rows) > held_rows:
        return
    length = starts[1] - starts[0]
    if starts != [starts[0] + k * length for k in range(ga)]:
        return
    for place in range(length):
        names = {at[start + place]["layer"] for start in starts if start + place in at}
        if len(names) > 1:
            return
    for block, start in enumerate(starts):
        for place in range(length):
            at.get(start + place, {}).update(micro_batch=block, layer_index=place)
