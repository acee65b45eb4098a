"""Reads rank traces line by line with plain Python: slow, and meant to be right at a glance."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

Row = dict[str, object]
Record = dict[bytes, bytes]

HEADER = re.compile(rb"(rank|stage):([0-9]{1,9}):([A-Za-z_][A-Za-z0-9_]*)\(")
KEY = re.compile(rb"([A-Za-z_][A-Za-z0-9_]*)=")
NEXT_FIELD = re.compile(rb",(?=[A-Za-z_][A-Za-z0-9_]*=)")
TIME = re.compile(rb"([0-3]?[0-9]{1,12})(\.[0-9]{1,6})?")
COUNT = re.compile(rb"[0-9]{1,18}")
STAGE = re.compile(rb"[0-9]{1,9}")
SHAPE = re.compile(rb"\[( *[0-9]{1,18}(, *[0-9]{1,18})*)?\]")
LITERALS = {q: re.compile(rb"(?:[^\\" + q + rb"]|\\.)*", re.DOTALL) for q in (b"'", b'"')}
ESCAPE = re.compile(
    rb"\\(?:([\\'\"nrt])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))", re.DOTALL
)
PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}

OP_KEYS = b"stage_id mg_state duration timestamp description group_kind input__shape input__dtype"
BUCKET_KEYS = (
    b"stage_id mg_state duration timestamp description group_kind comm_func bucket_numel grad_dtype"
)
SUB_KEYS = b"trace_src_func duration timestamp input__shape input__dtype func_name group comm_func"
REDUCES = {
    b"dp_allreduce": "dp",
    b"exp_dp_allreduce": "expert_dp",
    b"ep_dp_allreduce": "expert_dp",
    b"ep_allreduce": "embedding",
    b"pep_allreduce": "position_embedding",
}
GROUPS = {
    "ep": "embedding",
    "pep": "position_embedding",
    "exp": "expert",
    "exp_dp": "expert_dp",
    "ep_dp": "expert_dp",
}
COLLECTIVES = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
}
PASSES = {
    name: way
    for way in ("forward", "backward")
    for name in (f"send_{way}".encode(), f"recv_{way}".encode(), f"{way}_step".encode())
} | {b"get_batch": "forward"}
CATEGORIES = {
    b"forward_step": "compute",
    b"backward_step": "compute",
    b"loss_func": "compute",
    b"get_batch": "data",
    b"optimizer_step": "optimizer",
    b"ddp_grad_comm": "collective",
}
WIDTHS = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
PHASES = ["warmup", "help", "steady", "cooldown", "finalize"]


class RejectedError(Exception):
    """A line that is not understood; the argument is the reason."""


class IrrelevantError(Exception):
    """A line that is understood and has no rows; the argument is the kind."""


@dataclass
class Result:
    """Rows by table, line accounts by source, rejects and faults."""

    ops: list[Row] = field(default_factory=list)
    comms: list[Row] = field(default_factory=list)
    row_lines: Counter[int] = field(default_factory=Counter)
    irrelevant: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rejects: list[tuple[int, int, int, str]] = field(default_factory=list)
    faults: Counter[tuple[int, str]] = field(default_factory=Counter)


@dataclass
class Op:
    """A parsed line before it is numbered."""

    source: int
    line: int
    rank: int
    name: bytes
    fields: Record
    subs: list[Record]


def read(sources: Sequence[bytes], stage_of: Callable[[int], int | None]) -> Result:
    """All rows of a run."""
    result = Result()
    ops = []
    for source, data in enumerate(sources):
        offset = 0
        for at, raw in enumerate(re.findall(rb"[^\n]*\n|[^\n]+", data), 1):
            try:
                ops.append(Op(source, at, *parse_line(raw.removesuffix(b"\n"))))
                result.row_lines[source] += 1
            except IrrelevantError as kind:
                result.irrelevant[source][str(kind)] += 1
            except RejectedError as reason:
                if raw.endswith(b"\n"):
                    result.rejects.append((source, at, offset, str(reason)))
                else:
                    result.irrelevant[source]["unfinished"] += 1
                    result.faults[source, "unfinished"] += 1
            offset += len(raw)
    for op, place in zip(ops, number(ops), strict=True):
        add_rows(result, op, place, stage_of)
    return result


def parse_line(line: bytes) -> tuple[int, bytes, Record, list[Record]]:
    """(rank, operation, fields, sub-operations)."""
    line = line.rstrip(b" \t\r")
    if not line:
        raise IrrelevantError("blank")
    header = HEADER.match(line)
    if header is None:
        raise RejectedError("not_a_record")
    if not line.endswith(b")"):
        raise RejectedError("unbalanced")
    if header[1] == b"stage":
        raise IrrelevantError("plan")
    name, body = header[3], line[header.end() : -1]
    start = (b"," + body).find(b",sub_operations=[")
    listed = None if start < 0 else body[start + len(b"sub_operations=[") :]
    empty = start == 0 or not body
    inside = body if start < 0 else body[: start - 1]
    known = (BUCKET_KEYS if name == b"ddp_grad_comm" else OP_KEYS).split()
    fields = {} if empty else parse_fields(inside, known)
    if b"sub_operations" in fields and listed is not None:
        raise RejectedError("duplicate_key")
    if given(fields, b"timestamp") is None:
        untraced = b"duration" in fields and given(fields, b"duration") is None
        if untraced and listed in (None, b"]"):
            raise IrrelevantError("untraced_iteration")
        raise RejectedError("missing_timestamp")
    subs = [] if listed is None else parse_list(listed)
    return int(header[2]), name, fields, subs


def parse_fields(text: bytes, known: list[bytes]) -> Record:
    """Fields by key, the known ones checked."""
    fields: Record = {}
    for piece in NEXT_FIELD.split(text):
        key = KEY.match(piece)
        if key is None:
            raise RejectedError("bad_field")
        if key[1] in fields:
            raise RejectedError("duplicate_key")
        value = fields[key[1]] = piece[key.end() :]
        if key[1] not in known or value == b"None":
            continue
        if key[1] in (b"duration", b"timestamp") and not TIME.fullmatch(value):
            raise RejectedError("bad_number")
        if key[1] == b"stage_id" and not STAGE.fullmatch(value):
            raise RejectedError("bad_number")
        if key[1] == b"bucket_numel" and not COUNT.fullmatch(value):
            raise RejectedError("bad_number")
        if key[1] == b"input__shape" and not SHAPE.fullmatch(value):
            raise RejectedError("bad_shape")
    return fields


def parse_list(text: bytes) -> list[Record]:
    """Sub-operations of the text behind the opening bracket."""
    subs: list[Record] = []
    if text == b"]":
        return subs
    if text.startswith(b"]"):
        raise RejectedError("unbalanced")
    while True:
        if not text:
            raise RejectedError("unbalanced")
        quote = text[:1]
        if quote not in LITERALS:
            raise RejectedError("bad_sub_operation")
        literal = LITERALS[quote].match(text, 1)
        assert literal is not None
        if text[literal.end() : literal.end() + 1] != quote:
            raise RejectedError("unbalanced")
        subs.append(parse_fields(unescape(literal[0]), SUB_KEYS.split()))
        if given(subs[-1], b"timestamp") is None:
            raise RejectedError("missing_timestamp")
        text = text[literal.end() + 1 :]
        if text == b"]":
            return subs
        if not text or text.startswith(b"]"):
            raise RejectedError("unbalanced")
        if not text.startswith(b", "):
            raise RejectedError("bad_sub_operation")
        text = text[2:]


def unescape(literal: bytes) -> bytes:
    """Text of a Python string literal."""

    def character(escape: re.Match[bytes]) -> bytes:
        if escape[1]:
            return PLAIN.get(escape[1], escape[1])
        digits = escape[2] or escape[3] or escape[4]
        if not digits:
            raise RejectedError("bad_sub_operation")
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise RejectedError("bad_sub_operation")
        return chr(code).encode()

    return ESCAPE.sub(character, literal)


def given(fields: Record, key: bytes) -> bytes | None:
    """Value of a key unless it is None or nothing."""
    value = fields.get(key)
    return None if value in (None, b"None", b"") else value


def text_of(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def nanoseconds(value: bytes | None) -> int | None:
    return None if value is None else int(Decimal(value.decode()) * 1_000_000)


def number(ops: list[Op]) -> list[tuple[int, int, int]]:
    """(step, seq, micro_batch) of each operation."""
    marked = any(op.name == b"optimizer_step" or op.name in REDUCES for op in ops)
    history: dict[int, list[Op]] = defaultdict(list)  # of the rank's current step
    steps: Counter[int] = Counter()
    seqs: Counter[int] = Counter()
    again: Counter[int] = Counter()
    ended: dict[int, tuple[object, int]] = {}  # times and step of the latest end
    places = []
    for op in ops:
        found = times_of(op.fields)
        times = found["start_ns"], found["end_ns"]
        ends = op.name == b"optimizer_step" and None not in times and found["duration_ns"] != 0
        if ends and ended.get(op.rank, (None, 0))[0] == times:
            # Its line was written twice.
            seqs[op.rank] += 1
            places.append((ended[op.rank][1], seqs[op.rank], again[op.rank]))
            again[op.rank] += 1
            continue
        if not history[op.rank] or restarts(history[op.rank], op, marked=marked):
            steps[op.rank] += 1
            history[op.rank] = []
        seqs[op.rank] += 1
        before = sum(earlier.name == op.name for earlier in history[op.rank])
        places.append((steps[op.rank], seqs[op.rank], before))
        if op.name == b"optimizer_step":
            ended[op.rank], again[op.rank] = (times, steps[op.rank]), before + 1
        history[op.rank].append(op)
    return places


def phase_of(op: Op) -> int:
    phase = text_of(given(op.fields, b"mg_state"))
    return PHASES.index(phase) if phase in PHASES else -1


def batch_of(op: Op) -> int | None:
    batch = given(op.fields, b"batch_id")
    return int(batch) if batch is not None and COUNT.fullmatch(batch) else None


def restarts(  # noqa: PLR0911 -- one rule after the other
    step: list[Op], op: Op, *, marked: bool
) -> bool:
    """Whether an operation begins a new step after those of the current one."""
    names = [earlier.name for earlier in step]
    if names[-1] == b"optimizer_step":
        return True
    if op.name == b"ddp_grad_comm":
        return False
    real = [earlier for earlier in step if earlier.name != b"ddp_grad_comm"]
    phase = phase_of(op)
    if phase >= 0 and any(phase_of(earlier) > phase for earlier in real):
        return True
    opens = op.name in (b"get_batch", b"forward_step", b"recv_forward")
    if opens and any(name in REDUCES for name in names):
        return True
    if marked or phase >= 0 or not real or real[0].name != op.name:
        return False
    forwards, backwards = names.count(b"forward_step"), names.count(b"backward_step")
    if backwards == 0 or forwards > backwards:
        return False
    batch = batch_of(op)
    before = batch_of([earlier for earlier in step if earlier.name == op.name][-1])
    return batch is None or before is None or batch <= before


def add_rows(
    result: Result, op: Op, place: tuple[int, int, int], stage_of: Callable[[int], int | None]
) -> None:
    """Rows of an operation and its communications."""
    fields, bucket = op.fields, op.name == b"ddp_grad_comm"
    known = {*(BUCKET_KEYS if bucket else OP_KEYS).split()}
    stage = given(fields, b"stage_id")
    p2p = op.name.startswith((b"send_", b"recv_"))
    shape = given(fields, b"bucket_numel" if bucket else b"input__shape")
    tensor = tensor_of(shape, given(fields, b"grad_dtype" if bucket else b"input__dtype"))
    raw_group = text_of(given(fields, b"group_kind"))
    group = "pp" if p2p else REDUCES.get(op.name)
    group = group if raw_group is None else GROUPS.get(raw_group, raw_group)
    times = times_of(fields)
    shared: Row = {
        "source_id": op.source,
        "line": op.line,
        "rank": op.rank,
        "stage": int(stage) if stage is not None else stage_of(op.rank),
        "step": place[0],
        "seq": place[1],
        "micro_batch": place[2],
        "phase": text_of(given(fields, b"mg_state")),
        "pass": PASSES.get(op.name),
    }
    result.ops.append(
        {
            **shared,
            **times,
            **tensor,
            "op": op.name.decode(),
            "category": "p2p"
            if p2p
            else "collective"
            if op.name in REDUCES
            else CATEGORIES.get(op.name),
            "kind": kind_of(op.name),
            "group_kind": group,
            "description": text_of(given(fields, b"description")),
            "attributes": attributes_of(fields, known),
        }
    )
    if p2p or bucket or op.name in REDUCES:
        func = given(fields, b"comm_func") if bucket else op.name
        result.comms.append(
            {
                **shared,
                **(dict.fromkeys(times) if bucket else times),
                **tensor,
                "sub_seq": None,
                "parent_op": None,
                "collective": collective_of(text_of(func)),
                "group_kind": group,
                "raw_func": text_of(func),
                "raw_group": raw_group,
                "caller": None,
                "overlapped": False,
                "group_size": None,
                "tensor": None,
                "attributes": None,
            }
        )
    for sub_seq, sub in enumerate(op.subs, 1):
        result.comms.append({**shared, "sub_seq": sub_seq, "parent_op": op.name.decode()})
        result.comms[-1] |= sub_row(sub)
    count_faults(result, op)


def kind_of(name: bytes) -> str | None:
    """What an operation of this name does; None for rows that say nothing about the schedule."""
    verb, _, rest = name.decode().partition("_")
    if rest == "step" and verb in ("forward", "backward", "optimizer"):
        return verb
    if verb in ("send", "recv") and rest in ("forward", "backward"):
        return verb
    if name in (b"loss_func", b"get_batch"):
        return "loss" if verb == "loss" else "data"
    return "gradient_sync" if name.endswith(b"allreduce") and name in REDUCES else None


def sub_row(sub: Record) -> Row:
    """Columns of a sub-operation of its own."""
    raw_group = text_of(given(sub, b"group"))
    group = None if raw_group is None else GROUPS.get(raw_group, raw_group)
    caller = text_of(given(sub, b"trace_src_func"))
    if group == "expert" and caller is not None and caller.endswith("_moe"):
        group = "tp_expert"
    func = text_of(given(sub, b"comm_func"))
    return {
        "group_size": None,
        "overlapped": caller is not None and caller.endswith("_bwd_async"),
        **times_of(sub),
        **tensor_of(given(sub, b"input__shape"), given(sub, b"input__dtype")),
        "collective": collective_of(func),
        "group_kind": group,
        "raw_func": func,
        "raw_group": raw_group,
        "caller": caller,
        "tensor": text_of(given(sub, b"func_name")),
        "attributes": attributes_of(sub, {*SUB_KEYS.split()}),
    }


def collective_of(func: str | None) -> str | None:
    if func is None:
        return None
    if func.startswith(("send_", "recv_")):
        return func[:4]
    return "all_reduce" if func.encode() in REDUCES else COLLECTIVES.get(func)


def times_of(fields: Record) -> Mapping[str, int | None]:
    end = nanoseconds(given(fields, b"timestamp"))
    duration = nanoseconds(given(fields, b"duration"))
    if end == 0 and duration == 0:
        end = duration = None
    start = None if end is None or duration is None else end - duration
    return {"start_ns": start, "end_ns": end, "duration_ns": duration}


def dtype_of(value: bytes | None) -> str | None:
    name = None if value is None else value.removeprefix(b"torch.")
    return None if name in (b"", b"None") else text_of(name)


def width_of(dtype: str) -> int | None:
    return 1 if dtype.startswith("float8") else WIDTHS.get(dtype)


def tensor_of(shape: bytes | None, dtype: bytes | None) -> Row:
    dimensions = None if shape is None else [int(d) for d in re.findall(rb"\d+", shape)]
    name = dtype_of(dtype)
    size = None
    if dimensions is not None and name is not None:
        width = width_of(name)
        elements = math.prod(dimensions)
        size = None if width is None or elements >= 1 << 60 else elements * width
    return {"shape": dimensions, "dtype": name, "bytes": size}


def attributes_of(fields: Record, known: set[bytes]) -> dict[str, str | None] | None:
    unknown = [k for k in fields if k not in known]
    return {k.decode(): text_of(given(fields, k)) for k in unknown} or None


def count_faults(result: Result, op: Op) -> None:
    """One fault of a kind per line."""
    dtypes = [given(op.fields, b"grad_dtype" if op.name == b"ddp_grad_comm" else b"input__dtype")]
    dtypes += [given(sub, b"input__dtype") for sub in op.subs]
    names = [dtype_of(d) for d in dtypes]
    if any(n is not None and width_of(n) is None for n in names):
        result.faults[op.source, "unknown_dtype"] += 1
    values = [v for record in (op.fields, *op.subs) for v in record.values()]
    if not all(is_utf8(v) for v in values):
        result.faults[op.source, "not_utf8"] += 1


def is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
