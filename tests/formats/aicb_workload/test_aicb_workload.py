"""Workload plans: headers and rows in every spelling, what they mean, and what is refused."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parsing import ParsedRun, parse
from tests.reference import aicb_workload as reference
from tracelake.formats import Claim, format_named
from tracelake.formats import aicb_workload as subject

FORMAT = "aicb_workload"
HEADER = b"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 "
ROW = b"norm\t-1\t2000\tALLREDUCE\t64\t3000\tNONE\t0\t1\tREDUCESCATTER\t32\t100"


def run(raw: bytes, *, path: str = "plan.txt", block_size: int = 1 << 20) -> ParsedRun:
    return parse(FORMAT, {path: raw}, block_size=block_size).only


def plan(*rows: bytes, header: bytes = HEADER, declared: int | None = None) -> bytes:
    count = b"%d" % (len(rows) if declared is None else declared)
    return b"".join(line + b"\n" for line in (header, count, *rows))


def row(name: bytes = b"norm", **fields: bytes) -> bytes:
    """A row whose other fields are named after the reader's variables."""
    values = {
        "depen": b"-1",
        "fwd": b"2000",
        "fwd_comm": b"NONE",
        "fwd_size": b"0",
        "ig": b"2000",
        "ig_comm": b"NONE",
        "ig_size": b"0",
        "wg": b"2000",
        "wg_comm": b"NONE",
        "wg_size": b"0",
        "update": b"100",
    }
    return b"\t".join((name, *{**values, **fields}.values()))


def assert_as_reference(raw: bytes, block_size: int = 1 << 20) -> None:
    found = run(raw, block_size=block_size)
    expected = reference.read(raw, subject.HELD_ROWS)
    account = found.ledger.source(0)
    rows = [{k: v for k, v in r.items() if k != "source_id"} for r in found.rows("workload_passes")]
    assert rows == expected.rows
    assert [r[1:] for r in found.rejects()] == expected.rejects
    assert account.row_lines == expected.row_lines
    assert account.context_lines == expected.context_lines
    assert account.irrelevant.get("blank", 0) == expected.blank_lines
    assert found.facts.topology == expected.topology
    assert found.facts.attributes == expected.attributes
    assert found.facts.profiled == expected.profiled
    declared = expected.declared
    assert found.facts.ended == (None if declared is None else declared == expected.row_lines)
    mismatches = [f for f in found.faults() if f[1] == "row_count_mismatch"]
    assert len(mismatches) == (found.facts.ended is False)


# --- real plans ------------------------------------------------------------------------


def corpus_plans(corpus: Path) -> list[Path]:
    found = sorted([*(corpus / FORMAT).iterdir(), *(corpus / "seeds").glob("00[34]*")])
    assert len(found) == 14
    return found


@pytest.mark.parametrize("block_size", [1, 333, 1 << 20])
def test_real_plans_read_as_the_reference_reads_them(corpus: Path, block_size: int) -> None:
    for path in corpus_plans(corpus):
        raw = path.read_bytes()
        assert format_named(FORMAT).sniff(raw) == Claim.YES, path
        assert_as_reference(raw, block_size)
        assert not run(raw).rejects()


@pytest.mark.parametrize(("seed", "rows"), [("003", 172), ("004", 557)])
def test_bytes_per_collective_of_real_plans(corpus: Path, seed: str, rows: int) -> None:
    (path,) = (corpus / "seeds").glob(f"{seed}_*")
    found = run(path.read_bytes())
    assert found.ledger.source(0).row_lines == rows
    expected: Counter[tuple[str, str]] = Counter()
    for line in path.read_text().splitlines()[2:]:
        words = line.split()
        for name, k in (("forward", 3), ("input_grad", 6), ("weight_grad", 9)):
            if words[k] not in ("NONE", "BROADCAST"):
                expected[name, words[k]] += int(words[k + 1])
    totals: Counter[tuple[str, str]] = Counter()
    for r in found.rows("workload_passes"):
        if r["collective"] is not None:
            totals[str(r["pass"]), str(r["raw_comm"])] += int(str(r["bytes"]))
    assert totals == expected


def test_micro_batches_of_a_real_plan(corpus: Path) -> None:
    (path,) = (corpus / "seeds").glob("004_*")
    blocks: Counter[object] = Counter(
        r["micro_batch"] for r in run(path.read_bytes()).rows("workload_passes")
    )
    # 6 rows before the first block, 7 behind the last: cross_entropy1-3 and optimizer1-4.
    assert blocks.pop(None) == 13 * 3
    assert blocks == dict.fromkeys(range(16), 34 * 3)


def test_one_real_plan_declares_more_rows_than_it_has(corpus: Path) -> None:
    (path,) = (corpus / FORMAT).glob("L65B-M1-C05*")
    found = run(path.read_bytes(), path=path.name)
    assert found.facts.ended is False
    assert found.facts.model == "Llama65B"
    (fault,) = found.tables["faults"].to_pylist()
    assert (fault["line"], fault["name"]) == (2, "row_count_mismatch")
    assert fault["text"] == "839 rows declared, 33 read"


# --- headers ---------------------------------------------------------------------------

FULL = {"tp": 8, "ep": 2, "pp": 4, "vpp": 3, "micro_batches": 16, "world_size": 512}
HEADERS = [
    (b"MICRO", {}, {}),
    (b"MICRO\t\t\t ", {}, {}),
    (
        b"P model_parallel_NPU_group: 8 ep: 2 pp: 4 vpp: 3 ga: 16 all_gpus: 512 checkpoints: 0 "
        b"checkpoint_initiates: 0 pp_comm 50331648",
        FULL,
        {"checkpoints": "0", "checkpoint_initiates": "0", "pp_comm": "50331648"},
    ),
    (b"P\tmodel_parallel_NPU_group: 8 pp_comm: 20971520", {"tp": 8}, {"pp_comm": "20971520"}),
    (b"P pp_comm: 2097152.0 pp: 2\r", {"pp": 2}, {"pp_comm": "2097152.0"}),
    (b"P pp: 2.0", {"pp": 2}, {}),
    (
        b"P model_parallel_NPU_group: 4 checkpoints: 2 2 11 checkpoint_initiates: 1 10",
        {"tp": 4},
        {"checkpoints": "2 2 11", "checkpoint_initiates": "1 10"},
    ),
    (b"HYBRID_DLRM\t4\t\t\t\t", {}, {"policy_argument": "4"}),
    (b"HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 4", {}, {"DLRM_LAST_BOTTOM_LAYER": "4"}),
    (b"P ga: 0 vpp: 0 pp: 1", {"pp": 1}, {"ga": "0", "vpp": "0"}),
    (b"P ga: 99999999999 pp: -1", {}, {"ga": "99999999999", "pp": "-1"}),
    (
        b"P model_parallel_NPU_group: 8" + b" " * 24 + b"expert_parallel_npu_group: 2\tpp: 1",
        {"tp": 8, "ep": 2, "pp": 1},
        {},
    ),
    (b"P ep: 4 expert_parallel_npu_group: 2", {"ep": 4}, {"expert_parallel_npu_group": "2"}),
    (b"P ep:4 pp : 2", {"ep": 4}, {"pp": ": 2"}),
    (b"P digest: ab12 pp: 2 empty:", {"pp": 2}, {"digest": "ab12", "empty": ""}),
    (b"P key: \xff\xa0x", {}, {"key": "\\xff\\xa0x"}),
]


@pytest.mark.parametrize(("line", "sizes", "attributes"), HEADERS, ids=range(len(HEADERS)))
def test_header(line: bytes, sizes: dict[str, int], attributes: dict[str, str]) -> None:
    line = re.sub(rb"^P\b", b"HYBRID_TRANSFORMER_FWD_IN_BCKWD", line)
    raw = plan(ROW, header=line)
    assert format_named(FORMAT).sniff(raw) == Claim.YES
    found = run(raw)
    policy = line.split()[0].decode()
    assert found.facts.topology == sizes
    assert found.facts.attributes == {**attributes, "policy": policy}
    assert found.ledger.source(0).context_lines == 2


@pytest.mark.parametrize("policy", reference.POLICIES)
def test_every_policy(policy: str) -> None:
    line = ROW + b"\tDATA" if policy == "HYBRID_CUSTOMIZED" else ROW
    raw = plan(line, header=policy.encode())
    assert format_named(FORMAT).sniff(raw) == Claim.YES
    assert run(raw).facts.attributes == {"policy": policy}
    assert not run(raw).rejects()


@pytest.mark.parametrize(
    ("raw", "claim"),
    [
        (b"", Claim.NO),
        (b"\n\n", Claim.NO),
        (b"MICRO\n", Claim.NO),
        (b"MODEL answers\nquickly\n", Claim.NO),
        (b"MICRO\n19\n", Claim.YES),
        (b"\xef\xbb\xbfMICRO\r\n19\r\n", Claim.YES),
        (b"HYBRID_TRANSFORMER pp: 1", Claim.MAYBE),
        (b"HYBRID_TRANSFORMER pp: 1\nseventeen\n", Claim.MAYBE),
        (b"HYBRID_NEW pp: 1\n1\n" + ROW + b"\n", Claim.MAYBE),
        (b"HYBRID_NEW pp: 1\n1\nwhatever\n", Claim.NO),
        (b"rank:0:forward_step(stage_id=0)\n", Claim.NO),
        (b"step loss\n1 2\n2 3\n", Claim.NO),
    ],
)
def test_sniff(raw: bytes, claim: Claim) -> None:
    assert format_named(FORMAT).sniff(raw) == claim


@pytest.mark.parametrize(
    ("path", "stem", "sizes"),
    [
        ("a/workload_analytical.txt", "workload_analytical", {}),
        (
            "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_sp_A100.txt",
            "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_sp_A100",
            {"tp": 8, "pp": 1, "micro_batch_size": 1},
        ),
        (
            "H100-Mixtral_8*7B-world_size128-tp4-pp2-ep8-gbs256-mbs1-seq4096 copy.txt",
            "H100-Mixtral_8*7B-world_size128-tp4-pp2-ep8-gbs256-mbs1-seq4096 copy",
            {
                "world_size": 128,
                "tp": 4,
                "pp": 2,
                "ep": 8,
                "global_batch_size": 256,
                "micro_batch_size": 1,
            },
        ),
        ("http1.1_cpp3_tp0.workload", "http1.1_cpp3_tp0.workload", {}),
        (".txt", ".txt", {}),
    ],
)
def test_name(path: str, stem: str, sizes: dict[str, int]) -> None:
    facts = format_named(FORMAT).facts(path, b"")
    assert (facts.path, facts.stem, facts.topology) == (path, stem, sizes)
    assert (facts.rank, facts.stamp) == (None, None)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("G13B-M1-C01_GPT13B_megatron_tp8_A100.txt", "GPT13B"),
        ("L65B_D1_C08_Llama65B_deepspeed_zero3_A100.txt", "Llama65B"),
        ("A100-gpt_13B-world_size128-tp8.txt", "gpt_13B"),
        ("H100-Mixtral_8*7B-v0.1-world_size128-tp4 copy.txt", "Mixtral_8*7B-v0.1"),
        ("workload_analytical.txt", None),
    ],
)
def test_model_of_the_name(path: str, model: str | None) -> None:
    assert run(plan(ROW), path=path).facts.model == model


def test_each_plan_is_a_run() -> None:
    runs = parse(FORMAT, {"a.txt": plan(ROW), "b.txt": plan(ROW)}).runs
    assert [[s.path for s in r.run.sources] for r in runs] == [["a.txt"], ["b.txt"]]


# --- rows ------------------------------------------------------------------------------


def test_a_row_becomes_three_passes() -> None:
    common = {
        "source_id": 0,
        "line": 3,
        "row": 1,
        "layer": "norm",
        "layer_index": None,
        "micro_batch": None,
        "update_ns": 100,
        "attributes": None,
    }
    assert run(plan(ROW)).rows("workload_passes") == [
        {
            **common,
            "pass": "forward",
            "compute_ns": 2000,
            "raw_comm": "ALLREDUCE",
            "raw_bytes": 64,
            "collective": "all_reduce",
            "group_kind": "tp",
            "bytes": 64,
        },
        {
            **common,
            "pass": "input_grad",
            "compute_ns": 3000,
            "raw_comm": "NONE",
            "raw_bytes": 0,
            "collective": None,
            "group_kind": None,
            "bytes": None,
        },
        {
            **common,
            "pass": "weight_grad",
            "compute_ns": 1,
            "raw_comm": "REDUCESCATTER",
            "raw_bytes": 32,
            "collective": "reduce_scatter",
            "group_kind": "dp",
            "bytes": 32,
        },
    ]


def expected_words() -> list[tuple[str, str | None, str | None, str | None]]:
    kinds = {
        "ALLREDUCE": "all_reduce",
        "ALLGATHER": "all_gather",
        "REDUCESCATTER": "reduce_scatter",
        "ALLTOALL": "all_to_all",
    }
    found: list[tuple[str, str | None, str | None, str | None]] = []
    for word, kind in kinds.items():
        found += [
            (word, kind, "tp", "dp"),
            (word + "_EP", kind, "expert", "expert"),
            (word + "_DP_EP", kind, "dp_ep", "dp_ep"),
            (word + "_TP", None, None, None),
            (word.lower(), None, None, None),
        ]
    others = ["NONE", "BROADCAST", "ALLREDUCEALLTOALL", "ALLREDUCEALLTOALL_EP", "X", "_EP"]
    return found + [(word, None, None, None) for word in others]


@pytest.mark.parametrize(("word", "kind", "before", "after"), expected_words())
def test_meaning_of_a_word(
    word: str, kind: str | None, before: str | None, after: str | None
) -> None:
    comm = word.encode()
    line = row(fwd_comm=comm, fwd_size=b"7", ig_comm=comm, ig_size=b"8", wg_comm=comm, wg_size=b"9")
    found = [
        (r["raw_comm"], r["raw_bytes"], r["collective"], r["group_kind"], r["bytes"])
        for r in run(plan(line)).rows("workload_passes")
    ]
    assert found == [
        (word, 7, kind, before, 7 if kind else None),
        (word, 8, kind, before, 8 if kind else None),
        (word, 9, kind, after, 9 if kind else None),
    ]


def test_a_collective_of_no_bytes_is_kept_and_a_size_without_collective_is_not_moved() -> None:
    line = row(fwd_comm=b"REDUCESCATTER", fwd_size=b"0", ig_comm=b"NONE", ig_size=b"512")
    forward, backward, _ = run(plan(line)).rows("workload_passes")
    assert (forward["collective"], forward["bytes"]) == ("reduce_scatter", 0)
    assert (backward["collective"], backward["bytes"], backward["raw_bytes"]) == (None, None, 512)


@pytest.mark.parametrize(
    "raw",
    [
        plan(ROW).replace(b"\n", b"\r\n"),
        plan(ROW).removesuffix(b"\n"),
        plan(ROW.replace(b"\t", b"   ")),
        plan(b"  " + ROW.replace(b"\t", b" \t ") + b" \t "),
        plan(ROW.replace(b"\t", b"\v\f\r")),
        plan(ROW).replace(b"\n1\n", b"\n +1 row\n"),
    ],
    ids=["crlf", "no final newline", "blanks", "mixed", "odd blanks", "count with junk"],
)
def test_spelling_does_not_change_rows(raw: bytes) -> None:
    found = run(raw)
    assert found.rows("workload_passes") == run(plan(ROW)).rows("workload_passes")
    assert found.facts == run(plan(ROW)).facts


def test_blank_lines_have_no_row_number() -> None:
    found = run(plan(ROW, b"", b" \t\r", ROW, declared=2))
    assert [(r["line"], r["row"]) for r in found.rows("workload_passes")[::3]] == [(3, 1), (6, 2)]
    assert found.ledger.source(0).irrelevant == {"blank": 2}
    assert found.facts.ended is True


def test_what_columns_do_not_hold_becomes_attributes() -> None:
    rows = (
        row() + b"\tab\tcd ",
        row(depen=b"0"),
        row(depen=b"-7") + b" x",
        row(),
    )
    found = [r["attributes"] for r in run(plan(*rows)).rows("workload_passes")]
    assert found[::3] == [
        {"column_13": "ab", "column_14": "cd"},
        {"dependency": "0"},
        {"dependency": "-7", "column_13": "x"},
        None,
    ]
    assert found[::3] == found[1::3] == found[2::3]


def test_customized_rows_end_in_a_policy() -> None:
    rows = (row() + b"\tDATA", row() + b"\tMODEL\tab", row())
    found = run(plan(*rows, header=b"HYBRID_CUSTOMIZED"))
    attributes = [r["attributes"] for r in found.rows("workload_passes")[::3]]
    assert attributes == [{"policy": "DATA"}, {"policy": "MODEL", "column_14": "ab"}]
    assert [r[1::2] for r in found.rejects()] == [(5, "too_few_fields")]


def test_a_name_that_is_not_utf8_is_kept_and_counted() -> None:
    found = run(plan(row(b"a\xffb"), row(), row(b"a\xffb"), row("größe".encode())))
    names = [r["layer"] for r in found.rows("workload_passes")[::3]]
    assert names == ["a\\xffb", "norm", "a\\xffb", "größe"]
    assert found.faults() == [("plan.txt", "not_utf8", 2, 3)]


@pytest.mark.parametrize(("compute", "profiled"), [(b"999", False), (b"1000", True)])
def test_profiled(compute: bytes, profiled: bool) -> None:
    line = row(fwd=b"1", ig=b"4", wg=compute)
    assert run(plan(row(fwd=b"1", ig=b"2", wg=b"2"), line)).facts.profiled is profiled


# --- lines that are refused ------------------------------------------------------------

REFUSED = [
    ("too_few_fields", b"norm -1 2000"),
    ("too_few_fields", b"\x00\x00"),
    ("several_rows", ROW + b" " + ROW),
    ("bad_number", row(fwd=b"1.5")),
    ("bad_number", row(ig=b"1e6")),
    ("bad_number", row(wg=b"-1")),
    ("bad_number", row(fwd_size=b"9223372036854775808")),
    ("bad_number", row(ig_size=b"18446744073709551615")),
    ("bad_number", row(wg_size=b"00000000000000000001")),
    ("bad_number", row(update=b"100x")),
    ("bad_number", row(depen=b"-")),
    ("bad_number", row(depen=b"--1")),
    ("bad_number", row(fwd=b"NONE", fwd_comm=b"2000")),
]


@pytest.mark.parametrize("block_size", [1, 1 << 20])
@pytest.mark.parametrize(("reason", "line"), REFUSED)
def test_a_refused_row_does_no_harm_to_its_neighbours(
    reason: str, line: bytes, block_size: int
) -> None:
    found = run(plan(row(b"a"), line, row(b"c")), block_size=block_size)
    offset = len(HEADER) + 3 + len(row(b"a")) + 1
    (reject,) = found.rejects()
    assert reject[:4] == ("plan.txt", 4, offset, reason)
    rows = found.rows("workload_passes")[::3]
    assert [(r["line"], r["row"], r["layer"]) for r in rows] == [(3, 1, "a"), (5, 3, "c")]
    assert found.facts.ended is False


def test_the_largest_number_is_kept() -> None:
    found = run(plan(row(fwd_size=b"9223372036854775807", fwd_comm=b"ALLTOALL")))
    assert found.rows("workload_passes")[0]["bytes"] == 2**63 - 1


def test_a_damaged_header_or_count_costs_no_row() -> None:
    raw = plan(ROW).replace(b"HYBRID", b"HYBR\xffD").replace(b"\n1\n", b"\none\n")
    found = run(raw)
    assert [r[1::2] for r in found.rejects()] == [(1, "bad_header"), (2, "bad_count")]
    assert len(found.rows("workload_passes")) == 3
    assert found.facts.attributes == {}
    assert found.facts.ended is None


@pytest.mark.parametrize("count", [b"-1", b"", b"x 3", b"2147483648", b"9" * 30])
def test_bad_count(count: bytes) -> None:
    raw = plan(ROW).replace(b"\n1\n", b"\n" + count + b"\n")
    assert [r[1::2] for r in run(raw).rejects()] == [(2, "bad_count")]


@pytest.mark.parametrize(("declared", "ended"), [(1, False), (2, True), (3, False)])
def test_declared_rows(declared: int, ended: bool) -> None:
    found = run(plan(ROW, ROW, declared=declared))
    assert len(found.rows("workload_passes")) == 6
    assert found.facts.ended is ended
    texts = [f["text"] for f in found.tables["faults"].to_pylist()]
    assert texts == ([] if ended else [f"{declared} rows declared, 2 read"])


def test_many_rejects_in_one_block() -> None:
    raw = plan(*[b"x"] * 3000, ROW, declared=1)
    found = run(raw)
    assert found.ledger.source(0).rejected == 3000
    assert found.rows("workload_passes")[0]["row"] == 3001


# --- micro-batches ---------------------------------------------------------------------


def training(*blocks: list[bytes], ga: int, tail: bytes = b"loss") -> bytes:
    names = [b"grad", *(name for block in blocks for name in block), tail]
    return plan(*map(row, names), header=HEADER + b"ga: %d" % ga)


def numbering(raw: bytes) -> list[tuple[object, object, object]]:
    rows = run(raw, block_size=64).rows("workload_passes")[::3]
    assert_as_reference(raw)
    return [(r["layer"], r["micro_batch"], r["layer_index"]) for r in rows]


BLOCK = [b"embedding_layer", b"mlp", b"mlp"]


def test_repeated_layers_are_micro_batches() -> None:
    assert numbering(training(BLOCK, BLOCK, ga=2)) == [
        ("grad", None, None),
        ("embedding_layer", 0, 0),
        ("mlp", 0, 1),
        ("mlp", 0, 2),
        ("embedding_layer", 1, 0),
        ("mlp", 1, 1),
        ("mlp", 1, 2),
        ("loss", None, None),
    ]


def test_a_plan_that_ends_within_its_last_block_keeps_its_micro_batches() -> None:
    raw = plan(*map(row, [*BLOCK, *BLOCK[:2]]), header=HEADER + b"ga: 2")
    assert numbering(raw)[-1] == ("mlp", 1, 1)


def test_a_refused_row_leaves_the_numbers_of_the_others() -> None:
    raw = training(BLOCK, BLOCK, BLOCK, ga=3).split(b"\n")
    raw[7] = b"damaged"
    assert numbering(b"\n".join(raw))[4:7] == [
        ("embedding_layer", 1, 0),
        ("mlp", 1, 2),
        ("embedding_layer", 2, 0),
    ]


def test_a_lost_first_row_of_a_block_leaves_no_micro_batches() -> None:
    raw = training(BLOCK, BLOCK, BLOCK, [b"mlp"], ga=3, tail=b"embedding_layer").split(b"\n")
    raw[9] = b"damaged"
    assert {numbers[1:] for numbers in numbering(b"\n".join(raw))} == {(None, None)}


def test_micro_batches_of_many_names() -> None:
    block = [b"embedding_layer", *(b"mlp_%d" % k for k in range(20_000))]
    rows = run(training(block, block, ga=2), block_size=1 << 16).rows("workload_passes")[3:-3:3]
    assert [r["layer"] for r in rows] == [name.decode() for name in (*block, *block)]
    assert [r["micro_batch"] for r in rows] == [0] * 20_001 + [1] * 20_001


@pytest.mark.parametrize(
    "raw",
    [
        training(BLOCK, BLOCK, ga=3),
        training(BLOCK, BLOCK, ga=1),
        training(BLOCK, BLOCK, ga=0),
        training(BLOCK, ga=1),
        plan(*map(row, [*BLOCK, *BLOCK])),
        training(BLOCK, [*BLOCK, b"mlp"], BLOCK, ga=3),
        training(BLOCK, [b"embedding_layer", b"mlp", b"norm"], ga=2),
        training([b"mlp"], [b"mlp"], ga=2),
    ],
    ids=[
        "fewer than ga",
        "more than ga",
        "ga 0",
        "once",
        "no ga",
        "other distance",
        "other layers",
        "no embedding",
    ],
)
def test_other_lists_have_no_micro_batches(raw: bytes) -> None:
    assert {numbers[1:] for numbers in numbering(raw)} == {(None, None)}


@pytest.mark.parametrize(("limit", "numbered"), [(8, True), (7, False)])
def test_a_plan_too_long_to_be_held_back_has_no_micro_batches(
    limit: int, numbered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "HELD_ROWS", limit)
    found = numbering(training(BLOCK, BLOCK, ga=2))
    assert len(found) == 8
    assert any(numbers[1] is not None for numbers in found) is numbered


# --- any bytes -------------------------------------------------------------------------


def test_names_that_never_repeat() -> None:
    rows = [row(b"layer_%d" % k, wg_comm=b"WORD_%d" % (k % 7)) for k in range(40_000)]
    found = run(plan(*rows), block_size=1 << 18).tables["workload_passes"]
    assert found.column("layer").to_pylist()[::3] == [f"layer_{k}" for k in range(40_000)]
    assert found.column("raw_comm").to_pylist()[2::3] == [f"WORD_{k % 7}" for k in range(40_000)]


def test_a_word_longer_than_any_before() -> None:
    name = b"x" * 200_000
    rows = run(plan(row(), row(name), row())).rows("workload_passes")
    assert [r["layer"] for r in rows[::3]] == ["norm", name.decode(), "norm"]


@pytest.mark.parametrize("name", [b"m" * k for k in range(1, 10)])
def test_lines_that_are_nearly_those_expected(name: bytes) -> None:
    ends = [b"100", b"100", b"101", b"100", b"10", b"1001", b"100"]
    rows = [line for end in ends for line in (row(b"first"), row(name, update=end))]
    found = run(plan(*rows)).rows("workload_passes")[3::6]
    assert [r["update_ns"] for r in found] == [int(end) for end in ends]


WORDS = st.sampled_from(
    [
        b"NONE",
        b"ALLREDUCE",
        b"ALLTOALL_EP",
        b"ALLGATHER_DP_EP",
        b"BROADCAST",
        b"\xfe",
        b"ALLREDUCEALLTOALL",
    ]
)
NUMBERS = st.one_of(
    st.sampled_from([b"0", b"1", b"100", b"5000", b"9223372036854775807", b"9223372036854775808"]),
    st.integers(0, 10**10).map(lambda n: b"%d" % n),
)
NAMES = st.sampled_from(
    [b"embedding_layer", b"mlp", b"norm", b"1", b"-1", b"\xff\xa0", b"\x1c", b"a:b"]
)
GAPS = st.sampled_from([b"\t", b" ", b" \t", b"    ", b"\r", b"\v"])


@st.composite
def rows_of_any_kind(draw: st.DrawFn) -> bytes:
    passes = [w for _ in range(3) for w in (draw(NUMBERS), draw(WORDS), draw(NUMBERS))]
    depen = draw(st.sampled_from([b"-1", b"-1", b"3", b"-", b"-12"]))
    extra = draw(st.lists(st.sampled_from([b"DATA", b"\x1c7", b"\xff"]), max_size=2))
    words = [draw(NAMES), depen, *passes, b"100", *extra]
    words = words[: draw(st.sampled_from([len(words), len(words), 5]))]
    return draw(GAPS).join(words) + draw(st.sampled_from([b"", b" ", b"\r"]))


@st.composite
def plans(draw: st.DrawFn) -> bytes:
    policy = draw(st.sampled_from([*reference.POLICIES, "OTHER"])).encode()
    keys = draw(st.lists(st.sampled_from(sorted(reference.SIZES)), unique=True, max_size=4))
    pairs = [k.encode() + b": " + draw(st.sampled_from([b"2", b"0", b"3.0", b"x"])) for k in keys]
    block = draw(st.lists(rows_of_any_kind(), max_size=4))
    lines = draw(st.lists(rows_of_any_kind(), max_size=3)) + block * draw(st.integers(0, 3))
    lines = draw(st.sampled_from([lines, [*lines, b""], [b" ", *lines]]))
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    return end.join([b" ".join([policy, *pairs]), b"%d" % len(lines), *lines])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans(), st.sampled_from([1, 50, 1 << 20]))
def test_any_plan_reads_as_the_reference_reads_it(raw: bytes, block_size: int) -> None:
    assert_as_reference(raw, block_size)


@pytest.mark.parametrize("name", ["moe.txt", "customized.txt"])
def test_damaged_plans_read_as_the_reference_reads_them(name: str) -> None:
    raw = (Path(__file__).parent / "variants" / "input" / name).read_bytes()
    chance = random.Random(20)
    for _ in range(150):
        damaged = bytearray(raw)
        for _ in range(chance.choice([1, 3, 10])):
            at = chance.randrange(len(damaged))
            kind = chance.randrange(3)
            if kind == 0:
                damaged[at] = chance.choice([*b"\n\r\t 0-E:", chance.randrange(256)])
            elif kind == 1:
                del damaged[at : at + chance.choice([1, 1, 30])]
            else:
                damaged[at:at] = bytes([chance.choice([*b"\n\t 9", chance.randrange(256)])])
        assert_as_reference(bytes(damaged), chance.choice([1, 77, 1 << 20]))
