"""A build takes away the parts that it replaced: whoever reads then opens the new warehouse."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

from tests.lakes import Template, merge_groups
from tests.tiny_lakes import commit_run, log_run
from tracelake.base.errors import LakeError
from tracelake.lake.store import Lake
from tracelake.models.base import engine_errors
from tracelake.models.build import build
from tracelake.warehouse.check import _runs_in, check_failures, check_lake, check_parts
from tracelake.warehouse.running import run_query
from tracelake.warehouse.warehouse import ask, open_warehouse

pytestmark = pytest.mark.usefixtures("few")

COUNT = "SELECT count(*) AS n FROM layer_times"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    made = Lake.create(tmp_path_factory.mktemp("reopening") / "lake")
    commit_run(made, "a", log_run())
    build(made)
    return Template.of(made)


@pytest.fixture
def lake(template: Template) -> Lake:
    return template.again()


def replace(lake: Lake, steps: int = 5) -> None:
    commit_run(lake, "a", log_run(steps=steps))
    build(lake)


def count(con: duckdb.DuckDBPyConnection) -> int:
    (found,) = con.execute(COUNT).fetchall()
    return int(found[0])


def test_a_query_that_has_given_nothing_asks_the_new_warehouse(lake: Lake) -> None:
    answers = run_query(lake, f"{COUNT}; SELECT max(steps) AS steps FROM layer_stats")
    replace(lake)
    found = [answer.read_all().to_pylist() for answer in answers]
    assert found == [[{"n": 10}], [{"steps": 4}]]


def test_a_query_that_has_given_rows_ends_with_an_error(lake: Lake) -> None:
    answers = run_query(lake, f"SELECT 1; {COUNT}")
    next(answers).read_all()
    replace(lake)
    with pytest.raises(LakeError, match="built again while it was read") as caught:
        next(answers).read_all()
    assert caught.value.hint == "open it again"


def test_a_part_that_is_gone_from_the_same_warehouse_is_told_as_such(lake: Lake) -> None:
    (lake.root / lake.snapshot().parts_by_table()["layer_times"][0]).unlink()
    with pytest.raises(LakeError, match="No files found") as caught:
        pa.Table.from_batches(next(run_query(lake, COUNT)))
    assert "built again" not in str(caught.value)
    with pytest.raises(LakeError, match="No files found"):
        ask(lake, "the count", count)


def test_work_is_done_again_where_a_build_came_between(lake: Lake) -> None:
    calls: list[int] = []

    def work(con: duckdb.DuckDBPyConnection) -> int:
        calls.append(1)
        if len(calls) == 1:
            replace(lake)
        return count(con)

    assert ask(lake, "the count", work) == 10
    assert len(calls) == 2


def test_work_that_a_merge_came_between_is_done_again(lake: Lake) -> None:
    commit_run(lake, "b", log_run())
    build(lake)
    answers = run_query(lake, COUNT)
    before = lake.snapshot().all_parts
    merge_groups(lake)
    assert before.isdisjoint(found.part for found in lake.part_files.stored())
    assert [answer.read_all().to_pylist() for answer in answers] == [[{"n": 12}]]


def test_one_that_a_build_comes_between_each_time_gives_up(lake: Lake) -> None:
    calls: list[int] = []

    def work(con: duckdb.DuckDBPyConnection) -> int:
        calls.append(1)
        replace(lake, steps=5 + len(calls))
        return count(con)

    with pytest.raises(LakeError, match="built again while it was read"):
        ask(lake, "the count", work)
    assert len(calls) == 4


@pytest.mark.parametrize("part", [check_parts, check_failures, _runs_in])
def test_a_check_is_not_misled_by_a_build(
    part: Callable[..., object], lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []

    def late(*given: object, **more: object) -> object:
        if not began:
            began.append(1)
            replace(lake)
        return part(*given, **more)

    monkeypatch.setattr(f"tracelake.warehouse.check.{part.__name__}", late)
    assert check_lake(lake) == []


def test_a_user_of_the_library_is_told_to_open_it_again(lake: Lake) -> None:
    with open_warehouse(lake) as con:
        replace(lake)
        with pytest.raises(LakeError, match="open it again"), engine_errors("my query"):
            count(con)
