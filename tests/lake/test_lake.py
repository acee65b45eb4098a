"""The lake on disk: what readers see of commits, and which part files a sweep removes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_lakes import commit_run, drop_run, log_run
from tracelake.lake.layout import model_folder, part_name
from tracelake.lake.manifest import Change, RunEntry
from tracelake.lake.store import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def stored(lake: Lake) -> set[str]:
    return {path.relative_to(lake.root).as_posix() for path in lake.root.glob("*/format=*/*/*")}


def test_a_reading_has_what_others_committed_since_the_last(lake: Lake) -> None:
    other = Lake.open(lake.root)
    assert list(lake.snapshot().runs) == []
    commit_run(other, "a", log_run())
    commit_run(other, "b", log_run())
    first = lake.snapshot()
    assert list(first.runs) == ["a", "b"]
    commit_run(other, "b", log_run(steps=5))
    drop_run(other, "a")
    second = lake.snapshot()
    assert list(second.runs) == ["b"]
    assert second.runs["b"].generation != first.runs["b"].generation
    assert second.stamp == other.snapshot().stamp


def test_a_manifest_that_nobody_replaced_is_read_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_run(lake, "a", log_run())
    commit_run(lake, "b", log_run())
    lake.snapshot()
    commit_run(lake, "b", log_run(steps=5))
    read: list[str] = []
    read_bytes = Path.read_bytes

    def noted(path: Path) -> bytes:
        content = read_bytes(path)  # a file that is not there is not read
        read.append(path.name)
        return content

    monkeypatch.setattr(Path, "read_bytes", noted)
    assert list(lake.snapshot().runs) == ["a", "b"]
    assert read == ["b.json"]


def test_a_sweep_removes_what_was_superseded_and_dropped(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    commit_run(lake, "b", log_run())
    lake.sweep(lake.snapshot())
    commit_run(lake, "a", log_run(steps=4))
    commit_run(lake, "a", log_run(steps=5))
    drop_run(lake, "b")
    assert lake.sweep(lake.snapshot()) == 3 + 3 + 4  # `runs` of a stayed the same
    assert stored(lake) == lake.snapshot().all_parts


def test_what_is_published_is_spared_until_the_next_sweep(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    published = lake.snapshot()
    commit_run(lake, "a", log_run(steps=5))
    assert lake.sweep(published) == 0
    assert stored(lake) == published.all_parts | lake.snapshot().all_parts
    assert lake.sweep(published) == 0
    lake.sweep(lake.snapshot())
    assert stored(lake) == lake.snapshot().all_parts


def test_parts_of_a_commit_that_was_cut_short_are_removed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_run(lake, "a", log_run())
    lake.sweep(lake.snapshot())
    with monkeypatch.context() as cut:
        cut.setattr("tracelake.base.files.write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            commit_run(lake, "a", log_run(steps=5))
    assert list(lake.snapshot().runs) == ["a"]
    assert stored(lake) > lake.snapshot().all_parts
    lake.sweep(lake.snapshot())
    assert stored(lake) == lake.snapshot().all_parts


@pytest.mark.parametrize("full", [True, False])
def test_what_nobody_listed_is_found_by_looking_everywhere(lake: Lake, full: bool) -> None:
    commit_run(lake, "a", log_run())
    lake.sweep(lake.snapshot())
    of_model, of_table = (
        lake.root / part_name(folder, "0" * 20)
        for folder in (model_folder("step_stats"), "ops/format=x/month=undated")
    )
    for stray in (of_model, of_table):
        stray.parent.mkdir(parents=True)
        stray.touch()
    lake.sweep(lake.snapshot(), full=full)
    assert of_model.exists() is not full
    assert of_table.exists()  # its manifest may be lost


def test_a_lake_without_a_list_is_looked_through(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    commit_run(lake, "a", log_run(steps=5))
    lake.sweep(lake.snapshot())
    assert stored(lake) == lake.snapshot().all_parts


@pytest.mark.parametrize("name", ["commit", "commit_skipped", "sweep", "staging", "remove_dead"])
def test_what_needs_a_lock_waits_for_it(lake: Lake, name: str) -> None:
    def make_staging() -> None:
        with lake.staging("late"):
            pass

    work: dict[str, tuple[str, Callable[[], object]]] = {
        "commit": ("commit", lambda: commit_run(lake, "a", log_run())),
        "commit_skipped": ("commit", lambda: lake.commit_skipped([], {})),
        "sweep": ("commit", lambda: lake.sweep(lake.snapshot())),
        "staging": ("staging", make_staging),
        "remove_dead": ("staging", lambda: lake.sweep(lake.snapshot())),
    }
    lock, call = work[name]
    thread = threading.Thread(target=call)
    with lake.lock(lock):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()


def test_changes_of_one_group_in_one_commit_all_count(lake: Lake) -> None:
    entries = [RunEntry(run_id, "group", "generation", {}) for run_id in ("a", "b")]
    lake.commit_all([Change("group", (entry,), {}, {}) for entry in entries])
    assert list(lake.snapshot().runs) == ["a", "b"]


def test_a_sweep_removes_what_the_warehouse_before_it_named(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    superseded = lake.snapshot().all_parts
    commit_run(lake, "a", log_run(steps=5))
    (lake.root / "_manifest" / "_loose").write_text("")  # as a list that another machine has
    lake.sweep(lake.snapshot())
    assert superseded <= stored(lake)
    lake.sweep(lake.snapshot(), published=superseded)
    assert stored(lake) == lake.snapshot().all_parts


def test_parts_of_a_list_of_skipped_inputs_go_when_it_is_replaced(lake: Lake) -> None:
    names = [
        f"skipped/run_id=__HIVE_DEFAULT_PARTITION__/part-{number}.parquet" for number in range(2)
    ]
    lake.sweep(lake.snapshot())  # from here on there is a list of what is loose
    for name in names:
        staged = lake.root / "_staging" / "rows"
        staged.write_text(name)
        lake.commit_skipped([], {name: staged})
        lake.sweep(lake.snapshot())
    left = lake.root.glob("skipped/*/*")
    assert [path.relative_to(lake.root).as_posix() for path in left] == names[1:]


def test_a_commit_without_a_list_does_not_begin_one_that_hides_what_was_before(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    (lake.root / "_manifest/a.json").unlink()
    (lake.root / "_manifest/_loose").unlink(missing_ok=True)
    commit_run(lake, "b", log_run())
    lake.sweep(lake.snapshot())
    assert stored(lake) == lake.snapshot().all_parts


def test_the_list_of_loose_parts_is_replaced_as_a_whole(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    lake.sweep(lake.snapshot())
    commit_run(lake, "a", log_run(steps=5))
    with (lake.root / "_manifest/_loose").open() as opened:
        before = opened.read()
        lake.sweep(lake.snapshot())
        opened.seek(0)
        assert opened.read() == before != (lake.root / "_manifest/_loose").read_text()
