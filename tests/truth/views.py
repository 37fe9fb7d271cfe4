"""Every operator and their combinations, as views over the tables of tests.truth.model. Later views read earlier ones."""

VIEWS: dict[str, str] = {
    "filtered": "SELECT k, a + 1 AS a1, upper(s) AS s FROM t WHERE a > 3 AND (s IS NOT NULL OR g = 2)",
    "renamed": "SELECT s AS x, k FROM t",
    "keyless": "SELECT a, s FROM t",
    "grouped": "SELECT g, count(*) AS n, count(a) AS na, sum(a) AS sa, avg(a) AS aa FROM t GROUP BY g",
    "summed_doubles": "SELECT g, sum(d) AS sd, avg(d) AS ad FROM t GROUP BY g",
    "summed_decimals": "SELECT g, sum(m) AS sm, avg(m) AS am FROM t GROUP BY g",
    "extremes": "SELECT g, min(a) AS lo, max(a) AS hi, min(s) AS first_s, max(d) AS top_d, min(m) AS low_m FROM t GROUP BY g",
    "global_all": "SELECT count(*) AS n, sum(a) AS sa, min(d) AS lo, max(s) AS hi, avg(f) AS af FROM t JOIN u ON t.k * 100000000000 = u.id",
    "global_one": "SELECT count(*) AS n, sum(a) AS s FROM t",
    "having_some": "SELECT g, sum(a) AS sa FROM t GROUP BY g HAVING count(*) > 1 AND sum(a) > 4",
    "expression_keys": "SELECT g + 1 AS g1, CASE WHEN a > 4 THEN 'big' WHEN a IS NULL THEN 'none' ELSE 'small' END AS size, count(*) AS n "
    "FROM t GROUP BY g + 1, CASE WHEN a > 4 THEN 'big' WHEN a IS NULL THEN 'none' ELSE 'small' END",
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
    "joined_grouped": "SELECT u.label, count(*) AS n, sum(t.a) AS sa, min(t.a) AS lo FROM t JOIN u ON t.g = u.g GROUP BY u.label",
    "with_cte": "WITH x AS (SELECT g, max(a) AS top FROM t GROUP BY g) SELECT t.k, x.top FROM t JOIN x ON t.g = x.g AND t.a = x.top",
    "timed": "SELECT date_trunc('month', at) AS mon, count(*) AS n, max(at) AS last FROM u GROUP BY date_trunc('month', at)",
    "view_on_view": "SELECT n, count(*) AS groups, sum(sa) AS total FROM grouped GROUP BY n",
    "view_filter": "SELECT k, a1 FROM filtered WHERE a1 > 6",
    "view_join": "SELECT g.g, g.n, e.hi FROM grouped g JOIN extremes e ON g.g <=> e.g",
    "view_global": "SELECT max(n) AS most, count(*) AS groups FROM grouped",
}

#: LIMIT views, with the columns that the order fixes.
TOP_N: dict[str, tuple[str, tuple[str, ...]]] = {
    "top_rows": ("SELECT k, a FROM t ORDER BY a DESC, k LIMIT 5", ("k", "a")),
    "top_ties": ("SELECT a, g FROM t ORDER BY a NULLS LAST LIMIT 4", ("a",)),
    "top_offset": ("SELECT k, s FROM t ORDER BY s DESC NULLS FIRST, k LIMIT 3 OFFSET 2", ("k", "s")),
    "top_join": ("SELECT t.k, u.id, t.a FROM t JOIN u ON t.g = u.g ORDER BY t.a DESC, t.k, u.id LIMIT 6", ("k", "id", "a")),
    "top_groups": ("SELECT g, sum(a) AS sa FROM t GROUP BY g ORDER BY sa DESC NULLS LAST, g LIMIT 2", ("g", "sa")),
    "top_view": ("SELECT k2, count(*) AS n FROM joined_self GROUP BY k2 ORDER BY n DESC, k2 LIMIT 3", ("k2", "n")),
}
