"""Join the files that the processes or pods of one job write: each prints what all of them do."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import PurePosixPath

from tracelake.formats import FileFacts, RunFacts
from tracelake.formats.endings import first_cause, without_cause
from tracelake.formats.starts import runs_of
from tracelake.formats.training_log.heads import Heads

# `job-worker-0.log` beside `job-master-0.log`, `rank_3.txt`, `pod-1/out.log`; what Slurm makes of
# `%j-%N` and `%j.%t`, `gpt-12347-gpu017.log` (hosts by their usual names) and `gpt-12347.3.log`;
# and what torchrun makes of `--log-dir`: `attempt_0/3/stdout.log`.
_DATE = "20[0-9]{2}[01][0-9][0-3][0-9]"
_BEHIND_JOB = rf"(?<=[0-9]{{5}}[-_.])(?<!(?<![0-9]){_DATE}[-_.])"
_HOST = "(?:gpu|cn|compute|node|g?[abh][0-9]00|mi[0-9]{3}|ip-|r[0-9]+n)[a-z0-9-]*"
_ENDS = r"(?=\.(?:log|out|err|txt)$)"
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])(?P<word>master|rank|worker|task|pod|host|node|dgx|hgx|nid)"
    r"[-_]?(?P<of>[0-9]{1,6})(?![A-Za-z0-9])"
    rf"|{_BEHIND_JOB}(?<=\.)(?P<task>[0-9]{{1,5}}){_ENDS}"
    rf"|{_BEHIND_JOB}{_HOST}{_ENDS}"
    r"|(?P<attempt>/attempt_[0-9]+/)(?P<local>[0-9]{1,5})(?=/std(?:out|err)\.log)",
    re.IGNORECASE,
)
# What tells files of streams apart: `gpt-12347.err` and `.out`, `attempt_0/3/stderr.log`.
_STREAM = re.compile(
    r"(?:[_.-]|(?<![^/]))"
    r"(?:(?P<errors>(?:std)?err|errors?)|(?:std)?out|output|log|txt)(?![^/_.-])",
    re.IGNORECASE,
)
ERRORS: Heads = tuple(
    (word, re.escape(word))
    for word in (b"Traceback (most", b"slurmstepd: ", b"srun: error: ", b"it/s", b"s/it")
)
"""What Python, Slurm and bars print to the stream of errors."""
# That of a scheduler, no date.
_JOB_NUMBER = re.compile(rf"(?<![0-9])(?!{_DATE}(?![0-9]))[0-9]{{5,}}")


def group(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Return runs: files whose paths differ in numbers of processes, and that begin together.

    A file without such a number or without a date is a run by itself, and so are files between
    whose numbers there are gaps, `gpt-node4.log` and `gpt-node8.log`, unless one is that of the
    first process: those between may say nothing of steps. Where the path has the number of a job,
    or of an attempt of torchrun, it tells by itself which files are of one start. A file of errors
    belongs to that whose path differs in the name of the stream, else to the one run whose paths
    differ in that and in numbers of processes.
    """
    sure, others = list[FileFacts](), list[FileFacts]()
    begun: dict[str, datetime] = {}  # each job that a path tells by itself
    errors = _errors(files)
    for file in files:
        if file.key not in errors:
            (sure if _names_start(file) else others).append(file)
    for file in sure:
        if file.stamp:
            begun[_path(file)] = min(file.stamp, begun.get(_path(file), file.stamp))
    dated = [file._replace(stamp=file.stamp or begun.get(_path(file))) for file in sure]
    found = runs_of(dated, math.inf, _path, _places)
    for run in runs_of(others, gap_seconds, _job, _places):
        given = run[0].run is not None
        if given or all(map(_belong, zip(*map(_numbers, run), strict=True))):
            found.append(run)
        else:
            found += ([file] for file in run)
    runs = [_named(run) for run in sorted(found, key=lambda run: run[0].path)]
    return [*runs, *_with_errors(runs, [file for file in files if file.key in errors])]


def _errors(files: Sequence[FileFacts]) -> set[int]:
    """Return the keys of files that are no run by themselves, or have one beside them."""
    files = [file for file in files if file.run is None]  # else the run is given
    named = {f.key for f in files if any(name["errors"] for name in _STREAM.finditer(f.path))}
    outputs = [f for f in files if named and not (f.beside or f.key in named)]
    homes = {place for file in outputs for place in _streams(file)}
    return {
        f.key for f in files if f.beside or (f.key in named and not homes.isdisjoint(_streams(f)))
    }


def _with_errors(
    runs: Sequence[list[FileFacts]], errors: Sequence[FileFacts]
) -> Iterator[list[FileFacts]]:
    """Add files of errors to their runs, and yield those that have none."""
    homes: defaultdict[str, set[int]] = defaultdict(set)
    for number, run in enumerate(runs if errors else ()):
        for file in run:
            for place in _streams(file):
                homes[place].add(number)
    for file in errors:
        found = next((home for place in _streams(file) if len(home := homes[place]) == 1), set())
        for number in found:
            runs[number].append(file._replace(stem=runs[number][0].stem, beside=True))
        if not found:
            yield [file]


def _streams(file: FileFacts) -> tuple[str, str]:
    """Return the path without the name of its stream, and without numbers of processes too."""
    return _STREAM.sub("", file.path), _STREAM.sub("", _path(file))


def joined(found: Sequence[RunFacts]) -> RunFacts:
    """Return the facts of a job from those of its files: one has its sizes, another its steps.

    Files that contradict each other are of several jobs: no size holds for all of their records,
    and they have ended when each has.
    """
    if len(found) == 1:
        return found[0]
    ordered = sorted(found, key=lambda facts: int(facts.attributes.get("last_step", -1)))
    sizes = {key: size for facts in ordered for key, size in facts.topology.items()}
    alike = all(facts.topology.items() <= sizes.items() for facts in found)
    attributes = {key: value for facts in ordered for key, value in facts.attributes.items()}
    known = [facts.ended for facts in found if facts.ended is not None]
    ended = (any(known) if alike else all(known)) if known else None
    cause = {} if ended else first_cause(facts.attributes for facts in found)
    return RunFacts(
        sizes if alike else {},
        ended=ended,
        model=next((facts.model for facts in found if facts.model), None),
        params=next((facts.params for facts in found if facts.params), None),
        attributes={**without_cause(attributes), **cause},
    )


def _names_start(file: FileFacts) -> bool:
    """Return whether a path with the number of a process has that of a job or an attempt."""
    name = PurePosixPath(file.path).name
    found = [*_NUMBER.finditer(file.path)]
    of_job = bool(found) and _JOB_NUMBER.search(_NUMBER.sub("", name))
    return bool(of_job) or any(number["attempt"] for number in found)


def _named(run: list[FileFacts]) -> list[FileFacts]:
    """Return files that were joined by their numbers under a name without these."""
    if len(run) == 1 or run[0].run is not None:
        return run
    path = PurePosixPath(run[0].path)
    rest = _NUMBER.sub("", path.name).removesuffix(path.suffix).strip("-_.")
    return [file._replace(stem=rest or path.parent.name or path.stem) for file in run]


def _belong(numbers: Sequence[int]) -> bool:
    """Return whether these may be the numbers of the processes of one job."""
    return min(numbers) <= 0 or max(numbers) - min(numbers) < len({*numbers})


def _job(file: FileFacts) -> str | tuple[str, str]:
    """Return the path without its numbers; a file without a date is no other's companion."""
    return _path(file) if file.stamp else ("", file.path)


def _path(file: FileFacts) -> str:
    return _NUMBER.sub(lambda number: f"{number['attempt'] or ''}#", file.path)


def _places(file: FileFacts) -> tuple[str, ...]:
    """Return what tells the file from those of other processes."""
    return tuple(found[0] for found in _NUMBER.finditer(file.path))


def _numbers(file: FileFacts) -> tuple[int, ...]:
    """Return the numbers in the path; the master is before the first worker."""
    return tuple(
        int(found["of"] or found["task"] or found["local"])
        - ((found["word"] or "").lower() == "master")
        for found in _NUMBER.finditer(file.path)
    )
