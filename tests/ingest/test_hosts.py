"""Where ranks ran: `--hosts` beside `--run-pattern` and the names of folders."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command, Result
from tests.lakes import files, rows
from tests.traces import plan, trace, trace_name, write
from tracelake.lake.store import Lake

LOG = "> GAS: 4\n> World size: 2\n> TP: 1\n| epoch   1 |     1/   20 batches | lr 0.00 |"
LOG += " ms/batch 1201.50 | loss  6.84 | ppl   934.50\n"

Ingest = Callable[..., Result]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for job in (1, 2):
        for rank in range(2):
            name = trace_name(rank, stamp=f"202501010{job}0000")
            write(tmp_path / "archive", {f"job{job}/{name}": trace(rank, start=1000.0 * job)})
    return tmp_path / "archive"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def ingest(tracelake: Command, archive: Path, lake: Path, tmp_path: Path) -> Ingest:
    """Ingests the archive, with a text as the file of `--hosts`."""

    def run(hosts: str | None, *options: str, folder: Path = archive) -> Result:
        if hosts is not None:
            (tmp_path / "hosts.csv").write_text(hosts, encoding="utf-8")
            options = ("--hosts", str(tmp_path / "hosts.csv"), *options)
        return tracelake("ingest", folder, "--lake", lake, *options)

    return run


def places(lake: Path) -> list[tuple[str, int, str | None, str | None]]:
    """Folder, rank, host and device of every source."""
    columns = "split_part(path, '/', 1), rank, host, device"
    return rows(lake, "sources", columns, "ORDER BY path")


def generated(lake: Path) -> dict[str, str]:
    """Generation of every run."""
    return {run_id: run.generation for run_id, run in Lake.open(lake).snapshot().runs.items()}


def statuses(result: Result) -> str:
    return next(line for line in result.err.splitlines() if " run" in line[:8]).split(": ", 1)[1]


def test_a_file_of_hosts_places_the_ranks_of_every_run(ingest: Ingest, lake: Path) -> None:
    done = ingest("# cluster 7\n\nrank,host,device\n0,node3,0\n 1 , node4 ,\n")
    assert (done.code, statuses(done)) == (0, "2 new")
    assert "warning" not in done.err
    assert places(lake) == [
        ("job1", 0, "node3", "0"),
        ("job1", 1, "node4", None),
        ("job2", 0, "node3", "0"),
        ("job2", 1, "node4", None),
    ]
    # Ranks of one flat folder are one run wherever they ran.
    assert rows(lake, "runs", "ranks_seen, complete") == [(2, True)] * 2


@pytest.mark.parametrize(
    "text",
    [
        "0 node3 cuda:0\n1   node4\tcuda:1\n",
        "rank device host\n0 cuda:0 node3\n1 cuda:1 node4\n",
        'host,rank,device\r\nnode3,0,"cuda:0"\r\nnode4,1,cuda:1\r\n',
        "\ufeffrank,host,device,run\n0,node3,cuda:0,\n1,node4,cuda:1\n",
    ],
    ids=["blanks", "blanks_with_header", "another_order", "byte_order_mark"],
)
def test_the_file_may_be_written_in_several_ways(ingest: Ingest, lake: Path, text: str) -> None:
    assert ingest(text).code == 0
    assert places(lake)[:2] == [("job1", 0, "node3", "cuda:0"), ("job1", 1, "node4", "cuda:1")]


def test_the_main_job_shows_hosts_and_devices(
    tracelake: Command, archive: Path, lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "hosts.txt").write_text("0 node3 cuda:6\n1 node4 cuda:7\n")
    page = tmp_path / "page.html"
    hosts = ("--hosts", tmp_path / "hosts.txt")
    assert tracelake("run", archive, "--lake", lake, "--report", page, *hosts).code == 0
    sql = "SELECT DISTINCT rank, host, device FROM sources ORDER BY rank"
    shown = tracelake("query", sql, "--lake", lake, "--format", "csv").out
    assert shown.splitlines()[1:] == ['0,"node3","cuda:6"', '1,"node4","cuda:7"']
    files_row = r'_rank1_\d+\.txt</td><td class="num">1</td><td>node4</td><td>cuda:7</td>'
    assert len(re.findall(files_row, page.read_text())) == 2


def test_a_line_may_hold_for_some_inputs_only(ingest: Ingest, lake: Path) -> None:
    done = ingest(
        "rank,host,run\n0,a,job1/*\n1,b,job1/*\n0,c,*job2*rank0*\n1,d,job2/wd2_*_rank[1-9]_*\n"
    )
    assert done.code == 0
    assert places(lake) == [
        ("job1", 0, "a", None),
        ("job1", 1, "b", None),
        ("job2", 0, "c", None),
        ("job2", 1, "d", None),
    ]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("host,rack\na,b\n", 1, "not a header of --hosts: host,rack"),
        ("0,node3\n1,node4\n", 1, "names the columns"),
        ("rank,host,host\n0,a,b\n", 1, "not a header"),
        ("rank,host\n0,a\n\n# c\none,b\n", 5, "'one' is not a rank"),
        ("rank,host\n-1,a\n", 2, "'-1' is not a rank"),
        ("rank,host\n1234567890,a\n", 2, "is not a rank"),
        ("rank,host\n0,\n", 2, "rank 0 has no host"),
        ("rank,host\n0\n", 2, "rank 0 has no host"),
        ("rank,host\n0,a,1\n", 2, "3 values for the columns rank,host"),
        ('rank,host\n0,"a\n', 2, "not a line of CSV"),
        ("0 a\n1 b 1 job1 x\n", 2, "5 values for the columns rank,host,device"),
        ("rank,host\n0,a\n1,b\n0,c\n", 4, "rank 0 already has a host on line 2"),
        (
            "rank,host,run\n0,a,\n1,b,\n0,c,job2/*\n",
            4,
            f"rank 0 of job2/{trace_name(0, stamp='20250101020000')} already has a host",
        ),
    ],
)
def test_a_line_that_says_no_place_is_a_usage_error(
    ingest: Ingest, lake: Path, text: str, line: int, said: str
) -> None:
    done = ingest(text)
    assert done.code == 2
    assert said in done.err
    assert f"hosts.csv:{line}" in done.err
    assert "next:" in done.err
    assert not list(lake.glob("sources/*"))


def test_a_file_that_cannot_be_read_is_a_usage_error(
    ingest: Ingest, tracelake: Command, tmp_path: Path
) -> None:
    absent = tracelake("ingest", tmp_path, "--lake", tmp_path / "l", "--hosts", tmp_path / "no")
    assert (absent.code, "cannot read --hosts" in absent.err) == (2, True)
    (tmp_path / "bytes").write_bytes(b"rank,host\n0,\xff\n")
    odd = tracelake("ingest", tmp_path, "--lake", tmp_path / "l", "--hosts", tmp_path / "bytes")
    assert (odd.code, "cannot read --hosts" in odd.err) == (2, True)
    empty = ingest("# nothing yet\n")
    assert (empty.code, "has no line with a rank" in empty.err) == (2, True)
    headed = ingest("rank,host\n")
    assert (headed.code, "has no line with a rank" in headed.err) == (2, True)


def test_hosts_go_before_the_pattern_and_the_pattern_before_folders(
    ingest: Ingest, lake: Path, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "nodes",
        {f"j/node{r // 2}/gpu{r % 2}/{trace_name(r, world=4)}": trace(r) for r in range(4)},
    )
    assert ingest(None, folder=folder).code == 0
    found = [("node0", "gpu0"), ("node0", "gpu1"), ("node1", "gpu0"), ("node1", "gpu1")]
    assert [place[2:] for place in places(lake)] == found
    assert rows(lake, "runs", "ranks_seen, complete") == [(4, True)]
    pattern = ("--run-pattern", r"(?P<host>n)ode\d/gpu(?P<device>1)/")
    assert statuses(ingest(None, *pattern, folder=folder)) == "1 updated"
    found[1], found[3] = ("n", "1"), ("n", "1")
    assert [place[2:] for place in places(lake)] == found
    assert statuses(ingest("2 x 7\n3 y\n", *pattern, folder=folder)) == "1 updated"
    found[2:] = [("x", "7"), ("y", "1")]
    assert [place[2:] for place in places(lake)] == found


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (("cuda0", "cuda1"), [(None, "cuda0"), (None, "cuda1")]),
        (("a/device-0", "b/device-0"), [("a", "device-0"), ("b", "device-0")]),
        (("gpu01", "gpu02"), [("gpu01", None), ("gpu02", None)]),
    ],
    ids=["devices_of_one_host", "devices_of_two_hosts", "hosts_called_gpu"],
)
def test_a_folder_is_a_device_where_it_can_be_nothing_else(
    ingest: Ingest,
    lake: Path,
    tmp_path: Path,
    folders: tuple[str, str],
    expected: list[tuple[str | None, str | None]],
) -> None:
    folder = tmp_path / "in"
    for rank, name in enumerate(folders):
        write(folder, {f"job/{name}/{trace_name(rank)}": trace(rank)})
    assert ingest(None, folder=folder).code == 0
    assert [place[2:] for place in places(lake)] == expected
    assert rows(lake, "runs", "ranks_seen") == [(2,)]


def test_a_changed_line_reads_the_runs_again_that_it_places(ingest: Ingest, lake: Path) -> None:
    text = "rank,host,run\n0,a,job1/*\n1,a,job1/*\n0,b,job2/*\n1,b,job2/*\n"
    assert statuses(ingest(text)) == "2 new"
    before, generations = files(lake), generated(lake)
    assert statuses(ingest("# the same in another order\n" + text)) == "2 unchanged"
    assert files(lake) == before
    assert statuses(ingest(text.replace("1,b", "1,c"))) == "1 updated, 1 unchanged"
    assert [place[:3] for place in places(lake)][2:] == [("job2", 0, "b"), ("job2", 1, "c")]
    # What is computed from a run is computed again where its generation has changed.
    changed = [run for run, generation in generated(lake).items() if generation != generations[run]]
    assert changed == [
        run for (run,) in rows(lake, "sources", "DISTINCT run_id", "WHERE path LIKE 'job2/%'")
    ]


def test_without_the_option_places_go_as_topology_goes_without_set(
    ingest: Ingest, lake: Path
) -> None:
    ingest("0 a\n1 a\n", "--set", "micro_batches=4")
    assert statuses(ingest(None, "--set", "micro_batches=4")) == "2 updated"
    assert {place[2] for place in places(lake)} == {None}
    assert rows(lake, "runs", "micro_batches") == [(4,)] * 2
    assert statuses(ingest(None)) == "2 updated"
    assert rows(lake, "runs", "micro_batches") == [(1,)] * 2


def test_a_placed_run_that_lost_an_input_is_still_unchanged(
    ingest: Ingest, archive: Path, lake: Path
) -> None:
    ingest("0 a\n1 b\n")
    (archive / "job1" / trace_name(1, stamp="20250101010000")).unlink()
    assert statuses(ingest("0 a\n1 b\n")) == "2 unchanged"
    assert [place[2] for place in places(lake)] == ["a", "b"] * 2


def test_a_copied_archive_keeps_its_places_unread(
    ingest: Ingest, archive: Path, lake: Path, tmp_path: Path
) -> None:
    ingest("0 a\n1 b\n")
    write(
        tmp_path / "copy",
        {f.relative_to(archive).as_posix(): f.read_bytes() for f in archive.rglob("*.txt")},
    )
    assert statuses(ingest("0 a\n1 b\n", folder=tmp_path / "copy")) == "2 refreshed"
    assert statuses(ingest("0 a\n1 b\n", folder=tmp_path / "copy")) == "2 unchanged"
    assert statuses(ingest("0 a\n1 c\n", folder=tmp_path / "copy")) == "2 updated"
    assert [place[2] for place in places(lake)] == ["a", "c"] * 2


def test_what_gets_no_host_is_told(ingest: Ingest, archive: Path, lake: Path) -> None:
    write(archive, {"logs/train.log": LOG, "plans/a.txt": plan(3)})
    done = ingest("0 a\n", "--quiet")
    assert done.code == 0
    warnings = [line.split("hosts.csv ")[1] for line in done.err.splitlines()]
    assert warnings == [
        "gives no host for 1 input (logs/train.log): not the records of one known rank",
        f"gives no host for 2 inputs (job1/{trace_name(1, stamp='20250101010000')}, ...):"
        " rank not listed",
    ]
    again = ingest("0 a\n", "--dry-run")
    assert again.err == done.err
    assert "unchanged" in again.out
    (logged,) = rows(lake, "sources", "rank, host, device", "WHERE path = 'logs/train.log'")
    assert logged == (None, None, None)


def test_a_line_for_no_input_is_told(ingest: Ingest, archive: Path) -> None:
    done = ingest("rank,host,run\n0,a,job1/*\n1,a,job1/*\n0,a,job9/*\n1,a,job9/*\n0,b,x\n")
    assert "no input matches 2 globs of its column run (line 4, 6)" in done.err
    only_plans = write(archive.parent / "plans", {"a.txt": plan(3)})
    assert (
        "gives a host for none of 1 input: no records of ranks"
        in ingest("0 a\n", folder=only_plans).err
    )
