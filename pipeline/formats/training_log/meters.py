"""Read loops that print meters, as those of vision and of image-text models do.

They are timm, the ImageNet example of PyTorch and Swin, the loggers of DETR, MAE and DINO, those of
OpenMMLab (mmcv, MMEngine, XTuner), open_clip and Detectron2. Each line has the place within the
epoch, the time of a step, and the part of it that the loop waited for data. That time is of one
step, or the mean since the record before, or that of the last steps, however often they are
printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tracelake.formats.readers import number, rounded_ns
from tracelake.formats.training_log.values import WAITED, StepLines, StepValues, numbers_in

_N = r"[0-9.]+(?:e[+-]?[0-9]+)?"
_AT = r"\[ *(?P<at>\d{1,9})/(?P<of>\d{1,9})"
_EPOCH = r"(?P<epoch>\d{1,6})"
# What a record prints beside. It ends where another record can begin, so that a line of thousands
# of beginnings is searched in one pass.
_GAP = r"[^\[\n]*?"
# What a time is: of this step; the mean since the record before, also where the place is counted in
# samples; the mean of the latest steps, or of those of this epoch.
_OWN, _SINCE, _SAMPLES, _LATEST, _LATEST_OF_EPOCH = range(5)


@dataclass(frozen=True, slots=True)
class _Loop:
    """Say how a loop prints its steps.

    Attributes:
        word: Part of each line: to look for that takes a tenth of the time.
        first: Number of the first step and of the first epoch; None if versions differ.
        window: Steps of a mean of the latest ones, where the log does not say it.
    """

    word: str
    line: str
    time: int
    first: int | None = 0
    window: int = 0


_LOOPS = (
    _Loop(
        "Epoch: [",
        rf"\bEpoch: \[{_EPOCH}\]{_AT}\]\s+Time +(?P<time>{_N}) \( *{_N}\)"
        rf"\s+Data +(?P<data>{_N}) \( *{_N}\)",
        _OWN,
        first=None,
    ),
    _Loop(
        "Train: [",
        rf"\bTrain: \[{_EPOCH}/(?P<epochs>\d{{1,6}})\]{_AT}\]\s+eta "
        rf"{_GAP}\stime (?P<time>{_N}) \({_N}\)",
        _OWN,
    ),
    _Loop(
        "Train: ",
        rf"\bTrain: {_EPOCH} {_AT} \( *\d+%\)\]{_GAP}\bTime: (?P<time>{_N})s, +(?P<rate>{_N})/s +\("
        rf"[^\[\n]{{0,300}}?\bData: (?P<data>{_N}) \({_N}\)",
        _OWN,
    ),
    _Loop(
        " data: ",  # LLaMA-Adapter and what came of it print no `eta`
        rf"\b(?:Epoch: \[{_EPOCH}(?:/(?P<epochs>\d{{1,6}}))?\]|Training) +{_AT}\] +(?:eta|lr): "
        rf"{_GAP}\stime: (?P<time>{_N}) +data: (?P<data>{_N})",
        _LATEST_OF_EPOCH,
        window=20,
    ),
    _Loop(
        "data_time: ",
        rf"\b(?:Epoch \[{_EPOCH}\]|Iter ){_AT}\]\s+lr\w*: {_GAP}\stime: (?P<time>{_N}),"
        rf" data_time: (?P<data>{_N}),",
        _SINCE,
        first=1,
    ),
    _Loop(
        "(train)",
        rf"\b(?:Epoch|Iter)\(train\) +(?:\[{_EPOCH}\])?{_AT}\] {_GAP}\stime: (?P<time>{_N})"
        rf" +data_time: (?P<data>{_N})",
        _LATEST,
        first=1,
        window=10,
    ),
    _Loop(
        "Batch (t)",
        rf"\bTrain Epoch: {_EPOCH} {_AT} \(\d+%\)\]{_GAP}\bData \(t\): (?P<data>{_N})"
        rf" Batch \(t\): (?P<time>{_N}), (?P<rate>{_N})/s",
        _SAMPLES,
    ),
    _Loop(
        "last_time: ",
        rf"\biter: (?P<at>\d{{1,9}}) +total_loss: (?:(?!iter: ).)*?\slast_time: (?P<time>{_N})"
        rf" +data_time: {_N} +last_data_time: (?P<data>{_N})",
        _OWN,
    ),
)
_WINDOW_SIZE = re.compile(
    r".*\blog_processor = dict\(.{0,300}\bwindow_size=(\d{1,6})\b.*", re.ASCII
)
_LINES = [(loop, re.compile(f".*{loop.line}.*", re.ASCII)) for loop in _LOOPS]
# What is printed beside the times: columns, where they are a number as it stands.
_VALUES = (
    ("loss", re.compile(rf"(?<!\w)(?:total_)?[Ll]oss:? +({_N}|nan|inf)(?![\w.])", re.ASCII)),
    ("lr", re.compile(rf"(?<!\w)(?:lr|LR):? +({_N})(?![\w.])", re.ASCII)),
    ("grad_norm", re.compile(rf"(?<!\w)grad_norm:? +({_N}|nan|inf)(?![\w.])", re.ASCII)),
)
_MEMORY = re.compile(r"(?<!\w)(?:memory:|max[ _]mem:|mem) +(\d{1,9})(?:MB?)?(?!\w)", re.ASCII)


class Meters(StepLines):
    """Reads the lines of one file, in order."""

    LINES = (
        r".*(?:\bEpoch: \[\d+\]\[ *\d+/\d+\]\s+Time |\bTrain: \[\d+/\d+\]\[ *\d+/\d+\]\s+eta "
        r"|\bTrain(?: Epoch)?: \d+ \[ *\d+/\d+ \(|\] +(?:eta|lr): .*\stime: "
        rf"|\sdata_time: {_N}|\bwindow_size=).*"
    )
    HEADS = tuple((loop.word.encode(), loop.line.encode()) for loop in _LOOPS)

    def __init__(self) -> None:
        self._first = 1  # where the loop does not say it: 0 once a record has that
        self._samples = 0  # at the first record, where samples are counted
        self._batch = 0  # samples of a step, of all ranks
        self._since = 0  # steps done at the end of the latest mean
        self._window = 0

    def read(self, text: str) -> Iterator[StepValues]:
        """Yield what a line says of steps."""
        for loop, line in _LINES:
            if loop.word in text and (found := line.fullmatch(text)):
                yield from self._record(loop, found.groupdict(), text)
                return
        if "window_size=" in text and (found := _WINDOW_SIZE.fullmatch(text)):
            self._window = int(found[1])

    def _record(self, loop: _Loop, fields: dict[str, Any], text: str) -> Iterator[StepValues]:
        """Yield the record of a line, and the mean that it prints."""
        values = _values(text)
        if fields.get("rate"):
            values["samples_per_s"] = number(fields["rate"])
        times: dict[str, Any] = {"step_time_ns": rounded_ns(fields["time"], 9)}
        if fields.get("data"):
            times["timers"] = [(WAITED, "own", rounded_ns(fields["data"], 9))]
        steps = self._steps(loop, fields)
        if steps is None:
            return
        step, of_epoch = steps
        before = step + 1 if self.done is None else self.done
        self.done = step
        covered = self._covered(loop, step, of_epoch, before)
        if covered == 1:
            yield step, 1, values | times
            return
        yield step, None, values
        if covered:
            yield step, covered, times

    def _steps(self, loop: _Loop, fields: dict[str, Any]) -> tuple[int, int] | None:
        """Return how many steps are done, of the job and of the epoch; None if that is unknown."""
        at, of, epoch = (int(fields.get(key) or 0) for key in ("at", "of", "epoch"))
        if loop.time == _SAMPLES:
            # The first record is that of a first step. With the next one it tells how many samples
            # a step has, also where the log begins later.
            known, self._batch = self._batch, math.gcd(self._batch, at)
            if not known or not self._batch:
                self._samples = at
                return None
            before = epoch * (of // self._batch)
            if self.done is None:
                self.done = before + self._samples // self._batch
            return before + at // self._batch, at // self._batch
        self._first = min(self._first, at)
        first = self._first if loop.first is None else loop.first
        done = at + 1 - first
        if fields.get("epochs"):
            self.total = int(fields["epochs"]) * of
        elif not fields.get("epoch"):
            self.total = of
        return max(epoch - (loop.first or 0), 0) * of + done, done

    def _covered(self, loop: _Loop, step: int, of_epoch: int, before: int) -> int:
        """Return how many steps the time of a record is of; 0 where it says too little."""
        if loop.time == _OWN:
            return 1
        begins = step < before
        if loop.time in (_SINCE, _SAMPLES):
            return 0 if begins else min(step - before, of_epoch)
        anew, window = loop.time == _LATEST_OF_EPOCH, self._window or loop.window
        latest = min(window, of_epoch if anew else step)
        if begins:
            # Of a job that was resumed nothing says how many of the latest steps there are.
            self._since = 0 if anew or step <= window else step
        if latest > step - self._since:  # the means of the latest records have common steps
            return 0
        self._since = step
        return latest


def _values(text: str) -> dict[str, Any]:
    values = numbers_in(text, _VALUES)
    if found := _MEMORY.search(text):
        values["memory_bytes"] = int(found[1]) << 20
    return values
