"""Read records that are alike together: those with the keys of one that was read before.

A trainer prints the same keys in every record. One by one, by Python, a record takes some 30 us;
here the fields of all lines of a piece of text become columns.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tracelake.formats.readers import Alike, BadValueError
from tracelake.formats.training_log.steps import Times
from tracelake.formats.training_log.values import (
    AVERAGE,
    LOSS,
    PAIR_KEYS,
    STAMP,
    WHOLE_SECONDS,
    Value,
    known,
    printed_time,
    read_value,
)
from tracelake.kernels.numbers import Longs
from tracelake.schema.tables import tables

Key = tuple[str, str]
"""A key of a record, and what stands behind it: a colon, or nothing."""

# The last time of day before the step, where no other digits stand between them.
_HEAD = (
    rf"^(?:(?:.*[^0-9])?(?P<at>{STAMP}))?[^0-9]*"
    r"iteration[ =] *(?P<step>[0-9]{1,9}) */ *(?P<total>[0-9]{1,9}) *$"
)
_OTHER_LINES = ["iteration", "time (ms)"]  # what begins another record, or timers
_PAIRS = (
    r"^(?:[^\r]*[^0-9A-Za-z_])?step: +(?P<step>[0-9]{1,9}) +loss: +(?P<loss>[^ \t]+)"
    r"(?P<behind>[ \t][^\r]*)?$"
)
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?$"
# What makes such a line, or a piece of it, one of another trainer.
_NO_PAIRS = [
    *("\r", "iteration", "time (ms)", "across ranks", "s/it", "it/s", "{'", "rank_id: ", "/Rnk: "),
    *("validate step: ", "Straggler", "Rank ", "log_dist]", "iter time (s): ", "|DP="),
]


@dataclass(frozen=True)
class Records(Alike):
    """Records of some lines.

    Attributes:
        resets: As of `Printed`.
        dates: The time of day of each, as it is printed, if there is one.
        steps: Step of each.
        totals: How many steps the job has, where its records say so.
    """

    resets: bool
    dates: pl.Series
    steps: Longs
    totals: Sequence[int] | None = None

    @functools.cached_property
    def times(self) -> Times:
        """Return what each says of time."""
        dates = self.dates.str.replace_all("/", "-", literal=True).str.replace(",([0-9]+)$", ".$1")
        at = None
        if dates.str.contains(_PLAIN_DATE).all():
            with contextlib.suppress(ValueError):  # no day that there is
                at = np.array(dates.fill_null("NaT").to_list(), "datetime64[us]")
        if at is None:
            at = np.array([printed_time(date)[0] for date in self.dates], "datetime64[us]")
        fine = ~np.isnat(at) & (self.dates.str.len_bytes().fill_null(0) > WHOLE_SECONDS).to_numpy()
        found = self.values.get("step_time_ns")
        time_ns = np.zeros(at.size, np.int64) if found is None else found.to_numpy()
        return Times(at, fine, time_ns, self.resets)

    @functools.cached_property
    def batches(self) -> Sequence[int]:
        """Return the global batch size that each says; none if they do not."""
        found = self.values.get("global_batch_size")
        return [] if found is None else found.to_list()


def _fields(keys: Sequence[Key], texts: pl.Series) -> Records:
    """Return those of some lines that are records of Megatron-LM with these keys, plain values.

    Args:
        keys: Those before each bar of a record, from the one behind the step on.
    """
    bars = len(keys) + 1
    alike = texts.str.count_matches("|", literal=True) == bars
    alike &= ~texts.str.contains("\r", literal=True)
    parts = texts.filter(alike).str.split_exact("|", bars).struct.unnest()
    head = parts.to_series(0).str.extract_groups(_HEAD).struct.unnest()
    plain = head["step"].is_not_null() & ~parts.to_series(bars).str.contains("[%)]")
    columns: dict[str, pl.Series] = {}
    for (key, mark), part in zip(keys, parts.get_columns()[1:-1], strict=True):
        says = known(key) if mark else None
        printed = part.str.strip_prefix(key + mark).str.strip_chars(" ")
        plain &= part.str.starts_with(key + mark)
        if says:
            typed = _typed(printed, says.value)
            plain &= typed.is_not_null()
            columns.setdefault(says.value.column, typed)  # the first of two keys counts
        if not mark:
            plain &= printed == ""
        elif says is None or says.value.plain is None:  # any text may stand behind the key
            plain &= ~printed.str.contains_any(_OTHER_LINES)
    head = head.filter(plain)
    return Records(
        "train_steps",
        alike.arg_true().filter(plain).to_list(),
        {name: one.filter(plain) for name, one in columns.items()},
        resets=False,
        dates=head["at"],
        steps=head["step"].cast(pl.Int64).to_numpy(),
        totals=head["total"].cast(pl.Int64).to_list(),
    )


def _pairs(keys: Sequence[Key], texts: pl.Series) -> Records:
    """Return those of some lines that are records of torchtitan with these keys, plain values.

    Args:
        keys: Those behind the loss.
    """
    alike = texts.str.count_matches("loss: ", literal=True) == 1
    alike &= ~texts.str.contains_any(_NO_PAIRS) & (texts.str.count_matches(STAMP) <= 1)
    texts = texts.filter(alike)
    parts = texts.str.extract_groups(_PAIRS).struct.unnest()
    behind = parts["behind"].fill_null("")
    loss = _typed(parts["loss"], LOSS)
    columns = {LOSS.column: loss}
    plain = loss.is_not_null() & (loss != -1)
    plain &= behind.str.count_matches(f"(?:{PAIR_KEYS}): ") == len(keys)
    for key, _ in keys:
        printed = behind.str.extract(rf"{key}: +([0-9.,naif]+)[ \t(G]").str.replace_all(",", "")
        says = known(key)
        assert says is not None
        columns[says.value.column] = typed = _typed(printed, says.value)
        plain &= typed.is_not_null()
    return Records(
        "train_steps",
        alike.arg_true().filter(plain).to_list(),
        {name: one.filter(plain) for name, one in columns.items()},
        resets=True,
        dates=texts.str.extract(f"({STAMP})").filter(plain),
        steps=parts["step"].filter(plain).cast(pl.Int64).to_numpy(),
    )


FORMS: Mapping[str, Callable[[Sequence[Key], pl.Series], Records]]
FORMS = {"fields": _fields, "pairs": _pairs}
"""Readers of records by what the keys of those are called."""


def _typed(texts: pl.Series, value: Value) -> pl.Series:
    """Return texts as values of a column; NULL for those that are not plain."""
    kind = tables()["train_steps"].storage_types[value.column]
    dtype = pl.Int64 if pa.types.is_integer(kind) else pl.Float64
    if value.plain is None:
        read = {one: _read(value, one) for one in texts.drop_nulls().unique()}
        return texts.replace_strict(read, default=None, return_dtype=dtype)
    if texts.str.contains("[/(]").any():
        texts = texts.str.replace(AVERAGE, "")
    texts = texts.set(~texts.str.contains(f"^(?:{value.plain})$"), None)
    if value.digits:
        return (texts.cast(pl.Float64) * 10.0**value.digits).round().cast(pl.Int64)
    return texts.cast(dtype)


def _read(value: Value, text: str) -> Any:
    try:
        return read_value(value, text)
    except BadValueError:
        return None
