"""Formats that most clusters hold, through the command: ids, hosts beside traces, real files."""

from __future__ import annotations

import email
import gzip
import json
import os
import re
from collections import Counter
from email import policy
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import ROOT, Command
from tests.corpus import corpus_folder
from tests.lakes import asked, rows
from tests.parsing import claim_of, parse
from tests.traces import trace, trace_name, write
from tracelake.formats import HEAD_BYTES, Claim, Format, formats

_BESIDE = ROOT.parent / "shared" / "field"
_PREFIX = re.compile(r"^(\[\d+,\d+\]<stdout>:| *\d+: ?)")
_RECORD = re.compile(r"iteration +(\d+) */ *\d+ *\|(.*)")
_HEAD = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
_SOURCE = "run_id, source_id"
_TIMES = "    8  2  float  sum  -1  {}  0.00  0.00  0  {}  0.00  0.00  0\n"
_INIT = (
    "node{0}:1:1 [0] NCCL INFO comm 0xab rank {0} nranks 2 cudaDev 3 busId 53000 - Init COMPLETE\n"
)


@pytest.fixture(scope="module")
def field() -> Path:
    """The folder TRACELAKE_FIELD names, else shared/field beside the project."""
    folder = Path(os.environ.get("TRACELAKE_FIELD") or _BESIDE)
    if not folder.is_dir():
        pytest.skip("no real files: set TRACELAKE_FIELD to a folder of them")
    return folder


def claims(head: bytes) -> list[Format]:
    """The formats with the strongest claim on a file, without preambles of one of them."""
    judged = {name: claim_of(fmt, head) for name, fmt in formats().items()}
    best = max(judged.values())
    found = {name: formats()[name] for name, c in judged.items() if c is best is not Claim.NO}
    return [fmt for fmt in found.values() if found.keys().isdisjoint(fmt.preamble_of)]


def test_a_size_of_zero_is_no_size(tracelake: Command, tmp_path: Path) -> None:
    log = (
        "using world size: 8, data-parallel size: 2, context-parallel size: 1"
        " tensor-model-parallel size: 0, pipeline-model-parallel size: 2\n"
        "  global_batch_size ............................... 16\n"
        "  micro_batch_size ................................ 0\n"
        " iteration        1/      40 | elapsed time per iteration (ms): 9000.0 |\n"
    )
    archive = write(tmp_path / "archive", {"job.log": log})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 0
    sizes = "world_size, tp, pp, dp, micro_batch_size, micro_batches"
    assert rows(tmp_path / "lake", "runs", sizes) == [(8, None, 2, 2, None, None)]


def test_a_number_that_its_column_cannot_hold_rejects_its_line(
    tracelake: Command, tmp_path: Path
) -> None:
    log = (
        " iteration        1/      40 | elapsed time per iteration (ms): 9000.0 |\n"
        " iteration        2/      40 | elapsed time per iteration (ms): 9000.0 |"
        " global batch size: 2147483648 |\n"
        " iteration        3/      40 | elapsed time per iteration (ms): 9000.0 |\n"
        f" iteration        4/      40 | elapsed time per iteration (ms): 1{'0' * 10**6} |\n"
    )
    archive = write(tmp_path / "archive", {"job.log": log})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 3
    assert rows(tmp_path / "lake", "train_steps", "step", "ORDER BY step") == [(1,), (3,)]
    rejects = rows(tmp_path / "lake", "rejects", "line, reason", "ORDER BY line")
    assert rejects == [(2, "bad_value"), (4, "bad_value")]


@pytest.mark.parametrize(
    ("value", "reason"), [("1e30", "bad_value"), ("[" * 100_000 + "]" * 100_000, "broken_document")]
)
def test_a_document_with_a_value_that_no_column_can_hold_is_rejected(
    tracelake: Command, tmp_path: Path, value: str, reason: str
) -> None:
    text = (ROOT / "tests/formats/nccl_tests_json/documents/input/whole.json").read_text()
    harmed, changed = re.subn(r'"nwrong": *[^,}]+', f'"nwrong": {value}', text, count=1)
    assert changed
    archive = write(tmp_path / "archive", {"harmed.json": harmed, "good.json": text})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 3
    assert rows(tmp_path / "lake", "rejects", "reason") == [(reason,)]
    assert len(rows(tmp_path / "lake", "bandwidth_tests", "line")) > 0


def test_ids_of_tests_that_begin_alike_do_not_depend_on_their_order(
    tracelake: Command, tmp_path: Path
) -> None:
    begin = _HEAD + "# a comment that fills the first 4 KiB\n" * 200
    ids = []
    for order in ((1, 2), (2, 1)):
        lake, archive = tmp_path / f"lake{order[0]}", tmp_path / f"archive{order[0]}"
        for number in order:
            text = begin + _TIMES.format(f"{number}.50", "1.6e+07")
            write(archive, {f"{number}/all_reduce.log": text})
            assert tracelake("ingest", archive, "--lake", lake).code == 0
        found = rows(lake, "bandwidth_tests", "run_id, time_ns", "ORDER BY ALL")
        ids.append(found)
        assert {time for _, time in found} == {1500, 2500, 16_000_000_000}
    assert ids[0] == ids[1]
    assert len({run for run, _ in ids[0]}) == 2


def test_what_nccl_warns_of_is_why_a_bandwidth_test_has_not_ended(
    tracelake: Command, tmp_path: Path
) -> None:
    devices = "#  Rank  0 Group  0 Pid  7 on node-{} device  0 [0x0f] NVIDIA H800\n"
    said = "NET/IB: Got completion with status=12 opcode=0 from peer 10.0.0.12<40404> of its ring"
    warning = f"node-{{0}}:7:9 [1] net.cc:12 NCCL WARN {said}\n"
    failure = "node-{0}: Test NCCL failure common.cu:303 'internal error / '\n"
    logs = {
        "a/all_reduce.log": _HEAD + devices.format("a") + warning.format("a") + failure.format("a"),
        "b/all_reduce.log": _HEAD + devices.format("b") + failure.format("b"),
        "c/all_reduce.log": _HEAD + devices.format("c"),
        "d/nccl.log": warning.format("d"),
    }
    archive, lake = write(tmp_path / "archive", logs), tmp_path / "lake"
    assert tracelake("run", archive, "--lake", lake).code == 0
    query = "SELECT label, f.* FROM findings AS f JOIN runs USING (run_id) ORDER BY label"
    found = json.loads(tracelake("query", query, "--lake", lake, "--format", "json").out)
    start = "The run is incomplete: its bandwidth test of all_reduce on node-{} has not ended"
    ends = "its log ends with"
    quoted = f"node-{{}}:7:9 [1] net.cc:12 NCCL WARN {said}."
    assert {row["label"]: (row["cause"], row["evidence"]) for row in found} == {
        "a": ("link error", f"{start.format('a')}; {ends} {quoted.format('a')}"),
        "b": (
            "nccl error",
            f"{start.format('b')}; {ends} Test NCCL failure common.cu:303 'internal error'.",
        ),
        "c": ("input", f"{start.format('c')}."),
        "d": ("link error", f"The run is incomplete: {ends} {quoted.format('d')}"),
    }
    assert found[3]["brief"] == f"{ends} node-d: {said[: said.index('10.0.')]}..."


def test_a_log_of_nccl_names_the_hosts_of_traces_beside_it(
    tracelake: Command, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    write(archive, {f"a/{trace_name(rank)}": trace(rank) for rank in range(2)})
    write(archive, {f"b/{trace_name(rank)}": trace(rank, start=9000.0) for rank in range(2)})
    write(archive, {"a/job.out": _INIT.format(0) + _INIT.format(1)})
    assert tracelake("run", archive, "--lake", lake).code == 0
    found = rows(lake, "sources", "path, host, device", "WHERE format = 'rank_trace' ORDER BY path")
    assert [(path[0], host, device) for path, host, device in found] == [
        ("a", "node0", "3"),
        ("a", "node1", "3"),
        ("b", None, None),
        ("b", None, None),
    ]


def test_the_logs_of_ranks_are_a_run_per_start_and_say_which_rank_is_slow(
    tracelake: Command, tmp_path: Path
) -> None:
    lake, archive = tmp_path / "lake", tmp_path / "job" / "structured_logs"
    spans = (("fetching_batch", 1.5), ("step", 800.25))
    for start, rank in ((0, 0), (0, 1), (5, 0), (5, 1)):
        lines = [
            json.dumps(
                {"pid": 40 + start, "global_rank": rank, "host_name": f"node{rank}", "step": step}
                | {"log_type": "event", "log_type_name": f"{name}_end"}
                | {"value": value + 100 * rank * (name == "fetching_batch")}
            )
            for step in range(1, 5)
            for name, value in spans
        ]
        name = f"training.global_rank_{rank}.20261123-02{start:02}0{rank}-AB{rank}.jsonl"
        write(archive, {name: "".join(line + "\n" for line in lines)})
    assert tracelake("run", archive, "--lake", lake).code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        steps = con.sql("SELECT run_id, step, step_ms FROM step_stats ORDER BY ALL").fetchall()
        slow = con.sql("SELECT name, ranks, max_ms, slowest_rank, clock FROM timer_summary")
        assert len({run for run, _, _ in steps}) == 2
        assert [(step, ms) for _, step, ms in steps] == 2 * [(i, 800.25) for i in range(1, 5)]
        assert ("fetching_batch", 2, 101.5, 1, "host") in slow.fetchall()


def test_spans_of_a_rank_behind_a_blank_line_are_read(tracelake: Command, tmp_path: Path) -> None:
    span = {"global_rank": 3, "host_name": "node0", "log_type_name": "optim_end", "value": 2.5}
    archive = write(tmp_path / "archive", {"training.jsonl": f"\n{json.dumps(span)}\n"})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 0
    assert rows(tmp_path / "lake", "sources", "format, rank") == [("torchtitan_spans", 3)]


def test_a_span_without_a_name_that_can_be_stored_is_rejected(
    tracelake: Command, tmp_path: Path
) -> None:
    spans = [
        {"global_rank": 0, "host_name": host, "log_type_name": name, "value": value}
        for host, name, value in (
            ("\ud800", "optim_end", 2.5),
            ("node0", "\ud800_end", 2.5),
            ("node0", "optim_end", -2.5),
            ("node0", "optim_end", None),
        )
    ]
    text = "".join(json.dumps(span) + "\n" for span in spans)
    archive = write(tmp_path / "archive", {"training.jsonl": text})
    assert tracelake("ingest", archive, "--lake", tmp_path / "lake").code == 3
    assert rows(tmp_path / "lake", "timings", "line, host, duration_ns") == [(1, None, 2_500_000)]
    assert rows(tmp_path / "lake", "rejects", "line, reason", "ORDER BY line") == [
        (2, "broken_record"),
        (3, "bad_value"),
        (4, "bad_value"),
    ]


def test_no_real_file_is_claimed_by_two_formats(field: Path) -> None:
    """Of all real files, each is claimed by the format of its folder alone, or by none."""
    folders = [folder for folder in (field, corpus_folder()) if folder]
    claimed: Counter[tuple[str, str]] = Counter()
    for path in sorted(p for folder in folders for p in folder.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            found = claims(file.read(HEAD_BYTES))
        assert len(found) <= 1, path
        claimed.update(
            (path.relative_to(f).parts[0], found[0].name)
            for f in folders
            if found and path.is_relative_to(f)
        )
    of_folder: dict[str, set[str]] = {}
    for folder_name, format_name in claimed:
        of_folder.setdefault(folder_name, set()).add(format_name)
    for folder_name in formats().keys() & of_folder.keys() - {"nccl_debug"}:
        assert of_folder[folder_name] == {folder_name}
    # Logs with NCCL_DEBUG=INFO are also output of training.
    assert of_folder["nccl_debug"] <= {"nccl_debug", "training_log"}
    assert "nccl_tests_json" not in {name for _, name in claimed}


def test_real_bandwidth_tests_have_all_rows_and_times(field: Path) -> None:
    files = total = 0
    for path in sorted(p for p in (field / "nccl_tests").rglob("*") if p.is_file()):
        data = path.read_bytes()
        if claims(data[:HEAD_BYTES]) != [formats()["nccl_tests"]]:
            continue
        run = parse("nccl_tests", {path.name: data}).only
        wanted = []
        for line in data.decode().splitlines():
            words = _PREFIX.sub("", line).split()
            if len(words) >= 11 and words[0].isdigit() and words[1].isdigit():
                wanted += [round(float(words[-8]) * 1000), round(float(words[-4]) * 1000)]
        assert [row["time_ns"] for row in run.rows("bandwidth_tests")] == wanted, path
        assert run.rejects() == []
        files, total = files + 1, total + len(wanted)
    assert files
    assert total


_PRINTED = {
    "loss": r"lm[ -]loss",
    "lr": "learning rate",
    "grad_norm": "grad norm",
    "loss_scale": "loss scale",
    "consumed_samples": "consumed samples",
    "global_batch_size": "global batch size",
    "skipped_steps": "number of skipped iterations",
    "nan_steps": "number of nan iterations",
    "tflops_per_gpu": r"throughput per GPU \(TFLOP/s/GPU\)|TFLOPs",
    "tokens_per_s": r"tokens per GPU \(tokens/s/GPU\)",
    "samples_per_s": "samples per second",
}


def printed(line: str) -> dict[str, float | None]:
    """The values of a progress record of Megatron-LM, read by searching for each key."""
    record = _RECORD.search(line)
    assert record
    time = re.search(r"elapsed time per iteration \((m?s)\): *([0-9.]+)", line)
    unit = {"ms": 1e6, "s": 1e9}
    values: dict[str, float | None] = {
        "step": int(record[1]),
        "step_time_ns": round(float(time[2]) * unit[time[1]]) if time else None,
    }
    for column, key in _PRINTED.items():
        found = re.search(rf"(?:{key}): *(-?[0-9.]+(?:[eE][+-][0-9]+)?)", record[2])
        values[column] = float(found[1]) if found else None
    return values


def test_real_progress_records_have_all_their_values(field: Path) -> None:
    total = 0
    for path in sorted(p for p in (field / "training_log").rglob("*") if p.is_file()):
        data = path.read_bytes()
        if claims(data[:HEAD_BYTES]) != [formats()["training_log"]]:
            continue
        run = parse("training_log", {path.name: data}).only
        lines = data.decode(errors="replace").split("\n")[:-1]
        wanted = {n: printed(line) for n, line in enumerate(lines, 1) if _RECORD.search(line)}
        read = {row["line"]: row for row in run.rows("train_steps")}
        assert run.rejects() == []
        for number, values in wanted.items():
            assert {column: read[number][column] for column in values} == values, (path, number)
        speeds = [float(s) for s in re.findall(rb"CurrSamplesPerSec=([0-9.]+),", data)]
        if not wanted:
            assert [r["samples_per_s"] for r in read.values() if r["samples_per_s"]] == speeds, path
        total += len(wanted) + len(speeds)
    assert total


def real_profiles(field: Path) -> dict[str, dict[str, Any]]:
    """Every whole profiler trace by its path, read with the standard library."""
    found = {}
    for path in sorted((field / "kineto").rglob("*")):
        if path.is_file() and (path.name.endswith((".json", ".gz"))):
            data = path.read_bytes()
            document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
            if "traceEvents" in document:
                found[path.relative_to(field / "kineto").as_posix()] = document
    assert found
    return found


def test_real_profiles_have_all_kernels_collectives_and_steps(
    tracelake: Command, field: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    assert tracelake("ingest", field / "kineto", "--lake", lake).code == 0
    wanted: Counter[tuple[str, str]] = Counter()
    times = set()
    for path, document in real_profiles(field).items():
        for event in document["traceEvents"]:
            category, name = event.get("cat"), event["name"]
            if category in ("kernel", "Kernel", "gpu_memcpy", "gpu_memset"):
                wanted[path, "ops"] += 1
                wanted[path, "comms"] += name.startswith("nccl")
                times.add((path, round(event["dur"] * 1000)))
            if category == "user_annotation" and name.startswith("ProfilerStep#"):
                wanted[path, "train_steps"] += 1
    paths = {(run, source): path for run, source, path in rows(lake, "sources", _SOURCE + ", path")}
    got = Counter(
        (paths[key], table)
        for table in ("ops", "comms", "train_steps")
        for key in rows(lake, table, _SOURCE)
    )
    assert got == +wanted
    read = rows(lake, "ops", f"DISTINCT {_SOURCE}, duration_ns")
    assert {(paths[run, source], duration) for run, source, duration in read} == times
    assert rows(lake, "rejects") == []


def test_real_profiles_of_two_ranks_are_one_run_that_says_who_waited(
    tracelake: Command, field: Path, tmp_path: Path
) -> None:
    lake, folder = tmp_path / "lake", field / "kineto" / "NVIDIA+Megatron-LM"
    # comm.json is no trace.
    assert tracelake("run", folder, "--lake", lake, "--set", "tp=2,pp=1").code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        assert con.sql("SELECT path FROM skipped").fetchall() == [("tp2/comm.json",)]
        steps = con.sql("SELECT step, round(step_ms, 3) FROM step_stats").fetchall()
        calls = con.sql(
            "SELECT rank, wait_ms, group_size, matched FROM collective_calls ORDER BY rank, seq"
        ).fetchall()
    assert steps == [(6, 60.684)]
    # An all-reduce ends at about the same time on both ranks: who was in it longer has waited.
    durations: dict[int, list[float]] = {}
    for document in real_profiles(folder.parent.parent).values():
        info = document.get("distributedInfo", {})
        if info.get("world_size") == 2:
            durations[info["rank"]] = [
                event["dur"]
                for event in sorted(document["traceEvents"], key=lambda e: e.get("ts", 0))
                if event.get("cat") == "kernel" and "AllReduce" in event["name"]
            ]
    assert len(calls) == sum(map(len, durations.values())) == 26
    assert {(size, matched) for *_, size, matched in calls} == {(2, True)}
    waits = [wait for rank, wait, *_ in calls if rank == 1]
    longer = [(b - a) / 1000 for a, b in zip(durations[0], durations[1], strict=True)]
    assert waits[0] == pytest.approx(longer[0], abs=0.05)
    assert waits[0] > 21


def pair_test(one: str, other: str, gbps: float, size: int = 1 << 30, wrong: int = 0) -> str:
    """The output of a test between two hosts."""
    places = "".join(
        f"#  Rank  {rank} Group  0 Pid  9 on  {host} device  0 [0000:61:00] NVIDIA H100\n"
        for rank, host in enumerate((one, other))
    )
    us = size / gbps / 1000
    times = f"{us:.1f} {gbps:.2f} {gbps:.2f}"
    row = f" {size} {size // 4} float sum -1 {times} {wrong} {times} 0\n"
    verdict = f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n"
    return _HEAD + places + row + verdict + "# Avg bus bandwidth    : 1\n"


def pair_tests(hosts: str = "abcde") -> dict[str, str]:
    """Tests of every pair of hosts, about as fast as each other, by name of the file."""
    return {
        f"all_reduce_{one}_{other}.log": pair_test(one, other, 40 + 2 * i)
        for i, one in enumerate(hosts)
        for other in hosts[i + 1 :]
    }


def test_slow_hosts_and_links_of_tests_are_incidents_on_page_and_terminal(
    tracelake: Command, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    write(archive, pair_tests())
    done = tracelake("run", archive, "--lake", lake)
    assert done.code == 0
    assert "No problems found" in done.out
    write(archive, {"all_reduce_a_b.log": pair_test("a", "b", 3)})
    done = tracelake("run", archive, "--lake", lake, "--fail-on", "straggler,incomplete")
    assert done.code == 0  # they belong to no run, so they fail no gate
    assert "a - b: slow link, cause link, 1 of 1 test" in done.out
    assert f"; 1 needs attention: tracelake runs --lake {lake} --attention" in done.out
    listed = tracelake("runs", "--lake", lake, "--attention", "--format", "json").out
    named = [(row["label"], row["attention"]) for row in json.loads(listed)]
    assert named == [("all_reduce_a_b", "slow_link")]
    page = (lake / "report.html").read_text()
    assert "a - b: all_reduce of 1073741824 bytes reached 3.00 GB/s" in page
    assert "FROM link_health" in page


@pytest.mark.parametrize(
    ("place", "slow_night", "expected"),
    [("{}-010702/logs/", "20260128", []), ("{}_", "20260129", ["host a"])],
)
def test_the_latest_night_of_tests_decides(
    place: str, slow_night: str, expected: list[str], tracelake: Command, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    for night in ("20260128", "20260129"):
        tests = pair_tests("bcdef")
        for number, other in enumerate("bcdef"):
            gbps = (10 if night == slow_night else 45) + number / 100
            tests[f"all_reduce_a_{other}.log"] = pair_test("a", other, gbps)
        write(archive, {place.format(night) + name: text for name, text in tests.items()})
    assert tracelake("run", archive, "--lake", lake).code == 0
    with duckdb.connect(str(lake / "warehouse.duckdb"), read_only=True) as con:
        assert [row[0] for row in con.sql("SELECT subject FROM incidents").fetchall()] == expected
        of_a = "SELECT run_id FROM runs WHERE name LIKE '%_a_b' ORDER BY run_date"
        nights = [row[0] for row in con.sql(of_a).fetchall()]
    shown = []
    for run in nights:
        done = tracelake("show", run, "--lake", lake, "--format", "json")
        test = json.loads(done.out)["tests"]["largest"][0]
        shown.append((test["pair_ratio"] < 0.5, test["pair_verdict"]))
    latest = (True, "slow_host") if expected else (False, "ok")
    assert shown == [(not expected, "tested_again"), latest]


def test_slow_links_stand_first_in_mail_and_markdown_and_in_show(
    tracelake: Command, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    files = pair_tests()
    write(archive, {**files, "all_reduce_a_b.log": pair_test("a", "b", 3)})
    assert tracelake("run", archive, "--lake", lake).code == 0
    for name in ("night.eml", "night.md"):
        assert tracelake("report", "--lake", lake, "-o", tmp_path / name).code == 0
    mail = email.message_from_bytes((tmp_path / "night.eml").read_bytes(), policy=policy.default)
    assert mail["Subject"] == "tracelake lake: slow links 1"
    shown = mail.get_body(("html",))
    assert shown is not None
    said = "<b>a - b</b><br>warning, slow link, 1 of 1 test, last in all_reduce_a_b ("
    assert said in shown.get_content()
    text = (tmp_path / "night.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# tracelake lake: slow links 1",
        "## Incidents (1)",
        "## Runs without steps",
    ]
    assert "Test the link between a and b (ib_write_bw), check cable" in text
    assert text.count("| all_reduce_") == len(files)
    slow, fine = (
        tracelake("show", f"all_reduce_{pair}", "--lake", lake).out for pair in ("a_b", "c_d")
    )
    assert "  slow_link    a - b: all_reduce of 1073741824 bytes reached 3.00 GB/s" in slow
    assert "Attention  No problems found" in fine
    row, _ = (line.split() for line in slow.splitlines() if line.startswith("  all_reduce "))
    assert row[1:6] == ["no", "2", "2", "1", "1.07"]
    assert row[-3:] == ["%", "slow", "pair"]
    for said in (slow, fine):
        assert "the input has no" not in said


def test_wrong_values_of_a_bandwidth_test_fail_the_gate_of_faults(
    tracelake: Command, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    write(archive, {**pair_tests(), "all_reduce_a_b.log": pair_test("a", "b", 40, wrong=77)})
    done = tracelake("run", archive, "--lake", lake, "--fail-on", "faults")
    evidence = (
        "a - b: wrong values in results of bandwidth tests: 77 (all_reduce), first in line 4, for"
        " 1073741824 bytes."
    )
    assert done.code == 5
    assert "faults: 1 run\n    all_reduce_a_b-" in done.err
    assert evidence in done.err
    assert "critical a - b in all_reduce_a_b: wrong values" in done.out
    shown = tracelake("show", "all_reduce_a_b", "--lake", lake).out
    assert evidence in " ".join(shown.split())
    assert evidence in (lake / "report.html").read_text()
    assert tracelake("report", "--lake", lake, "-o", tmp_path / "night.md").code == 0
    text = (tmp_path / "night.md").read_text()
    assert "## Wrong values in bandwidth tests (1)" in text
    assert "Nothing that this hardware computes can be trusted" in text


def test_wrong_values_that_early_versions_count_over_a_test_are_a_finding(
    tracelake: Command, tmp_path: Path
) -> None:
    head = "#   Rank  0 Pid 10 on a device  0 [0x01] V100\n# size type redop time busbw error\n"
    table = f"# nThread 1 nGpus 1 minBytes 8 \n{head} 1024 256 float sum 10.00 0.10 0.10 {{}}\n"
    ends = "# Out of bounds values : {}\n# Avg bus bandwidth    : 0.1\n"
    bad = (
        table.format("2e-01*")
        + ends.format("7 FAILED")
        + table.format("nan*")
        + ends.format("4 FAILED")
    )
    fine = table.format("5e-07") + ends.format("0 OK")
    write(tmp_path / "in", {"reduce_bad.log": bad, "reduce_fine.log": fine})
    lake = tmp_path / "lake"
    assert tracelake("run", tmp_path / "in", "--lake", lake, "--fail-on", "faults").code == 5
    assert rows(lake, "bandwidth_tests", "count(*), count(wrong)") == [(3, 0)]
    said = tracelake("query", "SELECT kind, host, evidence FROM findings", "--lake", lake)
    evidence = "host a: wrong values in results of bandwidth tests: 11 (reduce)."
    assert said.out.count("wrong_values") == 1
    assert evidence in said.out


def test_a_bandwidth_test_below_the_speed_that_was_asked_for_is_a_finding(
    tracelake: Command, tmp_path: Path
) -> None:
    """Below 0.9 of NCCL_TESTS_MIN_BW a test fails."""
    logs = {
        f"all_reduce_a_{host}.log": pair_test("a", host, 40).replace(": 1\n", f": {said}\n")
        for host, said in (("b", "40 OK"), ("c", "40 FAILED"), ("d", "40"))
    }
    write(tmp_path / "in", logs)
    assert tracelake("run", tmp_path / "in", "--lake", tmp_path / "lake").code == 0
    sql = "SELECT kind, severity, subject, evidence, cause FROM findings"
    found = asked(tracelake, tmp_path / "lake", sql)
    evidence = (
        "a - c: bandwidth tests failed, because they are slower than NCCL_TESTS_MIN_BW demands:"
        " 40.00 GB/s (all_reduce)."
    )
    assert [tuple(row.values()) for row in found] == [
        ("slow_link", "warning", "a - c", evidence, "link")
    ]


def test_a_fabric_names_the_network_of_jobs_and_tests(tracelake: Command, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    write(archive, {"all_reduce.log": _HEAD + _TIMES.format("1.50", "1.50")})
    for fabric in ("ib0", "roce"):
        assert tracelake("ingest", archive, "--lake", lake, "--fabric", fabric).code == 0
        assert rows(lake, "runs", "fabric") == [(fabric,)]
    # Without a name the run is read anew, as with every option that changes rows.
    assert tracelake("ingest", archive, "--lake", lake).code == 0
    assert rows(lake, "runs", "fabric") == [(None,)]


def test_show_names_the_log_of_a_traced_job(tracelake: Command, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    write(archive, {f"job_42/{trace_name(rank)}": trace(rank) for rank in range(2)})
    log = "iteration 1/ 1 | elapsed time per iteration (ms): 9.0 | lm loss: 8.5 |\n"
    write(archive, {"job_42/train.log": log, "job_7/train.log": log.replace("9.0", "8.0")})
    assert tracelake("run", archive, "--lake", lake).code == 0
    found = rows(lake, "runs", "format, run_id", "WHERE label = 'job_42' ORDER BY format")
    (_, traced), (_, printed) = found
    assert (
        "same job: job_42 (training_log), by label" in tracelake("show", traced, "--lake", lake).out
    )
    views = json.loads(tracelake("show", printed, "--lake", lake, "--format", "json").out)["views"]
    assert [(view["view_run_id"], view["related_by"]) for view in views] == [(traced, "label")]
