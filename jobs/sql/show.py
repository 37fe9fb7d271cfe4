"""Plans and expressions as stable text, one line per node: for EXPLAIN, case files and people.

python -m tussock.jobs.sql.show "SELECT a, try_cast(b AS INT) + 1 AS x FROM t" --relation "t (a INT, b STRING)"
"""

import argparse
from collections.abc import Sequence
from typing import assert_never

from tussock.jobs.logical.nodes import (
    AggCall,
    Aggregate,
    Column,
    Expand,
    Expr,
    Field,
    Filter,
    FrameBound,
    FrameEdge,
    Generate,
    Join,
    Literal,
    Physical,
    Plan,
    Project,
    Range,
    Scan,
    SingleRow,
    Sort,
    SortKey,
    TemporalFilter,
    TopN,
    Union,
    Values,
    Window,
    WindowCall,
)

_SHOWN_ROWS = 8  # per list of VALUES
_SHOWN_CHARACTERS = 60  # per constant


def show_plan(plan: Plan) -> str:
    """A plan as an indented tree, inputs below.

    Equal plans have equal texts. Columns are `name#index` of the node's input.
    """
    return "\n".join(_plan_lines(plan, 0))


def show_expr(expr: Expr, names: Sequence[str] = ()) -> str:
    """An expression as `Node[MODE param=value](args):type`.

    The types of booleans and of int and string literals are omitted.
    """
    if isinstance(expr, Column):
        return f"{names[expr.index]}#{expr.index}" if expr.index < len(names) else f"#{expr.index}"
    if isinstance(expr, Literal):
        value = "NULL" if expr.value is None else repr(expr.value) if expr.type == "string" else str(expr.value).lower()
        return value if expr.type in ("string", "boolean", "int") else f"{value}:{expr.type}"
    args = ", ".join(show_expr(a, names) for a in expr.args)
    notes = [f"{expr.mode}"] if expr.mode is not None else []
    notes += [f"{k}={v}" for k, v in expr.params]
    suffix = f"[{' '.join(notes)}]" if notes else ""
    return f"{expr.node}{suffix}({args})" + ("" if expr.type == "boolean" else f":{expr.type}")


def _plan_lines(plan: Plan, depth: int) -> list[str]:
    """The node's line, indented by its depth, then the lines of its inputs."""
    below = (line for input in plan.inputs for line in _plan_lines(input, depth + 1))
    return [f"{'  ' * depth}{_node_text(plan)}", *below]


def _node_text(plan: Plan) -> str:
    names = [name for input in plan.inputs for name in _field_names(input)]
    match plan:
        case Scan():
            return f"Scan {plan.relation} [{', '.join(f'{f.name}:{f.type}' for f in plan.fields)}]"
        case Values():
            return f"Values rows={plan.rows} [{', '.join(map(_column_of_constants, plan.fields, plan.columns))}]"
        case Range():
            return f"Range {plan.fields[0].name} from {plan.start} to {plan.end} by {plan.step}"
        case Project():
            columns = zip(plan.exprs, plan.fields, strict=True)
            return f"Project [{', '.join(f'{f.name} = {show_expr(e, names)}' for e, f in columns)}]"
        case Expand():
            rows = ", ".join(f"[{', '.join(show_expr(e, names) for e in p)}]" for p in plan.projections)
            return f"Expand [{', '.join(_field_names(plan))}] = {rows}"
        case Generate():
            new_columns = ", ".join(f"{f.name}:{f.type}" for f in plan.made)
            outer = " outer" if plan.outer else ""
            return f"Generate [{new_columns}] = {plan.generator}{outer}({show_expr(plan.argument, names)})"
        case Filter():
            return f"Filter {show_expr(plan.condition, names)}"
        case TemporalFilter():
            bound = show_expr(plan.bound, ["moment"])
            forgets = " forgets" if plan.forgets else ""
            return f"TemporalFilter {show_expr(plan.value, names)} {plan.comparison.sql} {bound}{forgets}"
        case Aggregate():
            keys = ", ".join(show_expr(k, names) for k in plan.keys)
            return f"Aggregate keys=[{keys}] calls=[{', '.join(_show_call(c, names) for c in plan.calls)}]"
        case Join():
            left, right = _field_names(plan.left), _field_names(plan.right)
            pairs = zip(plan.left_keys, plan.right_keys, plan.null_safe, strict=True)
            keys = ", ".join(
                f"{show_expr(a, left)} {'<=>' if safe else '='} {show_expr(b, right)}" for a, b, safe in pairs
            )
            where = "" if plan.condition is None else f" where {show_expr(plan.condition, names)}"
            return f"Join {plan.kind} on [{keys}]{where}"
        case SingleRow():
            return "SingleRow"
        case Union():
            return "Union all"
        case TopN():
            limit = "none" if plan.limit is None else plan.limit
            return f"TopN order=[{_order_text(plan.order, names)}] limit={limit} offset={plan.offset}"
        case Sort():
            return f"Sort order=[{_order_text(plan.order, names)}]"
        case Window():
            keys = ", ".join(show_expr(k, names) for k in plan.partition)
            calls = ", ".join(_show_over(c, names) for c in plan.calls)
            return f"Window partition=[{keys}] order=[{_order_text(plan.order, names)}] calls=[{calls}]"
        case _:
            assert_never(plan)


def _column_of_constants(field: Field, column: Sequence[Physical]) -> str:
    shown = ["NULL" if value is None else str(value) for value in column[:_SHOWN_ROWS]]
    return f"{field.name}:{field.type} = ({', '.join(shown)}{', …' if len(column) > _SHOWN_ROWS else ''})"


def _show_over(call: WindowCall, names: Sequence[str]) -> str:
    args = ", ".join(show_expr(a, names) for a in call.args)
    notes = "".join(
        (
            f" number={call.number}" if call.number else "",
            " ignore nulls" if call.ignore_nulls else "",
            f" order by [{_order_text(call.order, names)}]" if call.order else "",
            "" if call.filter is None else f" where {show_expr(call.filter, names)}",
        )
    )
    mode = "" if call.mode is None else f"[{call.mode}]"
    frame = f"{_show_bound(call.frame.lower, names)}..{_show_bound(call.frame.upper, names)}"
    return f"{call.function}{mode}({args}):{call.type}{notes} over {'rows' if call.frame.by_rows else 'range'} {frame}"


def _show_bound(bound: FrameBound, names: Sequence[str]) -> str:
    if bound.edge is not FrameEdge.OFFSET:
        return str(bound.edge)
    return f"{bound.rows:+d}" if bound.value is None else show_expr(bound.value, names)


def _field_names(plan: Plan) -> list[str]:
    return [f.name for f in plan.fields]


def _show_call(call: AggCall, names: Sequence[str]) -> str:
    args = ", ".join(show_expr(a, names) for a in call.args) or "*"
    mode = "" if call.mode is None else f"[{call.mode}]"
    distinct = "distinct " if call.distinct else ""
    params = "".join(f" {name}={value if len(value) <= _SHOWN_CHARACTERS else '…'}" for name, value in call.params)
    order = f" order by [{_order_text(call.order, names)}]" if call.order else ""
    where = "" if call.filter is None else f" where {show_expr(call.filter, names)}"
    return f"{call.function}{mode}({distinct}{args}{params}{order}):{call.type}{where}"


def _order_text(keys: Sequence[SortKey], names: Sequence[str]) -> str:
    return ", ".join(
        f"{show_expr(k.expr, names)} {'desc' if k.descending else 'asc'} nulls {'last' if k.nulls_last else 'first'}"
        for k in keys
    )


def main() -> None:
    """Bind queries over relations given on the command line, and print their plans."""
    from tussock.jobs.logical.source_text import SourceText
    from tussock.jobs.spark.session import build_spark
    from tussock.jobs.sql.catalyst import bind_view, relation_of_ddl
    from tussock.jobs.sql.sandbox import Sandbox

    default = (
        "t (a INT, b STRING, c DOUBLE, d DECIMAL(10,2), ts TIMESTAMP, dt DATE, l BIGINT, n TIMESTAMP_NTZ, bin "
        "BINARY, f FLOAT, bo BOOLEAN)"
    )
    parser = argparse.ArgumentParser(description="Print the bound logical plans of SELECTs.")
    parser.add_argument("sql", nargs="+", help="a SELECT")
    parser.add_argument(
        "--relation",
        action="append",
        default=[],
        help=f"name (columns); default: {default} and u (a BIGINT, b STRING)",
    )
    parser.add_argument("--time-zone", default="UTC")
    options = parser.parse_args()
    spark = build_spark("show", master="local[1]", settings={"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    texts = options.relation or [default, "u (a BIGINT, b STRING)"]
    sandbox = Sandbox(spark, [relation_of_ddl(i, text) for i, text in enumerate(texts, 1)], options.time_zone)
    for sql in options.sql:
        print(f"-- {sql}")
        try:
            print(show_plan(bind_view(sandbox, SourceText(sql))))
        except Exception as err:  # a process edge: show it and continue with the next query
            print(f"{type(err).__name__}: {err}")
    spark.stop()


if __name__ == "__main__":
    main()
