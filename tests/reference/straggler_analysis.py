"""Traces for the published analysis (StragglerAnalysis), and its figures by plain rules."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median
from typing import Any

import pyarrow as pa

DP_CALLS = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
KINDS = {
    "forward-compute": "forward_step",
    "backward-compute": "backward_step",
    "forward-pp-comm": "send_recv:forward",
    "backward-pp-comm": "send_recv:backward",
    "params-all-gather": "all_gather:dp",
    "grads-reduce-scatter": "reduce_scatter:dp",
    "separate-grads-all-reduce": "all_reduce:dp",
    "embedding-grads-all-reduce": "all_reduce:embedding",
    "layernorm-grads-all-reduce": "layernorm_grads_all_reduce",
    "optimizer-clip-main-grad": "optimizer_clip",
    "optimizer": "optimizer_step",
    "gc": "gc",
}
Row = dict[str, Any]  # A row of the trace.
Op = tuple[str, int, int]  # optype, seq_id, stage
Pass = tuple[str, int, int, int]  # direction, micro-batch, chunk, stage


@dataclass(frozen=True)
class Layout:
    """Sizes of a generated job."""

    dp: int = 2
    pp: int = 2
    tp: int = 1
    dsp: int = 1
    vpp: int = 1
    batches: int = 4
    steps: int = 2
    overlap: bool = False
    global_ranks: bool = False
    early_sends: bool = False
    ragged: bool = False
    seed: int = 0

    def meta(self) -> str:
        sizes = {"dp": self.dp, "dsp": self.dsp, "pp": self.pp, "tp": self.tp, "vpp": self.vpp}
        world = self.dp * self.dsp * self.pp * self.tp
        lines = ["trial_name: X", "run_id: 0", *(f"{k}_size: {v}" for k, v in sizes.items())]
        return "\n".join([*lines, f"world_size: {world}\n"])

    def order(self, stage: int) -> list[tuple[str, int, int]]:
        """Passes of a stage as direction, micro-batch, chunk: one forward, one backward."""
        total, each = self.batches * self.vpp, self.pp * self.vpp
        passes: dict[str, list[tuple[str, int, int]]] = {"forward": [], "backward": []}
        for k in range(total):
            chunk, batch = k // self.pp % self.vpp, k // each * self.pp + k % self.pp
            if self.vpp == 1:
                chunk, batch = 0, k
            passes["forward"].append(("forward", batch, chunk))
            passes["backward"].append(("backward", batch, self.vpp - 1 - chunk))
        ahead = self.pp - stage - 1
        ahead = min(total, ahead * 2 + (self.vpp - 1) * self.pp if self.vpp > 1 else ahead)
        found = passes["forward"][:ahead]
        for k in range(total):
            found += [*passes["forward"][ahead + k : ahead + k + 1], passes["backward"][k]]
        return found


def trace(layout: Layout) -> pa.Table:
    """Rows of a job whose passes, messages and calls take random times."""
    draw = random.Random(f"straggler_analysis/{layout}")
    rows: list[Row] = []
    for step in range(layout.steps):
        rows += _Step(layout, 7 + 2 * step, draw).rows
    draw.shuffle(rows)
    types = {"start_ts": pa.float32(), "duration": pa.float32(), "optype": pa.string()}
    names = (
        *("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration"),
        *("seq_id", "mc", "mb_id", "gmc"),
    )
    return pa.table(
        {name: pa.array([row[name] for row in rows], types.get(name, pa.int32())) for name in names}
    )


class _Step:
    """One step of a job, as it is traced."""

    def __init__(self, layout: Layout, step: int, draw: random.Random) -> None:
        self.layout, self.step, self.draw = layout, step, draw
        self.rows: list[Row] = []
        self.data_parallel = layout.dp * layout.dsp > 1
        self.gathered: dict[tuple[int, int, int], float] = defaultdict(float)
        self.now: dict[tuple[int, int], float] = {}
        self.last_backward: dict[tuple[int, int, int], float] = {}
        batches = itertools.product(range(layout.dp), range(layout.batches))
        self.sizes = {batch: draw.uniform(0.04, 0.12) for batch in batches}
        self._gather()
        for dp in range(layout.dp):
            self._passes(dp)
        self._end()
        self.rows.sort(key=lambda row: row["start_ts"])
        counts: dict[tuple[int, str], int] = defaultdict(int)
        for row in self.rows:
            row["seq_id"] = counts[row["rank"], row["optype"]]
            counts[row["rank"], row["optype"]] += 1

    def _put(
        self, dp: int, stage: int, optype: str, start: float, end: float, mc: int = -1, mb: int = -1
    ) -> None:
        sizes = self.layout
        ranks = sizes.dp * (sizes.dsp * sizes.tp if sizes.global_ranks else 1)
        rank = stage * ranks + dp * (sizes.tp if sizes.global_ranks else 1)
        self.rows.append(
            {
                "dp_rank": dp,
                "stage": stage,
                "rank": rank,
                "step": self.step,
                "optype": optype,
                "start_ts": start,
                "duration": end - start,
                "mc": mc,
                "mb_id": mb,
                "gmc": mc * sizes.pp + stage if mb >= 0 else -1,
            }
        )

    def _call(
        self, optype: str, stage: int, begins: dict[int, float], mc: int = -1
    ) -> dict[int, float]:
        """End a call of all data-parallel ranks together, nearly."""
        ends = {dp: max(begins.values()) + self.draw.uniform(0.02, 0.04) for dp in begins}
        for dp, begin in begins.items():
            self._put(dp, stage, optype, begin, ends[dp], mc)
        return ends

    def _gather(self) -> None:
        for stage in range(self.layout.pp if self.data_parallel else 0):
            now = {dp: 0.01 * self.draw.random() for dp in range(self.layout.dp)}
            for chunk in range(self.layout.vpp):
                now = self._call("params-all-gather", stage, now, chunk)
                self.gathered.update({(dp, stage, chunk): end for dp, end in now.items()})

    def _passes(self, dp: int) -> None:
        """Run the pipeline of one data-parallel rank: each stage does its passes in order."""
        pp, vpp, early = self.layout.pp, self.layout.vpp, self.layout.early_sends
        orders = [self.layout.order(stage) for stage in range(pp)]
        ends: list[list[float]] = [[] for _ in orders]
        done: dict[Pass, float] = {}
        free: dict[tuple[int, str], float] = defaultdict(float)
        while any(len(end) < len(order) for end, order in zip(ends, orders, strict=True)):
            stage = next(
                stage for stage in range(pp)
                if len(ends[stage]) < len(orders[stage])
                and self._source(stage, orders[stage][len(ends[stage])]) in {None, *done}
            )  # fmt: skip
            way, batch, chunk = orders[stage][len(ends[stage])]
            source = self._source(stage, (way, batch, chunk))
            begin = max([self.gathered[dp, stage, chunk], *ends[stage][-1:]])
            if source or vpp > 1:
                asked = max(free[stage, way + "-recv"], free[stage, way])
                if way == "backward" and not free[stage, way] and len(ends[stage]) > 1:
                    asked = ends[stage][-2]
                got = asked + 0.0001
                if source:
                    out = done[source]
                    unmet = early and self.draw.random() < 0.3
                    asked = out + 0.02 if unmet else asked
                    got = max(asked, out) + self.draw.uniform(0.0005, 0.001)
                    self._put(dp, source[3], way + "-send", out, out + 0.015 if unmet else got)
                self._put(dp, stage, way + "-recv", asked, got)
                free[stage, way + "-recv"] = got
                begin = max(begin, got)
            length = self.sizes[dp, batch] if self.layout.ragged else self.draw.uniform(0.05, 0.08)
            length *= 1.3 if stage == pp - 1 else 1
            end = begin + length * (2 if way == "backward" else 1)
            self._put(dp, stage, way + "-compute", begin, end, chunk, batch)
            if vpp > 1 and not self._inside(stage, way, chunk, 1):
                self._put(dp, stage, way + "-send", end, end + 0.0001)
            ends[stage].append(end)
            free[stage, way] = done[way, batch, chunk, stage] = end
            if way == "backward":
                self.last_backward[dp, stage, chunk] = end
        for stage, (*_, end) in enumerate(ends):
            self.now[dp, stage] = end
        if vpp > 1:  # It was recorded, and no message was sent.
            self._put(dp, 1, "forward-recv", ends[1][-1] - 0.0002, ends[1][-1] - 0.0001)

    def _inside(self, stage: int, way: str, chunk: int, ahead: int) -> bool:
        place = chunk * self.layout.pp + stage + (ahead if way == "forward" else -ahead)
        return 0 <= place < self.layout.pp * self.layout.vpp

    def _source(self, stage: int, work: tuple[str, int, int]) -> Pass | None:
        """The pass whose result a pass needs."""
        way, batch, chunk = work
        if not self._inside(stage, way, chunk, -1):
            return None
        place = chunk * self.layout.pp + stage - (1 if way == "forward" else -1)
        return way, batch, *divmod(place, self.layout.pp)

    def _end(self) -> None:
        pps, dps, overlap = range(self.layout.pp), range(self.layout.dp), self.layout.overlap
        scattered = dict.fromkeys(self.now, 0.0)
        for stage in pps if self.data_parallel and overlap else ():
            for chunk in reversed(range(self.layout.vpp)):
                begins = {
                    dp: max(self.last_backward[dp, stage, chunk], scattered[dp, stage])
                    for dp in dps
                }
                ends = self._call("grads-reduce-scatter", stage, begins, chunk)
                scattered |= {(dp, stage): end for dp, end in ends.items()}
        for (dp, stage), end in self.now.items():
            self._put(dp, stage, "gc", end, end, mb=0)
            begin = max(end, scattered[dp, stage])
            self.now[dp, stage] = begin + self.draw.uniform(0.001, 0.002)
            self._put(dp, stage, "layernorm-grads-all-reduce", begin, self.now[dp, stage])
        for dp in dps:
            latest = max(self.now[dp, stage] for stage in {0, self.layout.pp - 1})
            for stage in {0, self.layout.pp - 1}:
                end = latest + self.draw.uniform(0.01, 0.02)
                self._put(dp, stage, "embedding-grads-all-reduce", self.now[dp, stage], end)
                self.now[dp, stage] = end
        last = "separate-grads-all-reduce" if overlap else "grads-reduce-scatter"
        for stage in pps if self.data_parallel else ():
            for chunk in [-1] if overlap else range(self.layout.vpp):
                begins = {dp: self.now[dp, stage] for dp in dps}
                ends = self._call(last, stage, begins, chunk)
                self.now |= {(dp, stage): end for dp, end in ends.items()}
        latest = max(self.now.values())
        for (dp, stage), begin in self.now.items():
            end = latest + self.draw.uniform(0.001, 0.002)
            self._put(dp, stage, "optimizer-clip-main-grad", begin, end)
            self._put(dp, stage, "optimizer", end, end + self.draw.uniform(0.03, 0.05))


class Analysis:
    """Figures of a trace; each replay takes any operation that can start, until none is left."""

    def __init__(self, rows: list[Row], layout: Layout) -> None:
        self.rows, self.layout = rows, layout
        self.steps = sorted({row["step"] for row in rows})
        self.template = {
            (row["optype"], row["seq_id"], row["stage"]): row
            for row in rows
            if row["step"] == self.steps[0] and row["dp_rank"] == 0
        }
        self.after: dict[Op, set[Op]] = {op: set() for op in self.template}
        self.meeting: dict[Op, tuple[Any, ...]] = {}
        for stage in range(layout.pp):
            self._stage(stage)
        self.members: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in rows:
            if key := self._key(row):
                self.members[key].append(row)
        self.own = {id(row): self._own(row) for row in rows}
        self.ideal = self._ideal()

    def figures(self) -> dict[tuple[str, str], float]:
        """Every published figure by its name and subject, and the time of each step."""
        found = {("t", str(step)): time for step, time in self._times(self.own).items()}
        whole, best = self._mean(self.own), self._mean(self.ideal)
        found["s", ""] = whole / best
        spans = [
            max(row["start_ts"] + row["duration"] for row in of)
            - min(row["start_ts"] for row in of)
            for step in self.steps
            if (of := [row for row in self.rows if row["step"] == step])
        ]
        found["launch", ""] = fmean(spans) / whole
        slow: dict[tuple[str, int], float] = {}
        for figure, name in (("s_dp", "dp_rank"), ("s_stage", "stage"), ("s_kind", "optype")):
            subjects = {self._subject(row, name) for row in self.rows}
            for subject in subjects:
                chosen = [row for row in self.rows if self._subject(row, name) == subject]
                mixed = self.ideal | {id(row): self.own[id(row)] for row in chosen}
                found[figure, str(subject)] = slow[figure, subject] = self._mean(mixed) / best
        workers = {row["rank"]: row for row in self.rows}
        order = sorted(
            workers,
            key=lambda rank: (
                -min(
                    slow["s_dp", workers[rank]["dp_rank"]], slow["s_stage", workers[rank]["stage"]]
                ),
                rank,
            ),
        )
        worst = sorted(order[: ceil(len(order) * 3 / 100)])
        fixed = self._mixed(lambda row: row["rank"] not in worst)
        found["m_w", " ".join(map(str, worst))] = (whole - self._mean(fixed)) / (whole - best)
        last = self.layout.pp - 1
        fixed = self._mixed(lambda row: row["stage"] != last)
        found["m_s", str(last)] = (whole - self._mean(fixed)) / (whole - best)
        return found

    def _subject(self, row: Row, name: str) -> Any:
        way, _, what = str(row[name]).partition("-")
        joined = f"{way}-pp-comm" if name == "optype" and what in ("send", "recv") else row[name]
        return KINDS.get(joined, joined)

    def _mixed(self, real: Callable[[Row], bool]) -> dict[int, float]:
        return {id(row): (self.own if real(row) else self.ideal)[id(row)] for row in self.rows}

    def _mean(self, lengths: dict[int, float]) -> float:
        return fmean(self._times(lengths).values())

    def _chain(self, ops: list[Op]) -> None:
        for before, op in itertools.pairwise(ops):
            self.after[op].add(before)

    def _stage(self, stage: int) -> None:  # noqa: PLR0912 - a list of rules
        """Add what the operations of a stage come after, and whom they meet."""
        sizes, pp = self.layout, self.layout.pp
        named: dict[str, list[Op]] = defaultdict(list)
        for op in sorted(self.template, key=lambda op: op[1]):
            if op[2] == stage:
                named[op[0]].append(op)
        at = {op: self.template[op]["start_ts"] for ops in named.values() for op in ops}
        passes = sorted([*named["forward-compute"], *named["backward-compute"]], key=at.__getitem__)
        self._chain(passes)
        for way in ("forward", "backward"):
            mine = named[f"{way}-compute"]
            for what in ("send", "recv"):
                messages = named[f"{way}-{what}"]
                self._chain(messages)
                sign = 1 if (way, what) in {("forward", "send"), ("backward", "recv")} else -1
                real = [op for op in messages if self._real(op, mine)]
                skipped = len(mine) - len(real) if what == "recv" else 0
                place = 0
                for number, op in enumerate(real, skipped):
                    if what == "send":
                        self.after[op].add(mine[number])
                    else:
                        self.after[mine[number]].add(op)
                        self.after[op] |= {mine[number - 1]} if number else set()
                    if 0 <= self.template[mine[number]]["gmc"] + sign < pp * sizes.vpp:
                        sender = stage if what == "send" else (stage + sign) % pp
                        self.meeting[op] = (way, sender, place)
                        place += 1
        first = passes.index(named["backward-compute"][0])
        for what in ("recv", "send"):
            if named[f"backward-{what}"] and first >= 2:
                self.after[named[f"backward-{what}"][0]].add(passes[first - 2])
        gathers, scatters = named["params-all-gather"], named["grads-reduce-scatter"]
        if sizes.dp * sizes.dsp > 1:
            self._chain(sorted([*gathers, *scatters], key=at.__getitem__))
        for op in gathers:
            chunk = self.template[op]["mc"]
            if all(self.template[later]["mc"] != chunk for later in gathers[op[1] + 1 :]):
                self.after[self._of(named["forward-compute"], chunk)[0]].add(op)
        for op in scatters if sizes.overlap else ():
            self.after[op].add(self._of(named["backward-compute"], self.template[op]["mc"])[-1])
        self.after[named["gc"][0]].add(passes[-1])
        tail = [
            named["gc"][0],
            *named["layernorm-grads-all-reduce"],
            *named["embedding-grads-all-reduce"],
        ]
        tail += named["separate-grads-all-reduce"] if sizes.overlap else scatters
        self._chain([*tail, named["optimizer-clip-main-grad"][0], named["optimizer"][0]])
        if sizes.overlap and scatters:
            self.after[tail[1]].add(scatters[-1])

    def _of(self, ops: list[Op], chunk: int) -> list[Op]:
        return [op for op in ops if self.template[op]["mc"] == chunk]

    def _real(self, op: Op, passes: list[Op]) -> bool:
        row = self.template[op]
        start, end = float(row["start_ts"]), float(row["start_ts"] + row["duration"])
        if op[0].endswith("recv"):
            return start <= max(float(self.template[p]["start_ts"]) for p in passes) + 5e-5
        first = min(
            float(self.template[p]["start_ts"] + self.template[p]["duration"]) for p in passes
        )
        return end >= first - 5e-5

    def _key(self, row: Row) -> tuple[Any, ...] | None:
        op = (row["optype"], row["seq_id"], row["stage"])
        if row["optype"] in DP_CALLS:
            return (row["step"], *op)
        if row["optype"] == "optimizer-clip-main-grad":
            return (row["step"], "clip")
        if row["optype"] == "embedding-grads-all-reduce":
            return (row["step"], row["dp_rank"], "embedding")
        return (row["step"], row["dp_rank"], *self.meeting[op]) if op in self.meeting else None

    def _own(self, row: Row) -> float:
        if key := self._key(row):
            late = max(member["start_ts"] for member in self.members[key])
            length = row["start_ts"] + row["duration"] - late
            return float(length) if length > -0.01 else 0
        return float(row["duration"])

    def _ideal(self) -> dict[int, float]:
        lengths: dict[str, list[float]] = defaultdict(list)
        for row in self.rows:
            lengths[row["optype"]].append(self.own[id(row)])
        compute = {"forward-compute", "backward-compute", "optimizer", "gc"}
        typical = {name: (fmean if name in compute else median)(x) for name, x in lengths.items()}
        return {id(row): typical[row["optype"]] for row in self.rows}

    def _times(self, lengths: dict[int, float]) -> dict[int, float]:
        """Replay every step; take any operation whose predecessors have ended, until all have."""
        begun: dict[Any, float] = {}
        ended: dict[Any, float] = {}
        waiting = {
            (row["step"], row["dp_rank"], row["optype"], row["seq_id"], row["stage"]): row
            for row in self.rows
        }
        while waiting:
            for place, row in list(waiting.items()):
                if place not in begun:
                    before = [(*place[:2], *op) for op in self.after[place[2:]]]
                    if all(op in ended for op in before):
                        begun[place] = max((ended[op] for op in before), default=0.0)
                met = self.members.get(self._key(row) or (), [row])
                places = [
                    (m["step"], m["dp_rank"], m["optype"], m["seq_id"], m["stage"]) for m in met
                ]
                if all(one in begun for one in places):
                    ended[place] = max(begun[one] for one in places) + lengths[id(row)]
                    del waiting[place]
        times: dict[int, float] = {}
        for place, end in ended.items():
            times[place[0]] = max(times.get(place[0], 0), end)
        return times
