"""Each golden case gives the rows, facts and accounts it is known to give, in any block size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_cases import cases, run_case
from tracelake.formats import formats

CASES = cases()


def test_every_format_has_cases() -> None:
    assert {case.parent.name for case in CASES} == set(formats())


@pytest.mark.parametrize("block_size", [1, 1 << 20])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.parent.name}/{c.name}")
def test_golden(case: Path, block_size: int) -> None:
    expected = (case / "expected.json").read_text(encoding="utf-8")
    assert run_case(case, block_size=block_size) == expected
