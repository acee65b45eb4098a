"""Define the content of a generated archive: sizes, costs, injected faults, groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

from tracelake.base.errors import UsageError

FORMATS = ("rank_trace", "optimus", "aicb_workload")
TICKS_PER_MS = 100
NS_PER_TICK = 10_000

# Collectives that `slow_collective` can name -> the size that must be above 1 for them to happen.
SLOWABLE = {
    "all_reduce/tp": "tp",
    "send_recv/pp": "pp",
    "all_gather/expert": "ep",
    "all_to_all/expert": "ep",
}

# Least and largest value of fields.
_RANGES = {
    **dict.fromkeys(("seed", "experts", "runs", "clean_runs", "size_bytes"), (0, inf)),
    **dict.fromkeys(("tp", "pp", "dp", "ep", "vpp", "layers", "hidden", "sequence"), (1, inf)),
    **dict.fromkeys(("micro_batches", "micro_batch_size", "steps"), (1, inf)),
    "log_steps": (2, inf),  # the first is warm-up
    "noise": (0, 0.3),
    **dict.fromkeys(("overhead_ms", "gap_ms", "optimizer_ms"), (0, inf)),
    **dict.fromkeys(("forward_ms", "backward_ms"), (0.08, inf)),  # some ticks for every part
    **dict.fromkeys(("slow_factor", "slow_collective_factor", "slow_layer_factor"), (0.1, inf)),
    "ranks_per_host": (1, inf),
    "clock_drift_ppm": (-1000, 1000),
}


def ticks(ms: float) -> int:
    """Return milliseconds in the resolution of the traces, 0.01 ms."""
    return round(ms * TICKS_PER_MS)


def _field(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class Spec:
    """Everything that determines an archive's bytes: equal specs write equal archives.

    The meaning of a field is in its metadata, which the command's help prints.

    Raises:
        UsageError: The values contradict each other.
    """

    formats: tuple[str, ...] = _field(FORMATS, "A format to write.")
    seed: int = _field(0, "Source of all noise, of the clocks' origin and of the dates in names.")
    tp: int = _field(2, "Tensor-parallel size.")
    pp: int = _field(4, "Pipeline stages.")
    dp: int = _field(1, "Data-parallel size.")
    ep: int = _field(1, "Expert-parallel size.")
    vpp: int = _field(1, "Model chunks per rank; above 1 the schedule is interleaved 1F1B.")
    micro_batches: int = _field(8, "Micro-batches per step and pipeline.")
    micro_batch_size: int = _field(1, "Samples in a micro-batch.")
    steps: int = _field(4, "Steps per traced job; size_bytes repeats them.")
    log_steps: int = _field(20, "Steps with layer times in a training log.")
    layers: int = _field(8, "Layers of the whole model.")
    hidden: int = _field(1024, "Hidden size.")
    sequence: int = _field(2048, "Tokens in a sample.")
    experts: int = _field(0, "Experts per layer, spread over ep ranks; 0 for a dense model.")
    forward_ms: float = _field(2.0, "Forward pass of one layer and micro-batch on one rank.")
    backward_ms: float = _field(4.0, "Backward pass of one layer and micro-batch on one rank.")
    noise: float = _field(0.0, "Relative standard deviation of forward and backward compute times.")
    overhead_ms: float = _field(
        0.5, "Time of get_batch and of loss_func each, without communication."
    )
    gap_ms: float = _field(0.05, "Time between the end of an operation and the start of the next.")
    optimizer_ms: float = _field(5.0, "Time of the optimizer step.")
    busbw_gbps: float | None = _field(
        100.0, "Bus bandwidth of every link, 1e9 bytes/s; 0: communication takes no time."
    )
    synchronous_steps: bool = _field(
        True, "The optimizer step waits for all ranks; else early ranks run ahead."
    )
    slow_rank: int | None = _field(None, "Rank that computes slow_factor times as long.")
    slow_factor: float = _field(1.3, "Slowdown of slow_rank.")
    slow_collective: str | None = _field(
        None, "Collective that takes slow_collective_factor times as long."
    )
    slow_collective_factor: float = _field(4.0, "Slowdown of slow_collective.")
    slow_layer: int | None = _field(
        None, "Layer of the log that takes slow_layer_factor times as long."
    )
    slow_layer_factor: float = _field(3.0, "Slowdown of slow_layer.")
    slow_layer_step: int | None = _field(
        None, "The only step in which slow_layer is slow; by default every step."
    )
    merge_block: int | None = _field(
        None, "Step of the log in which two ranks write on the same lines."
    )
    ranks_per_host: int | None = _field(
        None, "Puts the ranks on hosts, each with its clock; by default one host."
    )
    clock_offset_ms: float = _field(0.0, "Clock of host h is ahead by h times this.")
    clock_drift_ppm: float = _field(
        0.0, "Clock of host h runs fast by h times this: time stamps drift, durations do not."
    )
    runs: int = _field(1, "Jobs with the faults above; jobs differ in noise and date only.")
    clean_runs: int = _field(0, "Earlier jobs of the same configuration without the faults.")
    simulated: bool = _field(False, "Adds a trace of one rank executed alone.")
    size_bytes: int = _field(0, "Minimum total size of a format's files, reached by repetition.")

    def __post_init__(self) -> None:
        self._check_ranges()
        self._check_fit()
        self._check_faults()

    @property
    def world_size(self) -> int:
        """Ranks of a job."""
        return self.tp * self.pp * self.dp

    @property
    def healthy(self) -> Spec:
        """The same jobs without injected faults."""
        return replace(
            self,
            slow_rank=None,
            slow_collective=None,
            slow_layer=None,
            slow_layer_step=None,
            merge_block=None,
        )

    def stage(self, rank: int) -> int:
        """Return pipeline stage, the slowest dimension of Megatron's rank order."""
        return rank // (self.tp * self.dp)

    def host(self, rank: int) -> int:
        """Return host number; ranks fill hosts in order."""
        return 0 if self.ranks_per_host is None else rank // self.ranks_per_host

    def host_name(self, rank: int) -> str | None:
        """Return folder of the rank's host; None where one host holds all ranks."""
        return None if self.host(self.world_size - 1) == 0 else f"node{self.host(rank)}"

    def group(self, kind: str, rank: int) -> tuple[int, ...]:
        """Return ranks that communicate with `rank` in a group of that kind, itself included."""
        block = self.tp * self.dp
        stage, place = divmod(rank, block)
        replica, slot = divmod(place, self.tp)
        match kind:
            case "tp":
                return tuple(range(rank - slot, rank - slot + self.tp))
            case "dp":
                return tuple(range(stage * block + slot, (stage + 1) * block, self.tp))
            case "expert":
                first = stage * block + replica // self.ep * self.ep * self.tp + slot
                return tuple(range(first, first + self.ep * self.tp, self.tp))
            case "expert_dp":
                first = stage * block + replica % self.ep * self.tp + slot
                return tuple(range(first, (stage + 1) * block, self.ep * self.tp))
            case "embedding":
                return (place, (self.pp - 1) * block + place)
            case "world":
                return tuple(range(self.world_size))
        raise ValueError(kind)

    def _require(self, name: str, least: float, most: float) -> None:
        """Refuse a value of a field outside these bounds; None is no value."""
        value = getattr(self, name)
        if value is not None and not (isfinite(value) and least <= value <= most):
            shown = f"{least} or more" if most == inf else f"{least} to {most}"
            raise UsageError(f"{name} is {value}", hint=f"give {shown}")

    def _check_ranges(self) -> None:
        unknown = sorted(set(self.formats) - set(FORMATS))
        if unknown or not self.formats:
            raise UsageError(
                f"no format {', '.join(unknown)}" if unknown else "no format given",
                hint=f"use any of {', '.join(FORMATS)}; --formats once for each",
            )
        for name, (least, most) in _RANGES.items():
            self._require(name, least, most)
        if self.busbw_gbps is not None and not 0 < self.busbw_gbps < inf:
            raise UsageError(f"busbw_gbps is {self.busbw_gbps}", hint="give a positive number")
        if self.runs + self.clean_runs < 1:
            raise UsageError("no job given", hint="give runs or clean_runs")

    def _check_fit(self) -> None:
        if self.layers % (self.pp * self.vpp):
            raise UsageError(
                f"{self.layers} layers do not split over {self.pp * self.vpp} model chunks",
                hint=f"give layers a multiple of pp * vpp = {self.pp * self.vpp}",
            )
        if self.vpp > 1 and (self.pp == 1 or self.micro_batches % self.pp):
            raise UsageError(
                "an interleaved schedule needs several stages and a multiple of pp micro-batches",
                hint="give pp above 1 and micro_batches a multiple of pp, or vpp = 1",
            )
        if self.dp % self.ep or self.experts % self.ep or (self.ep > 1 and not self.experts):
            raise UsageError(
                f"ep = {self.ep} must divide dp = {self.dp} and experts = {self.experts}",
                hint="give dp and experts as multiples of ep",
            )
        if self.simulated and self.pp == 1:
            raise UsageError(
                "a simulated run of one stage cannot be distinguished from a measured one",
                hint="give pp above 1",
            )
        if (self.clock_offset_ms or self.clock_drift_ppm) and self.ranks_per_host is None:
            raise UsageError("one host has only one clock", hint="give ranks_per_host")
        if not isfinite(self.clock_offset_ms):
            raise UsageError(f"clock_offset_ms is {self.clock_offset_ms}", hint="give a number")
        if self.clock_drift_ppm and self.size_bytes:
            raise UsageError(
                "repeated steps have the stamps of the first, which do not drift",
                hint="give steps instead of size_bytes",
            )

    def _check_faults(self) -> None:
        self._require("slow_rank", 0, self.world_size - 1)
        self._require("slow_layer", 0, self.layers - 1)
        self._require("merge_block", 1, self.log_steps)
        self._require("slow_layer_step", 1, self.log_steps)
        if self.slow_layer_step is not None and self.slow_layer is None:
            raise UsageError("slow_layer_step without a layer", hint="give slow_layer")
        if self.merge_block is not None and self.pp == 1:
            raise UsageError("one stage prints alone", hint="merge_block needs pp above 1")
        if self.slow_collective is None:
            return
        if self.slow_collective not in SLOWABLE:
            raise UsageError(
                f"slow_collective is {self.slow_collective!r}",
                hint=f"use one of {', '.join(SLOWABLE)}",
            )
        size = SLOWABLE[self.slow_collective]
        if getattr(self, size) == 1:
            raise UsageError(
                f"no {self.slow_collective} takes place in a group of one",
                hint=f"give {size} above 1",
            )


def sample_spec() -> Spec:
    """Return the archive in data/sample: small, with one of everything that models report."""
    return Spec(
        seed=7,
        tp=2,
        pp=2,
        dp=2,
        micro_batches=2,
        log_steps=8,
        layers=4,
        hidden=512,
        sequence=1024,
        forward_ms=8.0,
        backward_ms=16.0,
        noise=0.01,
        busbw_gbps=4.0,
        slow_rank=2,
        slow_layer=2,
        slow_layer_step=5,
        merge_block=7,
        clean_runs=1,
        simulated=True,
    )
