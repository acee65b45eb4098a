"""Read what the Trainer of Hugging Face prints, and what is built on it (TRL, axolotl, ms-swift).

A record is a dict with the mean loss since the record before it. It has no step: the Trainer draws
its bar again right behind it, and that bar has. Bars count whole seconds, so the time of a step is
a mean over as many steps as take half a minute. The Trainer of PaddleNLP, which has the same
heading, prints lines with the step and the time since the record before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tracelake.formats.readers import number, rounded_ns, whole
from tracelake.formats.training_log.elapsed import SECOND_NS, Elapsed, clock_ns
from tracelake.formats.training_log.job import BATCH, EPOCHS, EXAMPLES, STEPS
from tracelake.formats.training_log.values import PRINTED, StepLines, StepValues, gib, value_of

_BAR = re.compile(
    r"\s*(?:(?:Train|Steps): +)?\d{1,3}%\|[^|]*\| *(\d{1,9})/(\d{1,9})"
    r" \[(?:(\d{1,5}):)?(\d\d):(\d\d)<[^\]]*(?:s/it|it/s)(?:([^\]{]*)\])?",
    re.ASCII,
)
# A record, and the summary behind the last one.
_DICT = re.compile(r"\{'(loss|train_runtime)': [^{}]*\}")
_VALUES = re.compile(r"'([^']+)': '?([^',{}]+)'?(?=[,}])")
_OF = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+)d )?(?:(\d+)h )?(?:(\d+)m )?(\d+)s", re.ASCII)
_COLUMNS = (
    *("loss", "grad_norm", "learning_rate"),
    *("interval_tokens_per_second_per_device", "interval_hardware_tflops_per_device"),
)
_MEMORY = ("memory(GiB)", "max_memory_allocated")
# Of PaddleNLP.
_LINE = (
    r"\bloss: [0-9nai.-][^,]*, learning_rate: .*\bglobal_step: [0-9]+, .*\binterval_runtime: [0-9]"
)
_INTERVAL = re.compile(rf"{_LINE}.*", re.ASCII)
_PAIR = re.compile(rf"\b(\w+): ({PRINTED})(?=,|\s|$)", re.ASCII)
_SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second")


class Trainer(StepLines):
    """Reads what the Trainer prints into one file, in order.

    Attributes:
        ended: It printed its summary behind them.
        summary: Values of the summary, as printed.
        behind: What another writer wrote behind the bar that was read last; None if it was no bar.
    """

    LINES = (
        r".*(?:/\d+ \[[\d:]+<.*(?:s/it|it/s)|\{'(?:loss|train_runtime)': |, interval_runtime: ).*"
    )
    HEADS = (
        (b"{'loss': ", rb"\{'loss': '?[0-9.nai-][^{}]*, 'learning_rate': '?[0-9]"),
        (b", interval_runtime: ", _LINE.encode()),
        (b"{'train_runtime': ", rb"\{'train_runtime': '?[0-9]"),
        (b"Total train batch size (w. ", rb"Total train batch size \(w\. parallel[^)]*\) = [0-9]"),
    )

    def __init__(self, heading: Mapping[str, int]) -> None:
        """Begin with the heading of the job that prints, by its words."""
        self.ended = False
        self.summary: dict[str, str] = {}
        self.behind: str | None = None
        self._heading = heading
        self._elapsed = Elapsed(SECOND_NS)
        self._waiting: dict[str, str] | None = None  # what its bar has not followed yet
        self._has_bar = False
        self._anew = False  # another training followed, without a heading of its own
        self._between = False  # a bar came since the latest dict
        self._aside = False  # a bar of another loop came since the latest one of the job
        self._digits = 0  # most that an epoch was printed with: zeros at its end are left out

    def read(self, text: str) -> Iterator[StepValues]:
        """Yield what a bar or a dict says of steps."""
        self.behind, at = None, 0
        while bar := _BAR.match(text, at):
            self._between = True
            done, total = int(bar[1]), int(bar[2])
            job = self._heading.get(STEPS)
            # Other loops draw bars, too: only behind a record a bar is the job's by its place.
            certain = self.total is not None and self.total == job and not self._anew
            if total not in (self.total, job) and (certain or not self._waiting):
                self._aside = True
                break
            at, self._has_bar = bar.end(), True
            # With values behind it, a bar is drawn again for each micro-batch.
            aside, self._aside = self._aside, False
            waiting, self._waiting = self._waiting, None
            if waiting and (step := self._step_at(done, waiting)):
                yield from self._record(step, total, waiting)
            yield from self._record(done, total, None)
            at_ns = clock_ns(bar[3], bar[4], bar[5])
            yield from self._elapsed.take(done, at_ns, waited=not bar[6], aside=aside)
        if at:
            self.behind = text[at:].strip()
            return
        if "interval_runtime: " in text and (line := _INTERVAL.search(text)):
            yield from self._interval(dict(_PAIR.findall(line[0])))
        elif found := _DICT.search(text):
            values = dict(_VALUES.findall(found[0]))
            if found[1] == "loss":
                self._anew |= self.ended
                self.ended = False
                yield from self._dict(values)
            else:
                self.ended, self._waiting = True, {}
                self.summary = {key: values[key] for key in _SUMMARY if key in values}

    def _dict(self, values: dict[str, str]) -> Iterator[StepValues]:
        """Yield the record of a dict that says its step; else it waits for its bar."""
        # Where two dicts have no bar between them, the next bar is that of neither.
        waits, self._between = self._between, False
        again, self._waiting = self._waiting, None
        # The board of LLaMA-Factory has the record written twice, first by a logger of its own.
        waits |= again is not None and _as_the_board_prints(again) == _as_the_board_prints(values)
        step = values.get("global_step") or values.get("step", "")  # `step` until 2020
        # Of ms-swift, which calls it otherwise where Megatron-LM trains.
        said = values.get("global_step/max_steps") or values.get("iteration", "")
        if of := _OF.fullmatch(said):
            done = int(of[1])
            yield from self._record(done, int(of[2]), values)
            clock = _CLOCK.fullmatch(values.get("elapsed_time", ""))
            if clock and not self._has_bar:
                yield from self._elapsed.take(done, clock_ns(*clock.groups()))
        elif not (self._has_bar or waits) and step.isdecimal():
            yield from self._record(whole(step, 31), self._heading.get(STEPS, 0), values)
        elif waits:
            self._waiting = values
        elif counted := self._step_of(values):
            yield from self._record(counted, self._heading[STEPS], values)

    def _interval(self, values: dict[str, str]) -> Iterator[StepValues]:
        """Yield the record of a line of PaddleNLP, and the mean time of its steps."""
        step, before = whole(values.get("global_step", ""), 31), self.done or 0
        spent_ns = rounded_ns(values.get("interval_runtime", ""), 9)  # none if it is no number
        yield from self._record(step, self._heading.get(STEPS, 0), values)
        rate = number(values.get("interval_steps_per_second", "0"))
        # A small rate has too few digits to tell how many steps there were.
        known = 0.05 <= rate < 1e6
        covered = round(rate * spent_ns / SECOND_NS) if known else before and step - before
        if 0 < covered <= step:
            yield step, covered, {"step_time_ns": round(spent_ns / covered)}

    def _record(self, done: int, total: int, record: dict[str, str] | None) -> Iterator[StepValues]:
        """Yield the record that a dict is, if there is one, and keep how far the job is."""
        self.ended = self.ended and done >= (self.done or 0)
        self.total, self.done = total, done
        if not record:
            return
        values: dict[str, Any] = {}
        for key in _COLUMNS:
            values |= value_of(key, record[key]) if key in record else {}
        for key in _MEMORY:
            if key in record:
                values["memory_bytes"] = gib(record[key])
        yield done, None, values

    def _step_at(self, done: int, values: dict[str, str]) -> int | None:
        """Return the step of a dict whose bar says one.

        A copy of a terminal has of each bar the last state: the one before the next dict.
        """
        of_epoch, epoch, unit = self._epoch_of(values)
        # An epoch may have a step more than its planned ones, for the batches that are left.
        if of_epoch and abs(done / of_epoch - epoch) > unit + (1 + epoch) / of_epoch:
            return self._step_of(values)
        return done

    def _step_of(self, values: dict[str, str]) -> int | None:
        """Return the step that an epoch says; nothing if it is rounded too much to say one.

        A job without bars prints nothing else.
        """
        of_epoch, epoch, unit = self._epoch_of(values)
        step = round(epoch * of_epoch)
        near = step > 0 and abs(step / of_epoch - epoch) <= unit / 2
        return step if near and unit * of_epoch < 1 else None

    def _epoch_of(self, values: dict[str, str]) -> tuple[int, float, float]:
        """Return the steps of an epoch by the heading, 0 if unknown; epoch and its last digit."""
        printed, heading = values.get("epoch", ""), self._heading
        total, epochs, batch = (heading.get(words, 0) for words in (STEPS, EPOCHS, BATCH))
        if not (printed and total and epochs and batch) or total % epochs:
            return 0, 0.0, 0.0
        of_epoch, examples = total // epochs, heading.get(EXAMPLES, 0)
        epoch = number(printed)
        # A limit of steps may end the job within an epoch.
        known = of_epoch in (examples // batch, examples // batch + 1) and 0 <= epoch <= epochs + 1
        self._digits = max(self._digits, len(printed.partition(".")[2]))
        return (of_epoch, epoch, max(10.0**-self._digits, 1e-9)) if known else (0, 0.0, 0.0)


def _as_the_board_prints(values: Mapping[str, str]) -> tuple[str, str]:
    """Return epoch and loss with its digits; as they are where one is no number."""
    epoch, loss = values.get("epoch", "nan"), values.get("loss", "")
    try:
        return f"{float(epoch):.2f}", f"{float(loss):.4f}"
    except ValueError:
        return epoch, loss
