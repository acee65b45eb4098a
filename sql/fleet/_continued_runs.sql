-- Logs of a job that went on in the log of a later start of it, and which: the first one after it.
-- Both are in one folder, or in those of attempts of a job. Their names are the same but for the number of a job,
-- an attempt or a date, or the later one begins with the earlier one's, as train.log and train_restart.log. The later
-- one has no other configuration (it may lack what a job prints once) and number of steps, dates after those of the
-- earlier one, and begins after its first step and at most one step after its last: it did not begin anew.
-- @scope fleet
-- @grain run_id
-- @column continued_by VARCHAR | The run that went on.
WITH files AS (
    -- One of each folder: some may be copies of the others, or what the job printed to its stream of errors.
    SELECT run_id, arg_min(file, (row_lines = 0, file)) AS file
    FROM (SELECT *, concat_ws('/', path, member) AS file FROM sources)
    GROUP BY run_id, regexp_extract(file, '^.*/')
),
logs AS (
    SELECT
        r.run_id, r.config, r.run_date, r.complete,
        coalesce(s.ends, r.run_date) AS ends,
        r.attributes['planned_steps'] AS planned,
        i.file,
        regexp_replace(regexp_extract(i.file, '^.*/'), '(attempt|restart|retry)[-_]?\d+', '\1') AS folder,
        -- Numbers of jobs, dates and attempts tell starts of a job apart, and train.log.1 was train.log before.
        -- Other digits are of another job: a seed, a rate, a task of an array.
        regexp_replace(
            regexp_replace(
                parse_filename(i.file), '(\.[a-z]+)?([.-]\d+)?(\.(gz|zst|xz|bz2|lz4))?$', ''
            ),
            '(slurm|job|attempt|restart|resume|retry|part)([-_.]?)\d+|\d{4}[-_]?\d\d[-_]?\d\d[-_T]?[\d:_-]*|\d{5,}',
            '\1\20', 'g'
        ) AS stem
    FROM runs AS r
    JOIN _log_spans AS s USING (run_id)
    JOIN files AS i USING (run_id)
    ANTI JOIN _run_copies AS c USING (run_id)
    WHERE r.run_date IS NOT NULL
),
pairs AS (
    SELECT a.run_id, b.run_id AS later, b.run_date
    FROM logs AS a
    JOIN logs AS b
        -- Where clocks were put back meanwhile, the later one has dates of the hour before.
        ON b.folder = a.folder AND b.run_date > a.ends - INTERVAL 1 HOUR
        AND list_has_all(string_split(a.config, ' '), string_split(b.config, ' '))
        AND starts_with(b.stem, a.stem) AND coalesce(b.planned = a.planned, true)
    WHERE NOT a.complete
),
spans AS (
    SELECT
        run_id,
        -- The first record does not say how many steps it covers.
        min(step) - coalesce(min(batches_covered), 1) + 1 AS first_step,
        max(step) AS last_step
    FROM train_steps
    WHERE run_id IN (SELECT run_id FROM pairs UNION SELECT later FROM pairs)
        AND steps_per_epoch IS NULL -- else they count within an epoch
    GROUP BY run_id
)
SELECT p.run_id, arg_min(p.later, (p.run_date, p.later)) AS continued_by
FROM pairs AS p
JOIN spans AS a USING (run_id)
JOIN spans AS b ON b.run_id = p.later
WHERE b.first_step > a.first_step AND b.first_step <= a.last_step + 1
GROUP BY p.run_id
