"""Handle files with the start date in their name, a new one per start."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tracelake.base.errors import UsageError
from tracelake.base.files import put, put_link, refuse_uri, remove, remove_folder

# Placeholder -> its strftime format and its pattern; each sorts by time.
_FORMS = {
    "date": ("%Y-%m-%d", r"\d{4}-\d\d-\d\d"),
    "datetime": ("%Y%m%dT%H%M%SZ", r"\d{8}T\d{6}Z"),
}
_PLACEHOLDER = re.compile(r"\{(\w*)\}")
# Mark of a file that tracelake wrote.
_HEAD_BYTES = 4096


def filled(template: str, started: datetime) -> str:
    """Return a text with `{date}` and `{datetime}` replaced by a start time; see `Series`.

    Raises:
        UsageError: It has another placeholder.
    """
    for name in _PLACEHOLDER.findall(template):
        if name not in _FORMS:
            raise UsageError(
                f"no placeholder {{{name}}}",
                path=template,
                hint="one of " + ", ".join(f"{{{known}}}" for known in _FORMS),
            )
    moments = {"date": started, "datetime": started.astimezone(UTC)}
    return _PLACEHOLDER.sub(lambda m: moments[m[1]].strftime(_FORMS[m[1]][0]), template)


@dataclass(frozen=True, slots=True)
class Series:
    """The files of one template, such as `reports/{date}.html`.

    Attributes:
        template: A path in which `{date}` is the local day of the start, and `{datetime}` the
            start in UTC to the second.
        started: Start time, with a zone.
    """

    template: str
    started: datetime

    def __post_init__(self) -> None:
        refuse_uri(self.template)
        filled(self.template, self.started)

    @property
    def dated(self) -> bool:
        """Return whether every start, or every day, has its own file."""
        return bool(_PLACEHOLDER.search(self.template))

    @property
    def path(self) -> Path:
        """Return the file of this start."""
        return Path(filled(self.template, self.started))

    @property
    def latest(self) -> Path | None:
        """Return the link to the newest file: the template with `latest` instead of the date."""
        return Path(_PLACEHOLDER.sub("latest", self.template)) if self.dated else None

    def link_latest(self) -> None:
        """Point `latest` to the file of this start; copy the file if links are not possible.

        Raises:
            UsageError: It cannot be written.
        """
        if self.latest is None:
            return
        try:
            put_link(self.latest, os.path.relpath(self.path, self.latest.parent))
        except OSError:  # a file system without links
            put(self.latest, self.path.read_bytes())

    def prune(self, keep: int) -> list[Path]:
        """Remove all but the newest files of the template, and return which.

        It removes only files that tracelake wrote and whose whole name matches; the file of this
        start stays.

        Raises:
            OSError: A file cannot be removed.
        """
        if not self.dated:
            return []
        others = sorted(self._others(), reverse=True)
        removed = [path for _, path in others[keep - 1 :]]
        for path in removed:
            remove(path)
            if _PLACEHOLDER.search(os.path.dirname(self.template)):
                remove_folder(path.parent)
        return removed

    def _others(self) -> list[tuple[str, Path]]:
        """Return files of other starts with their dates."""
        literals = _PLACEHOLDER.split(self.template)[::2]
        found = []
        for name in glob.glob("*".join(map(glob.escape, literals))):
            path = Path(name)
            fits = self._pattern().fullmatch(name)
            if fits and path != self.path and _is_ours(path):
                found.append((max(fits.groups()), path))
        return found

    def _pattern(self) -> re.Pattern[str]:
        pieces = _PLACEHOLDER.split(self.template)
        known: set[str] = set()
        for place in range(1, len(pieces), 2):
            name = pieces[place]
            pieces[place] = f"(?P={name})" if name in known else f"(?P<{name}>{_FORMS[name][1]})"
            known.add(name)
        pieces[::2] = map(re.escape, pieces[::2])
        return re.compile("".join(pieces))


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return b"tracelake" in file.read(_HEAD_BYTES)
