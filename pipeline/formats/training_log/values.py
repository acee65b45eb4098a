"""Read the values of progress records: keys of each trainer, their columns and their units."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

from tracelake.formats.readers import BadValueError, number, rounded_ns, whole
from tracelake.formats.starts import stamp_of
from tracelake.formats.training_log.heads import Heads

StepValues = tuple[int, int | None, dict[str, Any]]
"""A step, how many steps it covers where that is known, and values of columns.

Beside these, `timers` has the parts of the steps: name, statistic and time in ns of each.
"""
PRINTED = r"-?(?:[0-9.]+(?:e[+-]?[0-9]+)?|nan|inf)"
"""Expression of a number as trainers print it; `number` checks it."""
PAIR_KEYS = "grad_norm|memory|tps|wps|tflops"
"""Expression of the keys behind the loss of torchtitan."""
WAITED = "data"
"""Name of the part in which a step waits for data: models know it."""


class StepLines(ABC):
    """Reads the lines of one file, in order, of a trainer that counts the steps it has done.

    Attributes:
        LINES: Expression of the lines that say something, and of some others.
        HEADS: Of a record; by these a file is known.
        total: Steps of the job; 0 where it does not say so.
        done: Steps that its latest line says are done; None before the first.
    """

    LINES: ClassVar[str]
    HEADS: ClassVar[Heads]
    total: int = 0
    done: int | None = None

    @abstractmethod
    def read(self, text: str) -> Iterable[StepValues]:
        """Return what a line says of steps.

        Raises:
            BadValueError: A column cannot hold a value.
        """


STAMP = "[0-9]{4}[-/]?[0-9]{2}[-/]?[0-9]{2}[ T,][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,6})?"
"""Expression of a time of day with its date."""
_STAMP = re.compile(STAMP)
WHOLE_SECONDS = len("2026-05-09 12:00:00")
# Days as 05/11/2026: nanotron, in front of the level and the ranks, and examples of Hugging Face.
DAY = (
    r"^([01][0-9])/([0-3][0-9])/(20[0-9]{2})"
    r"(?= [0-9:]{8} (?:\[[A-Z]+\|DP=|- [A-Z]+ - [\w.]+ - ))"
)
_DAY = re.compile(DAY)
_SHORT = re.compile(r"\s*(\w+): ([0-9.]+)([KMGTPE])\s*", re.ASCII)
# Keys of records, with blanks for `_`: times by digits of their unit in ns, numbers by column.
_TIMES = {
    6: (
        "elapsed time per iteration (ms)",
        "elapsed time per iteration ms",
        "time per iteration ms",
    ),
    9: ("elapsed time per iteration (s)", "train step timing in s"),
}
_WHOLE = {
    "consumed samples": ("consumed_samples", 63),
    "global batch size": ("global_batch_size", 31),
    "number of skipped iterations": ("skipped_steps", 31),
    "number of nan iterations": ("nan_steps", 31),
}
_NUMBERS = {
    "lr": ("learning rate", "lr"),
    "loss": ("lm loss", "lm-loss", "loss", "reduced train loss"),
    "grad_norm": ("grad norm",),
    "loss_scale": ("loss scale",),
    "tflops_per_gpu": (
        *("throughput per gpu (tflop/s/gpu)", "compute per gpu (tflop/s/gpu)", "tflops"),
        *("[lm]tflops", "[lm]-tflops", "tflops per gpu", "model tflops per gpu"),
        *("tflop/s", "tflop/s/device", "tflops per sec per gpu"),
        "interval hardware tflops per device",
    ),
    "tokens_per_s": (
        *("tokens per gpu (tokens/s/gpu)", "tokens per gpu per second (tgs)"),
        *("tokens per gpu per second(tgs)", "tokens per gpu per second tgs"),
        *("tokens per sec per gpu", "tokens-per-second-per-gpu"),
        *("tokens per second per gpu (tok/s/gpu)", "tokens/s/gpu inst/harmonic mean"),
        *("tokens/sec/gpu", "tokens/s/device", "tps", "wps"),
        "interval tokens per second per device",
    ),
    "samples_per_s": ("samples per second",),
    "energy_j": ("energy per gpu (j/iter/gpu)",),
    "power_w": ("power per gpu (w/gpu)",),
}
_MEMORY = (
    "memory",
    "rocm mem usage/free/total/usage ratio",
    "hip mem usage/free/total/usage ratio",
)
_SIZE = re.compile(r"([0-9.]+)(?:GB|GiB)?(?:\(.*)?")
AVERAGE = r"\s*(?:/.*|\(avg [0-9.]+\))$"
"""Expression of what stands behind the value of a step where its average is printed, too."""
_AVERAGE = re.compile(AVERAGE)
_BEHIND = re.compile(r"(.+) ([0-9.]+(?:E[+-][0-9]+)?) *", re.ASCII)  # of Megatron-LM until 2020
_FLOPS = re.compile(r"([0-9.]+)([KMGTPEZ])FLOPS")
_UNITS = " KMGTPEZ"
_GIB = 1 << 30
# Last fields without a bar behind them that nothing can have cut: of records, and of timers.
RECORD_END = re.compile(r".*[%)]\s*")
TIMER_END = re.compile(r".*: *[0-9]+\.[0-9]{2,}\s*")


def values_of(fields: Sequence[str]) -> dict[str, Any]:
    """Return the columns and values of the fields of a record.

    Of two keys of one column the first counts.

    Raises:
        BadValueError: A column cannot hold a value, or a key is there twice: two records are torn.
    """
    found: dict[str, Any] = {}
    keys = set()
    for field in fields:
        key, _, text = parted(field)
        text = text.strip()
        says = known(key) if text else None
        if says:
            if says.name in keys:
                raise BadValueError(says.name)
            keys.add(says.name)
            found.setdefault(says.value.column, read_value(says.value, text))
    return found


def numbers_of(pairs: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return by column the numbers of a record's pairs, whose keys `columns` has.

    Raises:
        BadValueError: A value is no number.
    """
    return {column: number(pairs[key]) for key, column in columns.items() if key in pairs}


def numbers_in(text: str, values: Iterable[tuple[str, re.Pattern[str]]]) -> dict[str, Any]:
    """Return by column the numbers that expressions find in a record, in their first group.

    Raises:
        BadValueError: A value is no number.
    """
    return {column: number(found[1]) for column, line in values if (found := line.search(text))}


def value_of(key: str, text: str) -> dict[str, Any]:
    """Return the column and value of a key; nothing for a key without a column.

    Of two values, at this step and on average, the first counts.

    Raises:
        BadValueError: The column cannot hold the value.
    """
    says = known(key)
    return {says.value.column: read_value(says.value, text)} if says else {}


def parted(field: str) -> tuple[str, str, str]:
    """Return the key of a field, what stands behind it, and what it says."""
    key, mark, value = field.partition(":")
    if "=" in key:
        return field.partition("=")
    if not mark and (found := _BEHIND.fullmatch(field)):
        return found[1], " ", found[2]
    return key, mark, value


class Value(NamedTuple):
    """Says which column a key of a record fills, and how its value is read.

    Attributes:
        read: Returns the value of a text; raises `BadValueError`.
        plain: Expression of texts whose number needs no check, with as many digits as are exact in
            a column; none where they are no numbers.
        digits: Of the unit of a time in ns.
    """

    column: str
    read: Callable[[str], Any]
    plain: str | None = None
    digits: int = 0


class Known(NamedTuple):
    """Holds a key as records are told apart by it, and what it says."""

    name: str
    value: Value


@lru_cache(maxsize=1024)  # of the few keys that a log repeats in every record
def known(key: str) -> Known | None:
    """Return what a key says; nothing for a key without a column."""
    name = key.strip().lower()
    value = _VALUES.get(name.replace("_", " "))
    return Known(name, value) if value else None


def read_value(value: Value, text: str) -> Any:
    """Return what a text says; of two values, at this step and on average, the first.

    Raises:
        BadValueError: The column cannot hold it.
    """
    return value.read(_AVERAGE.sub("", text) if "/" in text or "(" in text else text)


def _tflops(text: str) -> float:
    found = _FLOPS.fullmatch(text)
    if found is None:
        raise BadValueError(text)
    return number(found[1]) * 1000.0 ** (_UNITS.index(found[2]) - _UNITS.index("T"))


def whole_fields(text: str, end: re.Pattern[str]) -> list[str]:
    """Return the fields between bars; the last one only if it cannot be cut."""
    fields = text.split("|")
    return fields if end.fullmatch(fields[-1]) else fields[:-1]


def written_out(field: str) -> str:
    """Return a field of nanotron with its number in full: `11.5K` is 11500.

    A count is left out: of 1,024 that is written as `1.02K`, 4 are lost.
    """
    found = _SHORT.fullmatch(field)
    if found is None:
        return field
    key, digits, unit = found.groups()
    if key.replace("_", " ") in _WHOLE:
        return ""
    return f"{key}: {digits}e{3 * _UNITS.index(unit)}"


def gib(text: str) -> int:
    """Return a size in GiB as bytes.

    Raises:
        BadValueError: It is none, or too large.
    """
    found = _SIZE.fullmatch(text)
    value = number(found[1] if found else text) * _GIB
    if not 0 <= value < 2**63:
        raise BadValueError(text)
    return round(value)


def _time(digits: int) -> Value:
    """Return what a key says whose unit has so many digits in ns."""
    # Fifteen digits are exact in a float, also times a power of ten.
    plain = rf"[0-9]{{1,{15 - digits}}}(?:\.[0-9]{{1,{digits}}})?"
    return Value("step_time_ns", partial(rounded_ns, digits=digits), plain, digits)


def _whole(column: str, bits: int) -> Value:
    plain = rf"[0-9]{{1,{(bits - 1) * 3 // 10}}}"
    return Value(column, partial(whole, bits=bits), plain)


_PLAIN = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"
_VALUES = {
    **{key: _time(digits) for digits, keys in _TIMES.items() for key in keys},
    **{key: _whole(column, bits) for key, (column, bits) in _WHOLE.items()},
    **{key: Value(column, number, _PLAIN) for column, keys in _NUMBERS.items() for key in keys},
    **dict.fromkeys(_MEMORY, Value("memory_bytes", gib)),
    "approx flops per gpu": Value("tflops_per_gpu", _tflops),  # of GPT-NeoX
}
LOSS = _VALUES["loss"]


def logged_at(text: str) -> tuple[datetime | None, bool]:
    """Return the last time of day in a text, and whether it has fractions of a second."""
    found = _STAMP.findall(_DAY.sub(r"\3-\1-\2", text))
    return printed_time(found[-1] if found else None)


def printed_time(stamp: str | None) -> tuple[datetime | None, bool]:
    """Return a time of day as it is printed, and whether it has fractions of a second."""
    time = stamp_of(stamp.replace("/", "-")) if stamp else None
    return time, stamp is not None and time is not None and len(stamp) > WHOLE_SECONDS
