"""Does the work grow as the input does: four times the bytes, four times the time.

Prints bytes, seconds and the ratio per kind of input; the tests do not time anything. Kinds of one
line stop below the longest that is read, but for those that are longer on purpose::

    python -m tests.fuzz.growth [MEGABYTES [KIND...]]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz.seeds import file_name
from tests.traces import op, plan
from tracelake.ingest.options import Options
from tracelake.ingest.pipeline import ingest
from tracelake.inputs.chunks import CHUNK_BYTES
from tracelake.lake.store import Lake

_GROWTH = 4
_LIMIT = 2 * _GROWTH
_LINE_BYTES = CHUNK_BYTES // (_GROWTH + 1)


def _record(**fields: str) -> str:
    line = op(0, "forward_step", 10.0, 5.0)
    for key, value in fields.items():
        line = line.replace(f"{key}=None", f"{key}={value}").replace(f"{key}=[]", f"{key}={value}")
    return line


_SUB = "'func=all_reduce,duration=0.5,timestamp=9.0,group=tp,input__shape=[4, 8]'"
_PLAN, _TRACE, _LOG = "aicb_workload", "rank_trace", "optimus"
_HEAD = "> TP: 1\n> DP: 1\n> PP: 1\n"
_TOP = plan(1)

_ROW = _TOP.splitlines()[2]
_LOG_LINE = "[rank:0 stage:0] forward time 1.0 step 1"

# What is repeated or counted up to the size asked for, in a file that its format takes.
KINDS: dict[str, tuple[str, Callable[[int], str]]] = {
    "one line": (_TRACE, lambda n: _record() + "rank:0:x(" + "x" * n),
    "brackets in brackets": (_TRACE, lambda n: _record() + _record(input__shape="[" * n)),
    "quotes and backslashes": (
        _TRACE,
        lambda n: _record() + _record(sub_operations="['\\'" * (n // 4)),
    ),
    "sub-operations": (
        _TRACE,
        lambda n: _record(sub_operations=f"[{', '.join([_SUB] * (n // 80))}]"),
    ),
    "fields": (
        _TRACE,
        lambda n: _record() + _record(description=",".join(f"k{i}=1" for i in range(n // 9))),
    ),
    "one field again": (_TRACE, lambda n: _record() + _record(description="a=1," * (n // 4))),
    "names": (
        _TRACE,
        lambda n: "".join(_record().replace("forward_step", f"op{i}") for i in range(n // 180)),
    ),
    "values": (
        _TRACE,
        lambda n: "".join(_record(description=f"d{i}") for i in range(n // 180)),
    ),
    "empty lines": (_TRACE, lambda n: _record() + "\n" * n),
    "rejects": (_TRACE, lambda n: _record() + "x\n" * (n // 2)),
    "layer names": (
        _LOG,
        lambda n: _HEAD + "".join(f"layer[l{i}]: total=1.0\n" for i in range(n // 24)),
    ),
    "layers on one line": (_LOG, lambda n: _HEAD + "layer[a]: total=1.0 " * (n // 20)),
    "open blocks": (
        _LOG,
        lambda n: (
            _HEAD + "".join(f"[rank:{i} stage:0] forward time 1.0 step 1\n" for i in range(n // 42))
        ),
    ),
    "other lines": (_LOG, lambda n: _HEAD + "x\n" * (n // 2)),
    "statements": (_LOG, lambda n: _HEAD + "> MBS: 1\n" * (n // 9)),
    "rows": (_PLAN, lambda n: _TOP + f"{_ROW}\n" * (n // 50)),
    "layer per name": (
        _PLAN,
        lambda n: _TOP + "".join(_ROW.replace("layer0", f"l{i}") + "\n" for i in range(n // 50)),
    ),
    "columns": (_PLAN, lambda n: _TOP + _ROW + "\t1" * (n // 2)),
    "header words": (_PLAN, lambda n: _TOP.replace(" ga:", " k: 1" * (n // 5) + " ga:", 1)),
    "brackets in a log": (_LOG, lambda n: f"{_HEAD}{_LOG_LINE}\n[rank:{'[' * n}\n"),
    "one line of a log": (_LOG, lambda n: f"{_HEAD}layer[{'x' * n}]: total=1.0\n"),
    "one line of a plan": (_PLAN, lambda n: _TOP + _ROW.replace("layer0", "x" * n) + "\n"),
    "too long for a trace": (_TRACE, lambda n: _record() + "x" * n),
    "too long for a log": (_LOG, lambda n: _HEAD + "x" * n),
    "too long for a plan": (_PLAN, lambda n: _TOP + "x" * n),
}
ONE_LINE = {
    "one line",
    "brackets in brackets",
    "quotes and backslashes",
    "sub-operations",
    "fields",
    "one field again",
    "layers on one line",
    "columns",
    "header words",
    "brackets in a log",
    "one line of a log",
    "one line of a plan",
}


def seconds(name: str, text: bytes) -> float:
    """How long an ingest of one file takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in", file_name(name))
        path.parent.mkdir()
        path.write_bytes(text)
        begun = time.perf_counter()
        ingest([str(path)], Lake.create(Path(folder, "lake")), Options(), jobs=1)
        return time.perf_counter() - begun


def main(megabytes: float, kinds: Sequence[str]) -> int:
    """Measures these kinds; how many grow faster than their input."""
    for name, make in dict(KINDS.values()).items():
        seconds(name, make(1000).encode())  # compiles
    too_fast = 0
    for kind in kinds:
        name, make = KINDS[kind]
        size = int(megabytes * 1e6)
        small = min(size, _LINE_BYTES) if kind in ONE_LINE else size
        texts = [make(n).encode() for n in (small, _GROWTH * small)]
        times = [seconds(name, text) for text in texts]
        ratio = times[1] / times[0] / len(texts[1]) * len(texts[0]) * _GROWTH
        too_fast += ratio > _LIMIT
        figures = "".join(
            f" {len(t) / 1e6:6.1f} MB {s:7.3f} s" for t, s in zip(texts, times, strict=True)
        )
        print(f"{name:14} {kind:24}{figures}  x {ratio:.1f}", flush=True)  # noqa: T201
    return too_fast


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 25, given[1:] or list(KINDS)))
