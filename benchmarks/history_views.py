"""The views of `python -m benchmarks history`: the ones of the page's table, and one per operator and aggregate.

They read `events` (id, customer, shop, ts, amount, weight, note) and `shops` (shop, city, fee). DuckDB and Spark
recompute the same rows from the same files.
"""

from dataclasses import dataclass, field

_LATEST = (
    "SELECT id, customer, shop, ts, amount FROM (SELECT *, row_number() OVER (PARTITION BY customer "
    "ORDER BY ts DESC, id DESC) AS r FROM events) WHERE r = 1"
)
_DAILY = "SELECT shop, CAST(ts AS DATE) AS day, sum(amount) AS total FROM events GROUP BY shop, CAST(ts AS DATE)"
_TOP = (
    "SELECT id, shop, amount, r FROM (SELECT *, row_number() OVER (PARTITION BY shop ORDER BY amount DESC, id) AS r "
    "FROM events) WHERE r <= 10"
)


@dataclass(frozen=True, slots=True)
class Views:
    """One or more views that an epoch maintains together.

    Args:
        name: for the command and the page.
        selects: their queries.
        changed: the rows of a change; None: the option of the command.
        duckdb: the same for DuckDB; empty: the same text.
        without_duckdb: the reason if DuckDB cannot compute them.
    """

    name: str
    selects: tuple[str, ...]
    changed: int | None = None
    duckdb: tuple[str, ...] = field(default=())
    without_duckdb: str = ""

    @property
    def of_duckdb(self) -> tuple[str, ...]:
        """The queries for DuckDB."""
        return self.duckdb or self.selects


TABLE = (
    Views("latest", (_LATEST,), 2_000),
    Views("latest, days, top 10", (_LATEST, _DAILY, _TOP), 8_000),
    Views(
        "lag",
        ("SELECT id, customer, amount - lag(amount) OVER (PARTITION BY customer ORDER BY ts, id) AS d FROM events",),
        2_000,
    ),
    Views(
        "median",
        ("SELECT shop, median(amount) AS m, percentile(amount, 0.9) AS p FROM events GROUP BY shop",),
        200,
        ("SELECT shop, median(amount) AS m, quantile_cont(amount, 0.9) AS p FROM events GROUP BY shop",),
    ),
    Views(
        "sessions",
        (
            "SELECT customer, session_window.start AS at, count(*) AS n, sum(amount) AS total FROM events "
            "GROUP BY customer, session_window(ts, '30 minutes')",
        ),
        200,
        (
            "SELECT customer, min(ts) AS at, count(*) AS n, sum(amount) AS total FROM (SELECT *, sum(b) OVER "
            "(PARTITION BY customer ORDER BY ts, id) AS s FROM (SELECT *, CASE WHEN ts - lag(ts) OVER "
            "(PARTITION BY customer ORDER BY ts, id) <= INTERVAL 30 MINUTE THEN 0 ELSE 1 END AS b FROM events)) "
            "GROUP BY customer, s",
        ),
    ),
    Views("distinct", ("SELECT DISTINCT customer, shop FROM events",), 2_000),
)
"""The views of the page's table."""


def _aggregate(name: str, call: str, duckdb: str = "", without_duckdb: str = "") -> Views:
    select = f"SELECT shop, {call} AS a FROM events GROUP BY shop"
    other = (f"SELECT shop, {duckdb} AS a FROM events GROUP BY shop",) if duckdb else ()
    return Views(name, (select,), None, other, without_duckdb)


_ONLY_SPARK = "DuckDB has no such function"
AGGREGATES = (
    _aggregate("count", "count(note)"),
    _aggregate("sum", "sum(amount)"),
    _aggregate("avg", "avg(amount)"),
    _aggregate("min", "min(amount)"),
    _aggregate("max", "max(amount)"),
    _aggregate("bit_and", "bit_and(amount)"),
    _aggregate("bit_or", "bit_or(amount)"),
    _aggregate("bit_xor", "bit_xor(amount)"),
    *(_aggregate(name, f"{name}(weight)") for name in ("stddev_pop", "stddev_samp", "var_pop", "var_samp", "skewness")),
    _aggregate("kurtosis", "kurtosis(weight)", "kurtosis_pop(weight)"),
    *(
        _aggregate(name, f"{name}(weight, amount)")
        for name in (
            "covar_pop",
            "covar_samp",
            "corr",
            "regr_sxx",
            "regr_sxy",
            "regr_r2",
            "regr_slope",
            "regr_intercept",
        )
    ),
    _aggregate("first", "first(note)"),
    _aggregate("last", "last(note)"),
    _aggregate("min_by", "min_by(note, amount)"),
    _aggregate("max_by", "max_by(note, amount)"),
    _aggregate("mode", "mode(amount)"),
    _aggregate("percentile", "percentile(amount, 0.5)", "quantile_cont(amount, 0.5)"),
    _aggregate(
        "percentile_disc",
        "percentile_disc(0.5) WITHIN GROUP (ORDER BY amount)",
        "quantile_disc(amount, 0.5)",
    ),
    _aggregate("listagg", "listagg(note, ',')"),
    _aggregate("collect_list", "collect_list(amount)", "list(amount)"),
    _aggregate("collect_set", "collect_set(amount)", "list(DISTINCT amount)"),
    _aggregate("approx_count_distinct", "approx_count_distinct(amount)"),
    _aggregate("bitmap_construct_agg", "bitmap_construct_agg(amount % 32768)", without_duckdb=_ONLY_SPARK),
    _aggregate("bitmap_or_agg", "bitmap_or_agg(CAST(note AS BINARY))", without_duckdb=_ONLY_SPARK),
    _aggregate("bitmap_and_agg", "bitmap_and_agg(CAST(note AS BINARY))", without_duckdb=_ONLY_SPARK),
    _aggregate("vector_sum", "vector_sum(array(CAST(weight AS FLOAT)))", without_duckdb=_ONLY_SPARK),
    _aggregate("vector_avg", "vector_avg(array(CAST(weight AS FLOAT)))", without_duckdb=_ONLY_SPARK),
)


def _window(name: str, call: str, frame: str = "") -> Views:
    select = f"SELECT id, {call} OVER (PARTITION BY customer ORDER BY ts, id{frame}) AS a FROM events"
    return Views(f"{name} over a window", (select,))


WINDOWS = (
    *(_window(name, f"{name}()") for name in ("rank", "dense_rank", "percent_rank", "cume_dist")),
    _window("ntile", "ntile(4)"),
    _window("lead", "lead(amount)"),
    _window("first_value", "first_value(amount)"),
    _window("last_value", "last_value(amount)", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"),
    _window("nth_value", "nth_value(amount, 2)"),
    _window("running sum", "sum(amount)", " ROWS UNBOUNDED PRECEDING"),
    Views(
        "sum over the partition",
        ("SELECT id, amount, sum(amount) OVER (PARTITION BY customer) AS a FROM events",),
    ),
)


def _view(name: str, select: str) -> Views:
    return Views(name, (select,))


OPERATORS = (
    _view("inner join", "SELECT id, city, amount FROM events JOIN shops USING (shop)"),
    _view("left join", "SELECT id, city FROM events e LEFT JOIN shops s ON e.shop = s.shop AND amount < fee"),
    _view("right join", "SELECT id, city FROM events e RIGHT JOIN shops s ON e.shop = s.shop AND amount < fee"),
    _view("full join", "SELECT id, city FROM events e FULL JOIN shops s ON e.shop = s.shop AND amount < fee"),
    _view(
        "semi join",
        "SELECT id, amount FROM events e WHERE EXISTS (SELECT 1 FROM shops s WHERE s.shop = e.shop AND amount < fee)",
    ),
    _view(
        "anti join",
        "SELECT id, amount FROM events e WHERE NOT EXISTS "
        "(SELECT 1 FROM shops s WHERE s.shop = e.shop AND amount < fee)",
    ),
    _view(
        "existence join",
        "SELECT id, amount FROM events WHERE shop IN (SELECT shop FROM shops WHERE fee < 50) OR amount < 10",
    ),
    _view("NOT IN", "SELECT id, amount FROM events WHERE shop NOT IN (SELECT shop FROM shops WHERE fee < 50)"),
    _view("join by an inequality", "SELECT id, s.shop FROM events JOIN shops s ON amount < fee AND s.shop < 5"),
    _view("scalar subquery", "SELECT id, amount FROM events WHERE amount > (SELECT avg(fee) FROM shops)"),
    _view(
        "scalar subquery of one row",
        "SELECT id, amount FROM events WHERE amount > (SELECT fee FROM shops WHERE shop = 3)",
    ),
    _view(
        "correlated subquery",
        "SELECT id, (SELECT fee FROM shops s WHERE s.shop = e.shop) AS fee FROM events e",
    ),
    _view("union all", "SELECT id, amount FROM events UNION ALL SELECT shop, fee FROM shops"),
    _view("filter", "SELECT id, amount FROM events WHERE amount > 100"),
    _view(
        "rollup",
        "SELECT shop % 10 AS a, amount % 10 AS b, count(*) AS n FROM events GROUP BY ROLLUP (shop % 10, amount % 10)",
    ),
    _view(
        "two distinct counts",
        "SELECT shop, count(DISTINCT amount) AS a, count(DISTINCT customer) AS b, sum(amount) AS c FROM events "
        "GROUP BY shop",
    ),
    _view("count distinct", "SELECT shop, count(DISTINCT customer) AS a FROM events GROUP BY shop"),
    Views(
        "explode",
        ("SELECT id, e FROM events LATERAL VIEW explode(array(amount, amount + 1)) x AS e",),
        duckdb=("SELECT id, unnest([amount, amount + 1]) AS e FROM events",),
    ),
    _view("except all", "SELECT shop, amount FROM events EXCEPT ALL SELECT shop, fee FROM shops"),
    _view("top 10", "SELECT id, amount FROM events ORDER BY amount DESC, id LIMIT 10"),
    _view("offset", "SELECT id, amount FROM events ORDER BY amount DESC, id OFFSET 10"),
    Views(
        "sliding window",
        ("SELECT window.start AS at, count(*) AS n FROM events GROUP BY window(ts, '1 hour', '20 minutes')",),
        without_duckdb="DuckDB has no sliding windows",
    ),
    _view("temporal filter", "SELECT id, amount FROM events WHERE ts > now() - INTERVAL 1 DAY"),
    Views("numbers", ("SELECT id, r FROM range(3) AS x (r) JOIN shops ON r = shop JOIN events USING (shop)",)),
    Views("constants", ("SELECT id, name FROM events JOIN VALUES (1, 'a'), (2, 'b') AS v (shop, name) USING (shop)",)),
)

ALL = (*TABLE, *AGGREGATES, *WINDOWS, *OPERATORS)
