"""One large file per format, from bytes to Parquet: tracelake compared with a user's own script.

The limit called `parquet` is the library that writes the rows: as many as tracelake wrote, from
memory, on a thread per processor. It measures itself, without its start.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.bench import answers, limits
from tests.bench.contract import Bench, Result, Role, Settings
from tests.bench.inputs import Prepared, prepare
from tests.bench.measure import Candidate, Sample, complete, run_rounds, tracelake, warm
from tests.bench.peers import narrow_peers, peers
from tracelake.formats import formats

NAME = "throughput"
OURS = "tracelake"
_WARM_UP_BYTES = 100_000


def run(settings: Settings) -> list[Result]:
    """Measures every large format."""
    return [row for name in settings.formats for row in _measure(settings, name)]


def ingest(settings: Settings, prepared: Prepared, source: Path, name: str = OURS) -> Candidate:
    """Ingest of one file into a fresh lake, the folder `tracelake` of the round."""
    return Candidate(
        name,
        lambda folder: tracelake("ingest", source, "--lake", folder / name, "--quiet"),
        lambda folder, _: answers.check_lake(folder / name, prepared.format, prepared.expected),
        tree=settings.tree,
    )


def warm_kernels(settings: Settings, name: str) -> None:
    """Has the checkout compile its kernels for a format, if it has not yet; no time is measured."""
    if settings.tiny:
        return
    source = prepare(settings.work, name, _WARM_UP_BYTES).path
    with tempfile.TemporaryDirectory() as folder:
        command = tracelake("ingest", source, "--lake", Path(folder, "lake"), "--quiet")
        complete(command, Path(folder), settings.tree)


def limit(name: str, path: Path, expected: str) -> Candidate:
    """A limit of `tests.bench.limits` on a file, and what it must print."""
    command = (sys.executable, "-m", "tests.bench.limits", name, path)
    return Candidate(name, lambda _: command, lambda _, text: answers.check_text(expected, text))


def _measure(settings: Settings, name: str) -> Iterator[Result]:
    prepared = prepare(settings.work, name, settings.size_bytes)
    warm_kernels(settings, name)
    warm([prepared.path])
    roles: dict[str, tuple[Candidate, Role]] = {}
    for role, candidates in (
        (Role.OURS, [ingest(settings, prepared, prepared.path)]),
        (Role.PEER, [_peer(prepared, peer) for peer in peers(name)] if settings.rivals else []),
        (Role.LIMIT, list(_limits(prepared)) if settings.rivals else []),
    ):
        roles |= {one.name: (one, role) for one in candidates}
    sizes: dict[str, float] = {}
    written: list[Sample] = []
    if settings.rivals:
        roles["parquet"] = (_writing(name, written), Role.LIMIT)
    samples = run_rounds(
        [_weighed(one, sizes) for one, _ in roles.values()],
        repeat=settings.repeat,
        scratch=settings.scratch,
    )
    if written:
        samples["parquet"] = written
    for candidate, (_, role) in roles.items():
        facts = {"parquet_mb": sizes[candidate] / 1e6} if sizes.get(candidate) else {}
        yield Result(
            NAME, name, candidate, role, samples[candidate], prepared.size_bytes / 1e6, facts=facts
        )


def _peer(prepared: Prepared, peer: str) -> Candidate:
    command = (sys.executable, "-m", "tests.bench.candidate", prepared.format, peer, prepared.path)
    return Candidate(
        peer,
        lambda folder: [*command, folder / peer],
        lambda folder, _: answers.check_peer(prepared, folder / peer),
        before=lambda folder: (folder / peer).mkdir(),
    )


def _limits(prepared: Prepared) -> Iterator[Candidate]:
    for peer in narrow_peers(prepared.format):
        yield _peer(prepared, peer)
    path = prepared.path
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    yield limit("read", path, str(prepared.size_bytes))
    yield limit("sha256", path, digest)
    for name, line in limits.programs().items():
        yield Candidate(
            name,
            lambda _, line=line: [*line, path],  # type: ignore[misc]
            lambda _, text: answers.check_text(str(prepared.lines), text),
        )


def _writing(name: str, written: list[Sample]) -> Candidate:
    """Writes the rows of the round's lake once more; adds what that took to `written`."""
    filled = formats()[name].tables

    def command(folder: Path) -> list[str | Path]:
        target = folder / "parquet"
        target.mkdir()
        return [sys.executable, "-m", "tests.bench.writing", folder / OURS, target, *filled]

    def check(folder: Path, output: str) -> None:
        said = json.loads(output)
        answers.check_count(folder / OURS, said["rows"])
        written.append(Sample(**said["times"]))

    return Candidate("parquet", command, check)


def _weighed(candidate: Candidate, sizes: dict[str, float]) -> Candidate:
    """The candidate, with the size of its Parquet noted."""

    def check(folder: Path, output: str) -> None:
        candidate.check(folder, output)
        sizes[candidate.name] = answers.parquet_bytes(folder / candidate.name)

    return replace(candidate, check=check)


BENCH = Bench(NAME, __doc__ or "", run)
