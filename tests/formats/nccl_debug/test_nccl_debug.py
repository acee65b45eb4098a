"""Logs of NCCL that each process writes by itself, as NCCL_DEBUG_FILE has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.lakes import asked, rows, run_ingest
from tests.parsing import parse
from tests.traces import trace, trace_name, write
from tracelake.formats import format_named
from tracelake.synth.archive import write_archive
from tracelake.synth.spec import Spec


def log(rank: int, process: int, *, host: str = "", size: int = 4) -> str:
    """What a process prints that joins one communicator."""
    host = host or f"node-{rank // 2}"
    start = f"{host}:{process}:{process + 7} [{rank % 2}] NCCL INFO"
    return (
        f"{start} Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        f"{start} Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0\n"
        f"{start} comm 0x55d0 rank {rank} nranks {size} cudaDev {rank % 2} nvmlDev 0 busId 1b000"
        " commId 0xabc - Init COMPLETE\n"
    )


@pytest.mark.parametrize(
    "name", ["nccl.{host}.{process}", "{host}_{process}.log", "p{process}.txt"]
)
def test_files_of_processes_are_a_run_per_start(tmp_path: Path, name: str) -> None:
    files = {
        f"job/{name.format(host=f'node-{rank // 2}', process=first + rank)}": log(
            rank, first + rank
        )
        for first in (4000, 9000)
        for rank in range(4)
    }
    run_ingest(write(tmp_path / "in", files), tmp_path / "lake")
    found = rows(tmp_path / "lake", "runs", "label, world_size, attributes")
    transports = [("transports", "NET/IB 4, P2P/IPC 4")]
    assert [(label, size, sorted(dict(said).items())) for label, size, said in found] == [
        ("job", 4, transports),
        ("job", 4, transports),
    ]
    places = rows(tmp_path / "lake", "comm_ranks", "run_id, rank, host, device", "ORDER BY ALL")
    wanted = [(rank, f"node-{rank // 2}", str(rank % 2)) for rank in range(4)]
    assert [row[1:] for row in places] == wanted * 2
    assert len({row[0] for row in places}) == 2


@pytest.mark.parametrize(
    ("printed", "transport"),
    [
        ("[send] via NET/IB/2(1)/GDRDMA/Shared", "NET/IB/GDRDMA"),
        ("[receive] via NET/IB/0/GDRDMA(PCI)", "NET/IB/GDRDMA"),
        ("[send] via NET/AWS Libfabric/1/GDRDMA", "NET/AWS Libfabric/GDRDMA"),
        ("[send] via NET/IB/0/Shared", "NET/IB"),
        ("[receive] via NET/Socket/1 comm 0x95cdeb0 nRanks 08", "NET/Socket"),
    ],
)
def test_a_transport_says_whether_it_reaches_the_device(printed: str, transport: str) -> None:
    line = f"node-0:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] {printed}\n"
    run = parse("nccl_debug", {"nccl.log": line.encode()}).only
    assert run.facts.attributes == {"transports": f"{transport} 1"}


def test_an_error_of_a_program_says_nothing_of_its_communicators() -> None:
    printed = log(0, 7) + "ValueError: no such file\n"
    run = parse("nccl_debug", {"nccl.log": printed.encode()}).only
    assert run.facts.ended is None
    assert "ended_by" not in run.facts.attributes


def test_a_file_of_docker_has_the_lines_of_the_process(tmp_path: Path) -> None:
    lines = [line for rank in range(4) for line in log(rank, 4000 + rank).splitlines()]
    objects = [
        {"log": f"{line}\n", "stream": "stdout", "time": "2026-05-10T10:00:00Z"} for line in lines
    ]
    files = {"plain.log": lines, "docker.log": map(json.dumps, objects)}
    for name, content in files.items():
        write(tmp_path / "in", {name: "".join(f"{line}\n" for line in content)})
    run_ingest(tmp_path / "in", tmp_path / "lake")
    docker, plain = rows(tmp_path / "lake", "runs", "label, world_size, attributes", "ORDER BY ALL")
    assert (docker[0], plain[0]) == ("docker", "plain")
    assert docker[1:] == plain[1:]
    assert dict(plain[2]) == {"transports": "NET/IB 4, P2P/IPC 4"}


@pytest.mark.parametrize("name", ["worker-1.log", "train_node-0.log"])
def test_a_name_that_has_a_number_by_chance_is_a_name(name: str) -> None:
    facts = format_named("nccl_debug").facts(name, log(0, 1, host="pod").encode())
    assert (facts.stem, facts.rank) == (Path(name).stem, None)


def test_processes_that_have_not_joined_are_of_the_run_of_their_folder(tmp_path: Path) -> None:
    files = {
        f"job/nccl.pod.{700 + rank}": log(rank, 700 + rank, host="pod").splitlines()[0] + "\n"
        for rank in range(3)
    }
    run_ingest(write(tmp_path / "in", files), tmp_path / "lake")
    assert rows(tmp_path / "lake", "runs", "count(*)") == [(1,)]


@pytest.mark.parametrize(
    ("size", "more", "clear"),
    [
        (2, {}, True),
        (2, {"job/nccl.node-9.900": log(1, 900, host="node-9", size=2)}, False),
        (4, {}, False),
        (2, {"job/nccl.node-9.900": log(1, 900, host="node-9", size=4)}, True),
    ],
)
def test_ranks_beside_such_files_have_their_places(
    size: int, more: dict[str, str], tmp_path: Path, tracelake: Command, *, clear: bool
) -> None:
    """Logs of a job of as many ranks complete each other, and count where they agree."""
    files = {
        f"job/nccl.node-{r}.{800 + r}": log(r, 800 + r, host=f"node-{r}", size=size)
        for r in range(2)
    } | more
    files |= {f"job/traces/{trace_name(rank)}": trace(rank) for rank in range(2)}
    lake = tmp_path / "lake"
    assert tracelake("ingest", write(tmp_path / "in", files), "--lake", lake).code == 0
    of_traces = "WHERE format = 'rank_trace' ORDER BY rank"
    found = rows(lake, "sources", "rank, host", of_traces)
    assert found == [(r, f"node-{r}" if clear else None) for r in range(2)]


def test_messages_between_stages_are_compared_with_tests_of_their_hosts(
    tmp_path: Path, tracelake: Command
) -> None:
    write_archive(tmp_path / "in" / "job", Spec(formats=("rank_trace",), tp=1, pp=2, dp=1))
    files = {
        f"job/nccl.node-{r}.{800 + r}": log(r, 800 + r, host=f"node-{r}", size=2) for r in (0, 1)
    }
    files["sendrecv_perf.log"] = (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20\n"
        + "".join(
            f"#  Rank  {r} Group  0 Pid  {r + 1} on node-{r} device  0 [0x1b] H100\n"
            for r in (0, 1)
        )
        + " 4194304 1048576 float none -1 41.94 100.00 100.00 0 41.94 100.00 100.00 0\n"
        + "# Avg bus bandwidth    : 100\n"
    )
    lake = tmp_path / "lake"
    assert tracelake("run", write(tmp_path / "in", files), "--lake", lake).code == 0
    query = (
        "SELECT nodes, attainable_gbps, reason FROM bandwidth_efficiency WHERE collective = 'send'"
    )
    (found,) = asked(tracelake, lake, query)
    assert found == {"nodes": 2, "attainable_gbps": pytest.approx(100, rel=0.01), "reason": None}
