"""Every operator, alone and combined, as views over the tables of model.py. Later views read earlier ones."""

VIEWS: dict[str, str] = {
    "duplicates": "SELECT s, a FROM e WHERE g > 1",
    "duplicates_grouped": "SELECT g, count(*) AS n, sum(a) AS sa, min(s) AS lo, max(a) AS hi FROM e GROUP BY g",
    "duplicates_joined": "SELECT t.k, e.a, e.s FROM e JOIN t ON e.g = t.g AND e.a < t.a",
    "filtered": "SELECT k, a + 1 AS a1, upper(s) AS s FROM t WHERE a > 3 AND (s IS NOT NULL OR g = 2)",
    "renamed": "SELECT s AS x, k FROM t",
    "keyless": "SELECT a, s FROM t",
    "grouped": "SELECT g, count(*) AS n, count(a) AS na, sum(a) AS sa, avg(a) AS aa FROM t GROUP BY g",
    "summed_doubles": "SELECT g, sum(d) AS sd, avg(d) AS ad FROM t GROUP BY g",
    "summed_decimals": "SELECT g, sum(m) AS sm, avg(m) AS am FROM t GROUP BY g",
    "extremes": "SELECT g, min(a) AS lo, max(a) AS hi, min(s) AS first_s, max(d) AS top_d, min(m) AS low_m "
    "FROM t GROUP BY g",
    "global_all": "SELECT count(*) AS n, sum(a) AS sa, min(d) AS lo, max(s) AS hi, avg(f) AS af FROM t "
    "JOIN u ON t.k * 100000000000 = u.id",
    "global_one": "SELECT count(*) AS n, sum(a) AS s FROM t",
    "having_some": "SELECT g, sum(a) AS sa FROM t GROUP BY g HAVING count(*) > 1 AND sum(a) > 4",
    "distinct_values": "SELECT g, count(DISTINCT a) AS na, sum(DISTINCT a) AS sa, avg(DISTINCT a) AS aa, "
    "sum(m) AS sm FROM t GROUP BY g",
    "distinct_pairs": "SELECT count(DISTINCT g, s) AS n FROM t",
    "bits_and_moments": "SELECT g, bit_and(a) AS ba, bit_or(a) AS bo, bit_xor(k) AS bx, stddev(a) AS sd, "
    "var_pop(m) AS vm, skewness(a) AS sk, kurtosis(a) AS ku, covar_samp(a, k) AS cv, regr_slope(a, k) AS rs, "
    "regr_r2(a, k) AS r2 FROM t GROUP BY g",
    "frequencies": "SELECT g, mode(s, true) AS ms, median(a) AS mid, percentile(m, 0.9) AS high, "
    "approx_count_distinct(s) AS ns, percentile_disc(0.3) WITHIN GROUP (ORDER BY d DESC) AS pd FROM t GROUP BY g",
    "ordered_rows": "SELECT g, max_by(s, k) AS top, min_by(d, k) FILTER (WHERE a > 2) AS low, "
    "bool_or(a > 4) AS some_big, listagg(s, ',') WITHIN GROUP (ORDER BY a DESC, k) AS texts FROM t GROUP BY g",
    "expression_keys": "SELECT g + 1 AS g1, CASE WHEN a > 4 THEN 'big' WHEN a IS NULL THEN 'none' ELSE 'small' END "
    "AS size, count(*) AS n FROM t GROUP BY g + 1, "
    "CASE WHEN a > 4 THEN 'big' WHEN a IS NULL THEN 'none' ELSE 'small' END",
    "by_spark": "SELECT k, g, initcap(concat(s, ' ', s)) AS twice, transform(array(a, g), x -> x + 1)[0] AS next "
    "FROM t WHERE soundex(s) > 'A'",
    "empty_by_spark": "SELECT k, sort_array(array_union(array(a, g), CAST(array() AS array<int>))) AS declared, "
    "sort_array(array_union(array(a, g), array())) AS empty, map_concat(map(k, s), CAST(map() AS map<int,string>)) "
    "AS mapped FROM t",
    "json_fields": "SELECT k, x, y, z FROM t LATERAL VIEW "
    'json_tuple(concat(\'{"x":\', k, \',"y":"\', s, \'","z":[{"u":\', a, '
    "'}]}'), 'x', 'y', 'z') AS x, y, z WHERE g > 0",
    "grouped_by_spark": "SELECT soundex(s) AS sound, count(*) AS n, max(mask(s)) AS masked, sum(hash(a, "
    "g)) FILTER (WHERE a > 2) AS h FROM t GROUP BY 1",
    "left_by_spark": "SELECT t.k, u.id, u.label FROM t LEFT JOIN u ON t.g <=> u.g AND levenshtein(t.s, u.label) < 2",
    "full_by_spark": "SELECT t.k, t.s, u.id, u.label FROM t FULL JOIN u ON levenshtein(t.s, u.label) < 2 AND t.a > 2",
    "none_by_spark": "SELECT DISTINCT g, s FROM t WHERE NOT EXISTS (SELECT 1 FROM u "
    "WHERE levenshtein(t.s, u.label) < 2 AND u.g >= t.g)",
    "distinct_rows": "SELECT DISTINCT g, s FROM t",
    "float_groups": "SELECT d, count(*) AS n FROM t GROUP BY d",
    "small_float_groups": "SELECT f, count(*) AS n, max(f) AS m FROM u GROUP BY f",
    "joined": "SELECT t.k, u.id, t.a, u.label FROM t JOIN u ON t.g = u.g",
    "joined_more": "SELECT t.k, u.id FROM t JOIN u ON t.g = u.g AND t.a > length(u.label) WHERE t.a < 9",
    "joined_nulls": "SELECT t.k, u.id, t.g FROM t JOIN u ON t.g <=> u.g",
    "joined_floats": "SELECT t.k, u.id FROM t JOIN u ON t.d = u.f",
    "joined_types": "SELECT t.k, w.label FROM t JOIN w ON t.a = w.big",
    "joined_three": "SELECT t.k, u.id, w.day, w.flag FROM t JOIN u ON t.g = u.g JOIN w ON u.label = w.label",
    "joined_self": "SELECT a.k AS k1, b.k AS k2 FROM t a JOIN t b ON a.g = b.g AND a.k < b.k",
    "joined_grouped": "SELECT u.label, count(*) AS n, sum(t.a) AS sa, min(t.a) AS lo FROM t "
    "JOIN u ON t.g = u.g GROUP BY u.label",
    "left_joined": "SELECT t.k, t.a, u.id, u.label FROM t LEFT JOIN u ON t.g = u.g",
    "left_more": "SELECT t.k, u.id, u.f FROM t LEFT JOIN u ON t.g = u.g AND t.a > length(u.label)",
    "left_nulls": "SELECT t.k, u.id FROM t LEFT JOIN u ON t.g <=> u.g AND t.k < u.id",
    "right_joined": "SELECT t.k, t.s, u.id FROM t RIGHT JOIN u ON t.g = u.g AND u.f > 0",
    "full_joined": "SELECT t.k, u.id, t.g AS tg, u.g AS ug FROM t FULL JOIN u ON t.g = u.g AND t.a > length(u.label)",
    "full_using": "SELECT * FROM (SELECT g, k, a FROM t) FULL JOIN (SELECT g, id FROM u) USING (g)",
    "full_floats": "SELECT t.k, u.id, t.d FROM t FULL JOIN u ON t.d = u.f",
    "semi_joined": "SELECT k, g FROM t LEFT SEMI JOIN u ON t.g = u.g",
    "anti_joined": "SELECT k, s FROM t LEFT ANTI JOIN u ON t.g = u.g AND t.a > length(u.label)",
    "in_some": "SELECT k FROM t WHERE s IN (SELECT label FROM u)",
    "in_none": "SELECT k, s FROM t WHERE s NOT IN (SELECT label FROM u)",
    "in_none_known": "SELECT k, s FROM t WHERE s NOT IN (SELECT label FROM w WHERE flag)",
    "in_none_of_group": "SELECT k FROM t WHERE s NOT IN (SELECT label FROM u WHERE u.g = t.g)",
    "exists_some": "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g AND length(u.label) < t.a)",
    "exists_none": "SELECT id FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE u.g = t.g)",
    "scalar_of_group": "SELECT k, (SELECT max(id) FROM u WHERE u.g = t.g) AS top FROM t",
    "nearest": "SELECT t.k, t.a, u.id FROM t JOIN u APPROX NEAREST 2 BY DISTANCE abs(t.a - u.id - 0.3BD)",
    "nearest_or_none": "SELECT t.k, u.id, u.label FROM t LEFT JOIN (SELECT * FROM u WHERE id > 3) u "
    "EXACT NEAREST 1 BY SIMILARITY -abs(t.a - u.id + 0.3BD)",
    "crossed": "SELECT t.k, u.id, t.a FROM t CROSS JOIN u WHERE t.s <> u.label",
    "between_two": "SELECT u.id, count(*) AS n, min(t.a) AS lo FROM t JOIN u ON t.a BETWEEN u.g AND u.g + 3 "
    "GROUP BY u.id",
    "left_unequal": "SELECT t.k, u.id FROM t LEFT JOIN u ON t.a < u.id",
    "full_unequal": "SELECT t.k, u.id, t.a, u.g FROM t FULL JOIN u ON t.a < u.g",
    "joined_either": "SELECT t.k, u.id FROM t JOIN u ON t.g = u.g OR t.s = u.label",
    "anti_unequal": "SELECT k, a FROM t LEFT ANTI JOIN u ON t.a < u.id",
    "exists_or": "SELECT k, a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g) OR a IN (SELECT big "
    "FROM w) OR k = 3",
    "exists_value": "SELECT k, s IN (SELECT label FROM u) AS known, "
    "CASE WHEN EXISTS (SELECT 1 FROM w WHERE w.big > t.a) THEN 1 END AS x FROM t",
    "in_none_or": "SELECT k FROM t WHERE s NOT IN (SELECT label FROM u) OR a > 7",
    "in_none_of_two": "SELECT k FROM t WHERE (g, s) NOT IN (SELECT g, label FROM u)",
    "exists_any": "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE id > 4)",
    "exists_nothing": "SELECT k FROM t WHERE NOT EXISTS (SELECT * FROM w WHERE flag)",
    "above_mean": "SELECT k, a, g FROM t WHERE a > (SELECT avg(a) FROM t)",
    "at_top": "SELECT k, g FROM t WHERE a = (SELECT max(a) FROM t) AND g IS NOT NULL",
    "with_scalars": "SELECT k, a - (SELECT min(a) FROM t) AS over, (SELECT label FROM u WHERE id = 3) AS third FROM t",
    "groups_above": "SELECT g, sum(a) AS sa FROM t GROUP BY g HAVING sum(a) > (SELECT avg(a) * 2 FROM t)",
    "scalar_in_groups": "SELECT g, count(*) + (SELECT count(*) FROM u) AS n, sum(a + (SELECT min(id) "
    "FROM u)) AS s FROM t GROUP BY g",
    "scalar_in_join": "SELECT t.k, u.id FROM t JOIN u ON t.g = u.g AND t.a + u.id > (SELECT avg(id) FROM u)",
    "single_partner": "SELECT k, (SELECT label FROM u WHERE u.id = t.k) AS label FROM t",
    "count_of_none": "SELECT k, (SELECT count(*) FROM u WHERE u.g = t.g AND u.id > 2) AS n FROM t",
    "sum_of_unequal": "SELECT k, (SELECT sum(id) FROM u WHERE u.g > t.g) AS n FROM t",
    "nested_scalars": "SELECT k FROM t WHERE a IN (SELECT a FROM t WHERE a >= (SELECT avg(id) FROM u "
    "WHERE g < (SELECT max(g) FROM u)))",
    "lateral_counted": "SELECT t.k, x.n, x.hi FROM t, LATERAL (SELECT count(*) AS n, max(id) AS hi FROM u "
    "WHERE u.g = t.g) x",
    "lateral_left": "SELECT t.k, x.id FROM t LEFT JOIN LATERAL (SELECT id FROM u "
    "WHERE u.g = t.g AND u.id > t.a) x ON true",
    "last_of_group": "SELECT k, (SELECT label FROM u WHERE u.g = t.g "
    "ORDER BY at DESC NULLS LAST, id LIMIT 1) AS last FROM t",
    "lateral_top": "SELECT t.k, x.id, x.l FROM t LEFT JOIN LATERAL "
    "(SELECT id, upper(label) AS l FROM u WHERE u.g = t.g ORDER BY f DESC NULLS LAST, id LIMIT 2 OFFSET 1) x ON true",
    "lateral_top_unequal": "SELECT t.k, x.id FROM t, LATERAL (SELECT id FROM u WHERE u.id > t.a "
    "ORDER BY label, id DESC LIMIT 2) x",
    "in_top_of_group": "SELECT k FROM t WHERE a IN (SELECT big FROM w WHERE w.label = t.s "
    "ORDER BY day DESC NULLS LAST, big LIMIT 2)",
    "near_the_mean": "SELECT k, a FROM t WHERE a IS NOT NULL ORDER BY abs(a - (SELECT avg(id) FROM u)), k LIMIT 4",
    "left_grouped": "SELECT u.id, count(t.k) AS n, max(t.a) AS hi FROM u LEFT JOIN t ON t.g = u.g GROUP BY u.id",
    "left_then_full": "SELECT t.k, u.id, w.day FROM t LEFT JOIN u ON t.g = u.g FULL JOIN w ON u.label = w.label",
    "union_all": "SELECT k, s FROM t UNION ALL SELECT id, label FROM u UNION ALL SELECT big, label FROM w",
    "union_same": "SELECT g, a FROM t WHERE a > 2 UNION ALL SELECT g, a FROM t WHERE a < 5",
    "union_rows": "SELECT g, s FROM t UNION SELECT g, label FROM u",
    "union_grouped": "SELECT s, count(*) AS n, min(k) AS lo FROM (SELECT s, k FROM t UNION ALL SELECT label, id "
    "FROM u) GROUP BY s",
    "except_some": "SELECT g, s FROM t EXCEPT SELECT g, label FROM u",
    "intersect_some": "SELECT s FROM t INTERSECT SELECT label FROM u",
    "constants": "SELECT * FROM VALUES (1, 'a', 0.5BD, DATE'2020-01-02', double('nan')), (1, 'a', 0.5BD, NULL, -0.0D), "
    "(NULL, 'x y', -7, NULL, NULL) AS v(x, y, m, d, z)",
    "constants_joined": "SELECT t.k, v.y FROM t LEFT JOIN (VALUES (1, 'one'), (2, 'two'), (NULL, 'none')) AS v(x, "
    "y) ON t.g <=> v.x",
    "constants_added": "SELECT k, s FROM t UNION ALL SELECT 1, 'x'",
    "numbers": "SELECT r.id, count(t.k) AS n FROM range(40, -1, -2) r LEFT JOIN t ON r.id = t.k GROUP BY r.id",
    "grouping_sets": "SELECT g, s, sum(a) AS sa, count(*) AS n FROM t GROUP BY GROUPING SETS ((g, s), (s), (s), ())",
    "rolled_up": "SELECT g + 1 AS g1, upper(s) AS us, grouping(upper(s)) AS gs, grouping_id() AS id, max(a) AS hi, "
    "count(m) AS n FROM t GROUP BY ROLLUP (g + 1, upper(s)) HAVING count(*) > 1",
    "cubed": "SELECT u.label, t.g, count(*) AS n, min(t.a) AS lo FROM t JOIN u ON t.g = u.g "
    "GROUP BY CUBE (u.label, t.g)",
    "unpivoted": "SELECT * FROM (SELECT k, g, a FROM t) UNPIVOT (v FOR n IN (g, a))",
    "unpivoted_pairs": "SELECT * FROM t UNPIVOT INCLUDE NULLS ((v, w) FOR n IN ((g, a) AS x, (k, a) AS y))",
    "distinct_counts": "SELECT g, count(DISTINCT a) AS na, count(DISTINCT s) FILTER (WHERE k > 9) AS ns "
    "FROM t GROUP BY g",
    "pivoted": "SELECT * FROM (SELECT g, s, a, m FROM t) PIVOT (sum(a) AS sa, count(m) AS n FOR s IN ('a' AS x, "
    "'ab' AS y, 'ß' AS z))",
    "pivoted_texts": "SELECT * FROM (SELECT g, s, a FROM t) PIVOT (max(s) FOR a IN (1, 2, 3))",
    "pivoted_some": "SELECT p.y + 1 AS y, u.id, p.g FROM (SELECT g, s, a FROM t) "
    "PIVOT (sum(a) FOR s IN ('a' AS x, 'ab' AS y)) AS p JOIN u ON p.g = u.g",
    "except_all": "SELECT g FROM t EXCEPT ALL SELECT g FROM u",
    "intersect_all": "SELECT g, s FROM t INTERSECT ALL SELECT g, label FROM u",
    "stacked": "SELECT k, n, v FROM t LATERAL VIEW stack(3, 'g', g, 'a', a, 'none') AS n, v WHERE k > 2",
    "exploded_list": "SELECT k, p, e FROM t LATERAL VIEW posexplode(array(g, a + 1, 7)) AS p, e",
    "with_cte": "WITH x AS (SELECT g, max(a) AS top FROM t GROUP BY g) SELECT t.k, x.top FROM t "
    "JOIN x ON t.g = x.g AND t.a = x.top",
    "with_cte_twice": "WITH x AS (SELECT g, s, count(*) AS n, max(a) AS top FROM t GROUP BY g, s) SELECT x.g, x.s, x.n "
    "FROM x JOIN (SELECT g, max(n) AS most FROM x GROUP BY g) m ON x.g = m.g AND x.n >= m.most",
    "with_cte_by_other_keys": "WITH x AS (SELECT g, s, count(*) AS n FROM t GROUP BY g, s) SELECT p.g, q.g AS h, p.s, "
    "q.n FROM x p JOIN x q ON p.s = q.s AND p.n > q.n",
    "with_cte_in_union": "WITH x AS (SELECT g, sum(a) AS total FROM t GROUP BY g) SELECT g, total FROM x "
    "UNION ALL SELECT g + 1, total FROM x WHERE total > 3",
    "with_window_twice": "WITH x AS (SELECT k, g, a, row_number() OVER (PARTITION BY g ORDER BY a, k) AS place FROM t) "
    "SELECT p.k, q.k AS next FROM x p LEFT JOIN x q ON p.g = q.g AND q.place = p.place + 1",
    "with_sliding_windows_twice": "WITH x AS (SELECT w.start AS begins, label, n FROM (SELECT "
    "window(at, '10 days', '2 days') AS w, label, count(*) AS n FROM u GROUP BY 1, 2)) SELECT x.begins, x.label, x.n "
    "FROM x JOIN (SELECT begins, max(n) AS most FROM x GROUP BY begins) m ON x.begins = m.begins AND x.n >= m.most",
    "timed": "SELECT date_trunc('month', at) AS mon, count(*) AS n, max(at) AS last FROM u "
    "GROUP BY date_trunc('month', at)",
    "numbered": "SELECT k, row_number() OVER (PARTITION BY g ORDER BY a, k) AS n, rank() "
    "OVER (PARTITION BY g ORDER BY a) AS r, dense_rank() OVER (PARTITION BY g ORDER BY a) AS dr FROM t",
    "shared_out": "SELECT k, percent_rank() OVER (PARTITION BY g ORDER BY a DESC) AS p, cume_dist() "
    "OVER (PARTITION BY g ORDER BY a DESC) AS c, ntile(3) OVER (PARTITION BY g ORDER BY a DESC, k) AS t3 FROM t",
    "shifted_nothing": "SELECT k, lag(c, 1, 7) OVER (ORDER BY k) AS l, lead(c) OVER (ORDER BY k) AS n, "
    "nth_value(c, 2) OVER (ORDER BY k) AS nth, first(c) OVER (ORDER BY k) AS f, count(c) OVER (ORDER BY k) AS counted, "
    "lag(CAST(NULL AS string), 2, s) OVER (PARTITION BY g ORDER BY k) AS s2 "
    "FROM (SELECT k, g, s, CAST(NULL AS INT) AS c FROM t)",
    "in_range_of_months": "SELECT k, count(*) OVER (ORDER BY at RANGE BETWEEN CURRENT ROW AND INTERVAL 1 MONTH "
    "FOLLOWING) AS n, sum(k) OVER (PARTITION BY g ORDER BY at DESC RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND "
    "INTERVAL 1 MONTH FOLLOWING) AS s FROM (SELECT k, g, TIMESTAMP'2021-01-26 22:00:00' + "
    "make_dt_interval(k % 40, a) AS at FROM t)",
    "shifted": "SELECT k, lag(a) OVER (PARTITION BY g ORDER BY s, k) AS l1, lag(s, 2, 'none') "
    "OVER (PARTITION BY g ORDER BY s, k) AS l2, lead(a, 1, k) OVER (PARTITION BY g "
    "ORDER BY s, k) AS l3, lead(a) IGNORE NULLS OVER (PARTITION BY g ORDER BY s, k) AS l4 FROM t",
    "running": "SELECT k, sum(a) OVER (PARTITION BY g ORDER BY k) AS sa, count(*) OVER (PARTITION BY g "
    "ORDER BY s) AS n, avg(m) OVER (PARTITION BY g ORDER BY k) AS am, max(s) OVER (PARTITION BY g "
    "ORDER BY k) AS ms, sum(m) OVER (PARTITION BY g ORDER BY k) AS sm FROM t",
    "running_doubles": "SELECT k, sum(f) OVER (PARTITION BY u.g ORDER BY id) AS sf, avg(f) "
    "OVER (ORDER BY id ROWS 2 PRECEDING) AS af, min(f) OVER (ORDER BY id) AS lf FROM u "
    "JOIN t ON t.k * 100000000000 = u.id",
    "in_range": "SELECT k, a, count(*) OVER (ORDER BY a RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS n, sum(a) "
    "OVER (PARTITION BY g ORDER BY a DESC RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS s FROM t",
    "in_range_of_days": "SELECT label, day, count(*) "
    "OVER (ORDER BY day RANGE BETWEEN INTERVAL '60' DAY PRECEDING AND CURRENT ROW) AS n, sum(big % 7) "
    "OVER (PARTITION BY flag ORDER BY day RANGE BETWEEN INTERVAL '2' MONTH PRECEDING AND INTERVAL '14' MONTH "
    "FOLLOWING) AS s, max(label) OVER (ORDER BY day RANGE BETWEEN 59 PRECEDING AND 1 PRECEDING) AS m FROM w",
    "in_months": "SELECT make_ym_interval(0, a % 30) AS span, count(*) AS n, sum(make_ym_interval(k, g)) AS total, "
    "avg(make_ym_interval(0, k)) AS mean, min(make_ym_interval(g, 0)) AS least, count(DISTINCT make_ym_interval(0, "
    "g)) AS several FROM t GROUP BY make_ym_interval(0, a % 30)",
    "long_ones": "SELECT span, total, lag(mean) OVER (ORDER BY span) AS before, array(least, mean) AS both, "
    "CAST(total AS string) AS text FROM in_months WHERE span > INTERVAL '3' MONTH OR least = INTERVAL '1' YEAR",
    "in_range_of_times": "SELECT id, count(*) OVER (ORDER BY at RANGE BETWEEN INTERVAL 70 DAYS PRECEDING AND CURRENT "
    "ROW) AS n, min(label) OVER (PARTITION BY g "
    "ORDER BY at DESC RANGE BETWEEN INTERVAL '3' HOUR PRECEDING AND INTERVAL '100' HOUR FOLLOWING) AS lo FROM u",
    "picked": "SELECT k, first_value(s) OVER (PARTITION BY g ORDER BY k) AS f, last_value(s) IGNORE NULLS "
    "OVER (PARTITION BY g ORDER BY k) AS l, nth_value(a, 2) OVER (PARTITION BY g "
    "ORDER BY k) AS n2, first(a, true) OVER (PARTITION BY g "
    "ORDER BY k ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS fa, last_value(k) OVER (PARTITION BY g "
    "ORDER BY k RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lk FROM t",
    "picked_beside_all": "SELECT k, nth_value(a, 2) IGNORE NULLS OVER (PARTITION BY g "
    "ORDER BY k) AS n2, lead(a) IGNORE NULLS OVER (PARTITION BY g ORDER BY k) AS l, last_value(a) IGNORE NULLS "
    "OVER (PARTITION BY g ORDER BY k) AS la FROM t",
    "against_all": "SELECT k, a - avg(a) OVER (PARTITION BY g) AS off, count(*) OVER () AS n, 100 * k / sum(k) "
    "OVER () AS share FROM t",
    "ranked_groups": "SELECT g, s, sum(a) AS sa, rank() OVER (PARTITION BY s "
    "ORDER BY sum(a) DESC) AS r, sum(count(*)) OVER (PARTITION BY s ORDER BY g NULLS LAST) AS n FROM t GROUP BY g, s",
    "moments_over": "SELECT k, stddev(a) OVER (PARTITION BY g ORDER BY k) AS sd, regr_slope(a, k) "
    "OVER (PARTITION BY g) AS rs, var_pop(m) OVER (PARTITION BY g "
    "ORDER BY k ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS vm, covar_samp(a, k) OVER (PARTITION BY g "
    "ORDER BY s) AS cs, skewness(a) OVER (ORDER BY k RANGE BETWEEN 9 PRECEDING AND CURRENT ROW) AS sk, "
    "bit_xor(k) OVER (PARTITION BY g ORDER BY s) AS bx, bool_or(a > 4) OVER (PARTITION BY g "
    "ORDER BY k) AS bo, count_if(a > 2) OVER (ORDER BY k ROWS 4 PRECEDING) AS ci, "
    "sum(a) FILTER (WHERE s <> 'a') OVER (PARTITION BY g ORDER BY k) AS sa, count(*) FILTER (WHERE a > 3) "
    "OVER (ORDER BY k) AS c3, kurtosis(a) FILTER (WHERE k > 5) OVER (PARTITION BY g) AS ku FROM t",
    "groups_over": "SELECT k, max_by(s, k) OVER (PARTITION BY g ORDER BY a) AS hi, min_by(k, a) "
    "OVER (PARTITION BY g ORDER BY k ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS lo, median(a) "
    "OVER (PARTITION BY g) AS mid, percentile(m, array(0.1, 0.9)) "
    "OVER (ORDER BY k RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING) AS ps, mode(s, true) OVER (PARTITION BY g "
    "ORDER BY a) AS mo, approx_count_distinct(s) OVER (PARTITION BY g "
    "ORDER BY k ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS ns, "
    "array_sort(collect_set(s) FILTER (WHERE k > 3) OVER (PARTITION BY g)) AS se FROM t",
    "lists_over": "SELECT k, collect_list(a) OVER (PARTITION BY g "
    "ORDER BY k ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS l, collect_list(s) OVER (PARTITION BY g "
    "ORDER BY k) AS ls, listagg(s, '+') OVER (ORDER BY k ROWS 2 PRECEDING) AS la FROM t",
    "chosen_over": "SELECT k, first(s) FILTER (WHERE a > 2) OVER (PARTITION BY g "
    "ORDER BY k) AS f, last(a) FILTER (WHERE k % 3 = 1) OVER (PARTITION BY g "
    "ORDER BY k) AS l, any_value(s) FILTER (WHERE s <> 'b') "
    "OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS v, max_by(s, k, 2) OVER (PARTITION BY g "
    "ORDER BY k ROWS 3 PRECEDING) AS hi, min_by(k, k, 3) FILTER (WHERE a > 1) "
    "OVER (PARTITION BY s) AS lo, sum(levenshtein(s, 'ab')) FILTER (WHERE s <> 'a') OVER (PARTITION BY g "
    "ORDER BY k) AS le, count(soundex(s), a) FILTER (WHERE s IS NOT NULL) OVER (ORDER BY k) AS c FROM t",
    "ordered_over": "SELECT k, listagg(s, '+') WITHIN GROUP (ORDER BY a DESC NULLS LAST, k) "
    "OVER (PARTITION BY g) AS l, listagg(k, ',') WITHIN GROUP (ORDER BY k DESC) FILTER (WHERE a > 2) "
    "OVER (PARTITION BY s) AS lf, percentile_cont(0.25) WITHIN GROUP (ORDER BY a DESC) "
    "OVER (PARTITION BY g) AS p, percentile_disc(0.5) WITHIN GROUP (ORDER BY m) OVER (PARTITION BY s) AS d FROM t",
    "sessions": "SELECT g, session_window.start AS b, session_window.end AS e, count(*) AS n, max(k) AS hi FROM "
    "(SELECT g, k, timestamp_seconds(60 * k) AS at FROM t) GROUP BY g, session_window(at, '3 minutes')",
    "sessions_of_some": "SELECT session_window AS w, count(DISTINCT g) AS n, sum(f) AS sf FROM u "
    "GROUP BY session_window(at, CASE WHEN g = 1 THEN '2 years 3 days' WHEN g = 2 THEN '-1 hour' ELSE '4 hours' END)",
    "top_two": "SELECT k, g, a, n FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY a DESC, k) AS n "
    "FROM t) WHERE n <= 2",
    "top_by_rank": "SELECT k, s, a FROM (SELECT *, rank() OVER (PARTITION BY s ORDER BY a) AS n FROM t) "
    "WHERE n < 3 AND a > 0",
    "moving": "SELECT k, sum(a) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s, max(a) "
    "OVER (ORDER BY k ROWS BETWEEN 3 FOLLOWING AND 5 FOLLOWING) AS m, count(a, s) "
    "OVER (ORDER BY k ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS c, try_sum(a) "
    "OVER (ORDER BY k) AS ts FROM t",
    "nested_groups": "SELECT array(d, 0.0D) AS ds, named_struct('g', g, 's', s) AS gs, count(*) AS n, max(array(a, "
    "k)) AS hi FROM t GROUP BY array(d, 0.0D), named_struct('g', g, 's', s)",
    "nested_joined": "SELECT t.k, u.id FROM t JOIN u ON named_struct('x', t.g, 'y', array(t.s)) = struct(u.g AS x, "
    "array(u.label) AS y)",
    "view_numbered": "SELECT g, max(n) AS top FROM numbered JOIN t USING (k) GROUP BY g",
    "recent": "SELECT g, count(*) AS n, max(f) AS top FROM u "
    "WHERE at > now() - INTERVAL 60 DAYS AND at <= now() GROUP BY g",
    "due": "SELECT t.k, w.label, w.day FROM t JOIN w ON t.s = w.label AND w.day BETWEEN current_date() - 20 AND "
    "current_date() + 40",
    "of_this_year": "SELECT label, day, row_number() OVER (PARTITION BY flag ORDER BY day, label) AS n FROM w "
    "WHERE year(day) = year(current_date()) AND date_add(day, 3) <= current_timestamp()",
    "view_recent": "SELECT n, count(*) AS groups FROM recent GROUP BY n",
    "view_on_view": "SELECT n, count(*) AS groups, sum(sa) AS total FROM grouped GROUP BY n",
    "view_filter": "SELECT k, a1 FROM filtered WHERE a1 > 6",
    "view_join": "SELECT g.g, g.n, e.hi FROM grouped g JOIN extremes e ON g.g <=> e.g",
    "view_left": "SELECT l.k, l.label, g.n FROM left_joined l LEFT JOIN grouped g ON l.a = g.n",
    "view_union": "SELECT k, id FROM left_joined UNION ALL SELECT k, id FROM full_joined",
    "view_above": "SELECT g, n FROM grouped WHERE n > (SELECT avg(n) FROM grouped) OR EXISTS (SELECT 1 "
    "FROM crossed WHERE a = n)",
    "view_global": "SELECT max(n) AS most, count(*) AS groups FROM grouped",
}

#: LIMIT views, with the columns that the order fixes.
TOP_N: dict[str, tuple[str, tuple[str, ...]]] = {
    "limited": ("SELECT k, a FROM t LIMIT 5", ()),  # which rows, Spark leaves open
    "limited_duplicates": ("SELECT g FROM e LIMIT 7 OFFSET 2", ()),
    "behind_the_top": ("SELECT k, a FROM t ORDER BY a DESC, k OFFSET 4", ("k", "a")),
    "top_rows": ("SELECT k, a FROM t ORDER BY a DESC, k LIMIT 5", ("k", "a")),
    "top_ties": ("SELECT a, g FROM t ORDER BY a NULLS LAST LIMIT 4", ("a",)),
    "top_offset": ("SELECT k, s FROM t ORDER BY s DESC NULLS FIRST, k LIMIT 3 OFFSET 2", ("k", "s")),
    "top_join": (
        "SELECT t.k, u.id, t.a FROM t JOIN u ON t.g = u.g ORDER BY t.a DESC, t.k, u.id LIMIT 6",
        ("k", "id", "a"),
    ),
    "top_left": (
        "SELECT t.k, u.id FROM t LEFT JOIN u ON t.g = u.g ORDER BY u.id DESC NULLS LAST, t.k LIMIT 6",
        ("k", "id"),
    ),
    "top_groups": ("SELECT g, sum(a) AS sa FROM t GROUP BY g ORDER BY sa DESC NULLS LAST, g LIMIT 2", ("g", "sa")),
    "all_but_some": ("SELECT k, a FROM t ORDER BY a DESC NULLS LAST, k OFFSET 4", ("k", "a")),
    "top_view": ("SELECT k2, count(*) AS n FROM joined_self GROUP BY k2 ORDER BY n DESC, k2 LIMIT 3", ("k2", "n")),
}
