"""The checks of a statement before it enters the log, also used by CREATE and EXPLAIN.

Every expression needs a kernel, every aggregate an executor, every option a meaning, and every state table a layout.
The kernels of a new relation are computed over no rows, so that no epoch meets a query that DuckDB refuses.
"""

from collections.abc import Sequence

from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.catalog.definition import ViewDefinition, definition_of
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.kernels.render import require_renderable
from tussock.jobs.logical import nodes as logical
from tussock.jobs.logical.expression_tree import calls_of_spark, with_spark_calls
from tussock.jobs.logical.statements import CreateSource, CreateView, Delete, Statement, Transaction, Update
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.catalog import Catalog, Relation
from tussock.statestore.table.schema import row_schema


def admit_statement(catalog: Catalog, statement: Statement, epoch: int) -> Catalog:
    """The catalog after a statement that is valid for the log.

    Raises: UnsupportedExpressionError, UnsupportedQueryError, UnsupportedTypeError and other InputErrors, with the
        place in the user's text if it is known.
    """
    check_statement(statement)
    after = apply_statement(catalog, statement, epoch)
    check_relations(catalog, after)
    return after


def check_relations(before: Catalog, after: Catalog) -> None:
    """Check that the rows of new relations can be stored, and that their kernels can be computed.

    Raises: UnsupportedTypeError, UnsupportedExpressionError.
    """
    for relation in after.relations:
        if relation.id >= before.next_relation_id:
            _check_relation(relation)


def _check_relation(relation: Relation) -> None:
    for table in relation.state_tables:
        row_schema(table)
    definition = definition_of(relation)
    if isinstance(definition, ViewDefinition):
        for operator in (o for fragment in definition.fragments for o in fragment.operators):
            operator.node.dry_run(thread_kernel())


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
            if statement.keyed is not None and statement.keyed.delete_when is not None:
                _check_kernels([statement.keyed.delete_when])
        case Update():
            _check_kernels([value for _, value in statement.assignments])
            _check_kernels([] if statement.where is None else [statement.where])
        case Delete() if statement.where is not None:
            _check_kernels([statement.where])
        case _:
            pass


def _check_kernels(exprs: Sequence[logical.Expr]) -> None:
    for expr in exprs:
        require_renderable(expr)
    thread_kernel().dry_run(exprs)


def check_plan(plan: logical.Plan) -> None:
    """Check that every expression and aggregate of a query is on the tested list."""
    for below in plan.inputs:
        check_plan(below)
    for expr in plan.expressions:
        require_renderable(with_spark_calls(expr, lambda call: logical.Column(0, call.type)))
        for by_spark in calls_of_spark(expr):
            for arg in by_spark.args:
                require_renderable(arg)
