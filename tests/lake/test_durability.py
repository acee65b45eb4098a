"""A power cut at any moment: what a file names is on the disk before the file is in its place."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_lakes import commit_run, drop_run, log_run
from tracelake.base import files
from tracelake.base.errors import UsageError
from tracelake.base.files import beside, put, put_link
from tracelake.lake.store import Lake


class Disk:
    """Remembers what was brought to the disk: contents by inode, and the names in folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contents: dict[int, bytes] = {}
        self.names: dict[Path, dict[str, int]] = {}
        self.replaced: list[Path] = []
        self.lost: list[str] = []
        self._replace, self._remove = files.replace, files.remove
        monkeypatch.setattr(files, "sync", self.sync)
        monkeypatch.setattr(files, "replace", self.replace)
        monkeypatch.setattr(files, "remove", self.remove)

    def sync(self, paths: Collection[Path]) -> None:
        for path in paths:
            if path.is_dir():
                self.names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
            else:
                self.contents[path.stat().st_ino] = path.read_bytes()

    def replace(self, source: Path, target: Path) -> None:
        self.replaced.append(target)
        if target.suffix == ".json":
            self._examine(source)
        self._replace(source, target)

    def remove(self, path: Path) -> None:
        if path.suffix == ".parquet":
            root = next(above for above in path.parents if (above / "_manifest").is_dir())
            manifests, part = root / "_manifest", path.relative_to(root).as_posix()
            for name, inode in self.names[manifests].items():
                if name.endswith(".json") and part.encode() in self.contents[inode]:
                    self.lost.append(f"{part}, which {name} names")
        self._remove(path)

    def holds(self, path: Path) -> bool:
        """Whether a file is there, with its content, whenever the power goes from now on."""
        inode = path.stat().st_ino
        return self.contents.get(inode) == path.read_bytes() and self.leads_to(path)

    def leads_to(self, path: Path) -> bool:
        return self.names.get(path.parent, {}).get(path.name) == path.stat().st_ino

    def _examine(self, manifest: Path) -> None:
        """A manifest that is about to get its place, and all that it names."""
        if self.contents.get(manifest.stat().st_ino) != manifest.read_bytes():
            self.lost.append(manifest.name)
        content = json.loads(manifest.read_bytes())
        named = [*content.get("parts", ())]
        for run in content.get("runs", {}).values():
            named += [part for parts in run["parts"].values() for part in parts]
        root = manifest.parent.parent
        for name in named:
            part = root / name
            above = part.parents[: name.count("/")]
            if not (self.holds(part) and all(map(self.leads_to, above))):
                self.lost.append(name)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def test_a_commit_survives_a_power_cut_at_any_moment(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    for run_id, steps in (("a", 3), ("b", 4), ("a", 5)):
        commit_run(lake, run_id, log_run(steps=steps))
        assert disk.holds(lake.root / f"_manifest/{run_id}.json")
    staged = lake.root / "_staging" / "skipped"
    staged.write_bytes(b"rows")
    lake.commit_skipped([], {"skipped/run_id=__HIVE_DEFAULT_PARTITION__/part-a.parquet": staged})
    assert disk.holds(lake.root / "_manifest/_skipped.json")
    drop_run(lake, "a")
    assert "a.json" not in disk.names[lake.root / "_manifest"]
    assert len([path for path in disk.replaced if path.suffix == ".json"]) == 4
    swept = lake.sweep(lake.snapshot())
    assert swept > 2
    assert not disk.lost


def test_a_commit_that_is_repeated_leaves_the_part_that_is_there(lake: Lake) -> None:
    commit_run(lake, "a", log_run())
    before = {path: path.stat().st_ino for path in lake.root.glob("*/format=*/*/*")}
    commit_run(lake, "a", log_run())
    assert {path: path.stat().st_ino for path in lake.root.glob("*/format=*/*/*")} == before


def test_a_file_is_on_the_disk_before_it_has_its_place_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.json"
    put(page, b"{}")
    disk = Disk(monkeypatch)
    put(page, b'{"new": 1}')
    assert disk.replaced == [page]
    assert not disk.lost
    assert disk.holds(page)


def test_readers_of_a_file_that_is_replaced_see_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    page = tmp_path / "page"
    put(page, b"old")
    with page.open("rb") as opened, beside(page) as there:
        there.write_bytes(b"new")
        assert page.read_bytes() == b"old"
        assert opened.read() == b"old"
    assert page.read_bytes() == b"new"


def test_a_link_leads_somewhere_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = tmp_path / "latest"
    put_link(latest, "one")
    make = files.link
    seen = []

    def link(target: str, path: Path) -> None:
        make(target, path)
        seen.append(os.readlink(latest))

    monkeypatch.setattr(files, "link", link)
    put_link(latest, "two")
    assert seen == ["one"]
    assert os.readlink(latest) == "two"


def test_a_file_that_is_being_written_is_spared_by_other_writers(tmp_path: Path) -> None:
    with beside(tmp_path / "one") as there:
        there.write_bytes(b"half")
        put(tmp_path / "two", b"whole")
        assert there.read_bytes() == b"half"
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


def test_a_file_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer may take it for that of a dead one until then."""
    lock = fcntl.flock
    removed: list[Path] = []

    def late(opened: int, operation: int) -> None:
        if not removed:
            removed.extend(tmp_path.glob(".one.*"))
            removed[0].unlink()
        lock(opened, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with beside(tmp_path / "one") as there:
        assert removed == [there]
        put(tmp_path / "two", b"whole")
        there.write_bytes(b"new")
        put(tmp_path / "two", b"again")
        assert there.read_bytes() == b"new"


def test_a_file_system_that_may_only_be_read_is_a_matter_of_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "sync", refuse)
    with pytest.raises(UsageError, match="choose another file"):
        put(tmp_path / "page", b"new")


def test_a_tree_that_another_has_removed_is_removed(tmp_path: Path) -> None:
    files.remove_tree(tmp_path / "gone")


# --- sync -----------------------------------------------------------------------------------------


class _System:
    """The system's library; its syncfs may fail."""

    def __init__(self, code: int = 0) -> None:
        self.synced: list[int] = []
        self._code = code

    def syncfs(self, opened: int) -> int:
        self.synced.append(os.fstat(opened).st_ino)
        ctypes.set_errno(self._code)
        return -1 if self._code else 0


def use(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has files synced by this library."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: system)
    files._syncfs.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What was found in one library is not used with the next."""
    yield
    files._syncfs.cache_clear()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Inodes that were brought to the disk one by one."""
    found: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda opened: found.append(os.fstat(opened).st_ino))
    return found


def some(folder: Path, count: int) -> dict[Path, int]:
    paths = [folder / str(number) for number in range(count)]
    for path in paths:
        path.touch()
    return {path: path.stat().st_ino for path in paths}


def test_few_files_are_synced_each(
    tmp_path: Path, synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = _System()
    use(system, monkeypatch)
    paths = some(tmp_path, 3)
    files.sync(paths)
    assert synced == list(paths.values())
    assert not system.synced


def test_many_files_are_synced_by_one_call_where_the_system_has_it(
    tmp_path: Path, synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = some(tmp_path, 40)
    system = _System()
    use(system, monkeypatch)
    files.sync(paths)
    assert len(system.synced) == 1
    assert not synced
    use(object(), monkeypatch)
    files.sync(paths)
    assert synced == list(paths.values())


def test_a_sync_that_fails_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(_System(errno.EIO), monkeypatch)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        files.sync(some(tmp_path, 40))
    assert caught.value.filename == str(tmp_path / "0")
