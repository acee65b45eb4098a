"""Read the JSON files of nccl-tests (`-J FILE`), also of a test that never ended.

The writer puts one document on one line, so `line` is the number of the result. Processes with
several devices name only their first one; the others follow it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from tracelake.formats import Claim, FileFacts, Format, Run, RunFacts, first_text
from tracelake.formats.documents import BadDocumentError, DocumentParser, Documents, Tables
from tracelake.formats.nccl_tests import COLLECTIVES, DTYPES, collective_of, library_version, speed
from tracelake.formats.readers import BadValueError, number, rounded_ns, whole
from tracelake.formats.starts import stamp_of
from tracelake.schema.tables import tables

_HEAD = re.compile(rb'\{\s*"version"\s*:\s*[0-9]+\s*,')
_ARGS = re.compile(rb'"args"\s*:\s*\[\s*"[^"]*_perf"')
_START = re.compile(rb'"start_time"\s*:\s*"([0-9: -]{19})"')
_RESULTS = re.compile(r'"results"\s*:\s*\[')
_INFINITE = re.compile(r"(?<=[:\[,])(\s*)-?inf\b")
_PLACEMENTS = (("out_of_place", "out"), ("in_place", "in"))
_MOST_RANKS = 1 << 20
_BROKEN = "broken_document"
_BAD_VALUE = "bad_value"


def _sniff(head: bytes) -> Claim:
    return Claim.YES if _HEAD.match(first_text(head)) and _ARGS.search(head) else Claim.NO


def _facts(path: str, head: bytes) -> FileFacts:
    found = _START.search(head)
    stamp = stamp_of(found[1].decode()) if found else None
    return FileFacts(path, PurePosixPath(path).stem, stamp=stamp)


def _read(run: Run, documents: Documents) -> tuple[RunFacts, Tables]:
    """Return facts and rows of the file of a run."""
    (source, data), *_ = documents.items()
    try:
        text = data.decode("utf-8-sig")
        document, results, ended = _document(text)
        shared = _shared(document, run.sources[source].stem)
        rows = [
            {"line": line, **row}
            for line, result in enumerate(results, start=1)
            for row in _rows(result, shared)
        ]
        if not all(map(tables()["bandwidth_tests"].holds, rows)):
            raise BadValueError("a number is too large")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        wrong = _BAD_VALUE if isinstance(error, BadValueError) else _BROKEN
        raise BadDocumentError(wrong) from error
    names = ("line", *(rows[0] if rows else ()))
    columns: dict[str, list[object]] = {name: [row[name] for row in rows] for name in names}
    columns["source_id"] = [source] * len(rows)
    lost = {"test": 1, "collective": shared["collective"], "hosts": shared["hosts"] or []}
    facts = RunFacts(ended=ended, attributes={} if ended else {"unfinished": json.dumps([lost])})
    return facts, {"bandwidth_tests": columns}


def _document(text: str) -> tuple[dict[str, Any], Sequence[Any], bool]:
    """Return what a document says, its results, and whether the test ended.

    Where the document is cut, the results that are whole count.
    """
    text = _INFINITE.sub(r"\1null", text)
    found = _RESULTS.search(text)
    try:
        document = json.loads(text, parse_float=str)
    except ValueError:
        if found is None:
            raise
        document = json.loads(text[: found.end()] + "]}", parse_float=str)
        return document, list(_whole(text, found.end())), False
    return document, document.get("results", []), "average_bus_bandwidth" in document


def _whole(text: str, at: int) -> Iterator[Any]:
    """Yield the objects of a list up to where the text is cut."""
    decoder = json.JSONDecoder(parse_float=str)
    while True:
        while at < len(text) and text[at] in ", \r\n\t":
            at += 1
        try:
            result, at = decoder.raw_decode(text, at)
        except ValueError:
            return
        yield result


def _shared(document: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """Return the columns that all rows of a test have."""
    args, config = document.get("args") or [""], document["config"]
    name = PurePosixPath(str(args[0])).name.removesuffix("_perf")
    each = whole(str(config.get("nthreads", 1))) * whole(str(config.get("ngpus", 1)))
    processes = sorted(config.get("devices") or [], key=lambda one: int(one["rank"]))
    # A split test has several groups at once, and its results are of the first rank's.
    processes = [one for one in processes if one.get("group") == processes[0].get("group")]
    if not 1 <= each * max(len(processes), 1) <= _MOST_RANKS:
        raise BadValueError(str(each))
    places = [
        (str(one["hostname"]), int(one["device"]) + i) for one in processes for i in range(each)
    ]
    version = document.get("nccl_version")
    return {
        "test": 1,
        "collective": COLLECTIVES.get(name, name) or collective_of(stem),
        "ranks": len(places) or None,
        "hosts": [host for host, _ in places] or None,
        "devices": [str(device) for _, device in places] or None,
        "nccl_version": library_version(str(version)) if version is not None else None,
    }


def _rows(result: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a result: out of place and in place."""
    dtype, redop = str(result["type"]), result.get("redop")
    for key, placement in _PLACEMENTS:
        if not (found := result.get(key)):
            continue
        wrong = found.get("nwrong")
        yield {
            **shared,
            "size_bytes": whole(str(result["size"])),
            "dtype": DTYPES.get(dtype, dtype),
            "redop": None if redop in (None, "none", "") else str(redop),
            "placement": placement,
            "time_ns": rounded_ns(str(found.get("time", found.get("cpu_time"))), 3),
            "algbw_gbps": _speed(found.get("alg_bw")),
            "busbw_gbps": _speed(found.get("bus_bw")),
            "wrong": None if wrong is None else round(number(str(wrong))),
        }


def _speed(value: object) -> float | None:
    return None if value is None else speed(str(value))


FORMAT = Format(
    name="nccl_tests_json",
    doc="JSON files of nccl-tests (-J), also of tests that never ended.",
    version=2,
    tables=("bandwidth_tests",),
    sniff=_sniff,
    facts=_facts,
    parser=lambda run, ledger: DocumentParser(_read, run, ledger),
    rejects={
        _BROKEN: "The document is cut before its results, or is none of nccl-tests.",
        _BAD_VALUE: "A value is missing, or its column cannot hold it.",
    },
    irrelevant={"unread": "Other lines of a document that is rejected."},
    volume="document",
    named_by="content",
    dated_by="content",
)
