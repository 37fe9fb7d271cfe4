"""What a statement passes before it enters the log: every expression has a kernel, every aggregate an executor, every option a meaning."""

from collections.abc import Iterator

from jobs.kernels.render import check
from jobs.sources.spark_reader import check_options
from jobs.sql import logical
from jobs.sql.errors import UnsupportedQueryError
from jobs.sql.statements import CreateSource, CreateView, Delete, Statement, Update

AGGREGATES = ("Count", "Sum", "Average", "Min", "Max")


def check_statement(statement: Statement) -> None:
    """Refuse what could not be maintained. Raises UnsupportedExpressionError and other InputErrors with the place in the user's text."""
    match statement:
        case CreateView():
            check_plan(statement.plan)
        case CreateSource() if statement.format != "parquet":
            check_options(statement)
        case Update():
            for _, value in statement.assignments:
                check(value)
            if statement.where is not None:
                check(statement.where)
        case Delete() if statement.where is not None:
            check(statement.where)
        case _:
            pass


def check_plan(plan: logical.Plan) -> None:
    """Refuse a query one of whose expressions or aggregates is not on the tested list."""
    match plan:
        case logical.Scan():
            return
        case logical.Join():
            check_plan(plan.left)
            check_plan(plan.right)
        case _:
            check_plan(plan.input)
    for expr in _expressions(plan):
        check(expr)
    if isinstance(plan, logical.Aggregate):
        for call in plan.calls:
            if call.mode == "TRY" or call.distinct or call.function not in AGGREGATES:
                name = f"{'try_' if call.mode == 'TRY' else ''}{call.function.lower()}{' distinct' if call.distinct else ''}"
                raise UnsupportedQueryError(name, f"aggregates of views are {', '.join(AGGREGATES).lower()}", call.place)


def _expressions(plan: logical.Plan) -> Iterator[logical.Expr]:
    match plan:
        case logical.Project():
            yield from plan.exprs
        case logical.Filter():
            yield plan.condition
        case logical.Join():
            yield from (*plan.left_keys, *plan.right_keys)
            if plan.condition is not None:
                yield plan.condition
        case logical.Aggregate():
            yield from plan.keys
            for call in plan.calls:
                yield from call.args
                if call.filter is not None:
                    yield call.filter
        case logical.TopN():
            yield from (key.expr for key in plan.order)
        case logical.Scan():
            pass
