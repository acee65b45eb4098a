"""Derive what people call a run from the paths of its files."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence

from tracelake.formats import FileFacts

_LENGTH = 80
# A scheduler's job: slurm-4711.out, slurm_4711_3, job-4711, jobid=4711.
_SLURM = re.compile(r"(?:slurm|job|jobid|job_id)[-_.=]\d{3,}(?:_\d+)?", re.IGNORECASE)
# Folders that are named for what is in them, not for a job.
_GENERIC = re.compile(
    r"\.+|logs?|traces?|data|outputs?|out|stdout|stderr|results?|profiles?|raw|files?"
    r"|(?:ranks?|workers?|stages?|nodes?|hosts?|gpus?|tp|pp|dp)[-_]?\d*",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r".*\d", re.DOTALL)
# A folder that is named for a run or job although its files have names of their own.
_JOB = re.compile(r"(?:job|run|exp|experiment|trial|night|jobid)[-_.]?\w*\d\w*", re.IGNORECASE)
_PACKED = re.compile(r"\.(?:tar|tgz|zip|tar\.\w+)$", re.IGNORECASE)


def label_of_run(sources: Sequence[FileFacts]) -> str:
    """Return what people call a run of these files.

    That is the value of `--run-pattern`'s group `run`, else a Slurm job in the path, else the
    job's folder, else the name. It depends on the run's own files only, so that a run has the same
    label whatever is ingested with it.
    """
    first = min(sources, key=lambda s: (s.rank is None, s.rank or 0, s.path))
    if first.run:
        return first.run[:_LENGTH]
    hosts = {source.host for source in sources if source.host}
    folders = _folders(sources, hosts)
    file_name = posixpath.basename(first.path) if len(sources) == 1 else ""
    for piece in filter(None, [file_name, *reversed(folders)]):
        if found := _SLURM.search(piece):
            return found[0][:_LENGTH]
    if folders and (first.rank is not None or _names_the_job(folders[-1], first.stem)):
        return folders[-1][:_LENGTH]
    return first.stem[:_LENGTH] or "run"


def _names_the_job(folder: str, stem: str) -> bool:
    """Return whether the folder of a run of one file says more than the file's name."""
    return _JOB.fullmatch(folder) is not None or _NUMBERED.match(stem) is None


def _folders(sources: Sequence[FileFacts], hosts: set[str]) -> list[str]:
    """Return the folders that all files share, the innermost last, without hosts and the like."""
    shared = os.path.commonpath([posixpath.dirname(source.path) or "." for source in sources])
    pieces = [_PACKED.sub("", piece) for piece in shared.split("/")]
    return [
        piece
        for piece in pieces
        if piece and piece not in hosts and _GENERIC.fullmatch(piece) is None
    ]
