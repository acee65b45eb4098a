"""Read the structured logs of torchtitan: lines of JSON, a file per rank, of its spans on the host.

A span ends with a line that has its duration; the span `step` is the record of its step. Times are
those of the host, which does not wait for the device: `fwd_bwd` is the time to launch it, and what
blocked meanwhile.

Runs: files of a folder and source whose ranks differ and whose dates follow each other closely.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from tracelake.formats import FileFacts, RunFacts, first_text
from tracelake.formats.endings import UNCAUGHT, Ending, first_cause
from tracelake.formats.lines import Irrelevant, LineFormat, Record
from tracelake.formats.readers import BadValueError, Rows, rounded_ns
from tracelake.formats.starts import runs_of, stamp_of
from tracelake.schema.topology import LARGEST

_NAME = re.compile(
    r"(?P<source>.+)\.global_rank_(?P<rank>\d{1,9})\.(?P<date>\d{8}-\d{6})-\w+", re.ASCII
)
_HEADING = r'\{[^\n]*"global_rank": *(\d{1,9}),[^\n]*"log_type_name": *"'
_HEAD = re.compile(_HEADING.encode())
_BROKEN = "broken_record"


def _facts(path: str, head: bytes) -> FileFacts:
    stem = PurePosixPath(path).name.removesuffix(".jsonl")
    named, begun = _NAME.fullmatch(stem), _HEAD.match(first_text(head))
    rank = int(begun[1]) if begun else None
    if named is None:
        return FileFacts(path, stem, rank=rank)
    stamp = stamp_of(named["date"])
    return FileFacts(path, named["source"], rank=int(named["rank"]), stamp=stamp)


class _Reader:
    def __init__(self, facts: FileFacts) -> None:
        del facts
        self._ranks: set[int] = set()
        # Of the error with which spans ended, if none did without one after it.
        self._ending = Ending()
        self._failed = ""  # the span that it ends
        self._broken = False
        self._waited_ns = 0  # for data, in the step

    def read(self, text: str) -> Rows | str:
        try:
            event = json.loads(text, parse_float=str)
        except (ValueError, RecursionError):
            return _BROKEN
        name = event.get("log_type_name")
        if not isinstance(name, str) or not name.isprintable():
            return _BROKEN
        if name.endswith("_error") and event.get("task_name") is None:
            self._read_error(name, str(event.get("message")))
        span = name.removesuffix("_end")
        if span == name:
            return []
        if span == self._failed:  # its time is that until the error
            self._failed = ""
            return []
        rank, step, host = _size(event, "global_rank"), _size(event, "step"), event.get("host_name")
        time_ns = rounded_ns(str(event.get("value")), 6)
        if rank is None or time_ns < 0:
            raise BadValueError(text)
        self._ranks.add(rank)
        survived, self._broken = self._broken, False
        if survived:
            self._ending = Ending()
        timing = {
            "rank": rank,
            "host": host if isinstance(host, str) and host.isprintable() else None,
            "first_step": step,
            "last_step": step,
            "name": span,
            "statistic": "own",
            "duration_ns": time_ns,
            "clock": "host",
        }
        if span == "fetching_batch":
            self._waited_ns += time_ns
        # A step that survived an error is none, as where the data came to their end.
        if span != "step" or step is None or survived:
            return [("timings", timing)]
        record = {
            "step": step,
            "batches_covered": 1,
            "step_time_ns": time_ns,
            "rank": rank,
            "time_basis": "own",
        }
        data = timing | {"name": "data", "duration_ns": self._waited_ns}
        self._waited_ns = 0
        return [("train_steps", record), ("timings", timing), ("timings", data)]

    def _read_error(self, name: str, message: str) -> None:
        """Keep what a span ended with: `[step 4] step_error: TYPE: TEXT`."""
        self._failed = name.removesuffix("_error")
        self._broken = True
        for line in (UNCAUGHT, message.partition(f"{name}: ")[2].partition("\n")[0].rstrip(": ")):
            self._ending.read(line)

    def finish(self) -> RunFacts:
        return RunFacts(
            ranks=frozenset(self._ranks),
            ended=False if self._broken else None,
            attributes=self._ending.attributes(None),
        )


def _join(found: Sequence[RunFacts]) -> RunFacts:
    """Return the facts of a run of several ranks: what ended one of them ended the job."""
    ranks = frozenset[int]().union(*(facts.ranks or () for facts in found))
    cause = first_cause(facts.attributes for facts in found)
    ended = False if any(facts.ended is False for facts in found) else None
    return RunFacts(ranks=ranks, ended=ended, attributes=cause)


def _size(event: Mapping[str, Any], key: str) -> int | None:
    value = event.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise BadValueError(key)
    return value


FORMAT = LineFormat(
    name="torchtitan_spans",
    doc="Structured logs of torchtitan: spans on the host, a file of JSON lines per rank.",
    version=3,
    heading=_HEADING,
    facts=_facts,
    group=functools.partial(runs_of, job_of=lambda f: (PurePosixPath(f.path).parent, f.stem)),
    reader=_Reader,
    join=_join,
    tables=("train_steps", "timings"),
    rejects={_BROKEN: "The line is no JSON object with a `log_type_name` of printable text."},
    lines=(
        Irrelevant(
            "instant",
            r'\{.*"log_type": "instant".*\}',
            "Marks and numbers, such as counts of tokens.",
        ),
        Record(r"\{.*\}"),
        Irrelevant("blank", r"\s*", "Empty."),
    ),
)
