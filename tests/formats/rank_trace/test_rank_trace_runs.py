"""Rank traces: which lines are a step, which files are a run, and what is said of the run."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.parsing import ParsedRun, claim_of, parse
from tracelake.formats import Claim, FileFacts, format_named
from tracelake.formats.rank_trace import reader as rank_reader

FORMAT = "rank_trace"
RANK_TRACE = format_named(FORMAT)
F, B, O, DP = "forward_step", "backward_step", "optimizer_step", "dp_allreduce"  # noqa: E741


def lines(*ops: str, rank: int = 0, **fields: str) -> str:
    """Lines of operations written `name`, `name/phase` or `name/phase/batch_id`."""
    text = ""
    for at, spec in enumerate(ops, 1):
        name, phase, batch = f"{spec}/None/None".split("/")[:3]
        more = "".join(f"{k}={v}," for k, v in fields.items())
        text += (
            f"rank:{rank}:{name}(batch_id={batch},mg_state={phase},duration=1,{more}"
            f"timestamp={10 * at},sub_operations=[])\n"
        )
    return text


def run(text: str, path: str = "trace.txt", **given: int) -> ParsedRun:
    return parse(FORMAT, {path: text.encode()}, given=given).only


def steps(*ops: str) -> list[int]:
    return [int(str(r["step"])) for r in run(lines(*ops)).rows("ops")]


def test_a_step_ends_with_its_optimizer_step() -> None:
    assert steps(F, B, F, B, DP, O, F, B, O) == [1, 1, 1, 1, 1, 1, 2, 2, 2]


def test_without_an_optimizer_step_a_step_ends_where_the_phase_falls() -> None:
    found = steps(f"{F}/warmup", f"{F}/steady", f"{B}/steady", f"{B}/cooldown", f"{F}/warmup", F)
    assert found == [1, 1, 1, 1, 2, 2]


def test_without_an_optimizer_step_a_step_ends_after_the_gradient_all_reduce() -> None:
    assert steps(F, B, F, B, DP, "ep_allreduce", F, B, DP) == [1, 1, 1, 1, 1, 1, 2, 2, 2]


def test_without_any_mark_a_step_ends_where_the_batch_id_does_not_grow() -> None:
    batches = [f"{F}/None/0", f"{B}/None/0", f"{F}/None/1", f"{B}/None/1"]
    assert steps(*batches, *batches) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert steps(F, B, F, B) == [1, 1, 2, 2]
    assert steps(F, F, B, B, F, F, B, B) == [1, 1, 1, 1, 2, 2, 2, 2]


def test_a_lost_optimizer_step_does_not_join_two_steps() -> None:
    ops = [f"{F}/warmup", f"{B}/cooldown", f"{DP}/finalize", f"{O}/finalize"]
    text = lines(*ops, *ops).replace("optimizer_step(", "optimizer_step[", 1)
    found = run(text)
    assert [r["step"] for r in found.rows("ops")] == [1, 1, 1, 2, 2, 2, 2]
    assert len(found.rejects()) == 1


def test_micro_batches_count_by_name_within_step_and_rank() -> None:
    text = lines(F, F, B) + lines(F, B, O, rank=1) + lines(B, O, F)
    rows = run(text).rows("ops")
    found = [(r["rank"], r["step"], r["seq"], r["micro_batch"]) for r in rows]
    assert found == [
        (0, 1, 1, 0),
        (0, 1, 2, 1),
        (0, 1, 3, 0),
        (1, 1, 1, 0),
        (1, 1, 2, 0),
        (1, 1, 3, 0),
        (0, 1, 4, 1),
        (0, 1, 5, 0),
        (0, 2, 6, 0),
    ]


def test_steps_go_on_in_the_next_file_of_a_rank() -> None:
    texts = {"a": lines(F, B, O, F).encode(), "b": lines(B, O).encode()}
    found = parse(FORMAT, texts, run_name="r").only
    assert [(r["source_id"], r["step"], r["seq"]) for r in found.rows("ops")] == [
        (0, 1, 1),
        (0, 1, 2),
        (0, 1, 3),
        (0, 2, 4),
        (1, 2, 5),
        (1, 2, 6),
    ]


ONE_RANK = lines(*[f"{F}/None/{i}" for i in range(40)], B, O, F, B, input__shape="[2]") * 3
IN_TURNS = lines(O) + "".join(
    lines(op, rank=rank) for op in [F, F, F, B, B, B, O] * 2 for rank in range(200)
)


@pytest.mark.parametrize("text", [ONE_RANK, IN_TURNS], ids=["one rank", "ranks in turns"])
def test_rows_do_not_depend_on_how_many_are_collected(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(text)
    monkeypatch.setattr(rank_reader, "BATCH_ROWS", 64)
    monkeypatch.setattr(rank_reader, "_FIRST_ROWS", 8)
    monkeypatch.setattr(rank_reader, "_MANY_TEXTS", 1)
    pieces = run(text)
    assert pieces.tables["ops"].column("rank").num_chunks > 1
    assert pieces.rows("ops") == whole.rows("ops")
    assert pieces.facts == whole.facts


def test_the_look_for_an_optimizer_step_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps(F, B, F, B, O) == [1, 1, 1, 1, 1]
    monkeypatch.setattr(rank_reader, "DECIDE_BYTES", 1)
    monkeypatch.setattr(rank_reader, "_FIRST_ROWS", 1)
    assert steps(F, B, F, B, O) == [1, 1, 2, 2, 2]


def test_stage_is_printed_or_follows_from_the_sizes() -> None:
    text = lines(F, rank=3) + lines(F, rank=3, stage_id="0") + lines(F, rank=9)
    found = run(text, world_size=4, pp=2)
    assert [r["stage"] for r in found.rows("ops")] == [1, 0, None]
    assert [r["stage"] for r in run(text).rows("ops")] == [None, 0, None]


def test_facts_of_a_measured_run() -> None:
    text = lines(
        F,
        "send_forward",
        F,
        B,
        B,
        O,
        stage_id="0",
        input__shape="[8, 2]",
        input__dtype="torch.float16",
    )
    found = run(
        text, "wd2_tp1_pp2_exp4_expNum16_numl8_bs1_MyTokenizer_rank0_20250102030405.txt"
    ).facts
    assert found.topology == {"micro_batches": 2}
    assert (found.ranks, found.ranks_expected) == (frozenset({0}), 2)
    assert (found.ended, found.simulated, found.profiled) == (True, False, True)
    assert found.signature == "float16[8,2]"
    assert found.attributes == {"tokenizer": "MyTokenizer", "experts": "16"}


def test_the_loss_tells_the_last_stage_where_no_name_does() -> None:
    text = lines(f"{F}/steady", B, O, stage_id="0") + lines(
        F, "loss_func", B, O, rank=1, stage_id="1"
    )
    assert run(text).facts.topology == {"pp": 2, "micro_batches": 1}
    later = text + lines(F, rank=2, stage_id="2")
    assert run(later).facts.topology == {"micro_batches": 1}


def test_virtual_stages_share_the_forward_steps() -> None:
    assert run(lines(F, F, F, F, B, O), vpp=2).facts.topology == {"micro_batches": 2}
    assert run(lines(F, F, F, B, O), vpp=2).facts.topology == {}


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        (lines(F, O, F, O) + lines(F, O, F, O, rank=1), True),
        (lines(F, O, F, O) + lines(F, O, rank=1), False),
        (lines(F, O, F), False),
        (lines(F, B), False),
    ],
)
def test_a_run_has_ended_when_every_rank_ended_its_last_step(text: str, ended: bool) -> None:
    assert run(text).facts.ended is ended


@pytest.mark.parametrize(
    ("text", "simulated"),
    [
        (lines(F, O), True),
        (lines(F, O, description="simulation: x"), True),
        (lines(f"{F}/steady", O), False),
        (lines(f"{F}/steady", O, op_semantics="metadata_placeholder"), True),
        (
            lines(f"{F}/steady", DP, O).replace(
                "duration=1,timestamp=20", "duration=0,timestamp=0"
            ),
            True,
        ),
        (lines(F, "recv_forward", O), False),
    ],
)
def test_simulated_runs_are_told_by_their_lines(text: str, simulated: bool) -> None:
    facts = run(text, tp=1, pp=2).facts
    assert facts.simulated is simulated
    assert ("micro_batches" in facts.topology) is not simulated


def test_one_stage_without_p2p_is_not_simulated() -> None:
    assert run(lines(F, O), pp=1).facts.simulated is False


@pytest.mark.parametrize(
    ("head", "claim"),
    [
        (lines(F).encode(), Claim.YES),
        (b"\xef\xbb\xbf\r\n" + lines(F).encode(), Claim.YES),
        (b"stage:0:forward_step(batch_id=0, mg_state=warmup)\n", Claim.YES),
        (b"damaged\n" + lines(F).encode(), Claim.MAYBE),
        (b"rank: 5, #### last layer id:13\n> GAS: 32\n", Claim.NO),
        (b"HYBRID_TRANSFORMER model_parallel_NPU_group: 8\n3\n", Claim.NO),
        (b"", Claim.NO),
    ],
)
def test_sniff(head: bytes, claim: Claim) -> None:
    assert claim_of(RANK_TRACE, head) is claim


@pytest.mark.parametrize(
    ("name", "rank", "stem"),
    [
        ("tp2_rank{}_x.txt", None, "tp2_x"),
        ("tp2_rank{}.txt", None, "tp2"),
        ("rank7_tp2_rank{}.txt", 7, "tp2"),
        ("rank7_tp2_rank{}-b.txt", 7, "tp2_rank{}-b"),
        ("tp2_rank{}-b_rank7.txt", 7, "tp2_rank{}-b"),
        ("tp2_rank{}.5_rank7.txt", 7, "tp2_rank{}.5"),
        ("tp2.a_rank{}_x", 7, "tp2"),
    ],
)
def test_a_rank_is_the_first_part_that_is_one(name: str, rank: int | None, stem: str) -> None:
    """Names that differ in the digits behind `_rank` are not taken for each other."""
    head = lines(F, rank=7).encode()
    for digits in ("0", "1", "12"):
        found = RANK_TRACE.facts(f"job/{name.format(digits)}", head)
        expected = int(digits) if rank is None else rank
        assert (found.rank, found.stem) == (expected, stem.format(digits))


def test_a_name_is_read_in_any_order() -> None:
    found = RANK_TRACE.facts("a/rank3_bs2_20240923205004_pp4_wd8_X_tp2.txt", b"")
    assert found == FileFacts(
        path="a/rank3_bs2_20240923205004_pp4_wd8_X_tp2.txt",
        stem="bs2_pp4_wd8_X_tp2",
        rank=3,
        stamp=datetime(2024, 9, 23, 20, 50, 4),
        topology={"micro_batch_size": 2, "pp": 4, "world_size": 8, "tp": 2},
    )


def test_the_first_line_tells_the_rank_where_the_name_does_not() -> None:
    found = RANK_TRACE.facts("node1/trace_99999999999999.txt", lines(F, rank=7).encode())
    assert (found.rank, found.stamp, found.topology, found.host) == (7, None, {}, "node1")


def files(*paths: str) -> list[FileFacts]:
    return [RANK_TRACE.facts(path, b"") for path in paths]


def grouped(*paths: str, gap: float = 60) -> list[list[str]]:
    return [[f.path for f in found] for found in RANK_TRACE.group(files(*paths), gap)]


def name(rank: int, second: int, *, minute: int = 0, world: int = 4) -> str:
    return f"wd{world}_tp2_pp2_rank{rank}_202501010{minute:01d}00{second:02d}.txt"


def test_a_repeated_rank_or_a_gap_begins_a_run() -> None:
    first = [name(r, 2 * r) for r in range(4)]
    again = [name(0, 20), name(1, 22)]
    late = [name(2, 30, minute=2)]
    assert grouped(*first, *again, *late) == [
        [first[0], first[1], first[2], first[3]],
        again,
        late,
    ]
    assert len(grouped(name(0, 0), name(1, 50))) == 1
    assert len(grouped(name(0, 0), name(1, 50), gap=40)) == 2


def test_files_of_one_stamp_are_never_split() -> None:
    """Three starts 20 s apart, of which the second lacks a rank."""
    first, second, third = ([name(r, s) for r in range(4)] for s in (0, 20, 40))
    assert grouped(*first, *second[1:], *third) == sorted([first, second[1:], third])


def test_files_of_one_stamp_are_never_split_on_several_nodes() -> None:
    first, second, third = (
        [f"job/node{r // 2}/{name(r, s)}" for r in range(4)] for s in (0, 20, 40)
    )
    assert grouped(*first, *second[1:], *third) == sorted([first, second[1:], third])
    assert grouped(*first, *second[2:], *third) == sorted([first, third, second[2:]])


@pytest.mark.parametrize("lost", range(4))
def test_where_ranks_write_other_stamps_the_largest_gap_divides_starts(lost: int) -> None:
    first, second, third = ([name(r, s + r) for r in range(4)] for s in (0, 20, 40))
    second.pop(lost)
    assert grouped(*first, *second, *third) == sorted([first, second, third])


def test_a_slow_rank_does_not_divide_a_start() -> None:
    first = [name(0, 0), name(1, 15), name(2, 15), name(3, 15)]
    again = [name(r, 20) for r in range(4)]
    assert grouped(*first, *again) == [first, again]


def test_a_rank_that_repeats_within_a_stamp_is_left_over() -> None:
    first = [name(r, 0) for r in range(4)]
    other = first[1].replace(".txt", ".log")
    assert grouped(*first, other) == [[first[0], other, *first[2:]], [first[1]]]


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (("A", "B"), "A, B"),
        (("exp/A", "exp/B"), "exp/A, exp/B"),
        (("node0", "node1"), None),
        (("gpu0", "gpu1"), None),
        (("rank_0", "rank_1"), None),
        (("node0", "B"), "B, node0"),
        (("A", "A"), None),
    ],
)
def test_a_run_of_several_folders_says_so(folders: tuple[str, str], said: str | None) -> None:
    texts = {
        f"{folder}/{name(rank, 0, world=2)}": lines(F, B, O, rank=rank).encode()
        for rank, folder in enumerate(folders)
    }
    found = parse(FORMAT, texts).only
    faults = found.tables["faults"].to_pylist()
    expected = [] if said is None else [("joined_folders", "notice", said)]
    assert [(f["name"], f["severity"], f["text"]) for f in faults] == expected


def test_other_configurations_and_folders_are_other_runs() -> None:
    assert len(grouped(name(0, 0), name(1, 0, world=8))) == 2
    assert len(grouped("x/a/" + name(0, 0), "y/b/" + name(1, 0))) == 2


def test_names_without_configuration_are_a_run_each() -> None:
    assert grouped("rank0.txt", "rank1.txt") == [["rank0.txt"], ["rank1.txt"]]


def test_node_folders_that_complete_each_other_are_one_run() -> None:
    node0 = [f"job/gpu-a/{name(r, 1)}" for r in (0, 1)]
    node1 = [f"job/gpu-b/{name(r, 5)}" for r in (2, 3)]
    (found,) = RANK_TRACE.group(files(*node0, *node1), 60)
    assert [f.host for f in found] == ["gpu-a", "gpu-a", "gpu-b", "gpu-b"]


def test_a_second_job_on_the_same_nodes_is_a_second_run() -> None:
    paths = [f"job/n{r // 2}/{name(r, s)}" for s in (1, 30) for r in range(4)]
    first, second = grouped(*paths)
    assert sorted(first) == sorted(paths[:4])
    assert sorted(second) == sorted(paths[4:])


def test_sibling_folders_with_the_same_ranks_are_runs_of_their_own() -> None:
    paths = [f"exp{e}/{name(r, 1)}" for e in range(3) for r in range(4)]
    found = RANK_TRACE.group(files(*paths), 60)
    assert [len(f) for f in found] == [4, 4, 4]
    assert {f.host for one in found for f in one} == {None}


def test_more_ranks_than_the_world_holds_are_not_one_run() -> None:
    assert len(grouped(*(f"job/n{r}/{name(r, 1, world=2)}" for r in range(3)))) == 3


def test_a_run_pattern_decides_alone() -> None:
    given = [
        FileFacts(path=p, stem="s", run=r, rank=0) for p, r in (("a", "1"), ("b", "2"), ("c", "1"))
    ]
    found = RANK_TRACE.group(given, 60)
    assert [[f.path for f in one] for one in found] == [["a", "c"], ["b"]]


def test_public_runs_are_grouped_as_they_were_made(corpus: Path) -> None:
    paths = {p.relative_to(corpus).as_posix(): p for p in corpus.glob("rank_trace/*/*.txt")}
    facts = [RANK_TRACE.facts(path, p.read_bytes()[:4096]) for path, p in paths.items()]
    sizes: dict[str, list[int]] = {}
    for found in RANK_TRACE.group(facts, 60):
        sizes.setdefault(found[0].path.split("/")[1], []).append(len(found))
    assert sizes == {
        "gpt_tp2_pp2": [4, 4],
        "gpt_tp2_pp4_bs2": [8],
        "moe_simulated_2026": [1],
        "simulated_tp2_pp2": [4, 4, 4, 4, 4, 4, 4, 1, 1, 1, 4],
    }
