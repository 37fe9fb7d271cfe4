"""Where sqlglot's translation into Spark's SQL has another meaning, or none: corrections, and refusals with a reason.

    correct_nodes    rewrites nodes whose meaning Spark can express
    refusal_of       the first construct that has no counterpart, with its remedy

sqlglot writes a construct that it does not know as it is. Spark then reads `FROM a ASOF JOIN b` as a plain join of `a`
under the alias ASOF, or reports a syntax error. Other constructs have a counterpart of the same name with other rows:
DuckDB's `date_diff` counts the boundaries between two moments, and Spark's counts whole units.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

#: Dialects that round a fraction which becomes an integer, to the even neighbour of a half, or away from zero.
_ROUNDS_TO_EVEN = frozenset({"duckdb", "postgres", "redshift", "materialize", "risingwave"})
_ROUNDS_AWAY = frozenset({"snowflake", "bigquery", "trino", "presto", "athena", "mysql", "oracle"})
#: Dialects whose array_agg takes NULL as an element.
_LISTS_NULL = frozenset({"duckdb", "postgres", "redshift", "materialize", "risingwave", "trino", "presto", "athena"})
#: Dialects whose days of the week begin with 0 for Sunday. Spark's begin with 1.
_SUNDAY_IS_0 = frozenset({"duckdb", "postgres", "redshift", "materialize", "risingwave", "snowflake"})
_WHOLE_NAMES = frozenset({"duckdb"})  # of days and months; Spark's dayname returns Mon
_FROM_POSITION_0 = frozenset({"duckdb", "postgres", "redshift", "materialize", "risingwave", "trino"})
_OTHER_HASHES = "it returns other numbers in Spark. Write md5 or sha256"
_DAYS = {"dow": 0, "dayofweek": 0, "weekday": 0, "isodow": 1, "dayofweekiso": 1, "dayofweek_iso": 1}
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "MEDIUMINT", "BIGINT")
_NO_TYPES = ("TIME", "TIMETZ", "UTINYINT", "USMALLINT", "UINT", "UBIGINT", "INT128", "UINT128", "INT256", "UINT256")
_CALLS = {  # functions that sqlglot writes as they are, and that Spark has with another result
    "hash": _OTHER_HASHES,
    "printf": "its NULL arguments become the text null in Spark. Write concat",
    "bit_count": "Spark counts the bits of a bigint, so negative numbers have more. Remove the call",
}


def correct_nodes(tree: "Expr", dialect: str) -> "Expr":
    """The statement with expressions of Spark for those that have another meaning in Spark. Changes the statement."""
    for node in reversed(list(tree.walk())):  # the parts of an expression before it
        if (other := _correct_node(node, dialect)) is not node:
            node.replace(other)
    return tree


def _correct_node(node: "Expr", dialect: str) -> "Expr":
    """The node, or an expression of Spark with the meaning that the node has in its dialect."""
    from sqlglot import exp

    match node:
        case exp.Array() if len(node.expressions) == 1 and isinstance(one := node.expressions[0], exp.Comprehension):
            return _transform_list(one)
        case exp.WithinGroup() if isinstance(node.this, exp.PercentileCont):
            return _fill_template("percentile(x, y)", node.expression.expressions[0].this, node.this.this)
        case exp.PercentileCont() if node.args.get("expression") is not None:
            return _percentile(node)
        case exp.ArrayAgg() if dialect in _LISTS_NULL and not isinstance(node.parent, exp.Filter | exp.Window):
            return _fill_template(
                "CASE WHEN count(*) > 0 THEN transform(collect_list(named_struct('v', x)), one -> one.v) END", node.this
            )
        case exp.DateDiff() if node.args.get("date_part_boundary") and node.args.get("unit") is not None:
            return _count_boundaries(node)
        case exp.DayOfWeek() if dialect in _SUNDAY_IS_0:
            return _fill_template("dayofweek(x) - 1", node.this)
        case exp.DayOfWeekIso():
            return _fill_template("weekday(x) + 1", node.this)
        case exp.Extract() if (monday := _DAYS.get(node.this.name.lower())) is not None:
            if monday or dialect in _SUNDAY_IS_0:
                return _fill_template("weekday(x) + 1" if monday else "dayofweek(x) - 1", node.expression)
        case exp.Anonymous() if node.name.lower() in ("date_part", "datepart") and len(node.expressions) == 2:
            part, moment = node.expressions
            if part.is_string and (monday := _DAYS.get(part.name.lower())) is not None and dialect in _SUNDAY_IS_0:
                return _fill_template("weekday(x) + 1" if monday else "dayofweek(x) - 1", moment)
        case exp.Anonymous() if (
            node.name.lower() == "weekday" and dialect in _SUNDAY_IS_0 and len(node.expressions) == 1
        ):
            return _fill_template("dayofweek(x) - 1", node.expressions[0])
        case exp.Dayname() if dialect in _WHOLE_NAMES:
            return _fill_template("date_format(x, 'EEEE')", node.this)
        case exp.Monthname() if dialect in _WHOLE_NAMES:
            return _fill_template("date_format(x, 'MMMM')", node.this)
        case exp.Log() if node.args.get("expression") is None:
            return _fill_template("log10(x)", node.this)
        case exp.Interval() if node.this is not None and not isinstance(node.this, exp.Literal):
            unit, number = str(node.unit).upper().rstrip("S"), 1
            unit, number = ("DAY", 7) if unit == "WEEK" else (unit, number)
            return _fill_template(f"x * INTERVAL '{number}' {unit}", node.this)
        case exp.Cast() if node.to.this.name in ("JSON", "JSONB"):
            text: Expr = node.this
            return text
        case exp.Extract() if node.this.name.lower() == "epoch":
            return _fill_template("unix_micros(CAST(x AS TIMESTAMP)) / 1000000", node.expression)
        case exp.Sub() if _is_date(node.this) and _is_date(node.expression):
            return _fill_template("datediff(x, y)", node.this, node.expression)
        case exp.ArrayContains() if dialect == "duckdb":
            return _fill_template(
                "CASE WHEN y IS NOT NULL THEN exists(x, one -> one <=> y) END", node.this, node.expression
            )
        case exp.ArrayDistinct() if dialect == "duckdb":
            return _fill_template("array_distinct(filter(x, one -> one IS NOT NULL))", node.this)
        case exp.IsNan():
            return _fill_template("CASE WHEN x IS NOT NULL THEN isnan(x) END", node.this)
        case exp.Bracket() if dialect == "duckdb" and len(node.expressions) == 1:
            return _element_at(node)
        case exp.RegexpReplace() if isinstance(replacement := node.args.get("replacement"), exp.Literal):
            written = re.sub(r"\\(\d)", r"$\1", replacement.name.replace("$", r"\$"))
            node.set("replacement", exp.Literal.string(written))
        case exp.Cast() if node.to.this.name in _INTEGERS and dialect in _ROUNDS_TO_EVEN | _ROUNDS_AWAY:
            return _round_fraction(node, dialect)
    return node


def _fill_template(template: str, *parts: "Expr") -> "Expr":
    """An expression of Spark's SQL in brackets, with the parts in place of the columns x and y."""
    from sqlglot import exp, parse_one

    values = dict(zip("xy", parts, strict=False))

    def fill(node: "Expr") -> "Expr":
        is_part = isinstance(node, exp.Column) and not node.table and node.name in values
        return exp.paren(values[node.name].copy(), copy=False) if is_part else node

    return exp.paren(parse_one(template, read="spark").transform(fill), copy=False)


def _transform_list(comprehension: "Expr") -> "Expr":
    """[f(x) for x in a if g(x)] as transform(filter(a, x -> g(x)), x -> f(x))."""
    from sqlglot import exp

    rows, name = comprehension.args["iterator"], comprehension.expression
    if (condition := comprehension.args.get("condition")) is not None:
        rows = exp.ArrayFilter(this=rows, expression=exp.Lambda(this=condition, expressions=[name.copy()]))
    return exp.Transform(this=rows, expression=exp.Lambda(this=comprehension.this, expressions=[name.copy()]))


def _percentile(node: "Expr") -> "Expr":
    """percentile_cont(x, share), without brackets: OVER may follow."""
    from sqlglot import exp

    return exp.Anonymous(this="percentile", expressions=[node.this, node.expression])


def _count_boundaries(node: "Expr") -> "Expr":
    """The number of boundaries between two moments: whole units between the beginnings of their units."""
    unit = node.args["unit"].name.upper()
    unit = {"ISOWEEK": "WEEK"}.get(unit, unit)
    later, earlier = node.this, node.expression
    if unit == "DAY":
        return _fill_template("datediff(x, y)", later, earlier)
    return _fill_template(f"datediff({unit}, date_trunc('{unit}', y), date_trunc('{unit}', x))", later, earlier)


def _is_date(node: "Expr") -> bool:
    from sqlglot import exp

    return isinstance(node, exp.CurrentDate) or (isinstance(node, exp.Cast) and node.to.this.name == "DATE")


def _element_at(node: "Expr") -> "Expr":
    """An element by its place. sqlglot has subtracted 1 from constant places. Keys of structs and maps are texts."""
    from sqlglot import exp

    (key,) = node.expressions
    if isinstance(key, exp.Slice) or key.is_string:
        return node
    if key.is_int:
        number = int(key.to_py())
        place: Expr = exp.Literal.number(number + 1)
        if number + 1 < 0:
            place = exp.Neg(this=exp.Literal.number(-number - 1))
        return _fill_template("try_element_at(x, y)", node.this, place) if number + 1 else exp.Null()
    return _fill_template("try_element_at(x, y)", node.this, key)


def _round_fraction(node: "Expr", dialect: str) -> "Expr":
    """A conversion into an integer that rounds, as Spark's does not. Spark's optimizer removes the other branches."""
    from sqlglot import exp

    value, kind = node.this, node.args["to"].this.name
    whole = (exp.Literal, exp.Count, exp.Length, exp.Extract, exp.DateDiff, exp.Predicate, exp.RowNumber, exp.Boolean)
    is_text = isinstance(value, exp.Cast) and value.to.this.name in (*_INTEGERS, "TEXT", "VARCHAR", "DATE", "BOOLEAN")
    if is_text or (isinstance(value, whole) and not (isinstance(value, exp.Literal) and value.is_number)):
        return node
    convert = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    function = "rint" if dialect in _ROUNDS_TO_EVEN else "round"
    return _fill_template(
        f"CASE WHEN typeof(x) IN ('double', 'float') THEN {convert}({function}(CAST(CAST(x AS STRING) AS DOUBLE)) AS "
        f"{kind}) WHEN typeof(x) LIKE 'decimal%' THEN {convert}(round(CAST(CAST(x AS STRING) AS DECIMAL(38, 10))) AS "
        f"{kind}) ELSE {convert}(x AS {kind}) END",
        value,
    )


def refusal_of(tree: "Expr", dialect: str) -> str:
    """The first construct of a statement that Spark has not, with its remedy; empty if there is none."""
    return next((reason for node in tree.walk() for reason in _refusals(node, dialect)), "")


def _refusals(node: "Expr", dialect: str) -> Iterator[str]:
    from sqlglot import exp

    for kinds, is_refused, construct, remedy in _rules():
        if isinstance(node, kinds) and is_refused(node, dialect):
            yield f"{construct} of {dialect} has no counterpart in Spark's SQL: {remedy}"
    if isinstance(node, exp.Anonymous) and (why := _CALLS.get(node.name.lower())) is not None:
        yield f"{node.name} of {dialect}: {why}"


_Rule = tuple[type | tuple[type, ...], Callable[["Expr", str], bool], str, str]


def _rules() -> list[_Rule]:
    """Kinds of nodes, when they are refused, the construct, and the remedy."""
    from sqlglot import exp

    def always(_: "Expr", __: str) -> bool:
        return True

    def has(*names: str) -> Callable[["Expr", str], bool]:
        return lambda node, _: any(node.args.get(name) for name in names)

    def joins(method: str) -> Callable[["Expr", str], bool]:
        return lambda node, _: str(node.args.get("method") or "").upper() == method

    def is_ordered(node: "Expr", _: str) -> bool:
        return isinstance(node.this, exp.Order) or isinstance(node.parent, exp.WithinGroup)

    def takes_null(node: "Expr", dialect: str) -> bool:
        has_parts = isinstance(node.parent, exp.Filter | exp.Window) or isinstance(node.this, exp.Distinct)
        return dialect in _LISTS_NULL and has_parts

    def is_descending(node: "Expr", _: str) -> bool:
        order = node.expression
        is_one = isinstance(order, exp.Order) and len(order.expressions) == 1
        is_share = isinstance(node.this, exp.PercentileCont)
        return is_share and not (is_one and not order.expressions[0].args.get("desc"))

    def subtracts_unknown(node: "Expr", dialect: str) -> bool:
        both = (node.this, node.expression)
        others = [one for one in both if not _is_date(one) and not isinstance(one, exp.Interval | exp.Literal)]
        return dialect in _SUNDAY_IS_0 and len(others) == 1 and any(map(_is_date, both))

    def counts_weeks(node: "Expr", dialect: str) -> bool:
        return dialect == "duckdb" and str(node.args.get("unit")).upper() == "WEEK"

    def has_place(node: "Expr", dialect: str) -> bool:
        return dialect == "duckdb" and len(node.expressions) > 1

    def joins_arrays(node: "Expr", _: str) -> bool:
        rows = node.this.this if isinstance(node.this, exp.Lateral) else node.this
        return isinstance(rows, exp.Unnest | exp.Explode) and bool(node.args.get("side"))

    def lists_twice(node: "Expr", _: str) -> bool:
        lists = [n for e in node.expressions for n in e.find_all(exp.Unnest, exp.Explode) if n.parent_select is node]
        return len(lists) > 1

    def is_below(name: str, least: int) -> Callable[["Expr", str], bool]:
        def check(node: "Expr", dialect: str) -> bool:
            value = node.args.get(name)
            return dialect in _FROM_POSITION_0 and value is not None and value.is_int and int(value.to_py()) < least

        return check

    def truncates(node: "Expr", _: str) -> bool:
        return bool(node.args.get("typed")) and not any(map(_is_fraction, (node.this, node.expression)))

    def is_plain_decimal(node: "Expr", dialect: str) -> bool:
        return node.this.name == "DECIMAL" and not node.expressions and dialect not in ("databricks", "spark", "hive")

    quantile = "write percentile_cont(share) WITHIN GROUP (ORDER BY x)"
    order = "Spark's lists have no order and skip NULL. Write string_agg, or sort the list by its elements"
    columns = "write the columns by name"
    return [
        (exp.Join, joins("ASOF"), "ASOF JOIN", "join by the key and the times, and select the latest row by QUALIFY"),
        (exp.Join, joins("POSITIONAL"), "POSITIONAL JOIN", "number the rows by row_number(), and join by the number"),
        (exp.Join, joins_arrays, "an outer join with an array", "add the rows without elements by UNION ALL"),
        (exp.Pivot, has("using"), "PIVOT … ON", "write FROM t PIVOT (sum(n) FOR key IN (value, …))"),
        (exp.Pivot, has("into"), "UNPIVOT … ON", "write FROM t UNPIVOT (value FOR name IN (column, …))"),
        (exp.Pivot, lambda n, _: not n.args.get("fields"), "PIVOT … ON", "write PIVOT (… FOR key IN (…))"),
        (exp.Lambda, has_place, "a lambda with the place of the element", "unnest the list"),
        (exp.Slice, always, "a slice [a:b]", "write substring(text, start, length), or unnest the list"),
        (exp.Columns, always, "COLUMNS(…)", columns),
        (exp.Star, has("replace", "replace_"), "* REPLACE", f"{columns}, or * EXCEPT (a), a + 1 AS a"),
        (exp.Star, has("rename"), "* RENAME", columns),
        (exp.SetOperation, has("by_name"), "UNION BY NAME", "write the columns of both SELECTs in one order"),
        (exp.Limit, has("limit_options"), "LIMIT with PERCENT or WITH TIES", "compare a rank() by QUALIFY"),
        (exp.TableSample, always, "a sample", "its rows differ in each run. Select rows by a hash of their key"),
        (exp.ToMap, always, "MAP {…}", "write map([key, …], [value, …])"),
        ((exp.Glob, exp.SimilarTo), always, "GLOB or SIMILAR TO", "write regexp_matches(text, pattern), or LIKE"),
        (exp.All, always, "a comparison with ALL", "compare with a max or min"),
        (exp.ArrayContainsAll, always, "@>", "write list_contains for each element"),
        (exp.ArrayOverlaps, lambda _, d: d == "duckdb", "list_has_any", "write list_contains for each element"),
        ((exp.First, exp.Last, exp.AnyValue, exp.Max, exp.Min, exp.Sum), is_ordered, "ORDER BY in an aggregate",
         "write min_by(value, key) or max_by(value, key)"),
        (exp.ArrayAgg, is_ordered, "array_agg with ORDER BY", order),
        (exp.ArrayAgg, takes_null, "array_agg (list) with FILTER, DISTINCT or OVER", order),
        (exp.WindowSpec, lambda n, _: n.args.get("kind") == "GROUPS", "a frame of GROUPS", "write RANGE over a rank"),
        (exp.AtTimeZone, always, "AT TIME ZONE", "sources have times of UTC. Add the offset as an INTERVAL"),
        (exp.DataType, lambda n, _: n.this.name in _NO_TYPES, "a type for times of day or large integers",
         "write a timestamp, bigint or decimal(38, 0)"),
        (exp.DataType, is_plain_decimal, "NUMERIC without digits", "write numeric(38, 10), or double precision"),
        (exp.WithinGroup, is_descending, "percentile_cont of a descending order", "write 1 - share, and ascending"),
        (exp.PercentileDisc, always, "percentile_disc, which sqlglot makes an approximation", quantile),
        (exp.Quantile, lambda _, d: d == "duckdb", "quantile (quantile_disc)", quantile),
        (exp.RegexpReplace, lambda n, _: bool(n.args.get("single_replace")) and "g" not in _modifiers(n),
         "regexp_replace of the first match", "add the option 'g' to replace all, or write regexp_extract and concat"),
        (exp.Format, always, "format", "write concat(…)"),
        (exp.Typeof, always, "typeof", "types have other names in Spark. Write the condition without it"),
        (exp.Substring, is_below("start", 1), "substring from before the first character", "begin at 1"),
        ((exp.Left, exp.Right), is_below("expression", 0), "left or right of a negative length",
         "write substring(text, start, length)"),
        (exp.Flatten, lambda _, d: d == "duckdb", "flatten", "an empty or NULL list counts there. Filter NULL first"),
        (exp.ArrayConcat, lambda n, _: n.args.get("null_propagation") is False, "list_concat",
         "a NULL list counts as empty there. Write a || b with coalesce"),
        (exp.Split, lambda n, _: n.expression.is_string and not n.expression.name, "a split by ''", "split by a text"),
        ((exp.Greatest, exp.Least), lambda n, _: n.args.get("ignore_nulls") is False, "greatest or least of NULL",
         "Spark ignores NULL. Write CASE WHEN a > b THEN a WHEN a <= b THEN b END"),
        (exp.Sub, subtracts_unknown, "a difference with a date", "write date_diff, or subtract an INTERVAL"),
        (exp.DateDiff, counts_weeks, "date_diff of weeks", "write date_diff('day', a, b) // 7"),
        (exp.Collate, always, "COLLATE", "compare lower(text)"),
        (exp.Div, truncates, "a division that truncates integers", "write CAST(a AS double) / b"),
        (exp.Select, lists_twice, "two lists of rows in one SELECT", "unnest one, or join them by their places"),
    ]  # fmt: skip


def _modifiers(node: "Expr") -> str:
    options = node.args.get("modifiers")
    return "" if options is None else str(options.name)


def _is_fraction(node: "Expr") -> bool:
    """Whether an operand of a division is no integer, by its text."""
    from sqlglot import exp

    node = node.unnest()
    if isinstance(node, exp.Cast):
        return node.to.this.name in ("DECIMAL", "DOUBLE", "FLOAT")
    if isinstance(node, exp.Literal):
        return node.is_number and not node.is_int
    if isinstance(node, exp.Mul | exp.Div | exp.Add | exp.Sub):
        return _is_fraction(node.this) or _is_fraction(node.expression)
    if isinstance(node, exp.Nullif | exp.Coalesce | exp.Sum | exp.Round):
        return _is_fraction(node.this)
    return isinstance(node, exp.Avg | exp.Sqrt | exp.Ln | exp.Log | exp.Exp)
