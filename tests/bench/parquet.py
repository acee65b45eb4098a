"""Parquet layouts: time to write rows, size, and time of the queries that models make.

The rows are those of one run's communications. Layouts differ in encodings, codec, row groups or
order of rows. Each is written and read in a process of its own, which measures itself without its
start. Every query must give the same answer on each layout. DuckDB reads with one thread.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.answers import parquet_bytes
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.layouts import ACCESSES, CHOSEN, LAYOUTS, TABLE, answer, open_duckdb
from tests.bench.measure import (
    Candidate,
    Sample,
    WrongAnswerError,
    complete,
    run_rounds,
    tracelake,
    warm,
)
from tests.bench.trees import one_run
from tracelake.schema.tables import schema_hash, tables

NAME = "parquet"
_RANKS = 8_000
_RANK_BYTES = 15_000
_TIMES = 3


def run(settings: Settings) -> list[Result]:
    """Measures every layout, over a run of as many ranks as `size_bytes` allows."""
    rows = _rows(settings)
    warm([rows])
    count = pa.ipc.open_file(pa.memory_map(str(rows))).read_all().num_rows
    connection = open_duckdb()
    expected = {access: answer(connection, access, rows) for access in ACCESSES}
    samples: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    sizes: dict[str, int] = {}

    def candidate(layout: str) -> Candidate:
        def command(folder: Path) -> list[str | Path]:
            times = "1" if settings.tiny else str(_TIMES)
            return [sys.executable, "-m", "tests.bench.layouts", layout, rows, folder, times]

        def check(folder: Path, output: str) -> None:
            sizes[layout] = parquet_bytes(folder / layout)
            for case, sample in _measured(layout, output, expected).items():
                samples[case, layout].append(sample)

        return Candidate(layout, command, check, tree=settings.tree)

    layouts = list(LAYOUTS)[: None if settings.rivals else 1]
    candidates = [candidate(layout) for layout in layouts]
    run_rounds(candidates, repeat=settings.repeat, scratch=settings.scratch)
    return [
        Result(
            NAME,
            case,
            layout,
            Role.OURS if layout == CHOSEN else Role.PEER,
            samples[case, layout],
            count / 1e6,
            "M rows",
            {"parquet_mb": sizes[layout] / 1e6} if case == "write" else {},
        )
        for case in ("write", *ACCESSES)
        for layout in layouts
    ]


def _rows(settings: Settings) -> Path:
    """The communications of a run as an Arrow file, kept between runs."""
    ranks = 2 if settings.tiny else min(_RANKS, settings.size_bytes // _RANK_BYTES // 40 * 40 or 2)
    path = settings.work / "inputs" / f"{TABLE}-{ranks}-{schema_hash()}.arrow"
    if not path.exists():
        tree = one_run(settings.work, ranks)
        with tempfile.TemporaryDirectory(dir=settings.work) as folder:
            lake = Path(folder, "lake")
            complete(tracelake("ingest", tree.path, "--lake", lake, "--quiet"), Path(folder))
            parts = sorted(lake.glob(f"{TABLE}/*/*/*.parquet"))
            names = tables()[TABLE].storage_schema.names
            found = pa.concat_tables([pq.ParquetFile(part).read(names) for part in parts])
        with pa.ipc.new_file(path, tables()[TABLE].storage_schema) as file:
            file.write_table(found.unify_dictionaries(), max_chunksize=1 << 16)
    return path


def _measured(layout: str, output: str, expected: Mapping[str, str]) -> dict[str, Sample]:
    """What the process of a layout measured, by case.

    Raises:
        WrongAnswerError: An access gave something else than it gives of the rows.
    """
    found = {}
    for case, (told, times) in json.loads(output).items():
        if told != expected.get(case, ""):
            raise WrongAnswerError(f"{layout} gives other rows for {case!r}")
        found[case] = Sample(**times)
    return found


BENCH = Bench(NAME, __doc__ or "", run)
