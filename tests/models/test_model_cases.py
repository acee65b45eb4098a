"""Every hand-worked case of tests/models/, and that every public model has one."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.model_cases import (
    Case,
    cases,
    computed,
    differences,
    expected_rows,
    rows_of,
)
from tracelake.models.catalog import catalog

CASES = list(cases())


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with computed(CASES, catalog()) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}/{case.path.stem}")
def test_case(case: Case, con: duckdb.DuckDBPyConnection) -> None:
    found = differences(rows_of(case, catalog(), con), expected_rows(case, catalog(), con))
    assert not found, f"{case.doc}\n{found}"


def test_every_public_model_has_a_case() -> None:
    public = {name for name, model in catalog().models.items() if not model.internal}
    assert public - {case.model for case in CASES} == set()


def test_a_case_can_fail() -> None:
    assert differences([(1.0, None)], [(1.0 + 1e-12, None)]) == ""
    assert differences([(1.0,)], [(1.1,)]) == "row 0: got (1.0,), want (1.1,)"
    assert differences([(None,)], [(0.0,)]) == "row 0: got (None,), want (0.0,)"
    assert differences([(1,)], []) == "row 0: got (1,), want None"
    assert differences([], [(1,)]) == "row 0: got None, want (1,)"
