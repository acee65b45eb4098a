"""Files that wait for a disk or a network are read at once, and in order."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.lakes import rows, run_ingest
from tests.traces import trace, trace_name, write
from tracelake.inputs import ahead
from tracelake.inputs.ahead import read_ahead

_WAITS = 0.002


def test_items_that_wait_are_read_at_once_and_come_in_order() -> None:
    """Four of them meet, which they cannot one after the other."""
    together = threading.Barrier(4, timeout=20)

    def read(item: int) -> int:
        time.sleep(_WAITS)
        if item % 25 == 10:
            together.wait()
        return item * item

    assert list(read_ahead(range(100), read)) == [(item, item * item) for item in range(100)]


def test_items_that_do_not_wait_need_no_thread() -> None:
    found = list(read_ahead(range(300), lambda item: (item, threading.get_ident())))
    assert found == [(item, (item, threading.get_ident())) for item in range(300)]


def test_an_error_is_raised_where_its_item_would_come() -> None:
    def read(item: int) -> float:
        time.sleep(_WAITS)
        return 1 / (item - 20)

    items = read_ahead(range(24), read)
    with pytest.raises(ZeroDivisionError):
        list(items)


def test_an_archive_that_waits_gives_the_same_lake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of folders in folders, with links, hidden and unreadable names."""
    texts = {
        f"{folder}/{name}": content
        for folder in ("a", "a/b", *(f"c/{n}" for n in range(9)))
        for name, content in (
            *((trace_name(rank), trace(rank)) for rank in range(2)),
            (".hidden", "x"),
            ("empty.log", ""),
            ("notes.md", "no trace\n"),
        )
    }
    archive = write(tmp_path / "in", texts)
    (archive / "c" / "gone").symlink_to("nowhere")
    (archive / "latest").symlink_to(f"a/{trace_name(0)}")
    os.mkfifo(archive / "a" / "pipe")
    lakes = []
    for waits in (1.0, 0.0):
        monkeypatch.setattr(ahead, "_WAITS", waits)
        run_ingest(archive, tmp_path / str(waits))
        lakes.append(
            [
                rows(tmp_path / str(waits), "sources", "path, run_id", "ORDER BY ALL"),
                rows(tmp_path / str(waits), "skipped", "path, reason", "ORDER BY ALL"),
            ]
        )
    assert lakes[0] == lakes[1]
    assert len(lakes[0][0]) == 22
    assert len(lakes[0][1]) == 35
