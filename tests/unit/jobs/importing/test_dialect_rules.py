"""Constructs without a counterpart in Spark's SQL are refused by name, and have a remedy."""

import pytest

from tussock.jobs.importing.dialect import translate_sql


@pytest.mark.parametrize(
    ("dialect", "sql", "construct"),
    [
        ("duckdb", "SELECT a.x FROM a ASOF JOIN b ON a.k = b.k AND a.at >= b.at", "ASOF JOIN of duckdb"),
        ("duckdb", "SELECT a.x FROM a POSITIONAL JOIN b", "POSITIONAL JOIN"),
        ("duckdb", "PIVOT t ON g USING sum(n) GROUP BY b", "PIVOT … ON"),
        ("duckdb", "SELECT * FROM (PIVOT t ON g IN (1, 2) USING sum(n))", "PIVOT … ON"),
        ("duckdb", "UNPIVOT t ON n, g INTO NAME k VALUE v", "UNPIVOT … ON"),
        ("duckdb", "SELECT a[1:2] FROM t", "a slice [a:b]"),
        ("duckdb", "SELECT list_transform(a, lambda z, i: z + i) FROM t", "a lambda with the place"),
        ("duckdb", "SELECT COLUMNS('^n') FROM t", "COLUMNS(…)"),
        ("duckdb", "SELECT * REPLACE (n + 1 AS n) FROM t", "* REPLACE"),
        ("bigquery", "SELECT * REPLACE (n + 1 AS n) FROM t", "* REPLACE of bigquery"),
        ("duckdb", "SELECT * RENAME (n AS m) FROM t", "* RENAME"),
        ("duckdb", "SELECT n FROM a UNION ALL BY NAME SELECT n FROM b", "UNION BY NAME"),
        ("duckdb", "SELECT n FROM a ORDER BY n LIMIT 10%", "LIMIT with PERCENT"),
        ("duckdb", "SELECT * FROM t USING SAMPLE 5", "a sample"),
        ("snowflake", "SELECT * FROM t TABLESAMPLE (10)", "a sample"),
        ("duckdb", "SELECT MAP {'a': n} FROM t", "MAP {…}"),
        ("duckdb", "SELECT s GLOB 'a*' FROM t", "GLOB"),
        ("duckdb", "SELECT n > ALL (SELECT 1) FROM t", "a comparison with ALL"),
        ("duckdb", "SELECT first(n ORDER BY id) FROM t", "ORDER BY in an aggregate"),
        ("duckdb", "SELECT g, list(n ORDER BY id) FROM t GROUP BY g", "array_agg with ORDER BY"),
        ("snowflake", "SELECT array_agg(n) WITHIN GROUP (ORDER BY id) FROM t", "array_agg with ORDER BY"),
        ("postgres", "SELECT array_agg(n) FILTER (WHERE n > 0) FROM t", "array_agg (list) with FILTER"),
        ("duckdb", "SELECT at AT TIME ZONE 'Europe/Berlin' FROM t", "AT TIME ZONE"),
        ("duckdb", "SELECT at::time FROM t", "a type for times of day"),
        ("postgres", "SELECT x::numeric FROM t", "NUMERIC without digits"),
        ("duckdb", "SELECT quantile_disc(n, 0.5) FROM t", "percentile_disc"),
        ("postgres", "SELECT percentile_cont(0.2) WITHIN GROUP (ORDER BY n DESC) FROM t", "of a descending order"),
        ("duckdb", "SELECT regexp_replace(s, 'a', 'b') FROM t", "regexp_replace of the first match"),
        ("duckdb", "SELECT hash(s) FROM t", "hash of duckdb: it returns other numbers"),
        ("duckdb", "SELECT format('{}', s) FROM t", "format of duckdb"),
        ("duckdb", "SELECT substring(s, 0, 2) FROM t", "substring from before the first character"),
        ("duckdb", "SELECT left(s, -1) FROM t", "left or right of a negative length"),
        ("duckdb", "SELECT unnest(a), unnest(b) FROM t", "two lists of rows in one SELECT"),
        ("duckdb", "SELECT * FROM t LEFT JOIN unnest(a) AS u(q) ON true", "an outer join with an array"),
        ("postgres", "SELECT * FROM t LEFT JOIN LATERAL unnest(t.a) AS u(q) ON true", "an outer join with an array"),
        ("bigquery", "SELECT * FROM t LEFT JOIN UNNEST(a) AS q", "an outer join with an array of bigquery"),
        ("snowflake", "SELECT greatest(a, b) FROM t", "greatest or least of NULL"),
        ("postgres", "SELECT a / b FROM t", "a division that truncates integers"),
        ("postgres", "SELECT current_date - d FROM t", "a difference with a date"),
        ("duckdb", "SELECT date_diff('week', a, b) FROM t", "date_diff of weeks"),
        ("duckdb", "WITH c AS (SELECT list_concat(a, b) AS q FROM t) SELECT * FROM c", "list_concat"),
    ],
)
def test_a_construct_without_a_counterpart_is_refused_by_name(dialect: str, sql: str, construct: str) -> None:
    translated, reason = translate_sql(sql, dialect)
    assert translated == ""
    assert construct in reason
    assert ". " in reason or ": " in reason, "a remedy follows"


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "SELECT a / 2.0, a::float / b, avg(a) / b, a * 1.0 / nullif(b, 0) FROM t"),
        (
            "postgres",
            "SELECT x::numeric(10, 2), left(s, 2), d - INTERVAL '1 day', current_date - INTERVAL '2 days' FROM t",
        ),
        ("snowflake", "SELECT a / b, array_agg(x), regexp_replace(s, 'a', 'b'), a[0] FROM t"),
        ("bigquery", "SELECT array_agg(x IGNORE NULLS), log(y) FROM t"),
        ("duckdb", "SELECT a.x FROM a LEFT JOIN b USING (k)"),
    ],
)
def test_a_construct_with_the_same_meaning_is_translated(dialect: str, sql: str) -> None:
    translated, reason = translate_sql(sql, dialect)
    assert reason == ""
    assert translated.startswith("SELECT")
