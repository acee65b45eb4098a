"""OptimusPrime logs: records in every spelling, ranks that write over each other, damage."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parsing import ParsedRun, claim_of, parse
from tests.reference import optimus as reference
from tracelake.formats import Claim, format_named, formats
from tracelake.formats import optimus as subject
from tracelake.formats.ledger import TEXT_LIMIT, escape

FORMAT = "optimus"


def run(raw: bytes, *, path: str = "log.txt", block_size: int = 1 << 20) -> ParsedRun:
    return parse(FORMAT, {path: raw}, block_size=block_size).only


def rows(found: ParsedRun, table: str) -> list[dict[str, object]]:
    return [{k: v for k, v in r.items() if k != "source_id"} for r in found.rows(table)]


def assert_as_reference(raw: bytes, *, block_size: int = 1 << 20) -> ParsedRun:
    found = run(raw, block_size=block_size)
    expected = reference.read(raw)
    account = found.ledger.source(0)
    assert repr(rows(found, "layer_times")) == repr(_ordered(found, expected.layer_times))
    assert repr(rows(found, "train_steps")) == repr(_ordered(found, expected.train_steps))
    assert [r[1:] for r in found.rejects()] == [
        (*where, escape(text[:TEXT_LIMIT])) for *where, text in expected.rejects
    ]
    assert account.row_lines == expected.rows
    assert account.context_lines == expected.context
    assert account.irrelevant == expected.irrelevant
    assert found.facts.topology == expected.statements.topology
    assert found.facts.attributes == expected.statements.attributes
    assert found.facts.ended == (expected.statements.closed and expected.complete)
    lost = subject.ROWS_MISSING in found.ledger.fault_totals()
    assert lost == (expected.statements.closed and not expected.complete)
    return found


def _ordered(found: ParsedRun, expected: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows with their columns in the order of the table, NULL in those that no log prints; repr
    tells nan from nan apart from 0."""
    table = "layer_times" if expected and "layer" in expected[0] else "train_steps"
    names = [name for name in found.tables[table].column_names if name != "source_id"]
    return [{name: row.get(name) for name in names} for row in expected]


# --- logs with known truth ------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Stages of a pipeline: rank, and the rows of (layer, calls) it prints."""

    stages: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]

    def writes(self, stage: int, step: int) -> list[str]:
        """Texts of a block as its rank writes them, each followed by a newline of its own."""
        rank, layers = self.stages[stage]
        block = [
            f"[rank:{rank} stage:{stage}] transformer-block(module) forward time"
            f" (no send/recv) - step {step}"
        ]
        for k, (layer, calls) in enumerate(layers):
            ns = time_of(stage, step, k)
            block.append(
                f"  layer[{layer}]: total={ns // 10**6}.{ns // 1000 % 1000:03d}ms,"
                f" ops={calls}, avg/op=0.100ms"
            )
        return block

    def truth(self, steps: int) -> set[tuple[int, int, int, str, int]]:
        return {
            (rank, stage, step, layer, time_of(stage, step, k))
            for step in range(1, steps + 1)
            for stage, (rank, layers) in enumerate(self.stages)
            for k, (layer, _) in enumerate(layers)
        }


def time_of(stage: int, step: int, k: int) -> int:
    """A time that names its row: no two rows of a log share one."""
    return ((step * 64 + stage) * 64 + k) * 1000


def job(rng: random.Random, *, halves: bool = False) -> Job:
    """Stages of a few layers; a layer may be cut by a boundary, and then cut in two halves."""
    count = rng.randint(2, 5)
    stages = []
    layer = 0
    for stage in range(count):
        rows = [("embed", 32)] if stage == 0 else []
        cut = layer > 0 and rng.random() < 0.5
        if cut:
            rows.append((str(layer - 1), 128 if halves else 32 + stage))
        for _ in range(rng.randint(0 if rows else 1, 4)):
            rows.append((str(layer), 256))
            layer += 1
        if stage == count - 1:
            rows.append(("lm_head", 32))
        stages.append((stage * 2, tuple(rows)))
    return Job(tuple(stages))


def merge(writers: list[list[str]], rng: random.Random, *, newlines: bool) -> str:
    """Interleaves writes of processes as the system would: each text, each newline is a write."""
    queues = [[part for text in writer for part in (text, "\n")] for writer in writers]
    out = []
    while any(queues):
        queue = rng.choice([q for q in queues if q])
        out.append(queue.pop(0))
        # A newline mostly follows its text at once; often enough it does not.
        if queue and queue[0] == "\n" and not (newlines and rng.random() < 0.5):
            out.append(queue.pop(0))
    return "".join(out)


def progress(step: int) -> str:
    return (
        f"| epoch   1 | {step:5d}/  323 batches | lr 0.00 | ms/batch 1600.43 |"
        " loss  6.84 | ppl   933.51"
    )


def log(work: Job, steps: int, rng: random.Random, *, chance: float) -> str:
    """A log whose blocks are merged, in twos and threes, with some chance."""
    out = []
    for step in range(1, steps + 1):
        writers = [work.writes(stage, step) for stage in range(len(work.stages))]
        if step > 1:
            writers.append([progress(step - 1)])
        rng.shuffle(writers)
        while writers:
            together = rng.choice([2, 2, 3]) if rng.random() < chance else 1
            batch, writers = writers[:together], writers[together:]
            out.append(merge(batch, rng, newlines=True))
    return "".join(out)


def given_rows(found: ParsedRun) -> set[tuple[object, ...]]:
    return {
        (r["rank"], r["stage"], r["step"], r["layer"], r["total_ns"])
        for r in found.rows("layer_times")
    }


@pytest.mark.parametrize("seed", range(60))
def test_merged_blocks_are_given_to_their_ranks(seed: int) -> None:
    rng = random.Random(seed)
    work, steps = job(rng), rng.randint(6, 16)
    raw = log(work, steps, rng, chance=0.3).encode()
    found = assert_as_reference(raw, block_size=rng.choice([1, 700, 1 << 20]))
    truth = work.truth(steps)
    assert given_rows(found) == truth
    assert found.tables["layer_times"].num_rows == len(truth)


@pytest.mark.parametrize("seed", range(20))
def test_layers_cut_in_two_halves_are_never_guessed(seed: int) -> None:
    """Rows of equal layer and calls on two stages: given where the order tells, else rejected."""
    rng = random.Random(seed)
    work, steps = job(rng, halves=True), rng.randint(8, 16)
    found = assert_as_reference(log(work, steps, rng, chance=0.5).encode())
    truth = work.truth(steps)
    assert given_rows(found) <= truth
    missing = truth - given_rows(found)
    cut = {
        layer
        for stage, (_, layers) in enumerate(work.stages)
        for layer, _ in layers
        if any(layer in dict(other) for k, (_, other) in enumerate(work.stages) if k != stage)
    }
    assert {layer for _, _, _, layer, _ in missing} <= cut
    assert {reason for _, _, _, reason, _ in found.rejects()} <= {"ambiguous_rank"}


@pytest.mark.parametrize("seed", range(40))
def test_short_and_crowded_logs_read_as_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    text = log(job(rng, halves=seed % 2 == 0), rng.randint(1, 6), rng, chance=0.9)
    assert_as_reference(text.encode(), block_size=rng.choice([1, 300, 1 << 20]))


@pytest.mark.parametrize("steps", [2, 5, 8])
@pytest.mark.parametrize("seed", range(20))
def test_however_crowded_no_row_goes_to_a_wrong_rank(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    work = job(rng)
    found = assert_as_reference(log(work, steps, rng, chance=0.9).encode())
    assert given_rows(found) <= work.truth(steps)
    reasons = {reason for _, _, _, reason, _ in found.rejects()}
    assert reasons <= {"ambiguous_rank", "unexpected_layer", "no_header"}


HEADER = "[rank:{0} stage:{0}] transformer-block(module) forward time (no send/recv) - step {1}"
A = [
    "  layer[0]: total=1.000ms, ops=8, avg/op=0.125ms",
    "  layer[1]: total=2.5ms, ops=8, avg/op=1ms",
]
B = ["  layer[2]: total=3ms, ops=8, avg/op=0.375ms", "  layer[3]: total=4ms, ops=8, avg/op=0.5ms"]
CLEAN = [HEADER.format(0, 1), *A, HEADER.format(1, 1), *B]
A2, B2 = HEADER.format(0, 2), HEADER.format(1, 2)


def test_a_lost_row_of_a_cut_layer_costs_no_later_step() -> None:
    """In a short log; both halves of layer 1 have as many calls."""
    half = A[1].replace("2.5ms", "2ms")
    lines = [
        line
        for step in range(1, 9)
        for line in (HEADER.format(0, step), *A, HEADER.format(1, step), half, *B)
    ]
    lost = lines.index(HEADER.format(0, 3)) + 2
    found = assert_as_reference(("\n".join(lines[:lost] + lines[lost + 1 :]) + "\n").encode())
    assert [(line, reason) for _, line, _, reason, _ in found.rejects()] == [
        (lost + 2, "ambiguous_rank")
    ]
    by_step = Counter(row["step"] for row in rows(found, "layer_times"))
    assert by_step == {step: 3 if step == 3 else 5 for step in range(1, 9)}


def ranks_of(lines: list[str]) -> list[tuple[Any, ...]]:
    found = assert_as_reference(("\n".join(lines) + "\n").encode())
    return [
        (r["line"], r["rank"], r["layer"], r["attribution"])
        for r in found.rows("layer_times")
        if r["step"] == 2
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [A2 + B2, "", A[0] + B[0], "", A[1] + B[1], ""],
            [(9, 0, "0"), (9, 1, "2"), (11, 0, "1"), (11, 1, "3")],
            id="piece by piece",
        ),
        pytest.param(
            [A2 + B2, "", B[0] + A[0], "", A[1] + B[1], ""],
            [(9, 1, "2"), (9, 0, "0"), (11, 0, "1"), (11, 1, "3")],
            id="in another order",
        ),
        pytest.param(
            [A2 + B2, "", A[0], A[1] + B[0], B[1], ""],
            [(9, 0, "0"), (10, 0, "1"), (10, 1, "2"), (11, 1, "3")],
            id="shifted",
        ),
        pytest.param(
            [A2, B2, B[0], A[0], A[1], B[1]],
            [(9, 1, "2"), (10, 0, "0"), (11, 0, "1"), (12, 1, "3")],
            id="whole lines",
        ),
        pytest.param(
            [progress(1) + A2, "", A[0] + progress(1), A[1], "", B2, *B],
            [(9, 0, "0"), (10, 0, "1"), (13, 1, "2"), (14, 1, "3")],
            id="glued to progress",
        ),
        pytest.param(
            ["noise" + A2, A[0], "some text" + A[1], B2, *B],
            [(8, 0, "0"), (9, 0, "1"), (11, 1, "2"), (12, 1, "3")],
            id="behind other text",
        ),
    ],
)
@pytest.mark.parametrize("learned", ["before", "behind"])
def test_shapes_of_merged_blocks(
    lines: list[str], expected: list[tuple[int, int, str]], learned: str
) -> None:
    if learned == "before":
        found = ranks_of([*CLEAN, *lines])
    else:
        later = [line.replace("step 1", "step 3") for line in CLEAN]
        found = [(line + 6, *rest) for line, *rest in ranks_of([*lines, *later])]
    assert [row[:3] for row in found] == expected


def test_attribution_says_how_the_rank_is_known() -> None:
    found = ranks_of([*CLEAN, A2 + B2, "", A[0] + B[0], "", A[1], B[1]])
    assert {row[3] for row in found} == {"merged"}
    assert {row[3] for row in ranks_of([*CLEAN, A2, *A, B2, *B])} == {"block"}


def test_three_ranks_on_one_line() -> None:
    c = ["  layer[4]: total=5ms, ops=8, avg/op=0.625ms"]
    clean = [*CLEAN, HEADER.format(2, 1), *c]
    lines = [B2 + HEADER.format(2, 2) + A2, "", "", B[0] + c[0] + A[0], "", "", A[1], B[1]]
    assert [row[1:3] for row in ranks_of([*clean, *lines])] == [
        (1, "2"), (2, "4"), (0, "0"), (0, "1"), (1, "3"),
    ]  # fmt: skip


def test_first_seen_headers_take_rows_by_place() -> None:
    found = ranks_of([A2 + B2, "", A[0] + B[0], "", A[1] + B[1], ""])
    assert [row[1:] for row in found] == [
        (0, "0", "merged_by_place"),
        (1, "2", "merged_by_place"),
        (0, "1", "merged_by_place"),
        (1, "3", "merged_by_place"),
    ]


def test_rows_by_place_are_taken_back_when_a_later_line_contradicts() -> None:
    lines = [A2 + B2, "", A[0] + B[0], "", B[1] + A[1], ""]
    assert ranks_of(lines) == []
    assert rejected(lines) == [(3, "ambiguous_rank"), (5, "ambiguous_rank")]


def rejected(lines: list[str]) -> list[tuple[int, str]]:
    found = assert_as_reference(("\n".join(lines) + "\n").encode())
    return [(line, reason) for _, line, _, reason, _ in found.rejects()]


STAGES = "stage2rank = {0: [0, 1], 1: [2, 3]}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[rank:0 stage:0] transformer-block(module) forward time - step", "bad_header"),
        ("[rank:x stage:0] transformer-block(module) forward time - step 1", "bad_header"),
        ("[rank:0 stage:0] forward time - step 4294967296", "bad_header"),
        ("  layer[3]: total=1ms, ops=2", "bad_layer"),
        ("  layer[]: total=1ms, ops=2, avg/op=1ms", "bad_layer"),
        ("  layer[a b]: total=1ms, ops=2, avg/op=1ms", "bad_layer"),
        ("  layer[" + "x" * 65 + "]: total=1ms, ops=2, avg/op=1ms", "bad_layer"),
        ("  layer[3]: total=1s, ops=2, avg/op=1ms", "bad_layer"),
        ("  layer[3]: total=-1ms, ops=2, avg/op=1ms", "bad_number"),
        ("  layer[3]: total=1e3ms, ops=2, avg/op=1ms", "bad_layer"),
        ("  layer[3]: total=0.0000001ms, ops=2, avg/op=1ms", "bad_number"),
        ("  layer[3]: total=1000000000000ms, ops=2, avg/op=1ms", "bad_number"),
        ("| epoch   1 | 5/ 323 batches | lr 0.00", "bad_progress"),
        (progress(1).replace("1600.43", "fast"), "bad_number"),
        (progress(1).replace("933.51", "9."), "bad_number"),
        (progress(1).replace("epoch   1", "epoch 2147483648"), "bad_number"),
        (A[0], "no_header"),
    ],
)
def test_reject_reasons(line: str, reason: str) -> None:
    assert rejected(["text", line, progress(7)]) == [(2, reason)]


def test_rejects_of_rows_that_do_not_fit() -> None:
    foreign = "  layer[9]: total=1ms, ops=8, avg/op=1ms"
    assert rejected([*CLEAN, A2, A[0], foreign, A[1]]) == [(9, "unexpected_layer")]
    wrong = HEADER.replace("{0} stage:{0}", "2 stage:0").format(0, 1)
    assert rejected([STAGES, wrong, *A]) == [
        (2, "rank_not_in_stage"), (3, "ambiguous_rank"), (4, "ambiguous_rank"),
    ]  # fmt: skip
    assert {reason for _, reason in rejected([A2, B2, A[0], B[0]])} == {"ambiguous_rank"}


def test_one_bad_line_costs_only_itself() -> None:
    lines = [*CLEAN, A2, A[0].replace("total", "totl"), A[1], B2, *B]
    assert rejected(lines) == [(8, "bad_layer")]
    assert [row[1:3] for row in ranks_of(lines)] == [(0, "1"), (1, "2"), (1, "3")]


def test_reject_keeps_the_line_and_its_good_records() -> None:
    bad = progress(3) + "  layer[0]: total"
    found = assert_as_reference(f"text\r\n{bad}\r\n".encode())
    assert found.rejects() == [("log.txt", 2, 6, "bad_layer", bad)]
    assert [r["step"] for r in found.rows("train_steps")] == [3]
    assert found.ledger.source(0).row_lines == 0


def test_reasons_and_kinds_are_documented() -> None:
    fmt = format_named(FORMAT)
    assert all(doc.endswith(".") for doc in (*fmt.rejects.values(), *fmt.irrelevant.values()))


# --- records ----------------------------------------------------------------------------


def layer_row(text: str) -> dict[str, object]:
    found = assert_as_reference(f"{HEADER.format(0, 1)}\n{text}\n".encode())
    return found.rows("layer_times")[0]


def test_layer_row_with_communication() -> None:
    row = layer_row(
        "  layer[7]: compute=10.5ms (avg=0.082ms), comm=1.25ms (avg=0.010ms),"
        " total=11.750ms (avg=0.091797ms), ops=128"
    )
    assert row["compute_part_ns"] == 10_500_000
    assert row["comm_part_ns"] == 1_250_000
    assert row["total_ns"] == 11_750_000
    assert row["avg_ns"] == 91_797
    assert row["ops"] == 128


def test_layer_row_over_graph_nodes_has_no_average() -> None:
    row = layer_row("  layer[7]: total=10.5ms, fx_nodes=4160")
    assert (row["total_ns"], row["ops"], row["avg_ns"]) == (10_500_000, 4160, None)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("0", 0),
        ("007", 7),
        ("16383", 16_383),
        ("16384", 16_384),
        ("999999999", 999_999_999),
        ("embed", None),
        ("lm_head", None),
        ("12a", None),
    ],
)
def test_layer_names(name: str, index: int | None) -> None:
    row = layer_row(f"  layer[{name}]: total=1ms, ops=1, avg/op=1ms")
    assert (row["layer"], row["layer_index"]) == (name, index)


def test_layer_name_that_is_not_text_is_kept_escaped() -> None:
    row = b"  layer[\xff]: total=1ms, ops=1, avg/op=1ms\n"
    found = run(HEADER.format(0, 1).encode() + b"\n" + row)
    assert found.rows("layer_times")[0]["layer"] == "\\xff"
    assert [fault[1] for fault in found.faults()] == ["not_utf8"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nan", math.nan),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("-0.5", -0.5),
        ("7331954668.13", 7331954668.13),
        ("123456789012345678901234567890.25", 1.2345678901234568e29),
        ("1e+22", 1e22),
    ],
)
def test_floats_are_read_as_python_reads_them(text: str, value: float) -> None:
    line = progress(4).replace("6.84", text).replace("933.51", text)
    found = assert_as_reference(line.encode() + b"\n")
    assert repr([found.rows("train_steps")[0][k] for k in ("loss", "ppl")]) == repr([value, value])


def test_progress_records() -> None:
    lines = [progress(1) + progress(1), "", progress(2) + " |", progress(2), progress(1)]
    found = assert_as_reference("\n".join(lines).encode() + b"\n")
    taken = found.rows("train_steps")
    assert [(r["line"], r["step"], r["copy"], r["batches_covered"]) for r in taken] == [
        (1, 1, 0, 2), (1, 1, 1, 2), (3, 2, 0, 1), (4, 2, 1, 1), (5, 1, 2, 2),
    ]  # fmt: skip
    first = taken[0]
    assert (first["epoch"], first["steps_per_epoch"], first["lr"]) == (1, 323, 0.0)
    assert first["step_time_ns"] == 1_600_430_000


def test_header_of_graph_nodes() -> None:
    title = (
        "[rank:3 stage:1] transformer-block(FX nodes) forward time - step 5 (fx_graph_nodes=130)"
    )
    found = assert_as_reference(f"{title}\n{A[0]}\n".encode())
    row = found.rows("layer_times")[0]
    assert (row["rank"], row["stage"], row["step"]) == (3, 1, 5)


def test_other_number_of_calls_in_a_shorter_step() -> None:
    short = [row.replace("ops=8", "ops=3") for row in A]
    assert [row[1:3] for row in ranks_of([*CLEAN, A2, *short])] == [(0, "0"), (0, "1")]


# --- damage -----------------------------------------------------------------------------


def real_lines(corpus: Path) -> bytes:
    """A preamble in short and some steps of a real log, one of them merged."""
    raw = (corpus / "optimus" / "20251224_105911_TP1_DP1_PP8_MBS1_GBS32_log.txt").read_bytes()
    lines = raw.splitlines(keepends=True)
    return b"".join([*lines[7:45], *lines[316:520], *lines[-20:-8]])


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """Bytes changed, dropped and doubled, here and there."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 60)):
        at = rng.randrange(len(data))
        kind = rng.random()
        if kind < 0.4:
            data[at] = (
                rng.choice(b"0123456789.[]|:, \nlxe=\r") if kind < 0.3 else rng.randrange(256)
            )
        elif kind < 0.7:
            del data[at : at + rng.choice([1, 1, 2, 60])]
        else:
            data[at:at] = data[at : at + rng.choice([1, 2, 60])]
    return bytes(data) if rng.random() < 0.5 else bytes(data[: rng.randrange(len(data))])


@pytest.mark.parametrize("seed", range(60))
def test_damage_reads_as_the_reference(corpus: Path, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        raw = damaged(real_lines(corpus), rng)
        assert_as_reference(raw, block_size=rng.choice([1, 999, 1 << 20]))


@pytest.mark.parametrize("seed", range(60))
def test_damage_of_merged_logs_reads_as_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    raw = log(job(rng, halves=seed % 3 == 0), rng.randint(2, 12), rng, chance=0.5).encode()
    assert_as_reference(damaged(raw, rng), block_size=rng.choice([1, 999, 1 << 20]))


TOKENS = st.sampled_from(
    [
        "[rank:",
        "0",
        "1",
        " stage:",
        "]",
        " forward time",
        " - step ",
        "  layer[",
        "]: ",
        "total=",
        "compute=",
        "comm=",
        "ms",
        " (avg=",
        ")",
        ", ",
        "ops=",
        "fx_nodes=",
        "avg/op=",
        "1.5",
        ".",
        "| epoch",
        " | ",
        "/",
        " batches",
        "lr ",
        "ms/batch ",
        "loss ",
        "ppl ",
        "nan",
        "-",
        "e5",
        "\n",
        "\r\n",
        "> GAS: 4",
        "> [rank:0] pp group:DeviceMesh('cuda'",
        "stage2rank = {0: [0]}",
        ", run completed",
        "Time elapsed: 3.5 sec",
        "nbatches=3",
        "NCCL INFO",
        "W1224 ",
        "x",
        " ",
        A[0],
        HEADER.format(0, 1),
        HEADER.format(1, 2),
        A[1],
        B[0],
        progress(3),
        "[rank0]:",
        "n.op:",
        "\t",
    ]
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TOKENS, max_size=60), st.sampled_from([1, 50, 1 << 20]))
def test_any_text_reads_as_the_reference(parts: list[str], block_size: int) -> None:
    assert_as_reference("".join(parts).encode(), block_size=block_size)


@pytest.mark.parametrize("raw", [b"", b"\n", b"text", b"\r\n", A[0].encode(), b"| epoch"])
def test_tiny_logs(raw: bytes) -> None:
    assert_as_reference(raw)


def test_unfinished_last_line() -> None:
    raw = "\n".join([HEADER.format(0, 1), A[0], A[1][:-3]]).encode()
    found = assert_as_reference(raw)
    assert found.rejects() == []
    assert found.ledger.source(0).irrelevant == {"unfinished": 1}
    assert [fault[1:] for fault in found.faults()] == [("unfinished", 1, 3)]
    assert found.tables["layer_times"].num_rows == 1
    assert not found.facts.ended


def test_last_line_without_newline_that_parses() -> None:
    found = assert_as_reference("\n".join([HEADER.format(0, 1), *A]).encode())
    assert found.tables["layer_times"].num_rows == 2
    assert found.faults() == []


def test_many_stages() -> None:
    work = Job(tuple((2 * stage, ((str(stage), 8),)) for stage in range(200)))
    found = assert_as_reference(log(work, 3, random.Random(1), chance=0.1).encode())
    assert {rank for rank, *_ in given_rows(found)} == set(range(0, 400, 2))


def test_windows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back is bounded; where a window ends follows from the log alone."""
    rng = random.Random(5)
    work = job(rng)
    raw = log(work, 60, rng, chance=0.2).encode()
    monkeypatch.setattr(subject, "WINDOW_PIECES", 400)
    whole = run(raw)
    assert given_rows(whole) <= work.truth(60)
    for size in (1, 5000, 30000):
        found = run(raw, block_size=size)
        assert rows(found, "layer_times") == rows(whole, "layer_times")
        assert found.rejects() == whole.rejects()
        assert found.facts == whole.facts
    monkeypatch.setattr(subject, "WINDOW_BYTES", 5000)
    few = run(raw)
    assert given_rows(few) <= work.truth(60)
    assert rows(run(raw, block_size=700), "layer_times") == rows(few, "layer_times")


def test_ranks_of_stages_are_believed_from_their_line_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of headers that an earlier window had with rows, before anything was said of stages."""
    monkeypatch.setattr(subject, "WINDOW_PIECES", 6)
    block = [HEADER.format(2, 0), A[0], A[1]]
    lines = [*block, *block, *block, STAGES, *block]
    found = run(("\n".join(lines) + "\n").encode(), block_size=1)
    reasons = {line: reason for _, line, _, reason, _ in found.rejects()}
    assert reasons[11] == "rank_not_in_stage"
    assert {row["line"] for row in found.rows("layer_times")} == {2, 3, 5, 6, 8, 9}


def test_line_ends_of_another_system() -> None:
    rng = random.Random(3)
    text = log(job(rng), 8, rng, chance=0.3)
    unix, windows = (
        assert_as_reference(text.replace("\n", end).encode()) for end in ("\n", "\r\n")
    )
    assert rows(unix, "layer_times") == rows(windows, "layer_times")
    assert unix.ledger.source(0) == windows.ledger.source(0)


# --- names, heads, facts ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stem", "stamp", "topology"),
    [
        (
            "20251224_105911_TP1_DP1_PP8_MBS1_GBS32_log.txt",
            "TP1_DP1_PP8_MBS1_GBS32",
            datetime(2025, 12, 24, 10, 59, 11),
            {"tp": 1, "dp": 1, "pp": 8, "micro_batch_size": 1, "global_batch_size": 32},
        ),
        (
            "a/20251226_090835_distsampler-yes_MBS4_PP2_TP1_DP4_GBS32_log.txt",
            "distsampler-yes_MBS4_PP2_TP1_DP4_GBS32",
            datetime(2025, 12, 26, 9, 8, 35),
            {"tp": 1, "dp": 4, "pp": 2, "micro_batch_size": 4, "global_batch_size": 32},
        ),
        ("20251399_105911_log.txt", "20251399_105911", None, {}),
        ("STP2_run.log", "STP2_run", None, {}),
        ("log.txt", "log", None, {}),
    ],
)
def test_names(name: str, stem: str, stamp: datetime | None, topology: dict[str, int]) -> None:
    facts = format_named(FORMAT).facts(name, b"")
    assert (facts.path, facts.stem, facts.stamp, facts.topology) == (name, stem, stamp, topology)
    assert facts.rank is None


@pytest.mark.parametrize(
    ("head", "claim"),
    [
        (HEADER.format(0, 1), Claim.YES),
        (A[0], Claim.YES),
        ("W1224\n> GAS: 32\n> GBS: 32\n", Claim.YES),
        ("GPU mode is used.> World size: 8\n> TP: 1", Claim.YES),
        (STAGES, Claim.YES),
        ("> GAS: 32\n", Claim.MAYBE),
        (progress(3), Claim.MAYBE),
        ("rank:0:forward_step(stage_id=0,batch_id=0,duration=1.0)", Claim.NO),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 8 pp: 8\n1\n", Claim.NO),
        ("a log of another kind\n", Claim.NO),
        ("", Claim.NO),
    ],
)
def test_sniff(head: str, claim: Claim) -> None:
    assert format_named(FORMAT).sniff(head.encode()) == claim


def test_corpus_is_claimed_by_one_format(corpus: Path) -> None:
    for path in sorted(corpus.rglob("*.txt")):
        claims = {name: claim_of(fmt, path.read_bytes()[:65536]) for name, fmt in formats().items()}
        is_log = path.parent.name == "optimus" or path.name.startswith("002_")
        assert (claims[FORMAT] == Claim.YES) == is_log, path
        assert claims[FORMAT] == Claim.YES or claims[FORMAT] == Claim.NO, path


PREAMBLE = [
    "> Total parameters in model: 1,235,814,400",
    "> World size: 4",
    "> GAS: 8GPU mode is used.",
    "GPU mode is used.> PP: 2",
    STAGES,
    ">> model class name: LlamaForCausalLM>> split method: simple",
]
COMPLETED = [
    "[rank:3, run completed ...[rank:1, run completed ...",
    "",
    "[rank:2, run completed ...",
]


def facts_of(lines: list[str]) -> ParsedRun:
    return assert_as_reference(("\n".join(lines) + "\n").encode())


def test_facts_of_a_finished_log() -> None:
    blocks = [line.replace("rank:1", "rank:2") for line in CLEAN]
    last = progress(1) + "[rank:0, run completed ..."
    found = facts_of([*PREAMBLE, *blocks, last, *COMPLETED, "Time elapsed: 37.576 sec "])
    facts = found.facts
    assert facts.topology == {"world_size": 4, "micro_batches": 8, "pp": 2}
    assert (facts.params, facts.model) == (1_235_814_400, "LlamaForCausalLM")
    assert facts.attributes["split_method"] == "simple"
    assert facts.attributes["stage2rank"] == "{0: [0, 1], 1: [2, 3]}"
    assert facts.attributes["elapsed_s"] == "37.576"
    assert (facts.ranks, facts.ranks_expected) == (frozenset({0, 2}), 2)
    assert (facts.ended, facts.simulated, facts.profiled) == (True, False, True)
    assert found.ledger.source(0).context_lines == len(PREAMBLE) + 2 + 2 + 1


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([*CLEAN, *COMPLETED], id="a rank is missing"),
        pytest.param([*CLEAN[:-1], *COMPLETED, "[rank:0, run completed ..."], id="short block"),
        pytest.param([*CLEAN, A2, *A, *COMPLETED, "[rank:0, run completed ..."], id="short step"),
    ],
)
def test_logs_that_did_not_end(lines: list[str]) -> None:
    whole = [*CLEAN, *(line.replace("step 1", "step 2") for line in CLEAN)]
    more = [line.replace("step 1", "step 3").replace("step 2", "step 4") for line in lines]
    preamble = [line for line in PREAMBLE if "stage2rank" not in line]
    assert not facts_of([*preamble, *whole, *more]).facts.ended


def test_log_without_blocks_has_no_ranks() -> None:
    facts = facts_of([*PREAMBLE, progress(1), "Time elapsed: 3 sec"]).facts
    assert (facts.ranks, facts.ranks_expected, facts.profiled) == (None, None, False)


def test_given_topology_tells_how_many_ranks_to_expect() -> None:
    raw = "\n".join(CLEAN).encode()
    found = parse(FORMAT, {"run_PP4.txt": raw}).only
    assert found.facts.ranks_expected == 4
    assert parse(FORMAT, {"run_PP4.txt": raw}, given={"pp": 2}).facts.ranks_expected == 2


# --- corpus -------------------------------------------------------------------------------


# File, layer rows, progress records, ranks, merged rows.
LOGS = [
    ("optimus/20251224_105911_TP1_DP1_PP8_MBS1_GBS32_log.txt", 500, 20, 8, 6),
    ("optimus/20251224_111323_TP2_DP1_PP4_MBS2_GBS32_log.txt", 360, 40, 4, 10),
    ("optimus/20251224_111955_TP4_DP1_PP2_MBS2_GBS32_log.txt", 360, 80, 2, 0),
    ("optimus/20251226_090835_distsampler-yes_MBS4_PP2_TP1_DP4_GBS32_log.txt", 0, 2, 0, 0),
    ("seeds/002_cbcb88115115ad29.txt", 500, 20, 8, 6),
]


@pytest.mark.parametrize(("name", "times", "steps", "ranks", "merged"), LOGS)
@pytest.mark.parametrize("block_size", [1, 4096, 1 << 20])
def test_corpus(
    corpus: Path, name: str, times: int, steps: int, ranks: int, merged: int, block_size: int
) -> None:
    raw = (corpus / name).read_bytes()
    found = assert_as_reference(raw, block_size=block_size)
    taken = found.rows("layer_times")
    assert (len(taken), len(found.rows("train_steps"))) == (times, steps)
    assert found.rejects() == []
    assert found.faults() == []
    assert sum(r["attribution"] == "merged" for r in taken) == merged
    per_step = {(r["rank"], r["step"]) for r in taken}
    assert len(per_step) == 20 * ranks
    assert found.facts.ended
    assert found.facts.ranks_expected == (ranks or None)
    assert raw.count(b"]: total=") == times
    assert raw.count(b"| epoch") == steps
