"""Read nanoGPT and what was written after it: llama2.c, llm.c, modded-nanogpt, nanochat, LitGPT.

Each line has its step. modded-nanogpt prints the time since the start instead of that of a step,
and LitGPT that of each micro-batch.
"""

from __future__ import annotations

import re
from typing import Any

from tracelake.formats.readers import number, rounded_ns
from tracelake.formats.training_log.elapsed import MILLISECOND_NS, Elapsed
from tracelake.formats.training_log.values import PRINTED, StepLines, StepValues

_NANOGPT = re.compile(
    rf".*\biter (\d{{1,9}}): loss ({PRINTED}), time ([0-9.]+)ms(?:,.*)?", re.ASCII
)
_LLAMA2C = re.compile(
    rf"(?:.* )?(\d{{1,9}}) \| loss ({PRINTED}) \| lr ({PRINTED}) \| ([0-9.]+)ms \| mfu .*",
    re.ASCII,
)
_LLMC = re.compile(
    rf".*\bstep +(\d{{1,9}})/(\d{{1,9}}) \| (?:train )?loss +({PRINTED})(?: \([^)]*\))? ?\|(.*)",
    re.ASCII,
)
# build-nanogpt, nanochat and autoresearch.
_CHAT = re.compile(
    r".*\b[Ss]tep:? +(\d{1,9})(?:/(\d{1,9}))?(?: \([^)]*\))? \| "
    rf"(?:train )?[Ll]oss: ({PRINTED}) (\|(?:.*\|)?)"
    r" (?:dt|Time): ([0-9.]+)ms \| [Tt]ok/sec: ([0-9.,]+).*",
    re.ASCII,
)
_SPEED = re.compile(r"(?:^|[ (])([0-9.]+) ms \|.*?([0-9.]+) tok/s", re.ASCII)
_NORM = re.compile(rf"(?:\bnorm:?|\bGradNorm:) +({PRINTED})", re.ASCII)
_RATE = re.compile(rf"\b(?:lr|LR):? ({PRINTED})", re.ASCII)
_MODDED = re.compile(
    rf".*\bstep:(\d{{1,9}})/(\d{{1,9}}) (?:train_loss:({PRINTED}) )?.{{0,200}}"
    r"\btrain_time:([0-9.]+)ms.*",
    re.ASCII,
)
_LITGPT = re.compile(
    rf".*\biter (\d{{1,9}}) (?:\| )?step (\d{{1,9}})(?::| \|) loss (?:train: )?({PRINTED}),"
    r".{0,200}\biter time: ([0-9.]+) ?ms( \((?:optimizer\.)?step\))?.*",
    re.ASCII,
)


class Nano(StepLines):
    """Reads the lines of one file, in order."""

    LINES = (
        r".*(?:iter \d+: loss \S+, time |\biter time: [0-9.]+ ?ms|[0-9.]+ms \| mfu "
        r"| (?:ms|MFU) \| [0-9.]+ tok/s|ms \| [Tt]ok/sec: | train_time:[0-9.]+ms).*"
    )
    HEADS = (
        (b"iter ", rb"\biter [0-9]+: loss [0-9na.]+, time [0-9.]+ms"),
        (b"mfu ", rb"\b[0-9]+ \| loss [0-9na.]+ \| lr [0-9.e+-]+ \| [0-9.]+ms \| mfu "),
        (b" tok/s", rb"\bstep +[0-9]+/[0-9]+ \| (?:train )?loss +[0-9na.-]+.* ms \| .* tok/s"),
        (
            b"ok/sec: ",
            rb"\b[Ss]tep:? +[0-9][^\r\n|]{0,60} \| (?:train )?[Ll]oss: [0-9na.-]"
            rb"[^\r\n]{0,200}ms \| [Tt]ok/sec: [0-9]",
        ),
        (
            b"iter time: ",
            rb"\biter [0-9]+ (?:\| )?step [0-9]+(?::| \|) loss .{0,200}\biter time: [0-9]",
        ),
        (b" train_time:", rb"\bstep:[0-9]+/[0-9]+ .{0,200}\btrain_time:[0-9.]+ms step_avg:"),
    )

    def __init__(self) -> None:
        self._elapsed = Elapsed(MILLISECOND_NS)
        self._batches = 0  # of LitGPT, at its latest line
        self._spent_ns: int | None = 0  # on those since the step before, if all are printed

    def read(self, text: str) -> list[StepValues]:
        """Return what a line says of steps."""
        records: list[StepValues] = []
        # Each with a word of it: to look for that takes a tenth of the time.
        if "iter " in text and (found := _NANOGPT.fullmatch(text)):  # counts from 0
            records = [_own(int(found[1]) + 1, found[3], loss=number(found[2]))]
        elif " mfu " in text and (found := _LLAMA2C.fullmatch(text)):  # likewise
            values = {"loss": number(found[2]), "lr": number(found[3])}
            records = [_own(int(found[1]) + 1, found[4], **values)]
        elif " tok/s" in text and (found := _LLMC.fullmatch(text)):
            records = self._llmc(found)
        elif "ok/sec: " in text and (found := _CHAT.fullmatch(text)):
            records = self._chat(found)
        elif " train_time:" in text and (found := _MODDED.fullmatch(text)):
            self.done = int(found[1])
            return self._modded(found)
        elif "iter time: " in text and (found := _LITGPT.fullmatch(text)):
            records = self._litgpt(found)
        if records:
            self.done = records[0][0]
        return records

    def _llmc(self, found: re.Match[str]) -> list[StepValues]:
        """Return the record of llm.c."""
        speed = _SPEED.search(found[4])
        if speed is None:
            return []
        self.total = int(found[2])
        return [_own(int(found[1]), speed[1], **_values(found[3], found[4], speed[2]))]

    def _chat(self, found: re.Match[str]) -> list[StepValues]:
        """Return the record of nanochat and its like, which count from 0."""
        if found[2]:
            self.total = int(found[2])
        values = _values(found[3], found[4], found[6].replace(",", ""))
        return [_own(int(found[1]) + 1, found[5], **values)]

    def _modded(self, found: re.Match[str]) -> list[StepValues]:
        """Return loss and time of modded-nanogpt; lines of a validation have no loss of a step."""
        step, self.total = int(found[1]), int(found[2])
        values: dict[str, Any] = {"loss": number(found[3])} if found[3] else {}
        time = self._elapsed.take(step, rounded_ns(found[4], 6))
        if time and time[0][1] == 1:
            return [(step, 1, values | time[0][2])]
        return [(step, 1, values), *time] if values else time

    def _litgpt(self, found: re.Match[str]) -> list[StepValues]:
        """Return the record of a step, which the last one of its micro-batches ends."""
        batch, step, time_ns = int(found[1]), int(found[2]), rounded_ns(found[4], 6)
        if self._spent_ns is not None:
            known = batch == self._batches + 1
            self._spent_ns = self._spent_ns + time_ns if known else None
        self._batches = batch
        if not found[5]:
            return []
        spent_ns = time_ns if batch == step else self._spent_ns  # one micro-batch, or all of them
        self._spent_ns = 0
        values: dict[str, Any] = {"loss": number(found[3])}
        if spent_ns is None:
            return [(step, None, values)]
        return [(step, 1, values | {"step_time_ns": spent_ns})]


def _values(loss: str, others: str, speed: str) -> dict[str, Any]:
    values: dict[str, Any] = {"loss": number(loss), "tokens_per_s": number(speed)}
    for column, pattern in (("grad_norm", _NORM), ("lr", _RATE)):
        if match := pattern.search(others):
            values[column] = number(match[1])
    return values


def _own(step: int, milliseconds: str, **values: Any) -> StepValues:
    return step, 1, {**values, "step_time_ns": rounded_ns(milliseconds, 6)}
