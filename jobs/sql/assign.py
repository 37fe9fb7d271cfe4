"""The values that a statement may store in a table's column, castable literals, and defaults.

A text *literal* ('2024-01-01', '1.5') is accepted if Spark can cast it to the column's type. Other values follow
Spark's ANSI store assignment.
"""

from collections.abc import Sequence

from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException

from tussock.jobs.logical.errors import SqlError, sql_error
from tussock.jobs.logical.nodes import Field, Literal
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateTable, Default
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.sandbox import Sandbox, column_of, items, seq_of


def assignments_of(
    walk: ExpressionWalk, table: CreateTable, assignments: JavaObject
) -> tuple[list[int], list[JavaObject]]:
    """The columns that a SET (or the INSERT of a MERGE) names, and their values (Catalyst's, unresolved).

    Raises SqlError.
    """
    columns: list[int] = []
    values: list[JavaObject] = []
    for assignment in items(assignments):
        column = column_named(walk, table, assignment.key())
        if column in columns:
            raise at_node(walk, assignment.key(), f"column {table.fields[column].name!r} is set twice")
        columns.append(column)
        values.append(
            default_expression(walk.sandbox, table, column) if is_default(assignment.value()) else assignment.value()
        )
    return columns, values


def check_value(
    walk: ExpressionWalk, value: JavaObject, value_type: JavaObject, table: CreateTable, column: int
) -> None:
    """Raises SqlError unless a value of type `value_type` (JVM) may be stored in the column."""
    if not (value_type.catalogString() == "string" and value.productPrefix() == "Literal"):
        check_assignable(walk.sandbox, walk.source, begin_of(walk, value) or 0, value_type, table, column)


def require_boolean(walk: ExpressionWalk, condition: JavaObject, condition_type: JavaObject) -> None:
    """Raises SqlError unless the condition is boolean."""
    if condition_type.catalogString() != "boolean":
        raise at_node(walk, condition, f"the condition is of type {condition_type.catalogString()}; expected boolean")


def has_subquery(sandbox: Sandbox, expr: JavaObject) -> bool:
    """Whether an expression contains a subquery."""
    return bool(expr.containsPattern(sandbox.tree_pattern("PLAN_EXPRESSION")))


def begin_of(walk: ExpressionWalk, node: JavaObject) -> int | None:
    """The offset of a node in the text."""
    span = walk.span_of(node)
    return None if span is None else span[0]


def at_node(walk: ExpressionWalk, node: JavaObject, reason: str) -> SqlError:
    """A SqlError at the place of a node."""
    begin = begin_of(walk, node)
    return SqlError(reason) if begin is None else sql_error(walk.source, begin, reason)


def unfit_value(source: SourceText, table: CreateTable, column: int, shown: str, offset: int | None) -> SqlError:
    """The error for a value that its column's type cannot hold."""
    field = table.fields[column]
    reason = (
        f"column {field.name!r} of table {table.name!r} is {field.type} and cannot hold {shown}; nothing was changed"
    )
    return SqlError(reason) if offset is None else sql_error(source, offset, reason)


def check_assignable(
    sandbox: Sandbox, source: SourceText, offset: int, value_type: JavaObject, table: CreateTable, column: int
) -> None:
    """Raises SqlError unless Spark would store a value of this type in the column (ANSI store assignment)."""
    spec = table.fields[column]
    wanted = sandbox.data_type(spec.type)
    if not sandbox.java("org.apache.spark.sql.catalyst.expressions.Cast").canANSIStoreAssign(value_type, wanted):
        value_name = name_of_type(value_type)
        raise sql_error(
            source,
            offset,
            f"column {spec.name!r} of table {table.name!r} is {spec.type} and does not accept {value_name}; cast it "
            "explicitly",
        )


def column_named(walk: ExpressionWalk, table: CreateTable, key: JavaObject) -> int:
    """The table's column that an assignment sets. Raises SqlError."""
    name = list(items(key.nameParts()))[-1] if key.productPrefix() == "UnresolvedAttribute" else key.toString()
    for i, column in enumerate(table.fields):
        if column.name.lower() == str(name).lower():
            return i
    raise at_node(
        walk,
        key,
        f"table {table.name!r} has no column {name!r}; its columns: {', '.join(c.name for c in table.fields)}",
    )


def default_of(sandbox: Sandbox, source: SourceText, offset: int, column: int, field: Field, sql: str) -> Default:
    """A column's DEFAULT. Raises SqlError if it reads rows or does not have the column's type."""
    what = f"the default of column {field.name!r}"
    inner = SourceText(sql)
    try:
        with translating_errors(inner):
            expr = sandbox.parser().parseExpression(sql)
            if has_subquery(sandbox, expr):
                raise sql_error(source, offset, f"{what} is a subquery; a default may not read rows")
            nothing = sandbox.session._jsparkSession.emptyDataFrame()
            raw = nothing.select(seq_of(sandbox, [column_of(sandbox, expr).alias("c")]))
            value = next(items(raw.queryExecution().analyzed().projectList())).child()
            table = CreateTable("new", (field,), ())
            kind = sandbox.data_type(field.type)
            if not (_is_text(expr) or _fits_as_default(sandbox, value, field, sql)):
                check_assignable(sandbox, source, offset, value.dataType(), table, 0)
            cast = nothing.select(seq_of(sandbox, [column_of(sandbox, expr).cast(kind).alias("c")])).queryExecution()
            current = sandbox.tree_pattern("CURRENT_LIKE")
            if cast.analyzed().containsPattern(current) or not cast.analyzed().deterministic():
                return Default(column, sql, None)
            folded = next(items(cast.optimizedPlan().projectList())).child()
            if folded.productPrefix() != "Literal":
                raise unfit_value(source, table, 0, sql, offset)
            constant = ExpressionWalk(sandbox, inner).expression(folded, {})
    except SqlError as err:
        if err.place is not None and err.excerpt == source.line_with_caret(offset):
            raise
        raise sql_error(source, offset, f"{what}: {err.reason}") from err
    assert isinstance(constant, Literal)
    return Default(column, sql, constant)


def _fits_as_default(sandbox: Sandbox, value: JavaObject, field: Field, sql: str) -> bool:
    """Whether Spark accepts an analyzed expression as a DEFAULT.

    It accepts more than in INSERT, e.g. intervals of other units.
    """
    defaults = sandbox.java("org.apache.spark.sql.catalyst.util.ResolveDefaultColumns")
    try:
        defaults.coerceDefaultValue(value, sandbox.data_type(field.type), "CREATE TABLE", field.name, sql)
    except PySparkException:
        return False
    return True


def values_of_table(walk: ExpressionWalk, query: JavaObject, table: CreateTable, named: Sequence[str]) -> JavaObject:
    """The query of an INSERT with VALUES made typeable.

    Each DEFAULT is replaced by the column's default. A text in a column with other values as well is cast to the
    column's type, because Spark finds no common type for them.

    Raises: SqlError if a column cannot hold a text.
    Cost: round trips to the JVM for each value, if DEFAULT or mixed values occur.
    """
    sandbox, source = walk.sandbox, walk.source
    if query.productPrefix() != "UnresolvedInlineTable":
        return query
    has_default = any(t.text.upper() == "DEFAULT" for t in tokens_of(source) if t.start >= source.begin)
    if not has_default and not _lacks_common_type(sandbox, source, query):
        return query
    index = {f.name.lower(): i for i, f in enumerate(table.fields)}
    columns = [index.get(n.lower()) for n in named] or list(range(len(table.fields)))
    texts: list[tuple[JavaObject, int]] = []
    rows = []
    for row in items(query.rows()):
        cells = list(items(row))
        for i, (cell, column) in enumerate(zip(cells, columns, strict=False)):
            if column is None:
                continue
            kind = table.fields[column].type
            if is_default(cell):
                cells[i] = default_expression(sandbox, table, column)
            elif kind != "string" and _is_text(cell):
                texts.append((cell, column))
                cells[i] = sandbox.parser().parseExpression(f"CAST({cell.sql()} AS {kind})")
        rows.append(seq_of(sandbox, cells))
    if (bad := first_unfit(sandbox, [cell for cell, _ in texts], [table.fields[c].type for _, c in texts])) is not None:
        cell, column = texts[bad]
        raise unfit_value(source, table, column, shown_literal(cell), begin_of(walk, cell))
    inline = sandbox.java("org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable")
    return inline(query.names(), seq_of(sandbox, rows))


def first_unfit(sandbox: Sandbox, values: Sequence[JavaObject], kinds: Sequence[str]) -> int | None:
    """The index of the first text among values (JVM expressions) that cannot be cast to its type."""
    places = [i for i, value in enumerate(values) if _is_text(value)]
    if not places:
        return None
    casts = [column_of(sandbox, values[i]).try_cast(sandbox.data_type(kinds[i])).alias(f"c{i}") for i in places]
    tried = (
        sandbox.session._jsparkSession.emptyDataFrame().select(seq_of(sandbox, casts)).queryExecution().optimizedPlan()
    )
    folded = (named.child() for named in items(tried.projectList()))
    return next(
        (
            i
            for i, cast in zip(places, folded, strict=True)
            if cast.productPrefix() == "Literal" and cast.value() is None
        ),
        None,
    )


def _lacks_common_type(sandbox: Sandbox, source: SourceText, query: JavaObject) -> bool:
    try:
        sandbox.analyze(source, query)
    except SqlError as err:
        return "INCOMPATIBLE_TYPES_IN_INLINE_TABLE" in err.reason
    return False


def _is_text(expr: JavaObject) -> bool:
    return bool(expr.productPrefix() == "Literal" and expr.dataType().catalogString() == "string")


def is_default(expr: JavaObject) -> bool:
    return expr.productPrefix() == "UnresolvedAttribute" and [str(p).upper() for p in items(expr.nameParts())] == [
        "DEFAULT"
    ]


def default_expression(sandbox: Sandbox, table: CreateTable, column: int) -> JavaObject:
    """The default of a column as an expression of the column's type."""
    return sandbox.parser().parseExpression(f"CAST({default_sql(table, column)} AS {table.fields[column].type})")


def default_sql(table: CreateTable, column: int) -> str:
    """The default of a column as SQL, NULL if it has none."""
    return next((f"({d.sql})" for d in table.defaults if d.column == column), "NULL")


def gives_literals(query: JavaObject, column: int) -> bool:
    """Whether every value of a query's column is a literal. Cost: round trips to the JVM for each of them."""
    match query.productPrefix():
        case "UnresolvedInlineTable":
            return all(row.apply(column).productPrefix() == "Literal" for row in items(query.rows()))
        case "Project":
            exprs = list(items(query.projectList()))
            if column >= len(exprs) or any(_is_star(e) for e in exprs):
                return False
            expr = exprs[column]
            while expr.productPrefix() in ("Alias", "UnresolvedAlias"):
                expr = expr.child()
            return bool(expr.productPrefix() == "Literal")
        case "Union":
            return all(gives_literals(below, column) for below in items(query.children()))
        case _:
            return False


def _is_star(expr: JavaObject) -> bool:
    return "Star" in (expr.child() if expr.productPrefix() == "UnresolvedAlias" else expr).productPrefix()


def cell_offset(walk: ExpressionWalk, query: JavaObject, row: int, column: int) -> int | None:
    """The offset of a value of INSERT … VALUES in the text."""
    if query.productPrefix() != "UnresolvedInlineTable":
        return None
    return begin_of(walk, query.rows().apply(row).apply(column))


def shown_literal(literal: JavaObject) -> str:
    """A literal as text for a message."""
    return repr(str(literal.toString())) if literal.dataType().catalogString() == "string" else str(literal.toString())
