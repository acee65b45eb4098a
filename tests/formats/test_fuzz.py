"""Any bytes at all: no parser fails, loses a line, or reads outside its arrays.

The campaign over many more inputs is `python -m tests.fuzz`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.fuzz import options
from tests.fuzz.invariants import examine
from tests.fuzz.mutate import MUTATIONS, mutate
from tests.fuzz.seeds import every_seed, file_name, seeds
from tests.golden_cases import render
from tests.parsing import large_formats, parse

POOL = [text for _, text in every_seed()]
PARSERS = pytest.mark.parametrize("name", large_formats())
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@PARSERS
@QUICK
@given(data=st.data())
def test_mutated_files_are_accounted_for(name: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(seeds(name)))
    random = data.draw(st.randoms(use_true_random=False))
    for mutation in data.draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4)):
        text = mutation(random, text, POOL)[:16_000]
    examine(name, text, Random(len(text)))


@PARSERS
@QUICK
@given(text=st.binary(max_size=300))
def test_noise_is_accounted_for(name: str, text: bytes) -> None:
    examine(name, text, Random(len(text)))


@PARSERS
def test_rows_do_not_depend_on_where_chunks_are_cut(name: str) -> None:
    random = Random(name)
    text = mutate(random, max(seeds(name), key=len)[:4000], POOL)[:2000]
    whole = render(parse(name, {file_name(name): text}))
    for size in range(1, 400, 7):
        assert render(parse(name, {file_name(name): text}, block_size=size)) == whole, size


def test_generated_command_lines_end_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACELAKE_LAKE", raising=False)
    place = options.Place(tmp_path)
    for line, _, wrong in options.campaign(place, 40, 1, options.QUICK):
        assert wrong is None, line


def test_kernels_stay_within_their_arrays(pytestconfig: pytest.Config) -> None:
    """Compiles the kernels anew, with checks, where the folder of pytest has them not yet.

    The checks are in the code whether LLVM optimises it or not, which takes a third of the time.
    """
    folder = pytestconfig.cache.mkdir("bounds")
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "0", "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bounds", "40"],
        cwd=ROOT,
        env={**os.environ, **checked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 120
