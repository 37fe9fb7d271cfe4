"""INSERT, UPDATE and DELETE: Spark reads and types them, with its own store-assignment rules; rows and expressions come out bound."""

from collections.abc import Sequence

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from jobs.sql.catalyst import bind_projection
from jobs.sql.errors import SqlError, sql_error, translated
from jobs.sql.expressions import ExpressionWalk
from jobs.sql.grammar import Cursor
from jobs.sql.key_columns import require_keys
from jobs.sql.logical import Expr, Field, Literal
from jobs.sql.sandbox import Sandbox, items, key_of_table
from jobs.sql.source_text import SourceText
from jobs.sql.statements import BoundInsert, BoundInsertSelect, Delete, Update
from jobs.sql.type_names import name_of_type
from statestore.meta.catalog import Relation
from statestore.types import arrow_type


def bind_insert(sandbox: Sandbox, source: SourceText) -> BoundInsert | BoundInsertSelect:
    """An INSERT statement.

    Constants (now() included) and rows of files (FROM parquet.`path`) are evaluated at once; a SELECT over relations is left to the caller.

    Raises SqlError (syntax, names, number and types of columns), NullKeyError.
    """
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("INSERT")
    if parsed.productPrefix() != "InsertIntoStatement" or parsed.overwrite() or not cursor.accept("INTO"):
        raise cursor.error("expected INSERT INTO table")
    cursor.accept("TABLE")
    table = _table(sandbox, cursor)
    named = [str(c) for c in items(parsed.userSpecifiedCols())]
    if named:
        cursor.expect("(")
        cursor.close()
    elif parsed.byName():
        cursor.expect("BY", "NAME")
    if not parsed.partitionSpec().isEmpty() or parsed.ifPartitionNotExists() or parsed.replaceCriteriaOpt().isDefined():
        raise cursor.error("tables have no partitions; expected INSERT INTO table [(column, …)] VALUES … or SELECT …")
    select = source.part(cursor.offset)
    with sandbox.files_readable():
        frame = sandbox.analyze(select, parsed.query())
    analyzed = frame.queryExecution().analyzed()
    output = [(a.name(), a.dataType()) for a in items(analyzed.output())]
    if parsed.byName():
        named = [name for name, _ in output]
    targets = _targets(source, cursor.offset, table, named, len(output))
    for (_, found), target in zip(output, targets, strict=True):
        _check_assignable(sandbox, source, cursor.offset, found, table, target)
    fields = tuple(Field(c.name, c.type) for c in table.columns)
    reads = sandbox.read_by(analyzed)
    into = BoundInsertSelect(
        table.name,
        fields,
        key_of_table(table),
        targets,
        source.text[cursor.offset :],
        tuple(r.name for r in sandbox.mentioned(select)) if reads else (),
        reads,
    )
    if reads:
        return into
    with translated(source):
        return BoundInsert(table.name, rows_to_insert(DataFrame(frame, sandbox.session), into))


def rows_to_insert(frame: DataFrame, into: BoundInsertSelect) -> pa.Table:
    """The rows that a SELECT gives a table: cast as Spark stores them, missing columns NULL. Runs the frame; its rows come to the driver.

    Args:
        frame: `into.select` over the relations it names; ANSI mode on.

    Returns: the table's columns, in order, of exactly their types.

    Raises: NullKeyError; Spark's own error for a value that does not fit.
    """
    of_target = {target: i for i, target in enumerate(into.targets)}
    sources = [f"`c{of_target[j]}`" if j in of_target else "NULL" for j in range(len(into.fields))]
    renamed = frame.toDF(*(f"c{i}" for i in range(len(into.targets))))
    found = renamed.selectExpr(
        *(f"CAST({s} AS {f.type}) AS `t{j}`" for j, (s, f) in enumerate(zip(sources, into.fields, strict=True)))
    ).toArrow()
    schema = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in into.fields])
    rows = pa.Table.from_arrays([c.cast(f.type) for c, f in zip(found.columns, schema, strict=True)], schema=schema)
    require_keys(into.table, [f.name for f in into.fields], into.key, rows)
    return rows


def bind_update(sandbox: Sandbox, source: SourceText) -> Update:
    """An UPDATE statement. Raises SqlError; UnsupportedQueryError for key columns, subqueries and chance."""
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("UPDATE")
    table = _table(sandbox, cursor)
    walk = ExpressionWalk(sandbox, source, "UPDATE")
    key = key_of_table(table)
    columns: list[int] = []
    values: list[JavaObject] = []
    for assignment in items(parsed.assignments()):
        column = _column(walk, table, assignment.key())
        if column in key:
            raise walk.refuse(assignment.key(), f"setting key column {table.columns[column].name!r}", "delete the row and insert it anew")
        if column in columns:
            raise _at(walk, assignment.key(), f"column {table.columns[column].name!r} is set twice")
        columns.append(column)
        values.append(assignment.value())
    condition = parsed.condition()
    bound, where = _bind_row_expressions(walk, table, parsed.table(), columns, values, condition.get() if condition.isDefined() else None)
    return Update(table.name, tuple(zip(columns, bound, strict=True)), where)


def bind_delete(sandbox: Sandbox, source: SourceText) -> Delete:
    """A DELETE statement. Raises SqlError; UnsupportedQueryError for subqueries and chance."""
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("DELETE", "FROM")
    table = _table(sandbox, cursor)
    _, where = _bind_row_expressions(ExpressionWalk(sandbox, source, "DELETE"), table, parsed.table(), [], [], parsed.condition())
    return Delete(table.name, None if where == Literal(True, "boolean") else where)


def _bind_row_expressions(
    walk: ExpressionWalk,
    table: Relation,
    target: JavaObject,
    columns: Sequence[int],
    values: Sequence[JavaObject],
    condition: JavaObject | None,
) -> tuple[tuple[Expr, ...], Expr | None]:
    """Values cast to their columns' types, and the condition, over the table's columns.

    All stand in one projection, the condition too: as a filter the optimizer would take it apart.
    """
    sandbox, source = walk.sandbox, walk.source
    plan_pattern = sandbox.jvm.org.apache.spark.sql.catalyst.trees.TreePattern.withName("PLAN_EXPRESSION")
    exprs = [*values, *([] if condition is None else [condition])]
    for expr in exprs:
        if expr.containsPattern(plan_pattern):
            raise walk.refuse(expr, "a subquery", "it would read other rows while they change; select first, or INSERT … SELECT")
    frame = sandbox.frame(table)
    if target.productPrefix() == "SubqueryAlias":
        frame = frame.alias(target.alias())
    column_of = sandbox.jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    to_seq = sandbox.jvm.org.apache.spark.api.python.PythonUtils.toSeq
    with translated(source):
        raw = frame.select(to_seq([column_of(e).alias(f"c{i}") for i, e in enumerate(exprs)]))
        found = [a.dataType() for a in items(raw.queryExecution().analyzed().output())]
    types = sandbox.jvm.org.apache.spark.sql.types
    outputs: list[JavaObject] = []
    for i, column in enumerate(columns):
        span = walk.span_of(values[i])
        _check_assignable(sandbox, source, span[0] if span else 0, found[i], table, column)
        outputs.append(raw.col(f"c{i}").cast(types.DataType.fromDDL(table.columns[column].type)).alias(f"c{i}"))
    if condition is not None:
        if found[-1].catalogString() != "boolean":
            raise _at(walk, condition, f"the condition is of type {found[-1].catalogString()}; expected boolean")
        outputs.append(raw.col(f"c{len(columns)}"))
    with translated(source):
        bound = bind_projection(sandbox, source, raw.select(to_seq(outputs)), walk.within)
    return bound[: len(columns)], None if condition is None else bound[-1]


def _table(sandbox: Sandbox, cursor: Cursor) -> Relation:
    """The table whose name comes next."""
    begin = cursor.at
    name = cursor.name("the table")
    relation = sandbox.relations.get(name)
    if relation is None or relation.kind != "table":
        cursor.at = begin
        tables = ", ".join(sorted(r.name for r in sandbox.relations.values() if r.kind == "table")) or "none yet"
        what = f"there is no table {name!r}" if relation is None else f"{name!r} is a {relation.kind}: only tables take changes"
        raise sql_error(cursor.source, cursor.offset, f"{what}; tables that exist: {tables}")
    return relation


def _targets(source: SourceText, offset: int, table: Relation, named: Sequence[str], width: int) -> tuple[int, ...]:
    """The table's column for each column of the rows."""
    index = {c.name.lower(): i for i, c in enumerate(table.columns)}
    there = ", ".join(c.name for c in table.columns)
    unknown = [n for n in named if n.lower() not in index]
    if unknown:
        raise sql_error(source, offset, f"table {table.name!r} has no column {unknown[0]!r}; its columns: {there}")
    targets = tuple(index[n.lower()] for n in named) if named else tuple(range(len(table.columns)))
    if len(set(targets)) < len(targets):
        raise sql_error(source, offset, f"a column is named twice in ({', '.join(named)})")
    if len(targets) != width:
        raise sql_error(
            source, offset, f"table {table.name!r} takes {len(targets)} values a row here ({', '.join(named) or there}), found {width}"
        )
    for column in key_of_table(table):
        if column not in targets:
            raise sql_error(source, offset, f"key column {table.columns[column].name!r} of table {table.name!r} is not given a value")
    return targets


def _check_assignable(sandbox: Sandbox, source: SourceText, offset: int, found: JavaObject, table: Relation, column: int) -> None:
    """SqlError unless Spark would store a value of this type in the column (ANSI store assignment)."""
    spec = table.columns[column]
    wanted = sandbox.jvm.org.apache.spark.sql.types.DataType.fromDDL(spec.type)
    if not sandbox.jvm.org.apache.spark.sql.catalyst.expressions.Cast.canANSIStoreAssign(found, wanted):
        given = name_of_type(found)
        raise sql_error(
            source, offset, f"column {spec.name!r} of table {table.name!r} is {spec.type} and does not take {given}; cast it explicitly"
        )


def _column(walk: ExpressionWalk, table: Relation, key: JavaObject) -> int:
    """The table's column that an assignment sets."""
    name = list(items(key.nameParts()))[-1] if key.productPrefix() == "UnresolvedAttribute" else key.toString()
    for i, column in enumerate(table.columns):
        if column.name.lower() == str(name).lower():
            return i
    raise _at(walk, key, f"table {table.name!r} has no column {name!r}; its columns: {', '.join(c.name for c in table.columns)}")


def _at(walk: ExpressionWalk, node: JavaObject, reason: str) -> SqlError:
    span = walk.span_of(node)
    return SqlError(reason) if span is None else sql_error(walk.source, span[0], reason)
