"""Read the standard output of nccl-tests (`all_reduce_perf` and the others), of all its versions.

A test prints a heading, a line per rank with its host and device, and then a row per size with the
times out of place and in place. Rows may stand between lines of NCCL, and a test may never end.
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime

from tracelake.formats import Claim, FileFacts, RunFacts
from tracelake.formats.endings import LINE, Ending, first_cause
from tracelake.formats.lines import Irrelevant, LineFormat, Record, Reject
from tracelake.formats.readers import BadValueError, Rows, number, scaled, whole
from tracelake.formats.starts import stamp_in_words, stamp_of

# RCCL's fork printed `# nThreads: 1 nGpus: 2 nRanks: 1 minBytes: 8`.
_HEADING = re.compile(rb"nThreads?:? +[0-9]+ +nGpus:? +[0-9]+ +(?:nRanks: +[0-9]+ +)?minBytes:? ")
COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "sendrecv",
    "gather": "gather",
    "scatter": "scatter",
    "hypercube": "hypercube",
}
# The longest first: "reduce" is a part of others.
_NAMED = sorted(
    {name.replace("_", ""): c for name, c in COLLECTIVES.items()}.items(), key=lambda x: -len(x[0])
)
DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
TEST_ROW = r"\d+\s+\d+\s+(?:u?int(?:8|32|64)|half|float|double|bfloat16|f8e\w+)\s.*"
"""Expression of a row of a test, from its first number."""
# What `ts` and loggers write before a line; what launchers write is left out before.
_DATE = (
    r"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?:? "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )"
)
_DATED = re.compile(f"^{_DATE}", re.ASCII)
_STAMP = re.compile(rb"^\[?(20[0-9]{2}-[0-9]{2}-[0-9]{2})[ T]([0-9:]{8})", re.MULTILINE)
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]", re.ASCII)
_RANK = re.compile(
    r"Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+\d+\s+)?on\s+([\w.-]+)\s+device\s+(\d+)\s.*",
    re.ASCII,
)
_VERSION = re.compile(r"[nr]ccl-tests version (\S+)(?:.* [nr]ccl-library=(\d+))?.*", re.ASCII)
_STARTS = re.compile(r"Collective test starting: (\w+?)(?:_perf(?:_mpi)?)?\s*", re.ASCII)
_ENDS = re.compile(r"(?:Collective test concluded:|Avg bus bandwidth|(Out of bounds values)).*")
_FAILED = re.compile(r"Out of bounds values : (\d+) FAILED\s*", re.ASCII)
_BELOW = re.compile(r"Avg bus bandwidth +: (\S+) FAILED\s*", re.ASCII)  # NCCL_TESTS_MIN_BW
# A job may build the tests first: what a Makefile or a compiler prints of them runs none.
_PERF = re.compile(
    r"(?!\s*(?:Linking|Compiling) |.* -o \S*_perf)(?:.*[/ ])?(\w+?)_perf(?:_mpi)?[,:]?(?: .*)?",
    re.ASCII,
)
_LIBRARY = re.compile(r".*[NR]CCL version(?: :)? (\d+\.\d+\.\d+).*", re.ASCII)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
# A test prints the size before it runs, so what it fails with may follow on the same line.
_TORN = re.compile(r": Test (?:NCCL|RCCL|CUDA|HIP) failure ")
_BROKEN = "broken_row"
_BROKEN_RANK = "broken_rank"
_CPU_TIME = "cpu_time"


def _sniff(head: bytes) -> Claim:
    return Claim.YES if b"nThread" in head and _HEADING.search(head) else Claim.NO


def _stamp(head: bytes) -> datetime | None:
    """Return the first date before a line, or else that which a script printed."""
    found = _STAMP.search(head)
    return (found and stamp_of(b" ".join(found.groups()).decode())) or stamp_in_words(head)


def collective_of(words: str) -> str | None:
    """Return the collective that a file's name says."""
    joined = re.sub(r"[_\-. ]", "", words.lower())
    return next((collective for name, collective in _NAMED if name in joined), None)


class _Reader:
    def __init__(self, facts: FileFacts) -> None:
        self._fallback = collective_of(facts.stem)
        self._test = 0
        self._announced = False
        self._collective = self._fallback
        self._ranks: dict[int, tuple[str, str, str]] = {}  # host, device and group
        self._mixed = False
        self._open = False
        self._unfinished: list[dict[str, object]] = []
        self._ending = Ending()
        self._causes: list[dict[str, str]] = []  # of unfinished tests
        # With wrong values, of early versions (others count by row); slower than was asked for.
        self._failed: list[dict[str, object]] = []
        self._versions: tuple[str | None, str | None] = (None, None)
        self._errors = False
        self._milliseconds = False
        self._per_iteration = False
        self._cpu_time = False
        self._behind = 0  # columns behind the results: algorithm, protocol and channels, of RCCL

    def read(self, text: str) -> Rows | str:
        text = _DATED.sub("", text)
        if _ROW.match(text) and not _TORN.search(text):
            self._ending = Ending()  # the test went on
            return self._row(text.split())
        line = text.lstrip("# \t")  # early versions print some lines without `#`
        if rank := _RANK.fullmatch(line):
            place = rank[3], rank[4], rank[2]
            self._mixed |= self._ranks.setdefault(whole(rank[1], 31), place) != place
        elif text.lstrip().startswith(("#  Rank", "#   Rank")):
            return _BROKEN_RANK
        elif version := _VERSION.fullmatch(line):
            self._versions = version[1], library_version(version[2]) or self._versions[1]
        elif starts := _STARTS.fullmatch(line):
            self._begin()
            self._announced = True
            self._collective = COLLECTIVES.get(starts[1], starts[1])
        elif line.startswith("nThread"):
            if not self._announced:
                self._begin()
            self._announced = False
        elif ends := _ENDS.fullmatch(line):
            self._end(line, counts=ends[1] is not None)
        elif line.startswith(("size ", "bytes ")):
            # Until 2019 times were in ms, in a table of `bytes` and `res`.
            self._milliseconds = line.startswith("bytes ")
            self._errors = self._milliseconds or "error" in line
            self._per_iteration = "i_min" in line
            self._cpu_time = "cputime" in line
            self._behind = 3 if line.split()[-1] == "nchannels" else 0
        elif not text.lstrip().startswith("#"):
            self._other(text)
        return ()

    def finish(self) -> RunFacts:
        self._close()
        tests = {"unfinished": self._unfinished, "failed": self._failed}
        listed = {name: json.dumps(found) for name, found in tests.items() if found}
        return RunFacts(
            ended=not self._unfinished if self._test else None,
            attributes=listed | first_cause(self._causes if self._unfinished else ()),
        )

    def _other(self, text: str) -> None:
        if library := _LIBRARY.fullmatch(text):
            self._versions = self._versions[0], library[1]
        elif command := _PERF.fullmatch(text):
            self._collective = self._fallback = COLLECTIVES.get(command[1], self._collective)
        else:
            self._ending.read(text)

    def _begin(self) -> None:
        self._close()
        self._test += 1
        self._open = True
        self._collective = self._fallback
        self._ranks, self._mixed = {}, False

    def _end(self, line: str, *, counts: bool) -> None:
        """Note the end of the test; `counts` at the line of which every test prints one.

        Processes of a program that was built without MPI are tests of their own, and write at once:
        another of them began before this one.
        """
        if self._errors and (failed := _FAILED.fullmatch(line)):
            self._failed.append(self._named() | {"wrong": whole(failed[1])})
        if below := _BELOW.fullmatch(line):
            self._failed.append(self._named() | {"gbps": speed(below[1])})
        if counts and not self._open and self._unfinished:
            self._unfinished.pop()
        self._open = False

    def _close(self) -> None:
        """Note a test that has begun and not ended."""
        if self._open:
            self._unfinished.append(self._named())
            self._causes.append(self._ending.attributes(None))
        self._open = False
        self._ending = Ending()

    def _named(self) -> dict[str, object]:
        hosts = [self._ranks[rank][0] for rank in self._listed()]
        return {"test": self._test, "collective": self._collective, "hosts": hosts}

    def _listed(self) -> list[int]:
        """Return the ranks that talk to the first one: a split test has several groups at once.

        There are none where the list lacks a rank, or says two things of one.
        """
        groups = {rank: place[2] for rank, place in sorted(self._ranks.items())}
        if self._mixed or max(groups, default=0) >= len(groups):
            return []
        first = next(iter(groups.values()), None)
        return [rank for rank, group in groups.items() if group == first]

    def _row(self, words: list[str]) -> Rows | str:
        if self._cpu_time:
            return _CPU_TIME
        words = words[: len(words) - self._behind]
        if len(words) > 2 and _CLOCK.fullmatch(" ".join(words[-2:])):
            words = words[:-2]
        # Columns of a placement, and before those of both, or of in place alone.
        wide = 8 if self._per_iteration else 4
        first = next((len(words) - n for n in (2 * wide, wide) if 3 <= len(words) - n <= 5), 0)
        if not first:
            return _BROKEN
        operation = [word for word in words[3:first] if re.search("[a-z]", word)]
        in_place = words[-wide:]
        out_of_place = words[first:-wide] or ["N/A"]
        ranks = self._listed()
        shared = {
            "test": max(self._test, 1),
            "collective": self._collective,
            "size_bytes": whole(words[0]),
            "dtype": DTYPES.get(words[2], words[2]),
            "redop": next((word for word in operation if word != "none"), None),
            "ranks": len(ranks) or None,
            "hosts": [self._ranks[rank][0] for rank in ranks] or None,
            "devices": [self._ranks[rank][1] for rank in ranks] or None,
            "test_version": self._versions[0],
            "nccl_version": self._versions[1],
        }
        whole(words[1])
        rows = []
        for placement, printed in (("out", out_of_place), ("in", in_place)):
            if printed[0] == "N/A":
                continue
            time, algbw, busbw, wrong = printed[:4]
            speeds = {"algbw_gbps": speed(algbw), "busbw_gbps": speed(busbw)}
            time_ns = scaled(time, 6 if self._milliseconds else 3)
            found = {"time_ns": time_ns, **speeds, "wrong": self._wrong(wrong)}
            rows.append(("bandwidth_tests", {**shared, "placement": placement, **found}))
        return rows or _BROKEN

    def _wrong(self, text: str) -> int | None:
        """Return the number of wrong values.

        Early versions print the largest error instead, with an asterisk where that is too large.
        """
        if text == "N/A":
            return None
        value = number(text.removesuffix("*") if self._errors else text)
        return None if self._errors or math.isnan(value) else scaled(text, 0)


def speed(text: str) -> float | None:
    """Return a printed bandwidth; a time of zero gives `inf` or `nan`."""
    value = number(text)
    if value < 0:
        raise BadValueError(text)
    return value if math.isfinite(value) else None


def library_version(code: str | None) -> str | None:
    """Return the version of NCCL from its number, as 2.28.7 from 22807."""
    if code is None:
        return None
    value = whole(code)
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"


FORMAT = LineFormat(
    name="nccl_tests",
    doc="Standard output of nccl-tests (all_reduce_perf and the others), of all versions.",
    version=12,
    sniff=_sniff,
    preamble_of=("training_log", "optimus"),
    reader=_Reader,
    tables=("bandwidth_tests",),
    prefixed=True,
    stamp=_stamp,
    named_by="content",
    rejects={
        _BROKEN_RANK: "A line of a rank without its host or device.",
        _CPU_TIME: "A row of a test with `-C 1`: the processor's time to start the operation.",
    },
    lines=(
        Record(rf"{_DATE}?\s*\d+\s+\d+\s+[a-z]\w*\s.*"),
        Record(
            rf"{_DATE}?\s*(?:#.*"
            r"|(?:nThread|Rank|Out of bounds values|Avg bus bandwidth|size|bytes) .*)"
        ),
        Record(r".*[NR]CCL version(?: :)? \d.*|(?:.*[/ ])?\w+_perf(?:_mpi)?[,:]?(?: .*)?"),
        Record(LINE),
        Irrelevant("nccl", r".*NCCL (?:INFO|WARN|TRACE) .*", "Message of NCCL."),
        Irrelevant("blank", r"\s*", "Empty."),
        Reject(
            _BROKEN,
            rf".*\s{TEST_ROW}",
            "A row of a test that lacks values, or has other text in it.",
        ),
        Irrelevant("other", r".*", "Anything else: of the launcher, the network or the test."),
    ),
)
