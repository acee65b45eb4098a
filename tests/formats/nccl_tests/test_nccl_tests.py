"""Output of nccl-tests beside other output, which no case of a whole file shows."""

from __future__ import annotations

import pytest

from tests.parsing import parse
from tracelake.formats import formats

_TEST = (
    "# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20\n"
    "    1024    256    float    sum    -1    10.00    0.10    0.10    0    N/A  N/A  N/A  N/A\n"
    "# Out of bounds values : 0 OK\n"
)


@pytest.mark.parametrize(
    ("printed", "collective"),
    [
        ("Linking  ../build/hypercube.o > ../build/hypercube_perf", None),
        ("nvcc -o ../build/hypercube_perf ../build/hypercube.o", None),
        ("./build/all_reduce_perf -b 8 -o sum", "all_reduce"),
    ],
)
def test_a_test_that_is_built_is_not_the_one_that_runs(
    printed: str, collective: str | None
) -> None:
    run = parse("nccl_tests", {"pod.log": f"{printed}\n{_TEST}".encode()}).only
    assert [row["collective"] for row in run.rows("bandwidth_tests")] == [collective]


@pytest.mark.parametrize(
    ("before", "date"),
    [
        ("2026-03-01 10:00:07 ", "2026-03-01 10:00:07"),  # ts of moreutils
        ("[2026-03-01T10:00:07.123] ", "2026-03-01 10:00:07"),
        ("2026-03-01T10:00:07.123456Z ", "2026-03-01 10:00:07"),  # kubectl
        ("Mar 01 10:00:07 ", None),
        ("Sun Mar  1 10:00:07 2026[1,0]<stdout>:", "2026-03-01 10:00:07"),  # of mpirun
    ],
)
def test_dates_before_the_lines_of_a_test_date_it(before: str, date: str | None) -> None:
    log = "".join(f"{before}{line}\n" for line in _TEST.splitlines())
    run = parse("nccl_tests", {"pod.log": log.encode()}).only
    assert len(run.rows("bandwidth_tests")) == 1
    assert run.facts.ended
    stamp = formats()["nccl_tests"].facts("pod.log", log.encode()).stamp
    assert (stamp and f"{stamp:%Y-%m-%d %H:%M:%S}") == date
