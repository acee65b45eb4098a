"""Read the output of training jobs: Megatron-LM and its forks, DeepSpeed, NeMo, torchtitan.

Progress records are lines of `key: value` in any order. Timers over ranks, reports of stragglers
and the arguments that a job prints are read too; everything else is irrelevant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tracelake.formats import Claim, FileFacts, RunFacts
from tracelake.formats.lines import Irrelevant, LineFormat, Record
from tracelake.formats.readers import BadValueError, Rows, number, rounded_ns, whole

_HEADS = (
    (b"iteration", rb"iteration +[0-9]+ */ *[0-9]+ *\|"),
    (b"using world size", rb"using world size: +[0-9]+, data-parallel"),
    (b" arguments --", rb"-{8,} (?:end of )?arguments -{8,}"),
    (b"timer.py:", rb"\[timer\.py:[0-9]+:stop\] "),
    (b"log_dist]", rb":log_dist\] \[Rank [0-9-]+\] "),
    (b"across ranks", rb"times? across ranks \(ms\):"),
    (b"time (ms)", rb"time \(ms\) \| [a-z]"),
    (b" loss: ", rb"step: +[0-9]+ +loss: +[0-9]"),
    (b"Straggler Report", rb"=== Straggler Report at Step [0-9]+"),
    (b"[launch.py:", rb"\[INFO\] \[launch\.py:[0-9]+:"),
)
# Of launchers: where a long preamble comes before what the trainer prints.
_LAUNCHERS = re.compile(
    rb"\bpretrain_[a-z0-9_]+\.py|--train-(?:iters|samples)\b|\[Primus:|primus-cli|deepspeed\.launcher"
)
_ITERATION = re.compile(r"iteration +(\d+) */ *(\d+) *\|", re.ASCII)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?", re.ASCII)
_HEAD_STAMP = re.compile(
    rb"\b(20[0-9]{2}-[01][0-9]-[0-3][0-9])[ T]([0-2][0-9]:[0-5][0-9]:[0-5][0-9])"
)
_DEEPSPEED = re.compile(
    r".*log_dist\] \[Rank (\d+)\] step=(\d+), skipped=(\d+), lr=\[([^\],]*).*", re.ASCII
)
_TIMER = re.compile(
    r".*\[timer\.py:\d+:stop\] (?:(?:rank=\d+|epoch=\d+)/)*"
    r"(?:micro_step=\d+/global_step=|\d+/)(\d+), RunningAvg.*",
    re.ASCII,
)
_MEMORY = re.compile(r"MemAllocated=([0-9.]+)GB")
_TITAN = re.compile(r".*\bstep: +(\d+) +loss: +(\S+)(.*)", re.ASCII)
_TITAN_KEYS = re.compile(r"(grad_norm|memory|tps|tflops): +([0-9.,naif]+)", re.ASCII)
_ACROSS = re.compile(r".*?(\(min, max\) time|times) across ranks \(ms\):.*", re.ASCII)
_MIN_MAX = re.compile(r"\s*(\S+?) ?\.*: \(([0-9.]+), ([0-9.]+)\)\s*", re.ASCII)
_ALL_NAME = re.compile(r"  ([\w/().+-]+):\s*", re.ASCII)
_ALL_RANK = re.compile(r"\s+rank +(\d+): ([0-9.]+)\s*", re.ASCII)
_ECHO = re.compile(r"rank_id: (\d+), ([\w()+]+) time: ([0-9.]+)", re.ASCII)
_REPORT = re.compile(r".*=== Straggler Report at Step (\d+).*", re.ASCII)
_REPORTED = re.compile(r"\s*(?:.* )?Rank (\d+): ([0-9.]+) ?ms\b.*", re.ASCII)
_SPREAD = re.compile(r"(Mn|Mx)(\w+)/Rnk: ([0-9.]+)ms/(\d+)", re.ASCII)
_ARGUMENT = re.compile(r"\s*(\w+) \.{2,} ?(\S+)\s*", re.ASCII)
_SIZES = {
    "world size": "world_size",
    "data-parallel size": "dp",
    "context-parallel size": "cp",
    "tensor-model-parallel size": "tp",
    "pipeline-model-parallel size": "pp",
}
_ARGUMENTS = {
    "world_size": "world_size",
    "data_parallel_size": "dp",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "num_layers": "layers",
}
_KEPT = {"hidden_size", "seq_length", "log_interval"}
# Key of a record -> column, and for a time the digits of its unit in ns.
_TIMES = {
    "elapsed time per iteration (ms)": 6,
    "elapsed time per iteration (s)": 9,
    "train_step_timing in s": 9,
}
_WHOLE = {
    "consumed samples": ("consumed_samples", 63),
    "consumed_samples": ("consumed_samples", 63),
    "global batch size": ("global_batch_size", 31),
    "global_batch_size": ("global_batch_size", 31),
    "number of skipped iterations": ("skipped_steps", 31),
    "number of nan iterations": ("nan_steps", 31),
}
_NUMBERS = {
    "learning rate": "lr",
    "lr": "lr",
    "lm loss": "loss",
    "lm-loss": "loss",
    "loss": "loss",
    "reduced_train_loss": "loss",
    "grad norm": "grad_norm",
    "grad_norm": "grad_norm",
    "loss scale": "loss_scale",
    "throughput per gpu (tflop/s/gpu)": "tflops_per_gpu",
    "tflops": "tflops_per_gpu",
    "tflops_per_gpu": "tflops_per_gpu",
    "tokens per gpu (tokens/s/gpu)": "tokens_per_s",
    "energy per gpu (j/iter/gpu)": "energy_j",
    "power per gpu (w/gpu)": "power_w",
}
_MEMORY_KEYS = (
    "rocm mem usage/free/total/usage_ratio",
    "hip mem usage/free/total/usage_ratio",
)
_GIB = 1 << 30
_MERGED = "merged_records"


def _sniff(head: bytes) -> Claim:
    if any(word in head and re.search(pattern, head) for word, pattern in _HEADS):
        return Claim.YES
    # A batch script that runs with `set -x` can fill the head with its trace.
    traced = head.startswith(b"+ ") and head.count(b"\n+") > 100
    return Claim.MAYBE if traced or _LAUNCHERS.search(head) else Claim.NO


def _stamp(head: bytes) -> datetime | None:
    """Return the first time of day in a log."""
    found = _HEAD_STAMP.search(head)
    return None if found is None else _time(f"{found[1].decode()} {found[2].decode()}")


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class _Reader:
    def __init__(self, facts: FileFacts) -> None:
        del facts
        self._topology: dict[str, int] = {}
        self._attributes: dict[str, str] = {}
        self._last = -1  # step of the latest record, -1 before the first
        self._basis = "own"
        self._covered: int | None = None
        self._first = 0  # the first step that it covers
        self._total = 0
        self._copy = 0
        self._skipped = 0
        self._mode = ""
        self._name = ""
        self._report = 0
        self._times: Counter[tuple[int, str]] = Counter()

    def read(self, text: str) -> Rows | str:
        records = list(_ITERATION.finditer(text))
        if records:
            return _MERGED if len(records) > 1 else list(self._iteration(text, records[0]))
        if "time (ms) |" in text:
            _, _, timers = text.partition("time (ms) |")
            return list(self._timers(timers.split("|")))
        rows = self._across(text) or self._reports(text) or self._other_records(text)
        if not rows:
            self._arguments(text)
        return rows

    def finish(self) -> RunFacts:
        ended = self._last >= self._total if self._total else None
        return RunFacts(topology=self._topology, attributes=self._attributes, ended=ended)

    # --- records ---------------------------------------------------------------------------

    def _other_records(self, text: str) -> Rows:
        """Return the row of a record of DeepSpeed or torchtitan."""
        if found := _DEEPSPEED.fullmatch(text):
            return [self._deepspeed(text, found)]
        if found := _TIMER.fullmatch(text):
            memory = _MEMORY.search(text)
            held = {"memory_bytes": _gib(memory[1])} if memory else {}
            return [self._record(whole(found[1], 31), {"logged_at": _logged_at(text), **held})]
        if found := _TITAN.fullmatch(text):
            return [self._titan(text, found)]
        return ()

    def _iteration(self, text: str, found: re.Match[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the row of a progress record, and those of timers on the same line."""
        step, total = whole(found[1], 31), whole(found[2], 31)
        nemo = re.search(r"Training epoch (\d+), $", text[: found.start()], re.ASCII)
        fields = text[found.end() :].split("|")
        timers = next((i for i, f in enumerate(fields) if f.strip() == "time (ms)"), len(fields))
        values: dict[str, Any] = {"logged_at": _logged_at(text[: found.start()])}
        for field in fields[:timers]:
            values |= _value(field)
        self._total = total
        if nemo:
            step += 1
            values["epoch"] = whole(nemo[1], 31)
        yield self._record(step, values, untimed_first=not nemo)
        yield from self._timers(fields[timers + 1 :])

    def _record(
        self, step: int, values: dict[str, Any], *, untimed_first: bool = False
    ) -> tuple[str, dict[str, Any]]:
        """Return the row of a record, with the steps that it covers.

        Args:
            untimed_first: The first record does not reset the timer of the interval: the next one
                counts the first step again.
        """
        if step == self._last:
            self._copy += 1
        else:
            self._copy = 0
            interval = self._attributes.get("log_interval", "")
            if step > self._last > 0:
                covered: int | None = step - self._last
            elif step == 1:
                covered = 1
            elif interval.isdigit() and 0 < int(interval) <= step:
                covered = int(interval)
            else:
                covered = None
            first = untimed_first and self._last == 1 and covered is not None and covered > 1
            self._basis = "includes_first" if first else "own" if covered == 1 else "mean"
            self._last, self._covered = step, covered
            self._first = step - (covered or 1) + 1
        row = {
            "step": step,
            "copy": self._copy,
            "batches_covered": self._covered,
            "time_basis": self._basis,
            **values,
        }
        return "train_steps", row

    def _deepspeed(self, text: str, found: re.Match[str]) -> tuple[str, dict[str, Any]]:
        skipped = whole(found[3], 31)
        values = {
            "rank": whole(found[1], 31),
            "lr": number(found[4].strip()) if found[4].strip() else None,
            "skipped_steps": max(skipped - self._skipped, 0),
            "logged_at": _logged_at(text),
        }
        record = self._record(whole(found[2], 31), values)
        self._skipped = skipped
        return record

    def _titan(self, text: str, found: re.Match[str]) -> tuple[str, dict[str, Any]]:
        values: dict[str, Any] = {"loss": number(found[2]), "logged_at": _logged_at(text)}
        for key, printed in _TITAN_KEYS.findall(found[3]):
            said = printed.replace(",", "")
            if key == "memory":
                values["memory_bytes"] = _gib(said)
            else:
                column = {"tps": "tokens_per_s", "tflops": "tflops_per_gpu"}.get(key, key)
                values[column] = number(said)
        return self._record(whole(found[1], 31), values)

    # --- timers ----------------------------------------------------------------------------

    def _timing(
        self, name: str, statistic: str, time: str, rank: int | None = None, step: int = 0
    ) -> tuple[str, dict[str, Any]]:
        row = {
            "rank": rank,
            "first_step": step or self._first or None,
            "last_step": step or max(self._last, 0) or None,
            "name": name,
            "statistic": statistic,
            "duration_ns": rounded_ns(time, 6),
            "clock": "barrier" if self._mode and not step else "host",
        }
        return "timings", row

    def _timers(self, fields: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the timers of one rank."""
        for field in fields:
            name, colon, time = field.rpartition(":")
            if colon and time.strip():
                yield self._timing(name.strip(), "own", time.strip())

    def _across(self, text: str) -> Rows:
        """Return the timers over ranks of a line."""
        if across := _ACROSS.fullmatch(text):
            self._mode = "all" if across[1] == "times" else "min_max"
        elif found := _MIN_MAX.fullmatch(text):
            return [
                self._timing(found[1], "min", found[2]),
                self._timing(found[1], "max", found[3]),
            ]
        elif self._mode == "all":
            if found := _ALL_NAME.fullmatch(text):
                self._name = found[1]
            elif self._name and (found := _ALL_RANK.fullmatch(text)):
                return [self._timing(self._name, "own", found[2], whole(found[1], 31))]
        return ()

    def _reports(self, text: str) -> Rows:
        """Return the times of ranks that a line names."""
        rows = []
        for rank, name, time in _ECHO.findall(text):
            key = whole(rank, 31), name
            row = self._timing(name, "own", time, key[0], self._times[key] + 1)
            self._times[key] += 1
            rows.append(row)
        for bound, name, time, rank in _SPREAD.findall(text):
            rows.append(
                self._timing(name, "min" if bound == "Mn" else "max", time, whole(rank, 31))
            )
        if found := _REPORT.fullmatch(text):
            self._report = whole(found[1], 31)
        elif self._report and (found := _REPORTED.fullmatch(text)):
            rank = whole(found[1], 31)
            rows.append(self._timing("straggler_report", "own", found[2], rank, self._report))
        return rows

    # --- arguments -------------------------------------------------------------------------

    def _arguments(self, text: str) -> None:
        if "using world size" in text:
            for words, key in _SIZES.items():
                if found := re.search(rf"{words}: +(\d{{1,9}})", text, re.ASCII):
                    self._topology.setdefault(key, int(found[1]))
        elif found := _ARGUMENT.fullmatch(text):
            size = _ARGUMENTS.get(found[1])
            if size and re.fullmatch("[1-9][0-9]{0,8}", found[2]):
                self._topology.setdefault(size, int(found[2]))
            elif found[1] in _KEPT and found[2].isdigit():
                self._attributes.setdefault(found[1], found[2])


def _value(field: str) -> dict[str, Any]:
    """Return the column and value of a field; nothing for a key without a column.

    Of two values, at this step and on average, the first counts.
    """
    key, colon, said = field.partition(":")
    key, said = key.strip().lower(), said.strip()
    if not colon or not said:
        return {}
    first = said.split("/")[0].strip()
    if key in _TIMES:
        return {"step_time_ns": rounded_ns(first, _TIMES[key])}
    if key in _WHOLE:
        column, bits = _WHOLE[key]
        return {column: whole(first, bits)}
    if key in _NUMBERS:
        return {_NUMBERS[key]: number(first)}
    if key in _MEMORY_KEYS:
        return {"memory_bytes": _gib(first.removesuffix("GB"))}
    return {}


def _gib(text: str) -> int:
    value = number(text) * _GIB
    if not 0 <= value < 2**63:
        raise BadValueError(text)
    return round(value)


def _logged_at(text: str) -> datetime | None:
    """Return the last time of day in the text."""
    found = list(_STAMP.finditer(text))
    if not found:
        return None
    day, clock, fraction = found[-1].groups()
    return _time(f"{day} {clock}.{(fraction or '0').ljust(6, '0')}")


FORMAT = LineFormat(
    name="training_log",
    doc="Standard output of training: Megatron-LM and its forks, DeepSpeed, NeMo, torchtitan.",
    sniff=_sniff,
    reader=_Reader,
    tables=("train_steps", "timings"),
    prefixed=True,
    stamp=_stamp,
    rejects={_MERGED: "Two progress records on one line: two ranks wrote at once."},
    lines=(
        Record(r".*iteration +\d+ */ *\d+ *\|.*"),
        Record(r".*times? across ranks \(ms\):.*|.*time \(ms\) \|.*"),
        Record(r"\s*\S+ ?\.*: \([0-9.]+, [0-9.]+\)\s*|  [\w/().+-]+:\s*|\s+rank +\d+: [0-9.]+\s*"),
        Record(r".*log_dist\] \[Rank \d+\] step=\d+, .*|.*\[timer\.py:\d+:stop\] .*RunningAvg.*"),
        Record(r".*\bstep: +\d+ +loss: .*"),
        Record(r".*rank_id: \d+, \S+ time: .*|.*=== Straggler Report at Step .*"),
        Record(r".*M[nx]\w+/Rnk: .*|(?:.* )?Rank \d+: [0-9.]+ ?ms\b.*"),
        Record(r".*using world size: .*|\s*\w+ \.{2,} ?\S+\s*"),
        Irrelevant("nccl", r".*NCCL (?:INFO|WARN|TRACE) .*", "Message of NCCL."),
        Irrelevant("blank", r"\s*", "Empty."),
        Irrelevant("other", r".*", "Anything else: it has no time of a step."),
    ),
)
