"""Many strikes on a lake's story, and what came of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from tests.crash.effects import KILL, REFUSALS, SIGNALS, TORN, Strike
from tests.crash.story import Ended, Story, left_over

_KILLS_IN_A_ROW = 10
_EXIT_CODES = {"terminated": 143, "interrupted": 130}
# Where the weight lies: commit and build.
_WEIGHTY = ("_manifest", "TABLE", "compute", "write_state", "_copy", "warehouse", "_staging")
# What is refused here is done another way, or does not concern the command.
_DISPENSABLE = ("link", "remove", "compute", "write_state", "_copy", "_run/")


class Campaign:
    """Strikes at points in turn and at random, and at random times; each time all is judged."""

    def __init__(self, folder: Path, formats: Sequence[str], seed: int, out: TextIO) -> None:
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._out = out
        self._story = Story(folder, formats)
        self._story.begin()

    def kill(self, count: int) -> None:
        """SIGKILL, several times in a row before the command may end."""
        while self.counts["kills"] < count:
            stage = self._random.choice(self._story.stages)
            self._story.reset(stage)
            with self._story.reader(stage) as heard:
                for _ in range(self._random.randint(1, _KILLS_IN_A_ROW)):
                    if self.counts["kills"] >= count:
                        break
                    self._kill_once(stage)
                again = self._story.finish(self._story.start(stage))
            self._listen(heard)
            self._judge(stage, again, "kills")

    def stop(self, count: int) -> None:
        """SIGTERM and SIGINT at points and at any time."""
        for number in range(count):
            what = list(SIGNALS)[number % 2]
            stage = self._random.choice(self._story.stages)
            self._story.reset(stage)
            if number % 4 < 2:
                process = self._story.start(stage, self._strike(what, stage))
            else:
                process = self._story.start(stage)
                self._send_soon(process, stage, SIGNALS[what])
            ended = self._story.finish(process)
            if ended.code != 0:
                self.counts[what] += 1
                self._clean(what, ended.code, _EXIT_CODES[what], ended.said, what)
            self._end(stage, what)

    def refuse(self, count: int) -> None:
        """ENOSPC and EIO at every effect that takes room."""
        for number in range(count):
            stages = len(self._story.stages)
            stage, turn = number % stages, number // stages
            what = list(REFUSALS)[turn % 2]
            points = [p for p in self._story.points[stage] if not any(d in p for d in _DISPENSABLE)]
            kinds = list(dict.fromkeys(points))
            point = kinds[turn // 2 % len(kinds)]
            # A folder is asked for again by some that do without it.
            often = 1 if point.startswith("make_folder") else points.count(point)
            strike = Strike(what, point, self._random.randint(1, often))
            self._story.reset(stage)
            ended = self._story.finish(self._story.start(stage, strike))
            self.counts[what] += 1
            self.points[point] += 1
            word = os.strerror(REFUSALS[what])
            self._clean(f"{what} at {point}", ended.code, 3, ended.said, word)
            self._end(stage, f"{what} at {point}")

    def told(self) -> str:
        """The figures."""
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return f"{counts}; {len(self.points)} kinds of points; {len(self.wrong)} wrong"

    def _strike(self, what: str, stage: int, *, weighty: bool = False) -> Strike:
        """At a point that the stage comes to, preferably one that was not yet struck."""
        points = self._story.points[stage]
        kinds = sorted({p for p in points if not weighty or any(word in p for word in _WEIGHTY)})
        fewest = min(self.points[kind] for kind in kinds)
        point = self._random.choice([kind for kind in kinds if self.points[kind] <= fewest + 1])
        return Strike(what, point, self._random.randint(1, points.count(point)))

    def _kill_once(self, stage: int) -> None:
        """At a point, half the time a weighty one, in the middle of a write, or at any time."""
        strike = None
        if self._random.random() < 0.8:
            strike = self._strike(KILL, stage, weighty=self._random.random() < 0.5)
            if strike.point.startswith("write ") and self._random.random() < 0.5:
                strike = strike._replace(what=TORN)
        process = self._story.start(stage, strike)
        if strike is None:
            self._send_soon(process, stage, signal.SIGKILL)
        ended = self._story.finish(process)
        if ended.killed:
            self.counts["kills"] += 1
            self.counts["kills at a point" if strike else "kills at any time"] += 1
            if strike:
                self.points[strike.point] += 1
        elif ended.code:
            self._wrong(f"{strike}: ended with {ended.code}: {ended.said}")

    def _send_soon(self, process: int, stage: int, signum: int) -> None:
        time.sleep(self._random.uniform(0.05, self._story.seconds[stage]))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signum)

    def _clean(self, what: str, code: int, expected: int, said: str, word: str) -> None:
        if code != expected:
            self._wrong(f"{what}: ended with {code}: {said}")
        elif word not in said or "Traceback" in said or "a bug" in said:
            self._wrong(f"{what}: said {said}")
        for path in left_over(self._story.folder):
            self._wrong(f"{what}: left {path}")

    def _end(self, stage: int, what: str) -> None:
        """The same command again, which must end, and what it leaves."""
        self._judge(stage, self._story.finish(self._story.start(stage)), what)

    def _judge(self, stage: int, ended: Ended, what: str) -> None:
        if ended.code:
            self._wrong(f"after {what}: ended with {ended.code}: {ended.said}")
        else:
            for wrong in self._story.judge(stage):
                self._wrong(f"after {what}: {wrong}")
        self._out.write(f"{self.told()}\n")
        self._out.flush()

    def _listen(self, heard: Path) -> None:
        for line in heard.read_text().splitlines() if heard.exists() else ():
            if line.strip("."):
                self._wrong(f"a reader: {line}")
            self.counts["readings"] += line.count(".") if not line.strip(".") else 0

    def _wrong(self, what: str) -> None:
        self.wrong.append(what)
        self._out.write(f"WRONG {what}\n")
        self._out.flush()
