-- Scalar macros shared by models and checks: CREATE TEMP MACRO, one expression each, no relation inside.

-- Why a call has no skew or no bandwidth: numbers are sorted and stored faster than texts.
CREATE TEMP TYPE call_reason AS ENUM (
    'simulated', 'not_timed', 'group_of_one', 'overlaps_compute', 'declared_size', 'stages_contradict', 'group_size_unknown',
    'size_unknown', 'peer_not_seen', 'step_shifted', 'clocks_not_aligned', 'below_clock_resolution', 'below_clock_uncertainty');

-- Place of the severity of a finding: the worst is the first.
CREATE TEMP MACRO severity_level(severity) AS list_position(['critical', 'warning', 'notice'], severity)::INTEGER;

-- A fraction that is NULL where its denominator is zero.
CREATE TEMP MACRO ratio(part, whole) AS part::DOUBLE / nullif(whole, 0);
-- Whether a declared number of ranks or stages, of which some were seen, is small enough to be listed.
CREATE TEMP MACRO listable(size, seen) AS size BETWEEN 1 AND 16384 + 64 * coalesce(seen, 0)::BIGINT;
-- Ranks of a pipeline stage; NULL where the sizes contradict each other.
CREATE TEMP MACRO ranks_per_stage(world_size, pp) AS nullif(world_size // pp, 0);
-- A run's baseline: so many judged runs of its configuration before it, see _fleet_runs.
CREATE TEMP MACRO baseline_runs() AS 20;
-- How long at least a finding must be gone to be over: more runs of the same night say nothing of the next one.
CREATE TEMP MACRO over_after() AS INTERVAL 36 HOURS;
-- Nanoseconds as milliseconds.
CREATE TEMP MACRO ns_to_ms(ns) AS ns / 1e6;

-- Sum and mean of an aggregate's fractions, whatever the order in which threads deliver the rows.
CREATE TEMP MACRO ordered_sum(x) AS list_sum(list(x ORDER BY x));
CREATE TEMP MACRO ordered_mean(x) AS list_avg(list(x ORDER BY x));
-- Median absolute deviation floored at 1 % of the median, as the scale of a normal distribution.
CREATE TEMP MACRO robust_scale(mad, median_value) AS 1.4826 * greatest(mad, 0.01 * abs(median_value));
-- The part of [start_ns, end_ns] that lies in [from_ns, to_ns]; a bound that is NULL does not bind.
CREATE TEMP MACRO clipped_ns(start_ns, end_ns, from_ns, to_ns) AS greatest(0, least(end_ns, to_ns) - greatest(start_ns, from_ns));

-- A reading of a clock as the reference clock reads it: `offset_ns` is how far the clock is ahead when
-- the reference reads `origin_ns`, `drift` what it gains from there. As it is where that is not known.
CREATE TEMP MACRO aligned_ns(reading_ns, offset_ns, drift, origin_ns) AS coalesce(
    reading_ns - offset_ns - round((reading_ns - offset_ns - origin_ns) * drift / (1 + drift))::BIGINT, reading_ns);
-- Aggregate: how far off the difference of two of these clocks can be, each off by as much.
CREATE TEMP MACRO difference_open_ns(off_ns) AS try_cast(least(2::HUGEINT * max(off_ns), sum(off_ns)) AS BIGINT);
-- Aggregate over clocks, a row each: the same by what `clock_offsets` says of them. What errs on the
-- way to an anchor that all of them share errs alike.
CREATE TEMP MACRO clocks_open_ns(anchor, near_ns, uncertainty_ns) AS
    CASE
        WHEN count(*) = 1 THEN 0
        WHEN min(anchor) = max(anchor) THEN difference_open_ns(near_ns)
        ELSE difference_open_ns(uncertainty_ns)
    END;
-- Whether clocks leave so much of a time open that it says nothing: over a tenth.
CREATE TEMP MACRO lost_in_clocks(open_ns, time_ns) AS open_ns > time_ns / 10;
-- Aggregate over optimizers of a step: how far apart those end that wait inside for the last to begin.
-- Their ends agree twenty times better than their starts, and none comes before that.
CREATE TEMP MACRO meeting_ns(from_ns, to_ns) AS CASE WHEN min(to_ns) >= max(from_ns) THEN (max(from_ns) - min(from_ns)) // 20 ELSE 0 END;

-- Fraction of the window that a 1F1B or GPipe schedule of p stages, m micro-batches and v virtual
-- stages idles (Narayanan et al. 2021, section 2.2): over the whole window, and over the busy time.
CREATE TEMP MACRO theory_bubble(p, m, v) AS ratio(p - 1::DOUBLE, v::DOUBLE * m + p - 1);
CREATE TEMP MACRO theory_over_ideal(p, m, v) AS ratio(p - 1::DOUBLE, v::DOUBLE * m);

-- Size S of algbw = S / t by nccl-tests (doc/PERFORMANCE.md), from a rank's input tensor.
CREATE TEMP MACRO message_bytes(collective, input_bytes, n) AS
    CASE collective WHEN 'all_gather' THEN try_cast(input_bytes::HUGEINT * n AS BIGINT) ELSE input_bytes END;

-- busbw / algbw by nccl-tests.
CREATE TEMP MACRO bus_factor(collective, n) AS
    CASE
        WHEN collective IN ('broadcast', 'reduce', 'send', 'recv', 'sendrecv') THEN 1
        WHEN collective = 'all_reduce' THEN 2 * (n - 1::DOUBLE) / n
        ELSE (n - 1::DOUBLE) / n
    END;

-- Whether a call of a rank has its place in a replay, and what it is replayed with: its kind. The time
-- of an asynchronous one contains what its caller computed meanwhile.
CREATE TEMP MACRO replayed(matched, group_size, begin_ns, finish_ns) AS
    matched AND group_size > 1 AND begin_ns IS NOT NULL AND finish_ns IS NOT NULL;
CREATE TEMP MACRO call_kind(collective, group_kind, overlapped) AS
    if(collective IN ('send', 'recv'), 'send_recv', collective || ':' || group_kind || if(overlapped, ':async', ''));

-- Place of a listed layer in the model, by its name: blocks are numbered, the others are not.
CREATE TEMP MACRO layer_kind(layer, layer_index) AS
    CASE
        WHEN layer_index IS NOT NULL THEN 'block'
        WHEN contains(lower(layer), 'head') THEN 'head'
        WHEN contains(lower(layer), 'embed') THEN 'embedding'
        ELSE 'other'
    END;

-- Step of m micro-batches over stages that take `busiest` at most and `total` in sum per
-- micro-batch, with v virtual stages each: v = 1 is 1F1B.
CREATE TEMP MACRO pipeline_time(m, v, busiest, total) AS m * busiest + (total - busiest) / v;

-- A rank with what is known of its place, in words, and the ranks that it is compared with.
CREATE TEMP MACRO rank_placed(rank, stage, host, device) AS
    concat('rank ', rank, ' (' || nullif(concat_ws(', ', 'stage ' || stage, 'host ' || host, 'device ' || device), '') || ')');
CREATE TEMP MACRO peers_named(peers) AS CASE peers WHEN 1 THEN 'its peer' ELSE format('the median of {} peers', peers) END;

-- What a figure may lose against `median_value` without being worse: 10 %, three times the spread
-- and `least` (of a fraction, a percentage point). Beside a median of 0 it is the worst value seen.
CREATE TEMP MACRO noise_bound(median_value, mad, worst, least_change) AS
    CASE median_value
        WHEN 0 THEN abs(worst) + least_change
        ELSE greatest(0.1 * median_value, 3 * robust_scale(mad, median_value), least_change)
    END;

-- Percentages with one decimal, or with as many as it takes to tell a change from what is allowed.
CREATE TEMP MACRO percent_digits(change, allowed) AS
    coalesce(
        list_filter(
            [1, 2, 3],
            lambda n: printf('%.*f', n, 100 * abs(change)) <> printf('%.*f', n, 100 * allowed)
        )[1],
        4
    );
CREATE TEMP MACRO percent(fraction, digits) AS printf('%.*f %%', digits, 100 * abs(fraction));

-- Chance that a fair coin shows heads at least k times in n throws, n up to 33.
CREATE TEMP MACRO coin_chance(k, n) AS
    list_sum(list_transform(
        range(k, n + 1), lambda i: factorial(n::INTEGER) / factorial(i::INTEGER) / factorial((n - i)::INTEGER)
    )) / 2.0 ** n;

-- Of several reasons why a run is not compared, the one that says what would help comes first.
CREATE TEMP MACRO reason_order(reason) AS coalesce(list_position(['figure_missing', 'coarse_calls', 'no_pipeline'], reason), 0);
