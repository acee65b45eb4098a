"""What the command refuses: limits of the system and of the user, and what is closed or gone."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.traces import plan
from tracelake.lake.store import Lake

PROGRAM = str(Path(sys.executable).with_name("tracelake"))
DEEP = "SELECT * FROM (" * 3000 + "SELECT 1" + ")" * 3000


@pytest.fixture(scope="module")
def lake(log_lake: Lake) -> Lake:
    return log_lake


def shell(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command in a shell that changes its surroundings first."""
    words = ["sh", "-c", script, PROGRAM, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["query", "SELECT 1", "--memory", "0"], 2, "--memory is too small"),
        (["query", "SELECT 1", "--memory", "1kB"], 2, "--memory is too small"),
        (["query", "SELECT 1", "--memory", "99999999TB"], 2, "larger than any memory"),
        (["query", "SELECT 1", "--memory", "9" * 400], 2, "is not a size"),
        (["query", "SELECT '\udcff'"], 2, "the query is not UTF-8"),
        (["query", DEEP], 2, "nested too deeply"),
        (["query", "-f", "/dev/zero"], 2, "the query is too long"),
        (["query", "-f", ""], 2, "cannot read the query"),
        (["query", "SELECT 1", "--lake", "x" * 300], 3, "File name too long"),
        (["ingest", "x" * 300], 3, "File name too long"),
        (["ingest", ".", "--run-pattern", "[[:alpha:]](?P<run>x)"], 2, "write [a-zA-Z]"),
        (["gc", "--lake", "LOOP"], 3, "not a lake"),
        (["describe", "-o", "/"], 2, "Is a directory"),
        (["synth", "archive", "--sample", "--slow-rank", "5"], 2, "--sample excludes other"),
        (["synth", "archive", "--sample", "--ranks", "4"], 2, "--sample excludes other"),
        (["ingest", ""], 3, "an input has no name"),
        (["ingest", ".", "--set", "tp=2", "--set", "pp=2"], 2, "--set is given twice"),
        (["run", ".", "--fail-on", "faults", "--fail-on", "drift"], 2, "--fail-on is given twice"),
        (["drop", "a", "--older-than", "1d"], 2, "exclude each other"),
        (["query", "-f", "/absent"], 2, "give a text file that this user can read"),
        (["ingest", ".", "--run-pattern", "("], 2, "--run-pattern '(?P<run>job"),
        (["ingest", ".", "--set", "tp"], 2, "like tp=2,pp=4"),
        (["build", "--lake", "/etc/hosts"], 3, "give a directory with --lake"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_done_is_said(
    tracelake: Command, lake: Lake, tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    words = [word.replace("LOOP", str(tmp_path / "loop")) for word in words]
    at = (
        [] if "--lake" in words or words[0] in ("describe", "synth") else ["--lake", str(lake.root)]
    )
    done = tracelake(*words, *at)
    assert (done.code, told in done.err) == (code, True), done.err
    assert "SET " not in done.err


def test_a_query_that_ends_in_an_error_says_that_alone(lake: Lake) -> None:
    words = ["query", "SELECT 1; SELECT 2", "--format", "json", "--lake"]
    done = shell('"$0" "$@"', *words, lake.root)
    assert (done.returncode, done.stdout) == (2, "")
    first, *hints = done.stderr.splitlines()
    assert first == "error: a JSON document can have one result only"
    assert hints == ["  next:  run the queries one by one"]


@pytest.mark.parametrize(
    ("name", "what", "then"),
    [
        ("empty", "no files", "name a folder that holds files"),
        ("nested", "nested_archive: out.tar/in.tar", "extract the archive, and name what it holds"),
        ("damaged", "unreadable: cut.zip", "copy the file again"),
        ("notes", "no_format: notes.txt", "list the known formats"),
    ],
)
def test_an_input_of_no_use_is_told_what_to_do_about_it(
    tracelake: Command, tmp_path: Path, name: str, what: str, then: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    notes = tmp_path / "notes.txt"
    notes.write_text("text")
    if name == "notes":
        notes.rename(folder / "notes.txt")
    elif name == "nested":
        with tarfile.open(tmp_path / "in.tar", "w") as inner:
            inner.add(notes, "notes.txt")
        with tarfile.open(folder / "out.tar", "w") as outer:
            outer.add(tmp_path / "in.tar", "in.tar")
    elif name == "damaged":
        with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
            archive.write(notes, "notes.txt")
        (folder / "cut.zip").write_bytes((tmp_path / "whole.zip").read_bytes()[:60])
    done = tracelake("run", folder, "--lake", tmp_path / "lake")
    assert done.code == 3
    assert f"error: nothing usable ({what})" in done.err
    assert f"next:  {then}" in done.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"global_step": 9, "log_history": [{"loss": 1.5, "step": 9}]}', "no_times"),
        ("epoch,step,train_loss_step,val/acc\n0,9,2.5,\n", "no_times"),
        ("Step 1 | loss:2.5 lr:2e-05 tokens_per_second_per_gpu:512.5 \n", "no_times"),
        ("epoch,step,train_loss,step_time\n0,9,2.5,1.5\n", "no_format"),
        ("The epoch, the step and\nall else\n", "no_format"),
        ('{"displayTimeUnit": "ns", "traceEvents": [{"ph": "M", "pid": 7}]}', "other_trace"),
        ('[\n  {"name": "x", "ph": "X", "ts": 1, "dur": 2}\n]', "other_trace"),
        ('[{"name": "process_name", "args": {"name": "NPU"}, "ph": "M", "pid": 1}]', "other_trace"),
        ('[{"name": "x", "phone": "X"}]', "no_format"),
        (" iteration 5/ 9 | elapsed time per iteration (ms): 812.3 |\n".encode("utf-16"), "utf_16"),
        ("node0:1:1 [0] NCCL INFO NCCL version 2.26.2+cuda12.2\n", "no_records"),
    ],
)  # fmt: skip
def test_files_that_say_too_little_are_told_apart(
    tracelake: Command, tmp_path: Path, text: str | bytes, reason: str
) -> None:
    (tmp_path / "left").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = tracelake("run", tmp_path / "left", "--lake", tmp_path / "lake")
    nexts = {
        "no_times": "read the output of the job instead",
        "other_trace": "write a trace with",
        "utf_16": "convert it: iconv -f UTF-16 -t UTF-8",
        "no_records": "see why the job wrote no record, or drop --input-format",
    }
    assert (done.code, f"nothing usable ({reason}: left)" in done.err) == (3, True), done.err
    assert f"next:  {nexts.get(reason, 'list the known formats')}" in done.err


def test_documents_that_quote_a_log_are_read_where_they_are_named(
    tracelake: Command, tmp_path: Path
) -> None:
    log = " iteration 5/ 9 | elapsed time per iteration (ms): 812.3 | lm loss: 2.1E+00 |\n" * 9
    folder = tmp_path / "job"
    folder.mkdir()
    for name in ("README.md", "test_parser.py", "train.log"):
        (folder / name).write_text(log.replace("2.1", f"{ord(name[0])}.0"))
    with tarfile.open(folder / "kept.tar", "w") as archive:
        archive.add(folder / "README.md", "docs/old.RST")
    walked = tracelake("ingest", folder, "--lake", tmp_path / "walked")
    assert walked.err.startswith("1 run: 1 new\n")
    assert "skipped 3 documents with a quoted log: README.md, " in walked.err
    named = tracelake("ingest", folder / "README.md", "--lake", tmp_path / "walked")
    assert named.err.startswith("1 run: 1 new\n")
    # What was read once stays a run of the folder.
    again = tracelake("ingest", folder, "--lake", tmp_path / "walked")
    assert again.err.startswith("2 runs: 2 unchanged\n")
    assert "skipped 2 documents with a quoted log: kept.tar/docs/old.RST, " in again.err


def test_what_to_type_next_names_the_lake(
    tracelake: Command, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "a lake"
    named.symlink_to(lake.root)
    unknown = tracelake("show", "qqqqqqqqqqqqqqq", "--lake", named)
    assert f"list them with: tracelake runs --lake '{named}'\n" in unknown.err
    dropped = tracelake("drop", "--lake", named)
    assert f"tracelake runs --lake '{named}'\n" in dropped.err
    # What the environment says need not be typed, and other commands have no lake.
    monkeypatch.setenv("TRACELAKE_LAKE", str(named))
    assert "list them with: tracelake runs\n" in tracelake("show", "qqqqqqqqqqqqqqq").err
    table = tracelake("describe", "qqqqqqqqqqqqqqq")
    assert "list tables with: tracelake describe\n" in table.err


def test_a_run_without_an_earlier_one_is_told_what_to_do(tracelake: Command, lake: Lake) -> None:
    (run,) = list(lake.snapshot().runs)[:1]
    for words, then in (
        (("show", f"{run}~1"), "next:  list the runs with: tracelake runs"),
        (("diff", run), "next:  give both runs: tracelake diff "),
    ):
        done = tracelake(*words, "--lake", lake.root)
        assert (done.code, then in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT len(format('{:>2000000000}', 1))",
        "SELECT len(list_distinct(range(50000000)))",
        "SELECT len(string_split(repeat('a,', 20000000), ','))",
    ],
)
def test_memory_bounds_the_process(lake: Lake, sql: str) -> None:
    """Functions allocate memory that DuckDB does not count."""
    script = 'ulimit -v 20000000; exec $0 "$@"'
    with subprocess.Popen(
        ["sh", "-c", script, PROGRAM, "query", sql, "--lake", lake.root, "--memory", "100MB"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        err = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert (process.returncode, "--memory is too small" in err) == (2, True), err
    # A new process begins with the memory of this one.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert used.ru_maxrss < max(600_000, 1.1 * own)


@pytest.mark.parametrize("megabytes", [500, 1000, 2200])
def test_little_address_space_is_said(lake: Lake, megabytes: int) -> None:
    done = shell(f'ulimit -v {megabytes}000; exec $0 "$@"', "runs", "--lake", lake.root)
    assert done.returncode == 3
    assert f"limited to {megabytes * 1.024:,.0f} MB (ulimit -v)" in done.stderr
    assert "4,000 MB or more" in done.stderr


def test_a_width_of_0_is_none(lake: Lake) -> None:
    done = shell('COLUMNS=0 exec $0 "$@"', "runs", "--lake", lake.root)
    assert (done.returncode, len(done.stdout.splitlines()) > 1) == (0, True)


def test_closed_streams_are_like_the_null_device(lake: Lake, tmp_path: Path) -> None:
    at = ("--lake", lake.root)
    assert shell('exec $0 "$@" >&-', "query", "SELECT 1", *at).returncode == 0
    empty = shell('exec $0 "$@" <&-', "query", "-", *at)
    assert (empty.returncode, "the query is empty" in empty.stderr) == (2, True)
    (tmp_path / "plan.txt").write_text(plan(2))
    made = tmp_path / "lake"
    words = ("ingest", tmp_path / "plan.txt", "--lake", made, "--format", "csv")
    assert shell('exec $0 "$@" <&- >&- 2>&-', *words).returncode == 0
    assert len(Lake.open(made).snapshot().runs) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["query", "SELECT 1", "--lake", "LAKE"], 0),
        (["query", "SELECT 1", "--lake", "lake"], 3),
        (["query", "SELECT 1", "--lake", "LAKE", "-o", "x"], 2),
        (["run", ".", "--lake", "LAKE/../new"], 3),
        (["run", ".", "--lake", "new"], 2),
    ],
    ids=str,
)
def test_a_working_folder_that_is_gone(
    lake: Lake, tmp_path: Path, words: list[str], code: int
) -> None:
    script = f'mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir ../gone; exec $0 "$@"'
    done = shell(script, *(word.replace("LAKE", str(lake.root)) for word in words))
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_a_file_of_hosts_is_read_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text(plan(2))
    words = ("ingest", tmp_path / "plan.txt", "--lake", tmp_path / "lake", "--hosts", "/dev/zero")
    done = shell('ulimit -v 6000000; exec $0 "$@"', *words)
    assert (done.returncode, "--hosts is too long" in done.stderr) == (2, True), done.stderr


@pytest.fixture
def read_only(lake: Lake, tmp_path: Path) -> Iterator[Path]:
    """The lake on a file system that cannot be written; only root can mount one."""
    place = tmp_path / "mounted"
    place.mkdir()
    mount = ["mount", "--bind", str(lake.root), str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_lake_on_a_read_only_file_system(
    read_only: Path, lake: Lake, tmp_path: Path, tracelake: Command
) -> None:
    unused = lake.root / "_staging" / "query-gone"
    unused.mkdir()
    dry = tracelake("gc", "--dry-run", "--lake", read_only, "--format", "csv")
    assert (dry.code, "query-gone" in dry.out) == (0, True), dry.err
    (tmp_path / "plan.txt").write_text(plan(2))
    (lake.root / "_lock" / "dropped").unlink(missing_ok=True)  # nothing was dropped so far
    inputs, run_id = tmp_path / "plan.txt", next(iter(lake.snapshot().runs))
    for words in (["gc"], ["drop", run_id], ["ingest", inputs], ["run", inputs]):
        done = tracelake(*words, "--lake", read_only)
        assert (done.code, "the file system is read-only" in done.err) == (3, True), done.err
    page = tracelake("report", "--lake", read_only)
    assert (page.code, "name a file elsewhere: -o report.html" in page.err) == (2, True)
    unused.rmdir()
