"""Formats that most clusters hold, through the command: ids, hosts beside traces, real files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import rows
from tests.parsing import parse
from tests.traces import trace, trace_name, write
from tracelake.formats import HEAD_BYTES, Claim, Format, formats

_BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "field"
_PREFIX = re.compile(r"^(\[\d+,\d+\]<stdout>:| *\d+: ?)")
_RECORD = re.compile(r"iteration +(\d+) */ *\d+ *\|(.*)")
_HEAD = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
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
    """The formats with the strongest claim on a file."""
    judged = {name: fmt.sniff(head) for name, fmt in formats().items()}
    best = max(judged.values())
    return [formats()[name] for name, claim in judged.items() if claim is best is not Claim.NO]


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


def test_no_real_file_is_claimed_by_two_formats(field: Path) -> None:
    for path in sorted(p for p in field.rglob("*") if p.is_file()):
        assert len(claims(path.read_bytes()[:HEAD_BYTES])) <= 1, path


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


def test_real_progress_records_have_all_times_and_losses(field: Path) -> None:
    total = 0
    for path in sorted(p for p in (field / "training_log").rglob("*") if p.is_file()):
        data = path.read_bytes()
        if claims(data[:HEAD_BYTES]) != [formats()["training_log"]]:
            continue
        run = parse("training_log", {path.name: data}).only
        wanted = []
        for line in data.decode(errors="replace").split("\n")[:-1]:
            if found := _RECORD.search(line):
                time = re.search(r"elapsed time per iteration \((m?s)\): *([0-9.]+)", line)
                loss = re.search(r"lm[ -]loss: *([0-9.eE+-]+)", line)
                unit = {"ms": 1e6, "s": 1e9}
                ns = round(float(time[2]) * unit[time[1]]) if time else None
                wanted.append((int(found[1]), ns, float(loss[1]) if loss else None))
        got = [(r["step"], r["step_time_ns"], r["loss"]) for r in run.rows("train_steps")]
        assert [one for one in got if one[0] != 0] == wanted or not wanted, path
        total += len(wanted)
    assert total
