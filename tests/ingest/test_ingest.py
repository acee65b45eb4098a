"""What a lake holds after inputs were added, grown, moved, damaged or taken away."""

from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conftest import Command
from tests.lakes import few_models, files, rows, run_ingest, statuses
from tests.traces import plan as plan_text
from tests.traces import trace, trace_name, write
from tracelake.base.errors import InputError, LakeError, UsageError
from tracelake.formats import Format, formats
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest, plan
from tracelake.ingest.run_plan import Status
from tracelake.lake.store import Lake
from tracelake.models.build import build


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write(
        tmp_path / "archive",
        {
            f"job/{trace_name(0)}": trace(0, steps=2),
            f"job/{trace_name(1)}": trace(1, steps=2),
            "plans/a.txt": plan_text(3),
            "notes.md": "not a trace\n",
        },
    )


def test_an_archive_becomes_runs_and_every_input_is_accounted_for(
    archive: Path, tmp_path: Path
) -> None:
    report = run_ingest(archive, tmp_path / "lake")
    assert statuses(report) == ["new", "new"]
    assert rows(tmp_path / "lake", "ops", "rank, step, op, start_ns, duration_ns", "LIMIT 3") == [
        (0, 1, "forward_step", 1_000_000_000, 10_000_000),
        (0, 1, "backward_step", 1_010_000_000, 20_000_000),
        (0, 1, "optimizer_step", 1_030_000_000, 5_000_000),
    ]
    assert rows(tmp_path / "lake", "sources", "path, lines, rank", "ORDER BY path") == [
        (f"job/{trace_name(0)}", 6, 0),
        (f"job/{trace_name(1)}", 6, 1),
        ("plans/a.txt", 5, None),
    ]
    assert rows(tmp_path / "lake", "skipped", "run_id, path, reason") == [
        (None, "notes.md", "no_format")
    ]


def test_a_second_run_writes_nothing(archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run_ingest(archive, lake)
    before = files(lake)
    report = run_ingest(archive, lake)
    assert statuses(report) == ["unchanged", "unchanged"]
    assert report.as_lines()[1] == "nothing to write: the lake already has all of this"
    assert files(lake) == before


def test_an_unchanged_file_is_not_opened_unless_asked(archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run_ingest(archive, lake)
    path = archive / "plans/a.txt"
    stat = path.stat()
    with path.open("r+b") as file:
        file.write(path.read_bytes().replace(b"2000", b"9000"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert statuses(run_ingest(archive, lake)) == ["unchanged", "unchanged"]
    assert statuses(run_ingest(archive, lake, verify=True)) == ["new", "unchanged"]


@pytest.mark.parametrize("packed", ["tar", "gztar", None])
def test_a_new_date_on_the_same_content_is_remembered_not_parsed(
    packed: str | None, archive: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    if packed:
        shutil.make_archive(str(tmp_path / "packed" / "all"), packed, archive)
        archive = tmp_path / "packed"
    run_ingest(archive, lake)
    assert statuses(run_ingest(archive, lake, verify=True)) == ["unchanged", "unchanged"]
    parts = {k: v for k, v in files(lake).items() if k.endswith(".parquet")}
    for path in archive.rglob("*"):
        os.utime(path, ns=(1, 1))
    assert statuses(run_ingest(archive, lake)) == ["refreshed", "refreshed"]
    assert {k: v for k, v in files(lake).items() if k.endswith(".parquet")} == parts
    assert statuses(run_ingest(archive, lake)) == ["unchanged", "unchanged"]


def test_a_growing_file_stays_one_run(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    name = trace_name(0, world=1)
    archive = write(tmp_path / "archive", {name: trace(0, steps=30)})
    (first,) = run_ingest(archive, lake).runs
    write(archive, {name: trace(0, steps=40)})
    (second,) = run_ingest(archive, lake).runs
    assert (first.status, second.status) == (Status.NEW, Status.UPDATED)
    assert second.run_id == first.run_id
    assert rows(lake, "ops", "count(*), max(step)") == [(120, 40)]


def test_a_file_shorter_than_the_id_hash_may_grow_too(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    name = trace_name(0, world=1)
    archive = write(tmp_path / "archive", {name: trace(0, steps=1)})
    run_ingest(archive, lake)
    write(archive, {name: trace(0, steps=30)})
    assert statuses(run_ingest(archive, lake)) == ["updated"]
    assert rows(lake, "runs", "count(*)") == [(1,)]
    assert rows(lake, "ops", "max(step)") == [(30,)]


def test_a_log_that_shrinks_stays_one_run(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    name = trace_name(0, world=1)
    whole = trace(0, steps=30)
    archive = write(tmp_path / "archive", {name: whole})
    (first,) = run_ingest(archive, lake).runs
    for size in (len(whole) // 2, 3000, 500):
        write(archive, {name: whole[: whole.rindex("\n", 0, size) + 1]})
        (shorter,) = run_ingest(archive, lake).runs
        assert (shorter.status, shorter.run_id) == (Status.KEPT, first.run_id), size
        assert rows(lake, "ops", "max(step)") == [(30,)]
    assert statuses(run_ingest(archive, lake, replace=True)) == ["updated"]
    assert rows(lake, "runs", "count(*)") == [(1,)]
    write(archive, {name: trace(0, start=9000.0, steps=1)})
    assert statuses(run_ingest(archive, lake)) == ["new"]


def test_a_rank_that_arrives_late_joins_its_run(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    archive = write(tmp_path / "archive", {trace_name(1): trace(1)})
    run_ingest(archive, lake)
    assert rows(lake, "runs", "ranks_seen, complete") == [(1, False)]
    write(archive, {trace_name(0): trace(0)})
    assert statuses(run_ingest(archive, lake)) == ["updated"]
    assert rows(lake, "runs", "ranks_seen, complete") == [(2, True)]
    fresh = tmp_path / "fresh"
    run_ingest(archive, fresh)
    assert rows(lake, "runs", "run_id") == rows(fresh, "runs", "run_id")


def test_a_moved_archive_is_the_same_archive(archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ids = {run.run_id for run in run_ingest(archive, lake).runs}
    moved = tmp_path / "elsewhere"
    shutil.copytree(archive, moved)
    again = run_ingest(moved, lake)
    assert {run.run_id for run in again.runs} == ids
    assert statuses(again) == ["refreshed", "refreshed"]
    inner = run_ingest(moved / "job", lake)
    assert {run.run_id for run in inner.runs} <= ids
    assert rows(lake, "runs", "count(*)") == [(2,)]


def test_equal_names_in_two_archives_do_not_replace_each_other(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    one = write(tmp_path / "one", {"job/plan.txt": plan_text(3, name="attention")})
    two = write(tmp_path / "two", {"job/plan.txt": plan_text(3, name="mlp")})
    run_ingest(one, lake)
    assert statuses(run_ingest(two, lake)) == ["new"]
    assert rows(lake, "workload_passes", "DISTINCT layer", "ORDER BY layer LIMIT 4") == [
        ("attention0",),
        ("attention1",),
        ("attention2",),
        ("mlp0",),
    ]


def test_equal_names_with_equal_beginnings_are_told_apart_by_content(tmp_path: Path) -> None:
    long = plan_text(200)
    other = long.replace("layer199", "last")
    archive = write(tmp_path / "archive", {"a/plan.txt": long, "b/plan.txt": other})
    lake = tmp_path / "lake"
    report = run_ingest(archive, lake)
    assert len({run.run_id for run in report.runs}) == 2
    assert statuses(run_ingest(archive, lake)) == ["unchanged", "unchanged"]


def test_a_later_archive_does_not_take_over_an_id_that_is_in_use(tmp_path: Path) -> None:
    long = plan_text(200)
    one = write(tmp_path / "one", {"a/plan.txt": long})
    two = write(tmp_path / "two", {"b/plan.txt": long.replace("layer199", "last")})
    lake = tmp_path / "lake"
    run_ingest(one, lake)
    assert statuses(run_ingest(two, lake)) == ["new"]
    assert rows(lake, "runs", "count(*)") == [(2,)]
    assert statuses(run_ingest(one, lake)) == ["unchanged"]
    assert statuses(run_ingest(two, lake)) == ["unchanged"]


def test_one_run_found_twice_under_one_name_is_one_run(tmp_path: Path) -> None:
    archive = write(tmp_path / "archive", {"a/plan.txt": plan_text(3), "b/plan.txt": plan_text(3)})
    lake = tmp_path / "lake"
    assert len(run_ingest(archive, lake).runs) == 1
    assert rows(lake, "sources", "path, rows, duplicate_of", "ORDER BY path") == [
        ("a/plan.txt", 9, None),
        ("b/plan.txt", 0, "a/plan.txt"),
    ]
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]


def test_two_runs_that_begin_alike_and_are_each_found_twice_stay_apart(tmp_path: Path) -> None:
    long = plan_text(200)
    other = long.replace("layer199", "last")
    archive = write(
        tmp_path / "archive",
        {"a/plan.txt": long, "b/plan.txt": long, "c/plan.txt": other, "d/plan.txt": other},
    )
    lake = tmp_path / "lake"
    assert len({run.run_id for run in run_ingest(archive, lake).runs}) == 2
    assert rows(lake, "sources", "path, duplicate_of", "ORDER BY path") == [
        ("a/plan.txt", None),
        ("b/plan.txt", "a/plan.txt"),
        ("c/plan.txt", None),
        ("d/plan.txt", "c/plan.txt"),
    ]
    assert statuses(run_ingest(archive, lake)) == ["unchanged", "unchanged"]


def test_equal_content_under_two_names_is_two_runs_one_a_duplicate(tmp_path: Path) -> None:
    archive = write(tmp_path / "archive", {"a.txt": plan_text(3), "b.txt": plan_text(3)})
    lake = tmp_path / "lake"
    assert len(run_ingest(archive, lake).runs) == 2
    assert rows(lake, "sources", "path, rows, duplicate_of", "ORDER BY path") == [
        ("a.txt", 9, None),
        ("b.txt", 9, "a.txt"),
    ]
    assert statuses(run_ingest(archive, lake)) == ["unchanged", "unchanged"]


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("job.txt", "Copy of job.txt"),
        ("x.txt", "x (1).txt"),
        ("x.txt", "backup/x2.txt"),
        ("night/job.txt", "a/very/long/way/to/it.txt"),
    ],
)
def test_what_is_called_a_copy_is_no_original(tmp_path: Path, name: str, copied: str) -> None:
    archive = write(tmp_path / "archive", dict.fromkeys((copied, name), plan_text(3)))
    run_ingest(archive, tmp_path / "lake")
    found = rows(tmp_path / "lake", "sources", "path, duplicate_of")
    assert set(found) == {(name, None), (copied, name)}


def test_a_copied_folder_of_ranks_does_not_name_the_run(tmp_path: Path) -> None:
    folders = ("job", "Copy of job", "job/backup")
    traces = {
        f"{folder}/{trace_name(rank)}": trace(rank) for folder in folders for rank in range(2)
    }
    lake = tmp_path / "lake"
    archive = write(tmp_path / "archive", traces)
    assert len(run_ingest(archive, lake).runs) == 1
    originals = rows(lake, "sources", "path", "WHERE duplicate_of IS NULL ORDER BY path")
    assert originals == [(f"job/{trace_name(rank)}",) for rank in range(2)]
    assert rows(lake, "runs", "label") == [("job",)]
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]


def test_every_further_duplicate_names_the_first(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    archive = write(tmp_path / "archive", {"a.txt": plan_text(3), "b.txt": plan_text(3)})
    run_ingest(archive, lake)
    run_ingest(write(archive, {"c.txt": plan_text(3)}), lake)
    assert rows(lake, "sources", "path, duplicate_of", "ORDER BY path") == [
        ("a.txt", None),
        ("b.txt", "a.txt"),
        ("c.txt", "a.txt"),
    ]


def test_an_input_named_twice_is_read_once(archive: Path, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    (archive / "plans" / "gone").symlink_to(tmp_path / "nowhere")
    write(archive, {"plans/.a.txt": plan_text(5)})
    inputs = [str(archive), str(archive / "plans"), str(archive)]
    report = ingest(inputs, lake, Options())
    assert statuses(report) == ["new", "new"]
    assert len(rows(lake.root, "sources")) == 3
    skipped = [(skip["path"], skip["reason"]) for skip in report.skips]
    below = [("plans/.a.txt", "hidden"), ("plans/gone", "dangling_link")]
    assert sorted(skipped) == [("notes.md", "no_format"), *below]
    # What is skipped in a folder is read if it is named.
    report = ingest([*inputs, str(archive / "plans" / ".a.txt")], lake, Options())
    assert statuses(report) == ["new", "unchanged", "unchanged"]


def test_what_was_passed_over_and_is_now_a_trace_leaves_the_list(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    archive = write(tmp_path / "archive", {"a.txt": plan_text(3), "b.txt": "soon\n"})
    run_ingest(archive, lake)
    assert rows(lake, "skipped", "path") == [("b.txt",)]
    run_ingest(write(archive, {"b.txt": plan_text(4)}), lake)
    assert rows(lake, "skipped", "path") == []


def test_a_forced_format_holds_for_its_own_run_of_the_command_only(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    log = "> GAS: 4\n> World size: 8\n> TP: 1\n" + trace(0)
    archive = write(tmp_path / "archive", {"mixed.log": log})
    run_ingest(archive, lake, input_format="rank_trace")
    assert rows(lake, "runs", "format") == [("rank_trace",)]
    run_ingest(archive, lake)
    assert rows(lake, "runs", "format") == [("optimus",)]


def test_a_run_of_unknown_size_is_not_complete(tmp_path: Path) -> None:
    run_ingest(write(tmp_path / "archive", {"x.log": trace(0)}), tmp_path / "lake")
    assert rows(tmp_path / "lake", "runs", "ranks_seen, ranks_expected, complete") == [
        (1, None, False)
    ]


def test_a_file_of_rejects_only_is_kept(tmp_path: Path) -> None:
    text = trace(0).replace("timestamp=", "timestamp=x")
    run_ingest(write(tmp_path / "archive", {trace_name(0): text}), tmp_path / "lake")
    assert rows(tmp_path / "lake", "rejects", "line, reason") == [
        (1, "bad_number"),
        (2, "bad_number"),
        (3, "bad_number"),
    ]


class Grows:
    """Writes to a file after it was planned and before it is read."""

    def __init__(self, path: Path, more: str) -> None:
        self._path, self._more = path, more

    def planned(self, runs: int, files: int, weight: int) -> None:
        del runs, files, weight
        with self._path.open("a") as file:
            file.write(self._more)

    def advance(self, weight: int, files: int, rejected: int) -> None:
        del weight, files, rejected


def test_a_file_that_grows_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    name = trace_name(0, world=1)
    archive = write(tmp_path / "archive", {name: trace(0, steps=30)})
    lake = Lake.create(tmp_path / "lake")
    grows = Grows(archive / name, trace(0, start=9000.0))
    ingest([str(archive)], lake, Options(), progress=grows)
    assert rows(lake.root, "faults", "name") == [("changed_while_read",)]
    assert statuses(run_ingest(archive, lake.root)) == ["updated"]
    assert statuses(run_ingest(archive, lake.root)) == ["unchanged"]
    assert rows(lake.root, "ops", "max(step)") == [(31,)]


def test_inputs_that_are_gone_do_not_change_a_run(archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run_ingest(archive, lake)
    before = files(lake)
    (archive / "job" / trace_name(1)).unlink()
    (archive / "plans/a.txt").unlink()
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]
    assert files(lake) == before


def test_a_poorer_input_replaces_its_run_only_on_request(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    archive = write(tmp_path / "archive", {trace_name(r): trace(r, steps=30) for r in range(2)})
    run_ingest(archive, lake)
    write(archive, {trace_name(1): trace(1, steps=25)})
    (kept,) = run_ingest(archive, lake).runs
    assert (kept.status, kept.missing) == (Status.KEPT, (trace_name(1),))
    assert rows(lake, "ops", "count(*)") == [(180,)]
    (taken,) = run_ingest(archive, lake, replace=True).runs
    assert taken.status is Status.UPDATED
    assert rows(lake, "ops", "count(*)") == [(165,)]


def test_a_run_that_lost_a_rank_is_kept_even_if_another_rank_grew(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    archive = write(tmp_path / "archive", {trace_name(r): trace(r, steps=30) for r in range(2)})
    run_ingest(archive, lake)
    (archive / trace_name(0)).unlink()
    write(archive, {trace_name(1): trace(1, steps=40)})
    (kept,) = run_ingest(archive, lake).runs
    assert (kept.status, kept.missing) == (Status.KEPT, (trace_name(0),))
    assert rows(lake, "ops", "count(*)") == [(180,)]
    assert statuses(run_ingest(archive, lake, replace=True)) == ["updated"]
    assert rows(lake, "ops", "DISTINCT rank") == [(1,)]


def test_a_changed_option_is_a_changed_run(archive: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run_ingest(archive, lake)
    report = run_ingest(archive / "job", lake, given={"micro_batches": 4})
    assert statuses(report) == ["updated"]
    assert rows(lake, "runs", "micro_batches", "WHERE format = 'rank_trace'") == [(4,)]


def test_what_an_earlier_version_remembered_is_read_again(tmp_path: Path) -> None:
    archive = write(tmp_path / "archive", {f"job/node0/gpu1/{trace_name(0, world=1)}": trace(0)})
    lake = tmp_path / "lake"
    run_ingest(archive, lake)
    (manifest,) = (lake / "_manifest").glob("wd1*.json")
    saved = json.loads(manifest.read_text())
    (run,) = saved["runs"].values()
    run["options"]["schema"] -= 1
    del run["sources"][0]["place"], run["sources"][0]["facts"]["device"]
    manifest.write_text(json.dumps(saved))
    assert statuses(run_ingest(archive, lake)) == ["updated"]
    assert rows(lake, "sources", "host, device") == [("node0", "gpu1")]
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]


def test_folders_per_node_are_one_run_on_several_hosts(tmp_path: Path) -> None:
    archive = write(
        tmp_path / "archive", {f"job/node{r}/{trace_name(r)}": trace(r) for r in range(2)}
    )
    lake = tmp_path / "lake"
    assert statuses(run_ingest(archive, lake)) == ["new"]
    assert rows(lake, "sources", "rank, host", "ORDER BY rank") == [(0, "node0"), (1, "node1")]
    assert rows(lake, "runs", "ranks_seen, complete") == [(2, True)]
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]


def test_a_file_and_its_compressed_copy_are_one_run(tmp_path: Path) -> None:
    name = trace_name(0, world=1)
    text = trace(0, steps=40)
    archive = write(tmp_path / "archive", {name: text, f"{name}.gz": gzip.compress(text.encode())})
    lake = tmp_path / "lake"
    assert statuses(run_ingest(archive, lake)) == ["new"]
    assert rows(lake, "sources", "path, duplicate_of", "ORDER BY path") == [
        (name, None),
        (f"{name}.gz", name),
    ]
    assert rows(lake, "ops", "count(*)") == [(120,)]


@pytest.mark.parametrize("folder", ["", "job/node0/"])
def test_a_compressed_copy_of_a_rank_is_a_duplicate(folder: str, tmp_path: Path) -> None:
    names = [f"{folder}{trace_name(rank, world=4)}" for rank in range(4)]
    archive = write(tmp_path / "in", {name: trace(rank) for rank, name in enumerate(names)})
    write(archive, {f"{names[1]}.gz": gzip.compress(trace(1).encode())})
    lake = tmp_path / "lake"
    assert statuses(run_ingest(archive, lake)) == ["new"]
    assert rows(lake, "runs", "ranks_seen, complete") == [(4, True)]
    assert rows(lake, "sources", "path, rows, duplicate_of", "ORDER BY path") == [
        (names[0], 3, None),
        (names[1], 3, None),
        (f"{names[1]}.gz", 0, names[1]),
        (names[2], 3, None),
        (names[3], 3, None),
    ]
    assert rows(lake, "ops", "count(*)") == [(12,)]
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]


def test_a_rank_trace_that_is_being_written_is_unfinished(
    tmp_path: Path, tracelake: Command
) -> None:
    whole = {trace_name(rank): trace(rank, steps=3) for rank in range(2)}
    cut = {name: text[: len(text) * 35 // 100] for name, text in whole.items()}
    assert not any(text.endswith("\n") for text in cut.values())
    archive, grown, fresh = write(tmp_path / "in", cut), tmp_path / "grown", tmp_path / "fresh"
    assert tracelake("ingest", archive, "--lake", grown).code == 0
    assert rows(grown, "runs", "complete") == [(False,)]
    assert rows(grown, "rejects") == []
    assert rows(grown, "faults", "name, severity, count") == [("unfinished", "notice", 1)] * 2
    assert rows(grown, "sources", "DISTINCT irrelevant") == [({"unfinished": 1},)]
    write(archive, whole)
    for lake in (grown, fresh):
        assert tracelake("ingest", archive, "--lake", lake).code == 0
    for table in ("runs", "ops", "sources", "faults"):
        assert rows(grown, table) == rows(fresh, table)


def test_a_compressed_trace_that_ends_in_a_line_is_cut(tmp_path: Path) -> None:
    cut = gzip.compress(trace(0, steps=40)[:-20].encode())
    lake = tmp_path / "lake"
    run_ingest(write(tmp_path / "in", {f"{trace_name(0, world=1)}.gz": cut}), lake)
    assert rows(lake, "rejects", "reason") == [("truncated_line",)]


def arguments_and_steps(loss: float, steps: int = 400) -> bytes:
    """A log of Megatron-LM, which prints the same arguments in every job."""
    lines = [f"  argument_{n} ........................................ {n}" for n in range(100)]
    lines += [
        f" iteration {n}/ {steps} | elapsed time per iteration (s): 0.8 | lm loss: {loss + n:.4f} |"
        for n in range(1, steps + 1)
    ]
    return "\n".join([*lines, ""]).encode()


def test_torn_logs_of_one_name_are_runs_of_their_own(tmp_path: Path) -> None:
    archive = write(tmp_path / "in", {"exp1/train.log": arguments_and_steps(1)})
    for job in (2, 3):
        packed = gzip.compress(arguments_and_steps(job))
        write(archive, {f"exp{job}/train.log.gz": packed[: len(packed) * 2 // 3]})
        run_ingest(archive, tmp_path / "lake")
    again = run_ingest(archive, tmp_path / "lake")
    assert statuses(again) == ["unchanged"] * 3
    for torn in archive.glob("*/*.gz"):
        os.utime(torn, (1, 1))
    run_ingest(archive, tmp_path / "lake")
    run_ingest(archive, tmp_path / "lake", verify=True)
    assert len(rows(tmp_path / "lake", "runs")) == 3


def test_a_log_that_is_just_being_compressed_is_one_run(tmp_path: Path) -> None:
    log, ranks = arguments_and_steps(1), {trace_name(r, world=2): trace(r) for r in range(2)}
    packed = {name: gzip.compress(text.encode()) for name, text in ranks.items()}
    torn = {f"job/{name}.gz": data[: len(data) // 2] for name, data in packed.items()}
    archive = write(
        tmp_path / "in",
        {
            "train.log": log,
            "train.log.gz": gzip.compress(log)[:-2000],
            **{f"job/{name}": text for name, text in ranks.items()},
            **torn,
        },
    )
    lake = tmp_path / "lake"
    assert statuses(run_ingest(archive, lake)) == ["new"] * 2
    assert rows(lake, "faults") == []
    assert rows(lake, "runs", "name, ranks_seen", "ORDER BY 2")[0][1] == 2
    # Where another log had that name before, the torn one is what is left of it.
    write(archive, {"train.log": arguments_and_steps(2)})
    assert len(run_ingest(archive, lake).runs) == 3


def test_replace_takes_what_has_fewer_ranks_than_before(tmp_path: Path) -> None:
    names = [trace_name(r, world=2) for r in range(2)]
    archive = write(tmp_path / "in", {name: trace(r) for r, name in enumerate(names)})
    lake = tmp_path / "lake"
    run_ingest(archive, lake)
    (archive / names[1]).unlink()
    assert statuses(run_ingest(archive, lake)) == ["unchanged"]
    assert rows(lake, "runs", "ranks_seen") == [(2,)]
    assert statuses(run_ingest(archive, lake, replace=True)) == ["updated"]
    assert rows(lake, "runs", "ranks_seen") == [(1,)]


def test_a_plan_that_is_being_written_is_unfinished(tmp_path: Path) -> None:
    text = plan_text(4)
    lake = tmp_path / "lake"
    archive = write(tmp_path / "in", {"a.txt": text[:-30]})
    run_ingest(archive, lake)
    assert rows(lake, "rejects") == []
    assert rows(lake, "faults", "name", "ORDER BY name") == [
        ("row_count_mismatch",),
        ("unfinished",),
    ]
    run_ingest(write(archive, {"a.txt": text}), lake)
    assert rows(lake, "faults") == []
    assert rows(lake, "runs", "complete") == [(True,)]


def test_a_link_to_a_folder_says_to_name_the_folder(tmp_path: Path, tracelake: Command) -> None:
    archive, lake = write(tmp_path / "in", {"a.txt": plan_text(3)}), tmp_path / "lake"
    (tmp_path / "elsewhere").mkdir()
    (archive / "latest").symlink_to(tmp_path / "elsewhere")
    done = tracelake("run", archive, "--lake", lake)
    assert "skipped 1 special file (pipes, links to folders): latest\n" in done.err
    asked = tracelake("ask", "unreadable", "--lake", lake, "--format", "csv")
    assert "Name the folder that a link leads to as an input" in asked.out
    (archive / "a.txt").unlink()
    assert "name the folder that a link leads to" in tracelake("run", archive, "--lake", lake).err


def test_a_file_that_became_shorter_is_not_said_to_lack(tmp_path: Path, tracelake: Command) -> None:
    archive, lake = tmp_path / "in", tmp_path / "lake"
    tracelake("ingest", write(archive, {trace_name(0): trace(0, steps=3)}), "--lake", lake)
    write(archive, {trace_name(0): trace(0, steps=2)})
    done = tracelake("ingest", archive, "--lake", lake)
    assert f": the lake has more of {trace_name(0)} than the input; the run stays" in done.err


def test_skipped_files_are_named(tmp_path: Path, tracelake: Command) -> None:
    notes = {f"notes{i}.md": "not a trace\n" for i in range(5)}
    archive = write(tmp_path / "in", {"a.txt": plan_text(3), **notes, "INDEX.md/.keep": "x"})
    (archive / "job").mkdir()
    (archive / "job/gone.log").symlink_to(tmp_path / "nowhere")
    lake, summary = tmp_path / "lake", tmp_path / "summary.json"
    done = tracelake("run", archive, "--lake", lake, "--summary", summary)
    assert done.code == 0
    assert "skipped 1 link to nothing: job/gone.log\n" in done.err
    assert (
        "skipped 5 files of unknown format: notes0.md, notes1.md, notes2.md and 2 more\n"
        in done.err
    )
    assert "skipped 1 file with a hidden name: INDEX.md/.keep\n" in done.err
    told = json.loads(summary.read_text())["ingest"]
    assert told["skipped"] == {"dangling_link": 1, "hidden": 1, "no_format": 5}
    for skipped in (("job/gone.log", "dangling_link"), ("INDEX.md/.keep", "hidden")):
        assert dict(zip(("path", "reason"), skipped, strict=True)) in told["skipped_files"]
    assert len(told["skipped_files"]) == 7


def test_a_file_of_a_run_that_cannot_be_read_is_skipped_and_the_others_are_not(
    tmp_path: Path, tracelake: Command
) -> None:
    names = [trace_name(rank) for rank in range(2)]
    archive, lake = write(tmp_path / "in", {names[0]: trace(0)}), tmp_path / "lake"
    (archive / names[1]).symlink_to(tmp_path / "later")
    assert tracelake("ingest", archive, "--lake", lake).code == 0
    assert rows(lake, "skipped", "path, reason") == [(names[1], "dangling_link")]
    assert rows(lake, "runs", "ranks_seen") == [(1,)]
    (tmp_path / "later").write_text(trace(1))
    assert tracelake("ingest", archive, "--lake", lake).code == 0
    assert rows(lake, "skipped") == []
    assert rows(lake, "runs", "ranks_seen") == [(2,)]


@pytest.mark.parametrize("walked", [True, False], ids=["by folder", "by parent"])
def test_what_was_skipped_and_is_gone_leaves_the_list(walked: bool, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    other = write(tmp_path / "other", {"b.txt": plan_text(4), "notes.md": "x\n"})
    archive = write(tmp_path / "in", {"sub/a.txt": plan_text(3), "sub/job.tar": "x\n"})
    (archive / "sub/gone.log").symlink_to(tmp_path / "nowhere")
    run_ingest(other, lake)
    run_ingest(archive, lake)
    assert rows(lake, "skipped", "path", "ORDER BY path") == [
        ("notes.md",),
        ("sub/gone.log",),
        ("sub/job.tar",),
    ]
    (archive / "sub/gone.log").unlink()
    run_ingest(archive if walked else archive / "sub", lake)
    assert rows(lake, "skipped", "path", "ORDER BY path") == [
        *([("job.tar",)] if not walked else []),
        ("notes.md",),
        *([("sub/job.tar",)] if walked else []),
    ]


def test_config_is_words_in_one_order(tmp_path: Path) -> None:
    file = "wd2_tp1_pp1_dp2_numl4_bs1_{}Tokenizer_rank{}_20250101000000.txt"
    archive = write(
        tmp_path / "in",
        {
            f"{word}/{file.format(word, rank)}": trace(rank)
            for word in ("GPT2BPE", "Llama")
            for rank in range(2)
        },
    )
    lake = tmp_path / "lake"
    run_ingest(write(archive, {"plan of mine.txt": plan_text(3)}), lake)
    sizes = "world_size=2 tp=1 pp=1 dp=2"
    assert rows(lake, "runs", "config", "ORDER BY config") == [
        ("format=aicb_workload world_size=2 tp=2 pp=1 dp=1 ep=1 micro_batches=1",),
        (
            f"format=rank_trace tokenizer=gpt2bpetokenizer {sizes}"
            " micro_batches=1 micro_batch_size=1 layers=4",
        ),
        (
            f"format=rank_trace tokenizer=llamatokenizer {sizes}"
            " micro_batches=1 micro_batch_size=1 layers=4",
        ),
    ]


def test_a_folder_of_a_date_does_not_name_a_job(tmp_path: Path) -> None:
    folders = {
        "llama-7b/2026-01-28": "llama-7b",
        "llama-7b/20260129-010702/attempt_0": "llama-7b",
        "hydra/2026-01-28/12-30-45": "hydra",
        "2026-01-30": "2026-01-30",
        "logs/20260131": "20260131",
        "40000001": "40000001",
    }
    for number, folder in enumerate(folders):
        write(tmp_path / "in" / folder, {"plan.txt": plan_text(number + 1)})
    lake = tmp_path / "lake"
    run_ingest(tmp_path / "in", lake)
    label_of = dict(rows(lake, "runs", "run_id, label"))
    paths = rows(lake, "sources", "parse_dirpath(path), run_id")
    assert {path: label_of[run_id] for path, run_id in paths} == folders


def test_names_that_say_nothing_are_read_by_pattern_and_set(tmp_path: Path) -> None:
    archive = write(
        tmp_path / "archive",
        {
            f"slurm-4711/{name}": trace(rank)
            for rank, name in (
                (0, "n7/first.r0.log"),
                (1, "n8/first.r1.log"),
                (0, "n7/other.r0.log"),
            )
        },
    )
    lake = tmp_path / "lake"
    run_ingest(
        archive,
        lake,
        run_pattern=r"(?P<host>n\d)/(?P<run>\w+)\.r(?P<rank>\d+)\.",
        given={"tp": 2, "pp": 1, "world_size": 2},
    )
    assert rows(lake, "runs", "name, label, ranks_seen, tp, complete", "ORDER BY name") == [
        ("first", "first", 2, 2, True),
        ("other", "other", 1, 2, False),
    ]
    assert rows(lake, "sources", "host, rank", "WHERE path LIKE '%first%' ORDER BY path") == [
        ("n7", 0),
        ("n8", 1),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"run_pattern": "("}, "not a regular expression"),
        ({"run_pattern": "rank"}, "no named group"),
        ({"run_pattern": "(?P<rnk>x)"}, "unknown group 'rnk'"),
        ({"run_pattern": r"(?P<rank>\w+)"}, "invalid literal"),
        ({"input_format": "nvlog"}, "unknown format 'nvlog'"),
    ],
)
def test_options_that_do_not_fit_say_so(
    archive: Path, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        run_ingest(archive, tmp_path / "lake", **options)


def test_a_dry_run_plans_and_writes_nothing(archive: Path, tmp_path: Path) -> None:
    plans, skips = plan([str(archive)], str(tmp_path / "lake"), Options(), tmp_path / "spool")
    assert sorted((p.format.name, len(p.sources), p.status) for p in plans) == [
        ("aicb_workload", 1, "new"),
        ("rank_trace", 2, "new"),
    ]
    assert [s["path"] for s in skips] == ["notes.md"]
    assert not (tmp_path / "lake").exists()


def test_the_same_input_writes_the_same_files_whatever_the_jobs(
    archive: Path, tmp_path: Path
) -> None:
    run_ingest(archive, tmp_path / "one", jobs=1)
    run_ingest(archive, tmp_path / "two", jobs=4)
    parts = [
        [f for f in files(tmp_path / lake) if f.endswith("parquet")] for lake in ("one", "two")
    ]
    assert parts[0] == parts[1]
    assert len(parts[0]) > 6


def test_a_lake_inside_its_archive_is_no_input(archive: Path) -> None:
    lake = archive / "lake"
    run_ingest(archive, lake)
    report = run_ingest(archive, lake)
    assert statuses(report) == ["unchanged", "unchanged"]
    assert [s["path"] for s in report.skips] == ["notes.md"]


@pytest.mark.parametrize("named", ["", "/*"], ids=["by folder", "by glob"])
def test_another_lake_inside_the_archive_is_one_thing(
    archive: Path, tmp_path: Path, named: str, tracelake: Command
) -> None:
    run_ingest(archive, archive / "old" / "lake")
    (archive / "latest").symlink_to("old/lake")
    lake = archive / "lake"
    for status in ("new", "unchanged"):
        report = run_ingest(f"{archive}{named}", lake)
        assert statuses(report) == [status, status]
        skipped = {(skip["path"], skip["reason"]) for skip in report.skips}
        assert skipped - {("latest", "lake")} == {("notes.md", "no_format"), ("old/lake", "lake")}
    assert (
        "skipped 2 lakes: latest, old/lake\n" in tracelake(*("ingest", archive, "--lake", lake)).err
    )
    refused = tracelake("ingest", archive / "old" / "lake", "--lake", tmp_path / "new")
    assert (refused.code, "a lake is read with --lake" in refused.err) == (3, True)


def test_nothing_usable_is_an_error_that_says_why(tmp_path: Path) -> None:
    archive = write(tmp_path / "archive", {"a.md": "text\n", "b.bin": b"\0\1", "c": ""})
    with pytest.raises(InputError, match=r"empty: c; no_format: a\.md and 1 more"):
        run_ingest(archive, tmp_path / "lake")
    with pytest.raises(InputError, match="no such file"):
        run_ingest(tmp_path / "absent", tmp_path / "lake")


def test_a_lake_path_that_cannot_be_a_lake_is_an_error(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LakeError, match="is a file"):
        run_ingest(archive, tmp_path / "file")
    with pytest.raises(LakeError, match="is a file"):
        run_ingest(archive, tmp_path / "file" / "below")
    with pytest.raises(LakeError, match="not empty and not a lake"):
        run_ingest(archive, archive)
    for sign in ("*", "?", "[a]", "\\"):
        with pytest.raises(UsageError, match="DuckDB takes"):
            run_ingest(archive, tmp_path / f"la{sign}ke")
        assert not (tmp_path / f"la{sign}ke").exists()


def test_sweep_removes_what_no_manifest_names(archive: Path, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    run_ingest(archive, lake.root)
    stray = lake.root / "ops/run_id=gone-00000000/part-0.parquet"
    write(lake.root, {stray.relative_to(lake.root).as_posix(): b"x"})
    before = set(files(lake.root))
    with lake.staging("other"):
        assert lake.sweep(lake.snapshot()) == 1
        assert any((lake.root / "_staging").iterdir())
    assert set(files(lake.root)) == before - {stray.relative_to(lake.root).as_posix()}


def test_the_memory_of_a_run_is_free_when_it_has_ended(sample: Path, tmp_path: Path) -> None:
    """Not when garbage is collected: in an archive of many runs that is many buffers later."""
    run_ingest(sample, tmp_path / "warm")
    gc.collect()
    before = set(map(id, gc.get_objects()))
    gc.disable()
    try:
        run_ingest(sample, tmp_path / "lake")
        kept = [
            type(found).__qualname__
            for found in gc.get_objects()
            if id(found) not in before and type(found).__module__.startswith("tracelake.")
        ]
    finally:
        gc.enable()
    assert not {"Ledger", "PartWriter", "ChunkReader", "Reader", "_Parser"}.intersection(kept)


def test_a_run_pattern_that_matches_no_file_is_said(
    archive: Path, tmp_path: Path, tracelake: Command
) -> None:
    def warned(pattern: str, *more: str) -> bool:
        options = ("--lake", tmp_path / "lake", "--run-pattern", pattern, *more)
        done = tracelake("ingest", archive, *options)
        assert done.code == 0
        return f"--run-pattern {pattern} matches none of 3 inputs" in done.err

    assert warned("nothing(?P<run>x)", "--dry-run")
    assert warned("nothing(?P<run>x)")
    assert not warned("(?P<run>job)/")


def test_sizes_that_do_not_fit_are_a_finding(tmp_path: Path, tracelake: Command) -> None:
    archive = write(tmp_path / "in", {trace_name(r): trace(r) for r in range(2)})
    lake = tmp_path / "lake"
    assert tracelake("ingest", archive, "--lake", lake, "--set", "tp=3,pp=2").code == 0
    with few_models("findings"):
        build(Lake.open(lake))
    query = "SELECT severity, subject, evidence FROM findings WHERE subject = 'sizes'"
    answer = tracelake("query", query, "--lake", lake, "--format", "csv")
    assert answer.out.replace('"', "").splitlines()[1:] == [
        "warning,sizes,sizes: world_size 2 is no multiple of tp 3 x pp 2."
    ]


def test_a_size_that_is_given_twice_is_refused(tmp_path: Path, tracelake: Command) -> None:
    done = tracelake("ingest", tmp_path, "--lake", tmp_path / "lake", "--set", "tp=2,tp=4")
    assert (done.code, "tp is given twice" in done.err) == (2, True)


# --- the format of a file ---------------------------------------------------------------------


def test_how_a_file_begins_outranks_what_comes_later_in_it(tmp_path: Path) -> None:
    log = " iteration        1/      40 | elapsed time per iteration (ms): 9000.0 |\n"
    both = {trace_name(0): trace(0) + log, "job.log": log + trace(0)}
    run_ingest(write(tmp_path / "in", both), tmp_path / "lake")
    found = rows(tmp_path / "lake", "sources", "path, format", "ORDER BY ALL")
    assert found == [("job.log", "training_log"), (trace_name(0), "rank_trace")]


def test_a_file_that_begins_as_two_formats_do_is_ambiguous(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry = cast("dict[str, Format]", formats())
    twin = replace(registry["megascan"], begin=registry["rank_trace"].begin)
    monkeypatch.setitem(registry, "megascan", twin)
    with pytest.raises(InputError, match="ambiguous"):
        run_ingest(write(tmp_path / "in", {trace_name(0): trace(0)}), tmp_path / "lake")
