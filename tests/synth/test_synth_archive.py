"""Generated archives as a whole: logs, plans, sizes, counts, and what cannot be asked for."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.synth_reading import SMALL, by_step, files, run_of, traces
from tracelake.base.errors import UsageError
from tracelake.synth.archive import ANSWERS, write_archive
from tracelake.synth.spec import sample_spec


@pytest.mark.parametrize("size_bytes", [0, 500_000])
def test_counts_are_those_of_the_files(tmp_path: Path, size_bytes: int) -> None:
    spec = replace(SMALL, simulated=True, merge_block=2, size_bytes=size_bytes)
    answers = write_archive(tmp_path, spec)
    for answer in answers["runs"]:
        for file in answer["files"]:
            raw = (tmp_path / file["path"]).read_bytes()
            assert (len(raw), raw.count(b"\n")) == (file["bytes"], file["lines"])
        text = "".join((tmp_path / file["path"]).read_text() for file in answer["files"])
        match answer["format"]:
            case "rank_trace":
                own = len(re.findall(r":(?:send|recv)_\w+\(|:\w+_allreduce\(", text))
                counted = {"ops": text.count("\n"), "comms": text.count("trace_src_func=") + own}
            case "optimus":
                counted = {
                    "layer_times": text.count("  layer["),
                    "train_steps": text.count("| epoch "),
                }
            case _:
                counted = {"workload_passes": 3 * (text.count("\n") - 2)}
        assert answer["rows"] == counted
    assert json.loads((tmp_path / ANSWERS).read_text()) == json.loads(json.dumps(answers))


def test_the_same_spec_writes_the_same_bytes(tmp_path: Path) -> None:
    spec = replace(SMALL, noise=0.1, simulated=True)
    write_archive(tmp_path / "a", spec)
    write_archive(tmp_path / "b", spec)
    write_archive(tmp_path / "c", replace(spec, seed=1))
    once, again, other = (files(tmp_path / name) for name in "abc")
    assert once == again
    assert not set(once.values()) & set(other.values()) - {
        raw for path, raw in once.items() if path.startswith("aicb_workload")
    }


def test_a_full_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(UsageError, match="not empty"):
        write_archive(tmp_path, SMALL)
    with pytest.raises(UsageError, match="not a directory"):
        write_archive(tmp_path / "precious", SMALL)
    assert files(tmp_path) == {"precious": b"data"}
    with pytest.raises(UsageError, match="cannot be made: File name too long"):
        write_archive(tmp_path / ("x" * 300), SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"formats": ("json",)}, "no format json"),
        ({"formats": ()}, "no format given"),
        ({"tp": 0}, "tp is 0"),
        ({"log_steps": 1}, "log_steps is 1"),
        ({"noise": 0.5}, "noise is 0.5"),
        ({"forward_ms": float("nan")}, "forward_ms is nan"),
        ({"busbw_gbps": 0.0}, "busbw_gbps is 0.0"),
        ({"runs": 0}, "no job given"),
        ({"layers": 3}, "3 layers do not split over 2"),
        ({"vpp": 2, "micro_batches": 3}, "interleaved"),
        ({"ep": 2, "experts": 4}, "ep = 2 must divide"),
        ({"pp": 1, "simulated": True}, "simulated"),
        ({"clock_offset_ms": 5.0}, "one host"),
        ({"clock_drift_ppm": 5.0}, "one host"),
        ({"clock_offset_ms": float("inf"), "ranks_per_host": 2}, "clock_offset_ms is inf"),
        ({"clock_drift_ppm": float("nan"), "ranks_per_host": 2}, "clock_drift_ppm is nan"),
        ({"clock_drift_ppm": -1001.0, "ranks_per_host": 2}, "clock_drift_ppm is -1001"),
        ({"clock_drift_ppm": 1.0, "ranks_per_host": 2, "size_bytes": 9}, "do not drift"),
        ({"ranks_per_host": 0}, "ranks_per_host is 0"),
        ({"slow_rank": 4}, "slow_rank is 4"),
        ({"slow_layer": -1}, "slow_layer is -1"),
        ({"slow_layer": 1, "slow_layer_step": 5}, "slow_layer_step is 5"),
        ({"merge_block": 0}, "merge_block is 0"),
        ({"pp": 1, "merge_block": 1}, "one stage"),
        ({"slow_layer_step": 2}, "without a layer"),
        ({"slow_collective": "gossip/tp"}, "gossip/tp"),
        ({"slow_collective": "all_to_all/expert"}, "group of one"),
    ],
)
def test_values_that_do_not_fit_are_usage_errors(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        replace(SMALL, **change)
    assert caught.value.hint


def test_repetition_reaches_the_size_and_goes_on_in_time(tmp_path: Path) -> None:
    spec = replace(SMALL, size_bytes=300_000, merge_block=3)
    answers = write_archive(tmp_path, spec)
    for name in spec.formats:
        runs = [run for run in answers["runs"] if run["format"] == name]
        assert sum(file["bytes"] for run in runs for file in run["files"]) >= spec.size_bytes

    answer = run_of(answers, "rank_trace")
    for lines in traces(tmp_path, answer):
        steps = [mine for _, mine in by_step(lines)]
        assert len(steps) == answer["steps"] == 2 * answer["repeats"] > 2
        assert all(before.end <= after.end for before, after in pairwise(lines))
        shift = steps[2][0].end - steps[0][0].end
        for first, again in zip(steps[0] + steps[1], steps[2] + steps[3], strict=True):
            assert (again.op, again.end - again.start) == (first.op, first.end - first.start)
            assert again.end - first.end == shift

    answer = run_of(answers, "optimus")
    log = (tmp_path / answer["files"][0]["path"]).read_text()
    printed = [int(step) for step in re.findall(r"stage:1\] .* - step (\d+)", log)]
    assert printed == list(range(1, answer["steps"] + 1))
    records = re.findall(r"\| +(\d+)/ *\d+ batches .* ms/batch +(\S+) \|", log)
    numbers = [int(number) for number, _ in records]
    assert numbers == sorted([*range(1, answer["steps"] + 1)] * 2)
    said = {row["step"]: row["step_times_ns"] for row in answer["progress"]}
    assert sorted(said) == [1, 2, 3, answer["steps"]]
    for number, times in said.items():
        shown = [ms for printed_number, ms in records if int(printed_number) == number]
        assert times == [int(Decimal(ms) * 1_000_000) for ms in shown]
    long = [number for number, ms in records if float(ms) > 3 * float(records[-1][1])]
    assert set(long) == {"1"}


def test_merged_blocks_are_two_texts_on_a_line_and_then_two_line_ends(tmp_path: Path) -> None:
    spec = replace(SMALL, pp=4, formats=("optimus",), noise=0.02)
    apart = run_of(write_archive(tmp_path / "apart", spec), "optimus")
    merged = run_of(write_archive(tmp_path / "merged", replace(spec, merge_block=2)), "optimus")
    assert merged["merged_ranks"] == [0, 4]
    assert merged["layer_steps"] == apart["layer_steps"]
    before = (tmp_path / "apart" / apart["files"][0]["path"]).read_text().splitlines()
    after = (tmp_path / "merged" / merged["files"][0]["path"]).read_text().splitlines()
    start = next(at for at, line in enumerate(after) if line.count("transformer-block") == 2)
    text = "[rank:%d stage:%d] transformer-block(module) forward time (no send/recv) - step 2"
    left, right = (before.index(text % (2 * stage, stage)) for stage in (0, 2))
    # One layer per stage: the leaders print a header and two rows each.
    pairs = zip(before[left : left + 3], before[right : right + 3], strict=True)
    assert after[start : start + 6] == [line for a, b in pairs for line in (a + b, "")]
    assert sorted("".join(before)) == sorted("".join(after))


def test_a_layer_on_two_stages_adds_up_and_a_slow_layer_shows(tmp_path: Path) -> None:
    spec = replace(SMALL, formats=("optimus",), slow_layer=1, slow_layer_step=3)
    answer = run_of(write_archive(tmp_path, spec), "optimus")
    log = (tmp_path / answer["files"][0]["path"]).read_text()
    totals: dict[tuple[int, str], list[Decimal]] = defaultdict(list)
    ops: dict[tuple[int, str], int] = defaultdict(int)
    step = 0
    for line in log.splitlines():
        if header := re.search(r"forward time .* - step (\d+)$", line):
            step = int(header[1])
        if row := re.fullmatch(
            r"  layer\[(\w+)\]: total=(\d+\.\d{3})ms, ops=(\d+), avg/op=(\d+\.\d{3})ms", line
        ):
            totals[step, row[1]].append(Decimal(row[2]))
            ops[step, row[1]] += int(row[3])
            assert float(row[4]) == pytest.approx(float(row[2]) / int(row[3]), abs=6e-4)
    assert {
        (row["step"], row["layer"]): (row["stages"], row["total_ns"], row["ops"])
        for row in answer["layer_steps"]
    } == {key: (len(times), int(sum(times) * 1_000_000), ops[key]) for key, times in totals.items()}
    assert len(totals[2, "1"]) == 2
    assert ops[2, "1"] == 8 * spec.micro_batches
    assert [float(sum(totals[step, "1"])) for step in (2, 3, 4)] == [8.0, 24.0, 8.0]
    first = next(row for row in answer["progress"] if row["step"] == 1)
    shown = re.search(r"\|     1/  323 batches .* ms/batch (\S+) \| loss (\S+) \|", log)
    assert shown
    assert first["step_times_ns"][0] == int(Decimal(shown[1]) * 1_000_000)
    assert first["loss"] == float(shown[2])


def test_plans_declare_their_rows_and_their_traffic(tmp_path: Path) -> None:
    spec = replace(SMALL, formats=("aicb_workload",), dp=2)
    words = {
        "ALLREDUCE": "all_reduce",
        "ALLGATHER": "all_gather",
        "REDUCESCATTER": "reduce_scatter",
        "ALLTOALL": "all_to_all",
    }
    answers = write_archive(tmp_path, spec)
    for answer in answers["runs"]:
        lines = (tmp_path / answer["files"][0]["path"]).read_text().splitlines()
        header = dict(pairwise(lines[0].split()))
        assert (header["model_parallel_NPU_group:"], header["ga:"], header["all_gpus:"]) == (
            "2",
            str(answer["repeats"]),
            "8",
        )
        rows = [line.split("\t") for line in lines[2:]]
        assert int(lines[1]) == len(rows)
        assert {len(row) for row in rows} == {12}
        starts = [at for at, row in enumerate(rows) if row[0] == "embedding_layer"]
        assert len(starts) == answer["repeats"] == spec.micro_batches
        assert {b - a for a, b in pairwise(starts)} == {answer["block_rows"]}
        for (name, column), passes in zip(
            (("forward", 2), ("input_grad", 5), ("weight_grad", 8)), answer["passes"], strict=True
        ):
            known = [int(row[column]) for row in rows if int(row[column]) >= 1000]
            assert passes == {
                "pass": name,
                "compute_ns": sum(known),
                "profiled_rows": len(known),
                "placeholder_rows": len(rows) - len(known),
            }
            found: dict[tuple[str, str], list[int]] = defaultdict(list)
            for row in rows:
                word, _, suffix = row[column + 1].partition("_")
                plain = "dp" if name == "weight_grad" else "tp"
                group = {"": plain, "EP": "expert", "DP_EP": "dp_ep"}[suffix]
                found[word, group].append(int(row[column + 2]))
            assert {
                (row["collective"].replace("_", "").upper(), row["group_kind"]): row
                for row in answer["traffic"]
                if row["pass"] == name
            } == {
                (word, group): {
                    "pass": name,
                    "collective": words[word],
                    "group_kind": group,
                    "calls": sum(size > 0 for size in sizes),
                    "bytes": sum(sizes),
                }
                for (word, group), sizes in found.items()
                if word != "NONE"
            }
    dense, experts = ({row["group_kind"] for row in run["traffic"]} for run in answers["runs"])
    assert "expert" in experts - dense


def test_log_lines_look_like_those_of_real_logs(tmp_path: Path, corpus: Path) -> None:
    def shapes(paths: list[Path]) -> set[str]:
        lines = (line for path in paths for line in path.read_text().splitlines())
        return {
            re.sub(r"\d+", "0", line)
            for line in lines
            if line.startswith(("[rank:", "  layer[", "| epoch", "> ", "stage2rank", "Time"))
            and "group:" not in line
        }

    def unaligned(found: set[str]) -> set[str]:
        return {re.sub(r"\[(0, )*0\]|(0: \[0\](, )?)+", "L", re.sub(" +", " ", x)) for x in found}

    write_archive(tmp_path, replace(SMALL, pp=4, formats=("optimus",), merge_block=3))
    real = unaligned(shapes(sorted((corpus / "optimus").glob("*.txt"))))
    mine = unaligned(shapes(sorted((tmp_path / "optimus").glob("*.txt"))))
    assert {line for line in mine if not re.match(r"> Total parameters", line)} <= real


def test_the_sample_has_one_of_everything(tmp_path: Path) -> None:
    answers = write_archive(tmp_path, sample_spec())
    assert sum(len(raw) for raw in files(tmp_path).values()) < 600_000
    assert [(run["format"], run.get("simulated", False)) for run in answers["runs"]] == [
        ("rank_trace", False),
        ("optimus", False),
        ("rank_trace", False),
        ("optimus", False),
        ("rank_trace", True),
        ("aicb_workload", False),
        ("aicb_workload", False),
    ]
    slow = next(
        row
        for row in run_of(answers, "rank_trace", 1)["ranks"]
        if row["injected_factor"] is not None
    )
    assert slow["peers"] >= 2
    assert slow["slowdown"] >= 1.1
    assert run_of(answers, "rank_trace", 1)["steps"] >= 3
    assert run_of(answers, "optimus", 1)["merged_step"] is not None
