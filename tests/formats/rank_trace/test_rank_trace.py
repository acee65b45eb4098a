"""Rank traces: lines to rows, told apart from lines that are none, against a plain reference."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parsing import ParsedRun, parse
from tests.reference import rank_trace as reference
from tracelake.formats import format_named
from tracelake.schema.topology import resolve, stage_of

FORMAT = "rank_trace"
SUB = (
    "trace_src_func=allreduce,duration=0.36,timestamp=101.5,input__shape=[4096, 5120],"
    "input__dtype=torch.float16,func_name=linear_fwd,group=tp,comm_func=allreduce"
)


def op(name: str = "forward_step", *, rank: int = 0, subs: str = "[]", **fields: str) -> str:
    """A line; fields named here replace the usual ones or stand behind them."""
    usual = {
        "stage_id": "0",
        "batch_id": "0",
        "mg_state": "None",
        "duration": "1.25",
        "description": "None",
        "group_kind": "None",
        "input__shape": "None",
        "input__dtype": "None",
        "timestamp": "102.5",
    }
    pairs = ",".join(f"{k}={v}" for k, v in {**usual, **fields}.items())
    return f"rank:{rank}:{name}({pairs},sub_operations={subs})\n"


def run(
    text: str | bytes,
    *,
    path: str = "trace.txt",
    block_size: int = 1 << 20,
    empty_last: bool = False,
) -> ParsedRun:
    raw = text.encode() if isinstance(text, str) else text
    return parse(FORMAT, {path: raw}, block_size=block_size, empty_last=empty_last).only


def assert_as_reference(found: ParsedRun, data: list[bytes]) -> None:
    topology, _ = resolve(printed={}, named=found.run.named, given=found.run.given)
    expected = reference.read(data, lambda rank: stage_of(rank, topology))
    # Rank traces print no virtual stage and no stream, so the reference does not have them.
    assert found.rows("ops") == [
        {c: r.get(c) for c in found.tables["ops"].schema.names} for r in expected.ops
    ]
    names = found.tables["comms"].schema.names
    assert found.rows("comms") == [{c: r[c] for c in names} for r in expected.comms]
    ids = {s.path: i for i, s in enumerate(found.run.sources)}
    assert [(ids[p], n, at, why) for p, n, at, why, _ in found.rejects()] == expected.rejects
    for source in range(len(data)):
        account = found.ledger.source(source)
        assert account.row_lines == expected.row_lines[source]
        assert account.irrelevant == expected.irrelevant[source]
    assert Counter({(ids[p], name): n for p, name, n, _ in found.faults()}) == expected.faults


def corpus_files(corpus: Path) -> dict[str, bytes]:
    paths = [
        *corpus.glob("rank_trace/*/*.txt"),
        *corpus.glob("seeds/000*"),
        *corpus.glob("seeds/001*"),
    ]
    return {p.relative_to(corpus).as_posix(): p.read_bytes() for p in sorted(paths)}


@pytest.mark.parametrize("block_size", [1, 20_000, 1 << 20])
def test_corpus_is_read_as_the_reference_reads_it(corpus: Path, block_size: int) -> None:
    files = corpus_files(corpus)
    for found in parse(FORMAT, files, block_size=block_size).runs:
        assert not found.rejects()
        assert_as_reference(found, [files[s.path] for s in found.run.sources])


VALUES = st.one_of(
    st.sampled_from(
        [
            "None",
            "",
            "0",
            "0.0",
            "1.25",
            "11488701335.83",
            "1e-05",
            "-1",
            "1.",
            "1.1234567",
            "torch.bool",
        ]
    ),
    st.sampled_from(
        ["[1, 4096]", "[]", "[0]", "[1,2]", "[1, ]", "[-1]", "torch.float8_e4m3fn", "dp"]
    ),
    st.sampled_from(
        ["exp", "ep", "f(), All-reduce, x", "a,b=c", "simulation: x", "it's", 'a"b', "é"]
    ),
    st.text(st.sampled_from("ab=,()[]'\"\\ é\t.0"), max_size=6),
)
KEYS = st.sampled_from(
    [
        "stage_id",
        "batch_id",
        "mg_state",
        "duration",
        "description",
        "group_kind",
        "input__shape",
        "input__dtype",
        "timestamp",
        "cmd_uid",
        "op_semantics",
        "trace_src_func",
        "func_name",
        "group",
        "comm_func",
        "bucket_numel",
        "grad_dtype",
        "sub_operations",
        "x",
    ]
)
OPS = st.sampled_from(
    [
        "forward_step",
        "backward_step",
        "get_batch",
        "send_forward",
        "recv_backward",
        "dp_allreduce",
        "exp_dp_allreduce",
        "ep_allreduce",
        "ddp_grad_comm",
        "optimizer_step",
        "loss_func",
        "send_x",
        "other",
    ]
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Lines that are often right and often wrong in one place."""
    fields = {
        "stage_id": "1",
        "mg_state": draw(st.sampled_from(["None", *reference.PHASES])),
        "duration": draw(st.sampled_from(["0", "0.5", "12"])),
        "timestamp": draw(
            st.sampled_from(["0", "7.25", "900", "3999999999999.999999", "4000000000000"])
        ),
    }
    fields |= draw(st.dictionaries(KEYS, VALUES, max_size=3))
    subs = []
    for extra in draw(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=3)):
        sub = {
            "trace_src_func": "x_moe",
            "duration": "0.1",
            "timestamp": "5",
            "group": "exp",
            **extra,
        }
        subs.append(",".join(f"{k}={v}" for k, v in sub.items()))
    body = ",".join(f"{k}={v}" for k, v in fields.items())
    listed = draw(st.sampled_from([f",sub_operations={subs!r}", f",sub_operations={subs!r}", ""]))
    return f"rank:{draw(st.integers(0, 2))}:{draw(OPS)}({body}{listed})"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lines(), min_size=1, max_size=12), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_generated_lines_are_read_as_the_reference_reads_them(texts: list[str], end: str) -> None:
    raw = end.join(texts).encode()
    assert_as_reference(run(raw, block_size=200), [raw])


def test_damaged_bytes_are_read_as_the_reference_reads_them(corpus: Path) -> None:
    draw = random.Random(7)
    whole = corpus_files(corpus)
    texts = [raw[:2500] + b"\n" + raw[-1500:] for raw in whole.values()]
    texts += [
        line + b"\n" for raw in whole.values() for line in raw.split(b"\n") if 0 < len(line) < 700
    ]
    hostile = b"\n\r ',\"\\()[]=:x\x00\xff\xc3.0N"
    for _ in range(600):
        raw = bytearray(draw.choice(texts))
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(raw))
            kind = draw.randrange(3)
            if kind == 0:
                raw[at] = draw.choice(hostile)
            elif kind == 1:
                del raw[at : at + draw.randint(1, 5)]
            else:
                raw[at:at] = bytes([draw.choice(hostile)])
        assert_as_reference(run(bytes(raw)), [bytes(raw)])


REJECTED = [
    ("hello", "not_a_record"),
    ("rank:x:forward_step(timestamp=1)", "not_a_record"),
    ("stage:0:forward", "not_a_record"),
    ("rank:0:forward_step(timestamp=1", "unbalanced"),
    (op(subs="['duration=1,timestamp=2]"), "unbalanced"),
    (op().strip() + " rank:1:x()", "unbalanced"),
    ("rank:0:forward_step(=1,timestamp=1)", "bad_field"),
    (op(subs=f"['{SUB},group=dp']"), "duplicate_key"),
    (op(duration="1e3"), "bad_number"),
    (op(timestamp="-5"), "bad_number"),
    (op(timestamp="1.1234567"), "bad_number"),
    (op(timestamp="4000000000000"), "bad_number"),
    (op(stage_id="first"), "bad_number"),
    (op(subs="['duration=x,timestamp=1']"), "bad_number"),
    (op(input__shape="(1, 2)"), "bad_shape"),
    (op(timestamp="None"), "missing_timestamp"),
    (op(subs="['duration=1']"), "missing_timestamp"),
    (op(subs="[duration=1]"), "bad_sub_operation"),
    (op(subs="['timestamp=1','timestamp=2']"), "bad_sub_operation"),
    (op(subs=r"['timestamp=1,x=\q']"), "bad_sub_operation"),
]


@pytest.mark.parametrize(("line", "reason"), REJECTED)
def test_a_rejected_line_has_a_reason_and_spares_its_neighbours(line: str, reason: str) -> None:
    found = run(op() + line.strip("\n") + "\n" + op(subs=f"['{SUB}']"))
    assert [r[1:4] for r in found.rejects()] == [(2, len(op()), reason)]
    assert [r["line"] for r in found.rows("ops")] == [1, 3]
    assert [r["line"] for r in found.rows("comms")] == [3]


def test_every_reject_reason_is_tested() -> None:
    tested = {reason for _, reason in REJECTED} | {"truncated_line"}
    assert tested == set(format_named(FORMAT).rejects)


@pytest.mark.parametrize("empty_last", [False, True])
def test_a_cut_last_line_is_unfinished_and_a_whole_one_is_not(empty_last: bool) -> None:
    cut = run(op() + op()[:40], empty_last=empty_last)
    assert not cut.rejects()
    assert [f[1:] for f in cut.faults()] == [("unfinished", 1, 2)]
    assert cut.ledger.source(0).irrelevant["unfinished"] == 1
    assert cut.facts.ended is False
    whole = run(op() + op().strip(), empty_last=empty_last)
    assert not whole.rejects()
    assert whole.tables["ops"].num_rows == 2


def test_irrelevant_lines_are_counted_by_kind() -> None:
    found = run(
        op()
        + "\n \t\r\n"
        + "stage:3:forward_step(batch_id=0, mg_state=warmup, duration=None)\n"
        + "rank:0:forward_step(stage_id=0,duration=None,batch_id=None)\n"
    )
    counts = found.ledger.source(0)
    assert counts.irrelevant == {"blank": 2, "plan": 1, "untraced_iteration": 1}
    assert counts.row_lines == 1


def test_an_empty_file_is_a_run_without_rows() -> None:
    found = run(b"")
    assert found.tables["ops"].num_rows == 0
    assert found.facts.ranks == frozenset()


def test_times_are_exact_and_end_at_the_timestamp() -> None:
    (row,) = run(op(duration="0.1", timestamp="11488701335.830001")).rows("ops")
    assert row["end_ns"] == 11_488_701_335_830_001
    assert row["duration_ns"] == 100_000
    assert row["start_ns"] == 11_488_701_335_730_001


def test_zero_duration_at_zero_is_no_time() -> None:
    zero = op("dp_allreduce", duration="0", timestamp="0", input__shape="[8]")
    found = run(zero + op(duration="0", timestamp="5"))
    times = [(r["start_ns"], r["end_ns"], r["duration_ns"]) for r in found.rows("ops")]
    assert times == [(None, None, None), (5_000_000, 5_000_000, 0)]
    assert found.rows("comms")[0]["end_ns"] is None


def test_both_lines_of_a_fused_send_and_receive_are_kept() -> None:
    found = run(op("send_forward") + op("recv_backward"))
    assert [r["op"] for r in found.rows("ops")] == ["send_forward", "recv_backward"]
    rows = [(r["collective"], r["group_kind"], r["raw_func"]) for r in found.rows("comms")]
    assert rows == [("send", "pp", "send_forward"), ("recv", "pp", "recv_backward")]


def test_description_keeps_commas_and_brackets() -> None:
    text = "model_chunk.finish_grad_sync(), All-reduce / reduce-scatter, x"
    (row,) = run(op("dp_allreduce", description=text)).rows("ops")
    assert row["description"] == text
    assert row["category"] == "collective"


def test_unknown_keys_go_to_attributes() -> None:
    subs = f"['{SUB},peer=3,note=None']"
    found = run(op(cmd_uid="cmd-1", op_semantics="None", subs=subs))
    assert found.rows("ops")[0]["attributes"] == {
        "batch_id": "0",
        "cmd_uid": "cmd-1",
        "op_semantics": None,
    }
    assert found.rows("comms")[0]["attributes"] == {"peer": "3", "note": None}


@pytest.mark.parametrize(
    "tensor", ["it's", 'say "x"', 'it\'s "x"', "back\\slash", "a\tb", "é¶€", "\U0001f600"]
)
def test_strings_are_read_whatever_quotes_they_hold(tensor: str) -> None:
    texts = [SUB, f"timestamp=1,func_name={tensor}", SUB.replace("linear_fwd", tensor)]
    found = run(op(subs=repr(texts)))
    assert [r["tensor"] for r in found.rows("comms")] == ["linear_fwd", tensor, tensor]
    escaped = run(op(subs=ascii(texts)))
    assert escaped.rows("comms") == found.rows("comms")


def test_bytes_that_are_not_text_are_kept_as_escapes_and_noticed() -> None:
    raw = (
        (op(cmd_uid="a") + op(cmd_uid="b?") + op(description="c?")).encode().replace(b"?", b"\xff")
    )
    found = run(raw)
    assert found.rows("ops")[1]["attributes"] == {"batch_id": "0", "cmd_uid": "b\\xff"}
    assert found.rows("ops")[2]["description"] == "c\\xff"
    assert found.faults() == [("trace.txt", "not_utf8", 2, 2)]


@pytest.mark.parametrize(
    ("group", "caller", "kind"),
    [
        ("tp", "allreduce", "tp"),
        ("ep", "allreduce", "embedding"),
        ("pep", "allreduce", "position_embedding"),
        ("exp", "_profiled_all_to_all_single", "expert"),
        ("exp", "_gather_along_first_dim_moe", "tp_expert"),
        ("exp_dp", "allreduce", "expert_dp"),
        ("ep_dp", "allreduce", "expert_dp"),
        ("None", "allreduce", None),
    ],
)
def test_groups_are_normalised(group: str, caller: str, kind: str | None) -> None:
    sub = SUB.replace("group=tp", f"group={group}").replace("=allreduce,", f"={caller},", 1)
    (row,) = run(op(subs=f"['{sub}']")).rows("comms")
    assert row["group_kind"] == kind
    assert row["raw_group"] == (None if group == "None" else group)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 80), ("bfloat16", 40), ("bool", 20), ("float8_e5m2", 20), ("complex64", None)],
)
def test_bytes_follow_shape_and_dtype(dtype: str, size: int | None) -> None:
    found = run(op("send_forward", input__shape="[4, 5]", input__dtype=f"torch.{dtype}"))
    assert [r["bytes"] for r in found.rows("ops") + found.rows("comms")] == [size, size]
    assert [f[1:] for f in found.faults()] == ([("unknown_dtype", 1, 1)] if size is None else [])


def test_a_gradient_bucket_is_a_collective_without_times() -> None:
    line = (
        "rank:0:ddp_grad_comm(comm_uid=u,stage_id=0,mg_state=cooldown,group_kind=dp,"
        "comm_func=allreduce,bucket_numel=10,grad_dtype=torch.float32,duration=0.0,"
        "timestamp=7.5,sub_operations=[])\n"
    )
    found = run(line)
    (op_row,), (comm,) = found.rows("ops"), found.rows("comms")
    assert (op_row["category"], op_row["start_ns"], op_row["end_ns"]) == (
        "collective",
        7_500_000,
        7_500_000,
    )
    assert op_row["attributes"] == {"comm_uid": "u"}
    assert (comm["collective"], comm["raw_func"], comm["group_kind"]) == (
        "all_reduce",
        "allreduce",
        "dp",
    )
    assert (comm["shape"], comm["dtype"], comm["bytes"], comm["end_ns"]) == (
        [10],
        "float32",
        40,
        None,
    )
