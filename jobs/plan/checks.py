"""The checks of a statement before it enters the log, also used by CREATE and EXPLAIN.

Every expression needs a kernel, every aggregate an executor, every option a meaning, and every state table a layout.
"""

from tussock.jobs.kernels.render import check
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical.expression_tree import calls_of_spark, with_spark_calls
from tussock.jobs.logical.statements import CreateSource, CreateView, Delete, Statement, Transaction, Update
from tussock.jobs.plan.apply import apply_statement
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.table.schema import row_schema


def admitted(catalog: Catalog, statement: Statement, epoch: int) -> Catalog:
    """The catalog after a statement that is valid for the log.

    Raises: UnsupportedExpressionError, UnsupportedQueryError, UnsupportedTypeError and other InputErrors, with the
        place in the user's text if it is known.
    """
    check_statement(statement)
    after = apply_statement(catalog, statement, epoch)
    check_tables(catalog, after)
    return after


def check_tables(before: Catalog, after: Catalog) -> None:
    """Check that the rows of new relations can be stored. Raises UnsupportedTypeError."""
    for relation in after.relations:
        if relation.id >= before.next_relation_id:
            for table in relation.state_tables:
                row_schema(table)


def check_statement(statement: Statement) -> None:
    """Check that a statement can be maintained.

    Raises: UnsupportedExpressionError and other InputErrors, with the place in the user's text.
    """
    match statement:
        case Transaction(statements):
            for part in statements:
                check_statement(part)
        case CreateView():
            check_plan(statement.plan)
        case CreateSource():
            reader_of(statement).check(statement)
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
    """Check that every expression and aggregate of a query is on the tested list."""
    for below in plan.inputs:
        check_plan(below)
    for expr in plan.expressions:
        check(with_spark_calls(expr, lambda call: logical.Column(0, call.type)))
        for by_spark in calls_of_spark(expr):
            for arg in by_spark.args:
                check(arg)
