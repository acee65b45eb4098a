"""Fold runs that were found more than once under one name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from tracelake.ingest.find import InputFile

Sources = tuple[InputFile, ...]
Twins = tuple[tuple[InputFile, int], ...]


def fold_twins(
    found: Sequence[Sources], content_of: Callable[[InputFile], str | None]
) -> Iterator[tuple[Sources, Twins]]:
    """Return runs of one id; a run whose every input is in a larger one is a duplicate.

    Args:
        content_of: Hash of an input's content, None if it cannot be read.
    """
    if len(found) == 1:
        yield found[0], ()
        return
    runs: list[tuple[tuple[InputFile, ...], dict[str | None, int]]] = []
    twins: list[list[tuple[InputFile, int]]] = []
    holders: dict[str | None, list[int]] = defaultdict(list)
    for group in sorted(found, key=lambda group: (-len(group), group[0].entry.label)):
        contents = [content_of(c) for c in group]
        whole = (
            k
            for k in (holders[contents[0]] if None not in contents else ())
            if all(content in runs[k][1] for content in contents)
        )
        known = next(whole, None)
        if known is not None:
            index = runs[known][1]
            twins[known] += [(c, index[h]) for c, h in zip(group, contents, strict=True)]
            continue
        index = {content: i for i, content in reversed(list(enumerate(contents)))}
        for content in index:
            holders[content].append(len(runs))
        runs.append((group, index))
        twins.append([])
    for (group, _), folded in zip(runs, twins, strict=True):
        yield group, tuple(folded)
