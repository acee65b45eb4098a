"""Join the files that the processes or pods of one job write: each prints what all of them do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tracelake.formats import FileFacts, RunFacts
from tracelake.formats.endings import first_cause
from tracelake.formats.starts import runs_of

# `job-worker-0.log` beside `job-master-0.log`, `rank_3.txt`, `pod-1/out.log`; and what torchrun
# makes of `--log-dir`: `attempt_0/3/stdout.log`.
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])(?:master|(rank|worker|pod|host|node))[-_]?([0-9]{1,5})(?![A-Za-z0-9])"
    r"|(?<=/attempt_)[0-9]{1,5}/([0-9]{1,5})(?=/std(?:out|err)\.log)",
    re.IGNORECASE,
)


def group(files: Sequence[FileFacts], gap_seconds: float) -> list[list[FileFacts]]:
    """Return runs: files whose names differ in one number, without a gap, that begin together.

    A file whose name or head gives no such number or no date is a run by itself.
    """
    found = list[list[FileFacts]]()
    for run in runs_of(files, gap_seconds, _job, _place):
        places = sorted(place for file in run if (place := _place(file)) is not None)
        if len(run) > 1 and places[-1] - places[0] < len(run):
            path = PurePosixPath(run[0].path)
            name = _NUMBER.sub("", path.stem).strip("-_.") or path.parent.name or path.stem
            found.append([file._replace(stem=name) for file in run])
        else:
            found += ([file] for file in run)
    return found


def joined(found: Sequence[RunFacts]) -> RunFacts:
    """Return the facts of a job from those of its files: one has its sizes, another its steps."""
    ordered = sorted(found, key=lambda facts: int(facts.attributes.get("last_step", -1)))
    sizes = {key: size for facts in ordered for key, size in facts.topology.items()}
    attributes = {key: said for facts in ordered for key, said in facts.attributes.items()}
    cause = first_cause(facts.attributes for facts in found)
    ended = [facts.ended for facts in found if facts.ended is not None]
    if any(ended):
        return RunFacts(topology=sizes, attributes=attributes, ended=True)
    return RunFacts(sizes, attributes={**attributes, **cause}, ended=False if ended else None)


def _job(file: FileFacts) -> str | tuple[str, str]:
    """Return the path without the number; a file without a date is no other's companion."""
    if file.stamp is None:
        return "", file.path
    return _NUMBER.sub("#", file.path)


def _place(file: FileFacts) -> int | None:
    """Return the number in the path, of several the last one; that of `master` is before all."""
    found = [*_NUMBER.finditer(file.path)]
    if not found:
        return None
    return int(found[-1][2]) if found[-1][1] else int(found[-1][3] or -1)
