"""Read trainers of reinforcement learning: verl, slime (miles), NeMo-RL and AReaL.

A step of theirs generates, computes rewards and log-probabilities, and trains. They print how long
the whole step took, and its parts: these may be parts of each other. AReaL prints no whole step:
the dates of its records tell it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from tracelake.formats.readers import BadValueError, number, rounded_ns
from tracelake.formats.starts import stamp_of
from tracelake.formats.training_log.elapsed import MILLISECOND_NS, Elapsed
from tracelake.formats.training_log.values import PRINTED, StepLines, StepValues, gib

_VALUE = rf"(?:np\.\w+\()?({PRINTED})\)?"
_OF_DICT = rf"'([\w/.-]+)': {_VALUE}(?=[,}}])"


@dataclass(frozen=True, slots=True)
class _Trainer:
    """Say how a trainer prints the values of a step on one line.

    Attributes:
        word: Part of each line: to look for that takes a tenth of the time.
        begin: Expression of the step, before the values.
        pair: Expression of a key and its value.
        columns: Column of a key.
        whole: Keys of the time of the whole step, in seconds.
        part: Expression of the keys of its parts, likewise, with the name of the part.
        tokens: Keys whose product are the tokens of the step, where their speed is not printed.
        first: Number of the first step.
        ahead: The values are those of the next record.
    """

    word: str
    begin: str
    pair: str
    columns: dict[str, str]
    whole: tuple[str, ...] = ()
    part: re.Pattern[str] = re.compile(r"(?!)")  # of none
    tokens: tuple[str, ...] = ()
    first: int = 1
    ahead: bool = False


_TRAINERS = (
    _Trainer(
        "step:",
        r"(?<![\w/])step:(?P<step>\d{1,9})(?= - )",
        rf" - ([^\s:]+):{_VALUE}(?= - |\s*$)",
        {
            "actor/pg_loss": "loss",
            "train/loss": "loss",
            "actor/grad_norm": "grad_norm",
            "train/grad_norm": "grad_norm",
            "perf/throughput": "tokens_per_s",
            "perf/max_memory_allocated_gb": "memory_bytes",
            "actor/perf/max_memory_allocated_gb": "memory_bytes",
        },
        whole=("timing_s/step", "train/time(s)"),
        part=re.compile(r"timing_s/(\w+)", re.ASCII),
        tokens=("global_seqlen/mean",),  # of a GPU
    ),
    _Trainer(
        "perf ",
        r"\bperf (?P<step>\d{1,9}): (?=\{')",
        _OF_DICT,
        {},
        whole=("perf/step_time",),
        part=re.compile(r"perf/(\w+)_time", re.ASCII),
        tokens=("perf/actor_train_tok_per_s", "perf/actor_train_time"),
        first=0,
    ),
    _Trainer(
        "'train/loss': ",
        r"\bstep (?P<step>\d{1,9}): (?=\{')",
        _OF_DICT,
        {"train/loss": "loss", "train/grad_norm": "grad_norm"},
        first=0,
        ahead=True,
    ),
)
# Of NeMo-RL: where a step begins, and what it prints at its end.
_HEADER = re.compile(
    r"={10,} (?P<kind>Epoch|Step) (?P<at>\d{1,9})/(?P<of>\d{1,9}) ={10,}\s*", re.ASCII
)
_ITEM = re.compile(
    rf"\s*[•-] (?P<name>[\w/() ]+): (?P<value>{PRINTED})(?P<unit>s?)(?P<share> \([0-9.]+%\))?\s*",
    re.ASCII,
)
_TIME_OF_STEP, _LOSS, _TOKENS = "Total step time", "Loss", "E2E (Tokens/sec/gpu)"
# Of AReaL: a record, and the rows of the table below it.
_DONE = re.compile(r"\bTrain step (?P<step>\d{1,9})/(?P<of>\d{1,9}) done\.", re.ASCII)
_STAMP = re.compile(r"(?<!\d)(\d{4})(\d\d)(\d\d)-(\d\d:\d\d:\d\d\.\d{3}) ", re.ASCII)
_CELL = re.compile(
    r"│ +(?:timeperf/(\w+)|(ppo_actor/update/actor_loss/avg|sft/loss/avg)"
    rf"|(?:ppo_actor|sft)/n_valid_tokens) +│ +({PRINTED}) +(?=│)",
    re.ASCII,
)
_TOTAL = re.compile(r".*\bTotal training steps: (\d{1,9})\s*", re.ASCII)

LAUNCHERS = (
    (b"actor_rollout_ref", rb"\bactor_rollout_ref\b"),
    (b"(MegatronTrainRayActor", rb"\(MegatronTrainRayActor pid="),
    (b"nemo_rl", rb"\bnemo_rl/"),
    (b"areal", rb"\bareal[./]"),
)
"""Words and expressions of what comes before the first record: it may fill the head of a file."""

_LINES = [
    (trainer, re.compile(trainer.begin, re.ASCII), re.compile(trainer.pair, re.ASCII))
    for trainer in _TRAINERS
]


class Reinforcement(StepLines):
    """Reads the lines of one file, in order."""

    LINES = (
        r".*\bstep:\d+ - .*|.*\b(?:perf|step) \d+: \{'.*|=+ (?:Epoch|Step) \d+/\d+ =+\s*"
        r"|\s*(?:•|- E2E) .*|.*\bTrain step \d+/\d+ done\..*|│ .*|.*\bTotal training steps: \d+\s*"
    )
    HEADS = (
        (b"step:", rb"step:[0-9]+ - [a-z_]+/[\w/.@()-]+:(?:np\.\w+\()?[0-9.e+-]+\)? - [a-z_]+/"),
        (b"'perf/step_time': ", rb"\bperf [0-9]+: \{'"),
        ("• Total step time: ".encode(), rb"={10,} Step [0-9]+/[0-9]+ ={10,}"),
        (
            b"Train step ",
            rb"\b20[0-9]{6}-[0-9:.]{12} [^\n]{0,200}\bTrain step [0-9]+/[0-9]+ done\.",
        ),
    )

    def __init__(self) -> None:
        self._ahead: dict[str, Any] = {}  # values that are printed before their record
        self._epochs = 1, 1  # of NeMo-RL: the present one, and all
        self._step = 0  # of NeMo-RL and AReaL: that of the lines below
        self._took_ns = 0  # of AReaL: the time of that step, where it is that of one
        self._elapsed = Elapsed(MILLISECOND_NS)

    def read(self, text: str) -> Iterator[StepValues]:
        """Yield what a line says of steps."""
        for trainer, begin, pair in _LINES:
            if trainer.word in text and (found := begin.search(text)):
                pairs = pair.findall(text, found.end())
                record = dict(pairs)
                if len(record) < len(pairs):  # two records are torn
                    raise BadValueError(text)
                yield from self._record(trainer, int(found["step"]) + 1 - trainer.first, record)
                return
        if text.startswith("==") and (found := _HEADER.fullmatch(text)):
            self._begin(found["kind"], int(found["at"]), int(found["of"]))
        elif self._step and ("• " in text or "- E2E" in text):
            if found := _ITEM.fullmatch(text):
                yield from self._item(**found.groupdict())
        elif "Train step " in text and (found := _DONE.search(text)):
            yield from self._done(found, _STAMP.search(text, 0, found.start()))
        elif self._step and text.startswith("│ "):
            yield from self._cells(text)
        elif "Total training steps: " in text and (found := _TOTAL.fullmatch(text)):
            self.total = int(found[1])

    def _record(self, trainer: _Trainer, step: int, record: dict[str, str]) -> Iterator[StepValues]:
        """Yield the record that a line is, or that its values belong to."""
        values: dict[str, Any] = {}
        for key, column in trainer.columns.items():
            if key in record:
                values[column] = (
                    gib(record[key]) if column == "memory_bytes" else number(record[key])
                )
        if trainer.ahead:
            self._ahead = values
            return
        time = next((record[key] for key in trainer.whole if key in record), None)
        timers = [
            (found[1], "own", rounded_ns(value, 9))
            for key, value in record.items()
            if key not in trainer.whole and (found := trainer.part.fullmatch(key))
        ]
        if time is None and "loss" not in values:  # of a validation, or of a part alone
            if timers:
                yield step, 1, {"timers": timers}
            return
        self.done = step
        if time is not None:
            values |= {"step_time_ns": rounded_ns(time, 9), "timers": timers}
            if trainer.tokens and record.keys() >= {*trainer.tokens} and number(time) > 0:
                tokens = math.prod(number(record[key]) for key in trainer.tokens)
                values.setdefault("tokens_per_s", tokens / number(time))
        yield step, 1, self._ahead | values
        self._ahead = {}

    def _begin(self, kind: str, at: int, of: int) -> None:
        """Keep which step the lines below are of: it is counted within its epoch."""
        if kind == "Epoch":
            self._epochs = at, of
            return
        epoch, epochs = self._epochs
        self._step, self._ahead = (epoch - 1) * of + at, {}
        # A limit of steps may end the job within an epoch.
        self.total = of if epochs == 1 else 0

    def _item(self, name: str, value: str, unit: str, share: str | None) -> Iterator[StepValues]:
        """Yield what an item of the summary of a step says."""
        if name == _LOSS:
            self._ahead = {"loss": number(value)}
        elif name == _TIME_OF_STEP and unit:
            self.done = self._step
            yield self._step, 1, self._ahead | {"step_time_ns": rounded_ns(value, 9)}
        elif self.done == self._step and unit and share:
            yield self._step, 1, {"timers": [(name, "own", rounded_ns(value, 9))]}
        elif self.done == self._step and name == _TOKENS:
            yield self._step, 1, {"tokens_per_s": number(value)}

    def _done(self, found: re.Match[str], stamp: re.Match[str] | None) -> Iterator[StepValues]:
        """Yield the time since the step before one that is done."""
        at = stamp_of("{}-{}-{} {}".format(*stamp.groups())) if stamp else None
        if at is None:
            return
        self._step = self.done = int(found["step"])
        self.total = int(found["of"])
        milliseconds = round(at.replace(tzinfo=UTC).timestamp() * 1000)
        times = self._elapsed.take(self._step, milliseconds * MILLISECOND_NS)
        self._took_ns = 0
        if not times:
            yield self._step, None, {"logged_at": at}
        for step, covered, values in times:
            self._took_ns = values["step_time_ns"] if covered == 1 else 0
            yield step, covered, {"logged_at": at, **values}

    def _cells(self, text: str) -> Iterator[StepValues]:
        """Yield what a row of the table of a step says."""
        for part, loss, value in _CELL.findall(text):
            if part:
                yield self._step, 1, {"timers": [(part, "own", rounded_ns(value, 9))]}
            elif loss:
                yield self._step, 1, {"loss": number(value)}
            elif self._took_ns:
                yield self._step, 1, {"tokens_per_s": number(value) * 1e9 / self._took_ns}
