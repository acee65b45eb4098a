-- Two parts of a cluster between which every tested pair is slow: likely a switch, no host's fault.
-- @scope fleet
-- @grain cluster, collective, ranks_per_host, part, peer_part
-- @column part VARCHAR | Least host of one part.
-- @column peer_part VARCHAR | Least host of the other.
-- @column link_class VARCHAR | Both, in words.
-- @column tests BIGINT tests | Tests between them.
-- @column unfinished BIGINT tests | Those that never ended.
-- @column busbw_gbps DOUBLE GB/s | Median over the pairs between them.
SELECT
    p.cluster,
    p.collective,
    p.ranks_per_host,
    least(a.part, b.part) AS part,
    greatest(a.part, b.part) AS peer_part,
    concat(least(a.part, b.part), '.. | ', greatest(a.part, b.part), '..') AS link_class,
    sum(p.tests)::BIGINT AS tests,
    sum(p.unfinished)::BIGINT AS unfinished,
    median(p.busbw_gbps) AS busbw_gbps
FROM _pair_tests AS p
JOIN _host_parts AS a USING (cluster, collective, ranks_per_host, host)
JOIN _host_parts AS b
    ON b.cluster = p.cluster AND b.collective = p.collective
    AND b.ranks_per_host = p.ranks_per_host AND b.host = p.peer_host
WHERE a.part <> b.part AND a.part_hosts >= 2 AND b.part_hosts >= 2
GROUP BY p.cluster, p.collective, p.ranks_per_host, least(a.part, b.part), greatest(a.part, b.part)
HAVING 2 * count(*) >= any_value(a.part_hosts) * any_value(b.part_hosts)
