"""Read the output of training jobs: Megatron-LM and forks, DeepSpeed, NeMo, torchtitan and others.

Progress records are lines of `key: value` in any order, or dicts between progress bars. Timers over
ranks, reports of stragglers and the arguments that a job prints are read too; everything else is
irrelevant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from tracelake.formats import Claim, FileFacts, RunFacts
from tracelake.formats.endings import LINE, Ending
from tracelake.formats.ledger import SIZES_CHANGED
from tracelake.formats.lines import Irrelevant, LineFormat, Record
from tracelake.formats.nccl_tests import TEST_ROW
from tracelake.formats.readers import ANSI, Rows, number, rounded_ns, whole
from tracelake.formats.starts import stamp_in_words, stamp_of
from tracelake.formats.training_log.bars import Bars, Epochs
from tracelake.formats.training_log.blocks import Blocks
from tracelake.formats.training_log.dated import Dated
from tracelake.formats.training_log.fairseq import Updates
from tracelake.formats.training_log.heads import Heads, KnownLines
from tracelake.formats.training_log.hugging_face import Trainer
from tracelake.formats.training_log.internlm import Batches
from tracelake.formats.training_log.job import ARGUMENTS, HEADING, MODEL, JobLines
from tracelake.formats.training_log.llama_factory import History
from tracelake.formats.training_log.meters import Meters
from tracelake.formats.training_log.mindformers import Losses
from tracelake.formats.training_log.nano import Nano
from tracelake.formats.training_log.processes import ERRORS, group, joined
from tracelake.formats.training_log.reinforcement import LAUNCHERS, Reinforcement
from tracelake.formats.training_log.steps import Printed, Steps
from tracelake.formats.training_log.timers import Row, Timers
from tracelake.formats.training_log.values import (
    DAY,
    PAIR_KEYS,
    RECORD_END,
    StepLines,
    gib,
    logged_at,
    parted,
    value_of,
    values_of,
    whole_fields,
    written_out,
)

if TYPE_CHECKING:
    import polars as pl

    from tracelake.formats.training_log.alike import Key, Records

# Of trainers with a module each, in the order in which a line is shown to them.
_OTHERS = (Nano, History, Meters, Blocks, Epochs, Reinforcement, Updates, Losses, Batches, Dated)
_TRAINERS: tuple[type[StepLines], ...] = (Trainer, *_OTHERS)
_RECORDS: Heads = (
    (b"iteration", rb"iteration[ =:] *[0-9]+ */ *[0-9]+ *\|"),
    (b"using world size", rb"using world size: +[0-9]+, data-parallel"),
    (b" arguments --", rb"-{8,} (?:end of )?arguments -{8,}"),
    (b"timer.py:", rb"\[timer\.py:[0-9]+:stop\] "),
    (b"log_dist]", rb":log_dist\] \[Rank [0-9-]+\] "),
    (b"across ranks", rb"times? across ranks \(ms\):"),
    (b"time (ms)", rb"time \(ms\) \| [a-z]"),
    (b" loss: ", rb"steps?: +[0-9]+ +loss: +-?(?:[0-9]|nan|inf)"),
    (b"train_step_timing in s=", rb", global_step=[0-9]"),
    (b"completed step: ", rb"completed step: [0-9]+, seconds: [0-9]"),
    (b"Config param ", rb"Config param global_batch_size_to_train_on: [0-9]"),
    (b"[Start training]", rb"\[Start training\] datetime: [0-9-]+ [0-9:.]+ \| mbs: [0-9]"),
    (b"Straggler Report", rb"=== Straggler Report at Step [0-9]+"),
    (b"[launch.py:", rb"\[INFO\] \[launch\.py:[0-9]+:"),
    *chain.from_iterable(trainer.HEADS for trainer in _TRAINERS),
)
# Of launchers: where a long preamble comes before what the trainer prints.
_LAUNCHERS: Heads = (
    (b"pretrain_", rb"\bpretrain_[a-z0-9_]+\.py"),
    (b"--train-", rb"--train-(?:iters|samples)\b"),
    (b"[Primus:", rb"\[Primus:"),
    (b"primus-cli", rb"primus-cli"),
    (b"deepspeed.launcher", rb"deepspeed\.launcher"),
    *LAUNCHERS,
)
_KNOWN = KnownLines({Claim.YES: _RECORDS, Claim.MAYBE: _LAUNCHERS, Claim.BESIDE: ERRORS})
_COLOURS = re.compile(ANSI.encode())
_ITERATION = re.compile(r"iteration[ =:] *(\d+) */ *(\d+) *\|", re.ASCII)
_NEOX = re.compile(r"\bsamples/sec: ([0-9.]+) \| *$", re.ASCII)
_NEMO = re.compile(r"Training epoch (\d+), $", re.ASCII)
# What may stand between two whole records of one line: what a logger writes before the second.
_BETWEEN = re.compile(r".*\|\s*(?:\[[^\]|]*\] ?:?\s*)*(?:Training epoch \d+, )?", re.ASCII)
_HEAD_DAY = re.compile(DAY.encode(), re.M)
_HEAD_STAMP = re.compile(
    rb"\b(20[0-9]{2}[-/][01][0-9][-/][0-3][0-9]|20[0-9]{2}[01][0-9][0-3][0-9])"
    rb"[ T,-]([0-2][0-9]:[0-5][0-9]:[0-5][0-9])"
)
_DEEPSPEED = re.compile(
    r".*log_dist\] \[Rank (\d+)\] step=(\d+), skipped=(\d+), lr=\[([^\],]*).*", re.ASCII
)
_TIMER = re.compile(
    r".*\[timer\.py:\d+:stop\] (?:(?:rank=\d+|epoch=\d+)/)*"
    r"(?:micro_step=\d+/global_step=(?P<step>\d+)|\d+/(?P<micro>\d+)), RunningAvg.*",
    re.ASCII,
)
_SPEED = re.compile(r"CurrSamplesPerSec=([0-9.eE+-]+),", re.ASCII)
_MEMORY = re.compile(r"MemAllocated=([0-9.]+)GB")
_PIPELINE = re.compile(
    r".*\bsteps: (\d+) loss: (\S+) (?:.*: \S+ )?iter time \(s\): ([0-9.]+)"
    r" samples/sec: ([0-9.]+).*",
    re.ASCII,
)
# A validation has the loss of other data, and no time.
_TITAN = re.compile(r"(?!.*\bvalidate step: ).*\bstep: +(\d+) +loss: +(\S+)(\s.*)?", re.ASCII)
_TITAN_KEYS = re.compile(rf"({PAIR_KEYS}): +([0-9.,naif]+)(?=[\sG(])", re.ASCII)
_BRIDGE = re.compile(
    r".*\bStep Time : ([0-9.]+)s GPU utilization: ([0-9.]+)MODEL_TFLOP/s/GPU.*", re.ASCII
)
_MAXTEXT = re.compile(r".*\bcompleted step: (\d+), seconds: (\S+), (.*)", re.ASCII)
_MERGED = "merged_records"
_STEPS_OF_GRACE = 100


def _sniff(head: bytes) -> Claim:
    if b"\x1b" in head:
        head = _COLOURS.sub(b"", head)
    # A batch script that runs with `set -x` can fill the head with its trace; a diff is none.
    traced = head.count(b"\n+") > 100 and b"\n@@ " not in head
    return max(_KNOWN.claim(head), Claim.MAYBE if traced else Claim.NO)


def _stamp(head: bytes) -> datetime | None:
    """Return the first time of day in a log, or else the date that its script printed.

    A date that none follows within a day is that of something else, if another one is not.
    Primus writes days as 20260511, in colours, and some as 05/11/2026.
    """
    first = before = None
    head = _COLOURS.sub(b"", head)
    if b"/20" in head:  # to look for it takes a tenth of the time
        head = _HEAD_DAY.sub(rb"\3-\1-\2", head)
    for found in _HEAD_STAMP.finditer(head):
        day, clock = (part.decode() for part in found.groups())
        if stamp := stamp_of(f"{day.replace('/', '-')} {clock}"):
            if before and abs(stamp - before) < timedelta(days=1):
                return before
            first, before = first or stamp, stamp
    return first or stamp_in_words(head)


class _Reader:
    def __init__(self, facts: FileFacts) -> None:
        del facts
        self._job = JobLines()
        self._steps = Steps()
        # Of the latest record that others are like: what its fields are called, and these.
        self._keys: tuple[str, list[str]] | None = None
        self._skipped = 0
        self._grows = False  # the length of sequences, as a curriculum has it
        self._iterated = 0  # step of the latest record of Megatron-LM
        self._due = -1  # that of the one that comes next
        self._batches: set[int] = set()  # global batch sizes of records
        self._ahead: dict[str, Any] = {}  # values that are printed before their record
        self._bars = Bars()
        self._trainer = Trainer(self._job.heading)
        self._others = [other() for other in _OTHERS]
        self._ending = Ending()
        # What was said of an end before a later record, and the step of the record before that.
        self._said: tuple[int, Ending] | None = None
        self._timers = Timers(self._steps)

    def read(self, text: str) -> Rows | str:
        # A progress bar writes over itself; `#015` is how syslog writes that.
        rows: list[Row] = []
        for piece in text.replace("#015", "\r").split("\r"):
            read = self._read(piece)
            if isinstance(read, str):
                return read
            rows += read
        if len(rows) > 1:
            rows.sort(key=lambda row: row[0] != "train_steps")  # table by table
        return [*self._job.changes(), *rows] if rows else rows

    @property
    def keys(self) -> tuple[str, tuple[Key, ...]] | None:
        """Return what the fields of the latest record are called, and their keys."""
        if self._keys is None:
            return None
        called, fields = self._keys
        return called, tuple(parted(field)[:2] for field in fields)

    def read_many(self, keys: tuple[str, tuple[Key, ...]], texts: pl.Series) -> Records:
        """Return the records among some lines that have these keys."""
        from tracelake.formats.training_log.alike import FORMS  # noqa: PLC0415 - imports polars

        called, own = keys
        return FORMS[called](own, texts)

    def take(self, alike: Records, place: int, stop: int) -> dict[str, list[Any]] | None:
        """Return when records were printed, and the steps that each covers."""
        if self._ahead or self._job.is_fresh:
            return None
        self._go_on()
        self._steps.interval = self._job.interval
        found = self._steps.take_alike(alike.steps[place:stop], alike.times[place:stop])
        if not found["step"]:
            alone = self._steps.take(int(alike.steps[place]), alike.times.of(place))
            found = {name: [value] for name, value in alone.items()}
        stop = place + len(found["step"])
        self._batches.update(alike.batches[place:stop])
        if alike.totals is not None:
            self._job.total = alike.totals[stop - 1]
        if not alike.resets:
            for step in found["step"][-2:]:
                self._iterate(step)
        return found | {"logged_at": alike.times.at[place:stop].tolist()}

    def finish(self) -> RunFacts:
        done = [lines.done for lines in (self._trainer, *self._others) if lines.done is not None]
        last, total = max(done or [self._steps.last, *self._timers.copies]), self._job.total
        sizes, attributes = self._job.finish()
        ending = self._end_behind(last)
        # Where records say how far it came, nothing is printed of the last part of an interval.
        open_steps = self._steps.usual if last == self._steps.last and not ending.kind else 1
        failed = ending.kind or ending.uncaught
        ended = total - last < open_steps if total else (False if failed else None)
        if self._trainer.ended or self._job.stopped:
            ended = True
        if ended is False:
            attributes |= ending.attributes(self._job.sizes.get("world_size"))
        if total:
            attributes |= {"last_step": str(last), "planned_steps": str(total)}
        if self._grows:
            attributes["sequence_length"] = "grows"
        attributes |= self._trainer.summary
        if len(self._batches) == 1:  # more while the job increases it
            sizes.setdefault("global_batch_size", *self._batches)
        model, params = self._job.model, self._job.params
        return RunFacts(sizes, ended=ended, model=model, params=params, attributes=attributes)

    def _end_behind(self, last: int) -> Ending:
        """Return what was said of an end behind the last record, or shortly before it.

        Ranks print by themselves: one may fail before another prints the last record. A scheduler
        gives a job that it ends some time.
        """
        now, said = self._ending, self._said
        if said is None or ((now.kind or now.uncaught) and not now.is_of_launcher):
            return now
        step, before = said
        steps = _STEPS_OF_GRACE if before.is_of_scheduler else self._steps.usual if now.kind else -1
        return before if 0 <= last - step <= steps else now

    def _read(self, text: str) -> list[Row] | str:
        if records := list(_ITERATION.finditer(text)):
            return self._iterations(text, records)
        if "time (ms) |" in text:
            _, _, timers = text.partition("time (ms) |")
            return self._timers.own(timers)
        rows = self._counted(self._trainer, text, "")
        if behind := self._trainer.behind:
            others = self._read(behind)
            return others if isinstance(others, str) else [*rows, *others]
        if rows or behind is not None:
            return rows
        rows = self._timers.read(text) or self._other_records(text)
        if not rows and not self._job.read(text):
            self._ending.read(text)
        return rows

    # --- records ---------------------------------------------------------------------------

    def _other_records(self, text: str) -> list[Row]:
        """Return the rows of a record of DeepSpeed, torchtitan, MaxText or a bar of NeMo."""
        for word, pattern, read in (  # to look for a word takes a tenth of the time
            ("log_dist]", _DEEPSPEED, self._deepspeed),
            ("iter time (s): ", _PIPELINE, self._pipeline),
            (" loss: ", _TITAN, self._titan),
            ("completed step: ", _MAXTEXT, self._maxtext),
        ):
            if word in text and (found := pattern.fullmatch(text)):
                return [read(text, found)]
        if "[timer.py:" in text and (found := _TIMER.fullmatch(text)):
            return self._speed(text, found)
        if bar := self._bars.read(text):
            return [self._record(bar[0], "", bar[1])]
        if "Step Time : " in text and (found := _BRIDGE.fullmatch(text)):
            self._ahead = {
                "step_time_ns": rounded_ns(found[1], 9),
                "tflops_per_gpu": number(found[2]),
            }
            return []
        for lines in self._others:
            if rows := self._counted(lines, text, text):
                return rows
        return []

    def _counted(self, lines: StepLines, text: str, dated: str) -> list[Row]:
        """Return the rows of a trainer whose times may be those of other steps than its losses."""
        done = lines.done
        rows: list[Row] = []
        for step, covered, values in lines.read(text):
            rows += [_timer(step, covered or 1, *timer) for timer in values.pop("timers", ())]
            if not values:
                continue
            if covered and "loss" not in values:
                basis = "own" if covered == 1 else "mean"
                row = {"step": step, "copy": 0, "batches_covered": covered, "time_basis": basis}
                rows.append(("train_steps", row | values))
            else:
                self._job.interval = covered or self._job.interval
                rows.append(self._record(step, dated, values))
        if rows or lines.done != done:
            self._job.total = lines.total
            self._go_on()
        return rows

    def _iterations(self, text: str, records: list[re.Match[str]]) -> list[Row] | str:
        """Return the rows of the progress records of a line, and of the timers behind them."""
        stops = [*(record.start() for record in records[1:]), len(text)]
        if any(not _BETWEEN.fullmatch(text[:stop]) for stop in stops[:-1]):
            return _MERGED
        rows: list[Row] = []
        for record, stop in zip(records, stops, strict=True):
            rows += self._iteration(record, text[record.end() : stop])
        return rows

    def _iteration(self, found: re.Match[str], behind: str) -> Iterator[Row]:
        """Yield the row of a progress record, and those of timers on the same line."""
        before = found.string[: found.start()]
        step, total = whole(found[1], 31), whole(found[2], 31)
        nemo = _NEMO.search(before)
        record, _, timers = behind.partition("time (ms) |")
        fields = record.split("|") if nemo else whole_fields(record, RECORD_END)
        short = found[0].startswith("iteration:")  # of nanotron
        values = values_of([written_out(field) for field in fields] if short else fields)
        if not (nemo or short):
            self._keys = "fields", fields
            self._iterate(step)
        self._job.total = total
        self._grows |= "curriculum seqlen" in record
        if speed := _NEOX.search(before):
            values["samples_per_s"] = number(speed[1])
        if nemo:  # counts from 0, within the epoch
            self._job.total += 1
            of_job = re.search(r"\| global_step: (\d+) *(?:\||$)", behind, re.ASCII)
            step = _after(of_job[1] if of_job else found[1])
            values["epoch"] = whole(nemo[1], 31)
        yield self._record(step, before, self._ahead | values, resets=bool(nemo))
        self._ahead = {}
        if timers:
            yield from self._timers.own(timers)

    def _iterate(self, step: int) -> None:
        self._iterated, self._due = step, 2 * step - self._iterated

    def _record(
        self, step: int, before: str, values: dict[str, Any], *, resets: bool = True
    ) -> Row:
        """Return the row of a record, with the steps that it covers."""
        at, fine = logged_at(before)
        printed = Printed(at, fine, values.get("step_time_ns"), resets)
        if "global_batch_size" in values:
            self._batches.add(values["global_batch_size"])
        return "train_steps", {**self._covered(step, printed), **values}

    def _covered(self, step: int, printed: Printed) -> dict[str, Any]:
        """Return when a record was printed, and the steps that it covers."""
        self._go_on()
        self._steps.interval = self._job.interval
        return {**self._steps.take(step, printed), "logged_at": printed.at}

    def _go_on(self) -> None:
        """Forget what was said of an end: the job went on."""
        if self._job.is_fresh:
            self._said = None  # it began again
        elif self._ending.kind or self._ending.uncaught:
            self._said = self._steps.last, self._ending
        self._ending, self._job.stopped = Ending(), False

    def _deepspeed(self, text: str, found: re.Match[str]) -> Row:
        skipped = whole(found[3], 31)
        values = {
            "rank": whole(found[1], 31),
            "lr": number(found[4].strip()) if found[4].strip() else None,
            "skipped_steps": max(skipped - self._skipped, 0),
        }
        record = self._record(whole(found[2], 31), text, values)
        self._skipped = skipped
        return record

    def _speed(self, text: str, found: re.Match[str]) -> list[Row]:
        """Return the row of a throughput timer; of an early one only if its step is known.

        Early ones count micro-steps.
        """
        memory, speed = _MEMORY.search(text), _SPEED.search(text)
        values: dict[str, Any] = {"memory_bytes": gib(memory[1])} if memory else {}
        if speed:
            values["samples_per_s"] = number(speed[1])
        if found["step"]:
            return [self._record(whole(found["step"], 31), text, values)]
        micro = whole(found["micro"], 31)
        per_step = self._job.sizes.get("gradient_accumulation_steps")
        if not per_step or micro % per_step:
            return []
        return [self._record(micro // per_step, text, values)]

    def _pipeline(self, text: str, found: re.Match[str]) -> Row:
        step, values = whole(found[1], 31), {"loss": number(found[2])}
        if step != self._due:  # early versions print the time of one step over that of all
            values["step_time_ns"] = rounded_ns(found[3], 9)
            values["samples_per_s"] = number(found[4])
        return self._record(step, text, values)

    def _maxtext(self, text: str, found: re.Match[str]) -> Row:
        self._job.interval = 1  # it prints every step, from 0 on
        values = {**values_of(found[3].split(",")), "step_time_ns": rounded_ns(found[2], 9)}
        return self._record(_after(found[1]), text, values)

    def _titan(self, text: str, found: re.Match[str]) -> Row:
        loss = number(found[2])
        # A rank that is not of the last stage prints -1.
        values: dict[str, Any] = {} if loss == -1 else {"loss": loss}
        pairs = _TITAN_KEYS.findall(found[3] or "")
        for key, value in pairs:
            values |= value_of(key, value.replace(",", ""))
        if len(pairs) == len(values.keys() - {"loss"}):  # each has a column of its own
            self._keys = "pairs", [key for key, _ in pairs]
        return self._record(whole(found[1], 31), text, values)


def _timer(step: int, covered: int, name: str, statistic: str, time_ns: int) -> Row:
    """Return the row of how long a part of the steps of a record took."""
    steps = {"first_step": step - covered + 1, "last_step": step, "clock": "host"}
    return "timings", {**steps, "name": name, "statistic": statistic, "duration_ns": time_ns}


def _after(text: str) -> int:
    """Return the number of a step that is counted from 0."""
    return whole(str(whole(text) + 1), 31)


FORMAT = LineFormat(
    name="training_log",
    version=16,
    doc="Standard output of training: Megatron-LM and its forks, DeepSpeed, NeMo, torchtitan,"
    " Hugging Face, Composer, OLMo, timm and others.",
    sniff=_sniff,
    reader=_Reader,
    tables=("train_steps", "timings"),
    prefixed=True,
    stamp=_stamp,
    group=group,
    join=joined,
    faults=(SIZES_CHANGED,),
    rejects={
        _MERGED: "Two progress records on one line, and one is not whole: two ranks wrote at once."
    },
    lines=(
        Record(r".*iteration[ =:] *\d+ */ *\d+ *\|.*"),
        Record(r".*times? across ranks \(ms\):.*|.*time \(ms\) \|.*"),
        Record(r"\s*\S+ ?\.*: \([0-9.]+, [0-9.]+\)\s*|  [\w/().+-]+:\s*|\s+rank +\d+: [0-9.]+\s*"),
        Record(r"\s*\S+ \.+: [0-9.]+\s*"),
        Record(r".*log_dist\] \[Rank \d+\] step=\d+, .*|.*\[timer\.py:\d+:stop\] .*RunningAvg.*"),
        Record(
            r".*\bsteps?: +\d+ +loss: .*|.*, global_step=[0-9.]+(?:e\+\d+)?,.*"
            r"|.*\bStep Time : [0-9.]+s .*"
        ),
        Record(r".*\bcompleted step: \d+, seconds: .*|.*\bConfig param \w+: \S+\s*"),
        Record(r".*\bNum_devices: \d+, shape .*|.*\[Start training\] datetime: .*"),
        Record(r".*\|TP=\d+[^\]]*\]: .*\b\w+=\d+,\s*"),
        Record(r".*rank_id: \d+, \S+ time: .*|.*=== Straggler Report at Step .*"),
        Record(r".*M[nx]\w+/Rnk: .*|(?:.* )?Rank \d+: [0-9.]+ ?ms\b.*"),
        Record(r".*using world size: .*|(?:.*\s)?\w+ \.{2,} ?\S+\s*"),
        Record(r".*\[config\.py:\d+:print\] +(?:train_|gradient_acc)\w+[ .]+\d+\s*"),
        Record(rf"\s*(?:{'|'.join(ARGUMENTS)}): \d+,?\s*"),
        Record(r".*\] datetime: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? *"),
        Record(r".*Building (?:\d-D )?device mesh with .*"),
        Record(r".*Time limit reached\. Elapsed time is .*Signaling Trainer to stop.*"),
        Record(r".*Training starts at step \d+.*|.*Trainer is initialized with .*"),
        Record(HEADING),
        Record(MODEL),
        *(Record(trainer.LINES) for trainer in _TRAINERS),
        Record(LINE),
        Irrelevant("nccl", r".*NCCL (?:INFO|WARN|TRACE) .*", "Message of NCCL."),
        Irrelevant(
            "nccl_tests",
            rf"\s*{TEST_ROW}",
            "Row of nccl-tests that ran before the job: it is read where it has a file of its own.",
        ),
        Irrelevant("blank", r"\s*", "Empty."),
        Irrelevant("other", r".*", "Anything else: it has no time of a step."),
    ),
)
