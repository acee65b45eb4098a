"""Read the values of progress records: keys of each trainer, their columns and their units."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

from tracelake.formats.readers import BadValueError, number, rounded_ns, whole
from tracelake.formats.training_log.heads import Heads

StepValues = tuple[int, int | None, dict[str, Any]]
"""A step, how many steps it covers where that is known, and values of columns.

Beside these, `timers` has the parts of the steps: name, statistic and time in ns of each.
"""
PRINTED = r"-?(?:[0-9.]+(?:e[+-]?[0-9]+)?|nan|inf)"
"""Expression of a number as trainers print it; `number` checks it."""
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


_STAMP = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[ T,]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?", re.ASCII)
_WHOLE_SECONDS = len("2026-05-09 12:00:00")
# nanotron writes days as 05/11/2026, in front of the level and the ranks.
DAY = r"^([01][0-9])/([0-3][0-9])/(20[0-9]{2})(?= [0-9:]{8} \[[A-Z]+\|DP=)"
_DAY = re.compile(DAY)
_SHORT = re.compile(r"\s*(\w+): ([0-9.]+)([KMGTPE])\s*", re.ASCII)
# Key of a record, with blanks for `_` -> column, and for a time the digits of its unit in ns.
_TIMES = {
    "elapsed time per iteration (ms)": 6,
    "elapsed time per iteration ms": 6,
    "time per iteration ms": 6,
    "elapsed time per iteration (s)": 9,
    "train step timing in s": 9,
}
_WHOLE = {
    "consumed samples": ("consumed_samples", 63),
    "global batch size": ("global_batch_size", 31),
    "number of skipped iterations": ("skipped_steps", 31),
    "number of nan iterations": ("nan_steps", 31),
}
_NUMBERS = {
    "learning rate": "lr",
    "lr": "lr",
    "lm loss": "loss",
    "lm-loss": "loss",
    "loss": "loss",
    "reduced train loss": "loss",
    "grad norm": "grad_norm",
    "loss scale": "loss_scale",
    "throughput per gpu (tflop/s/gpu)": "tflops_per_gpu",
    "compute per gpu (tflop/s/gpu)": "tflops_per_gpu",
    "tflops": "tflops_per_gpu",
    "[lm]tflops": "tflops_per_gpu",
    "[lm]-tflops": "tflops_per_gpu",
    "tflops per gpu": "tflops_per_gpu",
    "model tflops per gpu": "tflops_per_gpu",
    "tflop/s": "tflops_per_gpu",
    "tflop/s/device": "tflops_per_gpu",
    "tflops per sec per gpu": "tflops_per_gpu",
    "tokens per gpu (tokens/s/gpu)": "tokens_per_s",
    "tokens per gpu per second (tgs)": "tokens_per_s",
    "tokens per gpu per second(tgs)": "tokens_per_s",
    "tokens per gpu per second tgs": "tokens_per_s",
    "tokens per sec per gpu": "tokens_per_s",
    "tokens-per-second-per-gpu": "tokens_per_s",
    "tokens per second per gpu (tok/s/gpu)": "tokens_per_s",
    "tokens/s/gpu inst/harmonic mean": "tokens_per_s",
    "tokens/sec/gpu": "tokens_per_s",
    "tokens/s/device": "tokens_per_s",
    "tps": "tokens_per_s",
    "wps": "tokens_per_s",
    "samples per second": "samples_per_s",
    "energy per gpu (j/iter/gpu)": "energy_j",
    "power per gpu (w/gpu)": "power_w",
}
_MEMORY = (
    "memory",
    "rocm mem usage/free/total/usage ratio",
    "hip mem usage/free/total/usage ratio",
)
_SIZE = re.compile(r"([0-9.]+)(?:GB|GiB)?(?:\(.*)?")
_AVERAGE = re.compile(r"\s*(?:/.*|\(avg [0-9.]+\))$")
_AVERAGED = r"(?:\s*(?:/[^|]*+|\(avg [0-9.]+\)))?\s*+"  # the same up to the next bar
_FORMS = 100  # most that are learned of a file
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
        key, _, said = _parted(field)
        said = said.strip()
        known = _known(key) if said else None
        if known:
            if known.name in keys:
                raise BadValueError(known.name)
            keys.add(known.name)
            found.setdefault(known.value.column, _read(known.value.read, said))
    return found


def value_of(key: str, said: str) -> dict[str, Any]:
    """Return the column and value of a key; nothing for a key without a column.

    Of two values, at this step and on average, the first counts.

    Raises:
        BadValueError: The column cannot hold the value.
    """
    known = _known(key)
    return {known.value.column: _read(known.value.read, said)} if known else {}


class Records:
    """Reads the values of the records of one file, which have the same keys again and again.

    One expression reads a whole record of the keys of an earlier one, where its values are plain.
    """

    def __init__(self) -> None:
        self._form = re.compile(r"(?!)")
        self._values: list[_Value] = []  # of its groups, the last one first
        self._learned = 0

    def values(self, text: str) -> dict[str, Any]:
        """Return the columns and values of a record with a bar behind each field.

        Raises:
            BadValueError: See `values_of`.
        """
        if found := self._form.fullmatch(text):
            groups = found.groups()[::-1]  # of two keys of one column the first counts
            return {v.column: v.plain(said) for v, said in zip(self._values, groups, strict=True)}
        fields = whole_fields(text, RECORD_END)
        values = values_of(fields)
        if fields and self._learned < _FORMS:
            self._learned += 1
            forms, read = zip(*map(_form, fields), strict=True)
            self._form = re.compile(rf"{''.join(forms)}[^|%)]*+", re.ASCII)
            self._values = [value for value in reversed(read) if value]
        return values


def _form(field: str) -> tuple[str, _Value | None]:
    """Return the expression of a field with the key of this one, and what its group is."""
    key, mark, said = _parted(field)
    known = _known(key)
    if not mark:
        return r"[^|:=]*+\|", None
    begin = re.escape(key + mark)
    if known is None:
        return rf"{begin}[^|]*+\|", None
    if not said.strip():
        return rf"{begin}\s*+\|", None
    return rf"{begin} *+{known.value.form}\|", known.value


def _parted(field: str) -> tuple[str, str, str]:
    """Return the key of a field, what stands behind it, and what it says."""
    key, mark, said = field.partition(":")
    return field.partition("=") if "=" in key else (key, mark, said)


class _Value(NamedTuple):
    """What a key of a record says.

    Attributes:
        read: Returns the value of a text; raises `BadValueError`.
        form: Expression of the texts up to the next bar for whose group `plain` gives the same.
            A text has one way to match, so that a record that does not match costs no more.
    """

    column: str
    read: Callable[[str], Any]
    form: str
    plain: Callable[[str], Any]


class _Known(NamedTuple):
    """A key as records are told apart by it, and what it says."""

    name: str
    value: _Value


@lru_cache(maxsize=1024)  # of the few keys that a log repeats in every record
def _known(key: str) -> _Known | None:
    """Return what a key says; nothing for a key without a column."""
    name = key.strip().lower()
    value = _VALUES.get(name.replace("_", " "))
    return _Known(name, value) if value else None


def _read(read: Callable[[str], Any], said: str) -> Any:
    return read(_AVERAGE.sub("", said) if "/" in said or "(" in said else said)


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


def _time(digits: int) -> _Value:
    """Return what a key says whose unit has so many digits in ns."""
    # Fifteen digits are exact in a float, also times a power of ten.
    form = rf"([0-9]{{1,{15 - digits}}}(?:\.[0-9]{{1,{digits}}})?){_AVERAGED}"
    factor = 10**digits
    read = partial(rounded_ns, digits=digits)
    return _Value("step_time_ns", read, form, lambda said: round(float(said) * factor))


def _whole(column: str, bits: int) -> _Value:
    form = rf"([0-9]{{1,{(bits - 1) * 3 // 10}}}){_AVERAGED}"
    return _Value(column, partial(whole, bits=bits), form, int)


def _number(column: str) -> _Value:
    form = rf"(-?[0-9]{{1,20}}(?:\.[0-9]{{1,20}})?(?:[eE][+-]?[0-9]{{1,2}})?){_AVERAGED}"
    return _Value(column, number, form, float)


def _other(column: str, read: Callable[[str], Any]) -> _Value:
    return _Value(column, read, r"([^|\s][^|]*+)", lambda said: _read(read, said.strip()))


_VALUES = {
    **{key: _time(digits) for key, digits in _TIMES.items()},
    **{key: _whole(column, bits) for key, (column, bits) in _WHOLE.items()},
    **{key: _number(column) for key, column in _NUMBERS.items()},
    **dict.fromkeys(_MEMORY, _other("memory_bytes", gib)),
    "approx flops per gpu": _other("tflops_per_gpu", _tflops),  # of GPT-NeoX
}


def logged_at(text: str) -> tuple[datetime | None, bool]:
    """Return the last time of day in a text, and whether it has fractions of a second."""
    found = _STAMP.findall(_DAY.sub(r"\3-\1-\2", text))
    time = moment(found[-1].replace("/", "-")) if found else None
    return time, time is not None and len(found[-1]) > _WHOLE_SECONDS


def moment(text: str) -> datetime | None:
    """Return a date and time; nothing if it is none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
