"""Random jobs, through ingest and build: what the models say is what the simulator did.

The number in a test's name is the seed of its job: `random_spec(17)` for `seed17`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.bench import alarms, recall
from tests.lakes import few_models, full_build_differences, run_ingest
from tests.random_specs import random_spec
from tests.simulated_calls import Member, simulated_calls
from tracelake.lake.store import Lake
from tracelake.models.build import build
from tracelake.synth.archive import write_archive
from tracelake.synth.schedule import Op, simulate
from tracelake.synth.spec import NS_PER_TICK, TICKS_PER_MS, Spec
from tracelake.warehouse.check import check_lake
from tracelake.warehouse.warehouse import open_warehouse

# A job of more operations says nothing that a smaller one of its kind does not.
_MOST_OPERATIONS = 2_500


def _operations(spec: Spec) -> int:
    return spec.world_size * spec.layers * spec.micro_batches * spec.steps


SPECS = {
    seed: spec
    for seed, spec in ((seed, random_spec(seed)) for seed in range(30))
    if _operations(spec) < _MOST_OPERATIONS
}
PARTS = (
    *("window_ns", "compute_ns", "data_ns", "in_op_comm_ns", "p2p_recv_ns", "p2p_send_ns"),
    *("finalize_ns", "other_step_ns", "gap_ns"),
)
# Of a time that is read from a clock which gains 100 ppm.
DRIFT = 1e-4
RATIOS = ("bubble_ratio", "bubble_with_wait_ratio", "bubble_over_ideal_ratio")

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Job:
    """One job in the lake of all, and the truth about it."""

    spec: Spec
    answer: dict[str, Any]
    run_id: str
    con: duckdb.DuckDBPyConnection

    @cached_property
    def ranks(self) -> list[list[Op]]:
        """What the ranks did, by the simulator's own clock."""
        return simulate(self.spec, 0)

    def rows(self, columns: str, relation: str, where: str = "true") -> Rows:
        sql = f"SELECT {columns} FROM {relation} WHERE run_id = ? AND {where} ORDER BY ALL"
        return self.con.execute(sql, [self.run_id]).fetchall()


def steady_clocks(spec: Spec) -> bool:
    """Clocks differ by constants: every figure is the truth, not only near it."""
    return spec.clock_drift_ppm == 0


def drifting_clocks(spec: Spec) -> bool:
    return not steady_clocks(spec)


def ideal(spec: Spec) -> bool:
    """Nothing but the schedule takes time."""
    return steady_clocks(spec) and spec.busbw_gbps is None


def peers(spec: Spec) -> int:
    return spec.tp * spec.dp - 1


def straggler(spec: Spec) -> int | None:
    """The rank that must be named: two peers tell which is odd, three steps that it stays so."""
    return spec.slow_rank if peers(spec) > 1 and spec.steps >= 3 else None


def seeds(is_meant: Callable[[Spec], bool]) -> pytest.MarkDecorator:
    """Runs a test on every job of a kind."""
    found = [pytest.param(n, id=f"seed{n}") for n, spec in SPECS.items() if is_meant(spec)]
    return pytest.mark.parametrize("job", found, indirect=True)


def every(_: Spec) -> bool:
    return True


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Job]:
    """All jobs, in one lake that is built, grows and is built again; a full build is the same."""
    folder = tmp_path_factory.mktemp("properties")
    answers = {}
    # The number of model chunks is in no trace: it is given, to one ingest at a time.
    for vpp, group in groupby(sorted(SPECS, key=_vpp), _vpp):
        archive = folder / f"vpp{vpp}"
        for seed in group:
            (answers[seed],) = write_archive(archive / str(seed), SPECS[seed])["runs"]
        run_ingest(archive, folder / "lake", given={"vpp": vpp})
        lake = Lake.open(folder / "lake")
        if vpp == 1:
            build(lake)
    build(lake)
    assert check_lake(lake) == []
    assert full_build_differences(lake) == []
    con = open_warehouse(lake)
    run_ids = dict(con.execute("SELECT path, run_id FROM sources").fetchall())
    return {
        seed: Job(SPECS[seed], answer, run_ids[f"{seed}/{answer['files'][0]['path']}"], con)
        for seed, answer in answers.items()
    }


def _vpp(seed: int) -> int:
    return SPECS[seed].vpp


@pytest.fixture
def job(jobs: dict[int, Job], request: pytest.FixtureRequest) -> Job:
    return jobs[request.param]


@pytest.mark.parametrize(
    "is_meant",
    [
        lambda spec: ideal(spec) and spec.vpp == 1 < spec.pp,
        lambda spec: ideal(spec) and spec.vpp > 1,
        lambda spec: not spec.synchronous_steps and spec.steps > 1,
        lambda spec: steady_clocks(spec) and spec.clock_offset_ms != 0,
        drifting_clocks,
        lambda spec: spec.ep > 1,
        lambda spec: spec.slow_collective is not None,
        lambda spec: straggler(spec) is not None,
        lambda spec: spec.slow_rank is None and spec.noise == 0.05 and peers(spec) > 1,
    ],
)
def test_every_kind_of_job_is_among_them(is_meant: Callable[[Spec], bool]) -> None:
    assert any(map(is_meant, SPECS.values()))


@seeds(every)
def test_a_run_is_all_there(job: Job) -> None:
    spec = job.spec
    columns = (
        "world_size, tp, pp, dp, vpp, micro_batches, micro_batch_size, layers, ranks_seen,"
        " complete, simulated"
    )
    assert job.rows(columns, "runs") == [
        (
            *(spec.world_size, spec.tp, spec.pp, spec.dp, spec.vpp, spec.micro_batches),
            *(spec.micro_batch_size, spec.layers, spec.world_size, True, False),
        )
    ]
    assert job.rows("*", "rejects") == job.rows("*", "faults") == []


@seeds(every)
def test_clocks(job: Job) -> None:
    spec = job.spec
    reference = [rank for rank in range(spec.world_size) if spec.host(rank) == 0]
    origin_ms = min(op.start for rank in reference for op in job.ranks[rank]) / TICKS_PER_MS
    columns = "rank, offset_ms, uncertainty_ms, drift_ppm, reason"
    found = job.rows(columns, "clock_offsets")
    for (rank, offset, uncertainty, drift, reason), clock in zip(
        found, job.answer["clocks"], strict=True
    ):
        assert (rank, reason) == (clock["rank"], None)
        wanted = clock["offset_ms"] + clock["drift_ppm"] / 1e6 * origin_ms
        assert abs(offset - wanted) <= uncertainty
        if steady_clocks(spec):
            # In a schedule each way has a message that was waited for: bounds are symmetrical.
            assert (offset, drift) == (clock["offset_ms"], 0)
        if spec.host(rank) == 0:
            assert uncertainty == 0


@seeds(steady_clocks)
def test_every_part_of_every_window(job: Job) -> None:
    columns = f"step, rank, stage, {', '.join(PARTS)}, {', '.join(RATIOS)}"
    wanted = [
        (
            *(row[key] for key in ("step", "rank", "stage", *PARTS)),
            *(pytest.approx(row[ratio], rel=1e-12) for ratio in RATIOS),
        )
        for row in job.answer["rank_steps"]
    ]
    assert job.rows(columns, "rank_bubbles") == wanted
    steps = [(row["step"], row["step_ns"] / 1e6) for row in job.answer["step_times"]]
    assert job.rows("step, step_ms", "step_stats") == steps


@seeds(steady_clocks)
def test_what_of_receives_was_waiting(job: Job) -> None:
    found = job.rows("step, rank, p2p_recv_wait_ms, recv_reason", "rank_bubbles")
    for (step, rank, wait, reason), row in zip(found, job.answer["rank_steps"], strict=True):
        assert (step, rank) == (row["step"], row["rank"])
        if reason != "below_clock_uncertainty" or job.spec.ranks_per_host is None:
            assert (wait, reason) == (row["recv_wait_ns"] / 1e6, None)


@seeds(steady_clocks)
def test_phases(job: Job) -> None:
    found = job.rows("step, rank, phase, busy_ns", "phase_bubbles")
    wanted = [
        (row["step"], row["rank"], phase, row[f"{phase}_ns"])
        for row in job.answer["rank_steps"]
        for phase in ("cooldown", "steady", "warmup")
    ]
    assert found == wanted
    shares = job.rows("step, rank, sum(bubble_ratio)", "phase_bubbles", "true GROUP BY step, rank")
    ratios = [row["bubble_ratio"] for row in job.answer["rank_steps"]]
    assert [share for *_, share in shares] == pytest.approx(ratios, abs=1e-12)


@seeds(drifting_clocks)
def test_windows_of_drifting_clocks_are_as_good_as_they_say(job: Job) -> None:
    columns = "step, rank, window_ms, bubble_ratio, window_uncertainty_ms"
    found = job.rows(columns, "rank_bubbles")
    for (step, rank, window, bubble, uncertainty), row in zip(
        found, job.answer["rank_steps"], strict=True
    ):
        assert (step, rank) == (row["step"], row["rank"])
        assert abs(window - row["window_ns"] / 1e6) <= uncertainty
        assert abs(bubble - row["bubble_ratio"]) <= uncertainty / window + DRIFT


@seeds(every)
def test_theory(job: Job) -> None:
    """Narayanan et al. 2021, section 2.2."""
    idle, busy = job.spec.pp - 1, job.spec.vpp * job.spec.micro_batches
    wanted = pytest.approx((idle / (idle + busy), idle / busy), rel=1e-12)
    for relation in ("rank_bubbles", "stage_bubbles"):
        found = job.rows("theory_bubble_ratio, theory_over_ideal_ratio", relation)
        assert found == [wanted] * len(found)


@seeds(ideal)
def test_an_ideal_job_measures_the_theory(job: Job) -> None:
    idle, busy = job.spec.pp - 1, job.spec.vpp * job.spec.micro_batches
    wanted = pytest.approx((idle / (idle + busy), idle / busy), rel=1e-12)
    columns = "bubble_ratio, bubble_over_ideal_ratio"
    assert job.rows(columns, "rank_bubbles") == [wanted] * job.spec.steps * job.spec.world_size
    for basis in ("measured", "modelled"):
        found = job.rows(columns, "stage_bubbles", f"basis = '{basis}'")
        assert found == [wanted] * job.spec.steps * job.spec.pp


@seeds(every)
def test_who_waited_for_whom(job: Job) -> None:
    """Where the clocks of several hosts leave it open, nothing is said."""
    columns = (
        "rank, line, coalesce(sub_seq, 0), skew_ms, wait_ms, transfer_ms, last_rank,"
        " clock_uncertainty_ms, skew_reason"
    )
    found = {row[:3]: row[3:] for row in job.rows(columns, "collective_calls")}
    for call in simulated_calls(job.spec, job.ranks):
        for member in call:
            *said, uncertainty, reason = found.pop((member.rank, member.line, member.sub))
            wanted = _waits(member, call)
            if reason == "below_clock_uncertainty":
                skew_ms = wanted[0]
                assert skew_ms is not None
                assert skew_ms <= 2 * uncertainty
                assert said == [None] * 4
            elif wanted[0] is None or (uncertainty == 0 and steady_clocks(job.spec)):
                assert said == list(wanted)
            else:
                times = [time or 0.0 for time in wanted[:3]]
                slack = 0 if steady_clocks(job.spec) else uncertainty + 2 / TICKS_PER_MS
                slack += DRIFT * max(times)
                if said[2] is None:
                    assert times.pop() <= uncertainty + slack
                assert said[: len(times)] == pytest.approx(times, abs=slack + 1e-9)
                if steady_clocks(job.spec):
                    assert said[3] == (None if _close(call, job.spec, uncertainty) else wanted[3])
    assert found == {}


def _close(call: list[Member], spec: Spec, uncertainty_ms: float) -> bool:
    """Whether the last members on two hosts came closer to each other than the clocks can tell."""
    latest: dict[int, int] = {}
    for one in call:
        host = spec.host(one.rank)
        latest[host] = max(latest.get(host, one.span.start), one.span.start)
    *_, second, first = sorted(latest.values())
    return (first - second) * NS_PER_TICK / 1e6 < uncertainty_ms


def _waits(member: Member, call: list[Member]) -> tuple[float | None, ...]:
    """Skew, own wait and transfer in ms, and who came last; of calls that block and have peers."""
    if len(call) == 1 or member.span.call.hidden is not None:
        return None, None, None, None
    arrivals = {one.rank: one.span.start for one in call}
    last = max(arrivals.values())
    times = (last - min(arrivals.values()), last - member.span.start, member.span.end - last)
    return (
        *(max(0, ticks) * NS_PER_TICK / 1e6 for ticks in times),
        min(rank for rank, at in arrivals.items() if at == last),
    )


@seeds(every)
def test_calls_have_the_members_that_met(job: Job) -> None:
    found = defaultdict(set)
    for call, *member in job.rows("call, rank, line, coalesce(sub_seq, 0)", "collective_calls"):
        found[call].add(tuple(member))
    wanted = [
        {(member.rank, member.line, member.sub) for member in call}
        for call in simulated_calls(job.spec, job.ranks)
    ]
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, wanted))


@seeds(steady_clocks)
def test_bandwidth(job: Job) -> None:
    columns = (
        "collective, group_kind, dtype, size_bytes, overlapped, calls, group_size, reason,"
        " CASE WHEN NOT overlapped THEN time_p50_ms END, algbw_p50_gbps, busbw_p50_gbps"
    )
    found = {row[:5]: row[5:] for row in job.rows(columns, "collective_bandwidth")}
    wanted = {}
    for row in job.answer["collectives"]:
        # A send and the receive it feeds are one call, under the sender's name.
        kind = row["collective"].removesuffix("_recv")
        key = (kind, *(row[k] for k in ("group_kind", "dtype", "size_bytes", "overlapped")))
        figures = (row["time_ns"] and row["time_ns"] / 1e6, row["algbw_gbps"], row["busbw_gbps"])
        wanted[key] = (
            *(row["calls"], row["group_size"], row["reason"]),
            *(value if value is None else pytest.approx(value, rel=1e-9) for value in figures),
        )
    assert found == wanted


@seeds(every)
def test_a_straggler_is_named_and_nobody_else(job: Job) -> None:
    named = straggler(job.spec)
    accused = job.rows("rank", "straggler_ranks", "verdict = 'straggler'")
    assert accused == ([] if named is None else [(named,)])
    compared = job.rows("rank", "straggler_ranks", "verdict <> 'not_comparable'")
    assert len(compared) == (job.spec.world_size if peers(job.spec) else 0)
    slow = job.spec.slow_rank if peers(job.spec) else None  # a suspect, where it is no straggler
    assert job.rows("straggler_rank", "run_summary") == [(slow,)]
    if named is not None:
        culprits = job.rows("DISTINCT rank", "straggler_steps", "culprit")
        assert culprits == [(named,)]


@seeds(steady_clocks)
def test_slowdown_and_time_lost(job: Job) -> None:
    wanted = [
        (
            row["rank"],
            row["peers"],
            row["slowdown"] and pytest.approx(row["slowdown"], rel=1e-9),
            pytest.approx(row["lost_ns"] / 1e6, rel=1e-9) if row["peers"] else None,
        )
        for row in job.answer["ranks"]
    ]
    assert job.rows("rank, peers, slowdown, time_lost_ms", "straggler_ranks") == wanted


def test_recall(tmp_path: Path) -> None:
    """One run of every setting; `python -m tests.bench.recall` measures many."""
    with few_models("straggler_ranks"):
        outcomes = recall.measure(tmp_path, recall.grid(), runs=1)
    assert sum(outcome.healthy for outcome in outcomes) > 400
    assert [outcome for outcome in outcomes if outcome.accused] == []
    missed = [one.setting for one in outcomes if one.setting.excess and not one.named]
    assert all(
        one.excess < 0.2 or (one.excess == 0.2 and one.noise == 0.05 and one.steps == 3)
        for one in missed
    )
    assert all(one.noise > 0 for one in missed)
    assert recall.table(outcomes).count("\n| ") == 16


def test_alarms(tmp_path: Path) -> None:
    """A few nights of every kind of job; `python -m tests.bench.alarms` measures many."""
    specs = alarms.jobs()[3::6]
    change = alarms.Change("everything", 1.0, night=4)
    with few_models("run_history", "straggler_ranks", "straggler_history"):
        clean = alarms.measure(tmp_path / "clean", specs, noise=0.03, nights=5)
        changed = alarms.measure(tmp_path / "changed", specs, noise=0.03, nights=5, change=change)
    assert [name for name, seen in clean.seen.items() if seen] == []
    assert changed.within(1) == 1
    assert changed.seen["confirmed"] == {(job, 4) for job in range(len(specs))}
    assert alarms.clean_table([clean]).count("\n| ") == 1
    assert "| slower | 4 | 100% |" in alarms.change_table({"slower": changed}, (1,))
    assert alarms.slowed(tmp_path / "level", noise=0.03, jump=0.0, logs=5) == (0, 0)
    assert alarms.slowed(tmp_path / "slowed", noise=0.03, jump=0.30, logs=5) == (5, 5)
