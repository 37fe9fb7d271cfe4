"""Bind INSERT, UPDATE and DELETE. Spark parses and types them by its store-assignment rules."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError, sql_error
from tussock.jobs.logical.key_columns import require_values
from tussock.jobs.logical.nodes import Expr, Literal
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import (
    BoundChange,
    BoundInsert,
    BoundInsertSelect,
    CreateTable,
    Delete,
    Update,
    append_only_refusal,
)
from tussock.jobs.logical.text_lengths import fitted_texts
from tussock.jobs.spark.collected import collect_rows
from tussock.jobs.spark.release import replaces_rows
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.sql.assign import (
    assignments_of,
    begin_of,
    cell_offset,
    check_assignable,
    check_value,
    default_sql,
    first_unfit,
    gives_literals,
    has_subquery,
    require_boolean,
    shown_literal,
    unfit_value,
    values_of_table,
)
from tussock.jobs.sql.catalyst import bind_projection
from tussock.jobs.sql.change import bind_change
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.grammar import Cursor, written_name
from tussock.jobs.sql.qualified_names import under_alias
from tussock.jobs.sql.sandbox import Sandbox, column_of, items, option_of, seq_of, table_of
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.nested import conform_rows
from tussock.statestore.types import arrow_type


def bind_insert(sandbox: Sandbox, source: SourceText) -> BoundInsert | BoundInsertSelect:
    """An INSERT statement.

    Constants (including now()) and rows of files (FROM parquet.`path`) are evaluated at once. The caller evaluates a
    SELECT over relations.

    Raises: SqlError (syntax, names, number and types of columns), NullKeyError.
    """
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("INSERT")
    if parsed.productPrefix() != "InsertIntoStatement" or parsed.overwrite() or not cursor.accept("INTO"):
        raise cursor.error("expected INSERT INTO table")
    cursor.accept("TABLE")
    table = table_of(named_table(sandbox, cursor))
    named = [str(c) for c in items(parsed.userSpecifiedCols())]
    if named:
        cursor.expect("(")
        cursor.close()
    elif parsed.byName():
        cursor.expect("BY", "NAME")
    if not parsed.partitionSpec().isEmpty() or parsed.ifPartitionNotExists() or replaces_rows(parsed):
        raise cursor.error("tables have no partitions; expected INSERT INTO table [(column, …)] VALUES … or SELECT …")
    select = source.take_part(cursor.offset)
    with sandbox.files_readable():
        query = values_of_table(ExpressionWalk(sandbox, select), parsed.query(), table, named)
        frame = sandbox.analyze(select, query)
    output = [a.name() for a in items(frame.queryExecution().analyzed().output())]
    targets = _target_columns(source, cursor.offset, table, output if parsed.byName() else named, len(output))
    return bind_rows(sandbox, select, frame, query, table, targets)


def bind_rows(
    sandbox: Sandbox,
    source: SourceText,
    frame: JavaObject,
    query: JavaObject,
    table: CreateTable,
    targets: tuple[int, ...],
) -> BoundInsert | BoundInsertSelect:
    """The rows that a query inserts into a table.

    Args:
        source: the query's text.
        frame: its Dataset (JVM) over the empty relations.
        query: its parsed plan, in which literals are still visible.
        targets: the table's column for each column of the query.
    """
    analyzed = frame.queryExecution().analyzed()
    for i, (attribute, target) in enumerate(zip(items(analyzed.output()), targets, strict=True)):
        value_type = attribute.dataType()
        if not (value_type.catalogString() == "string" and gives_literals(query, i)):
            check_assignable(sandbox, source, source.begin, value_type, table, target)
    reads = sandbox.read_by(analyzed)
    relations = tuple(r.name for r in sandbox.relations_mentioned(source)) if reads else ()
    into = BoundInsertSelect(table, targets, source.text[source.begin : source.end], relations, reads)
    if reads:
        return msgspec.structs.replace(into, reads=(*reads, *sandbox.plain_views(source)))
    offset_of = partial(cell_offset, ExpressionWalk(sandbox, source), query)
    with translating_errors(source):
        return BoundInsert(table.name, rows_to_insert(DataFrame(frame, sandbox.session), into, source, offset_of))


def rows_to_insert(
    frame: DataFrame,
    into: BoundInsertSelect,
    source: SourceText | None = None,
    offset_of: Callable[[int, int], int | None] | None = None,
) -> pa.Table:
    """Run a SELECT and convert its rows for a table: cast as Spark stores them, with defaults in missing columns.

    Collects the rows in the driver.

    Args:
        frame: `into.select` over the relations it names; ANSI mode on.
        source, offset_of: the text, and (row, column of the frame) -> the offset of the value in it.

    Returns: the table's columns, in order, of exactly their types.

    Raises: NullKeyError; SqlError if a column cannot hold a value.
    """
    table = into.table
    of_target = {target: i for i, target in enumerate(into.targets)}
    sources = [f"`c{of_target[j]}`" if j in of_target else default_sql(table, j) for j in range(len(table.fields))]
    renamed = frame.toDF(*(f"c{i}" for i in range(len(into.targets))))
    try:
        casts = (f"CAST({s} AS {f.type}) AS `t{j}`" for j, (s, f) in enumerate(zip(sources, table.fields, strict=True)))
        selected_rows = collect_rows(renamed.selectExpr(*casts))
    except PySparkException as err:
        if (unfit := _unfit_value(renamed, into)) is None:
            raise
        row, column, value = unfit
        offset = None if offset_of is None else offset_of(row, column)
        raise unfit_value(source or SourceText(into.select), table, into.targets[column], value, offset) from err
    schema = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in table.fields])
    rows = conform_rows(selected_rows, schema)
    require_values(table, rows)
    return fitted_texts(table, rows)


def bind_update(sandbox: Sandbox, source: SourceText) -> Update | BoundChange:
    """An UPDATE statement. Raises SqlError, and UnsupportedQueryError if its result would be arbitrary.

    Spark computes it over the last committed epoch if it reads other rows, sets a key column, may put NULL into a NOT
    NULL column or a computed text into a column with a length, or has an expression without a kernel.
    """
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("UPDATE")
    relation = named_table(sandbox, cursor)
    table = table_of(relation)
    _refuse_if_append_only(cursor, table, "UPDATE")
    walk = ExpressionWalk(sandbox, source, "UPDATE")
    columns, values = assignments_of(walk, table, parsed.assignments())
    condition = option_of(parsed.condition())
    exprs = [*values, *([] if condition is None else [condition])]
    if set(columns) & set(table.key) or any(has_subquery(sandbox, e) for e in exprs):
        return bind_change(sandbox, source, relation, parsed)
    try:
        bound, where, nullable = _bind_row_expressions(walk, relation, parsed.table(), columns, values, condition)
    except UnsupportedQueryError:
        if _calls_python(sandbox, source):
            raise
        return bind_change(sandbox, source, relation, parsed)
    sets = tuple((column, _fitted_literal(table, column, value)) for column, value in zip(columns, bound, strict=True))
    lengths = dict(table.lengths)
    if any(column in lengths and not isinstance(value, Literal) for column, value in sets):
        return bind_change(sandbox, source, relation, parsed)
    if any(nullable[i] for i, column in enumerate(columns) if column in table.not_null):
        return bind_change(sandbox, source, relation, parsed)
    if not _have_kernels(sandbox, [*bound, *([] if where is None else [where])]):
        return bind_change(sandbox, source, relation, parsed)
    return Update(table.name, sets, where)


def _fitted_literal(table: CreateTable, column: int, value: Expr) -> Expr:
    """A constant in the form in which a column with a length stores it. Raises TextTooLongError."""
    if (
        not isinstance(value, Literal)
        or not isinstance(value.value, str)
        or (declared := dict(table.lengths).get(column)) is None
    ):
        return value
    alone = CreateTable(table.name, (table.fields[column],), (), lengths=((0, declared),))
    return Literal(fitted_texts(alone, pa.table({"c": [value.value]})).column(0)[0].as_py(), value.type)


def bind_delete(sandbox: Sandbox, source: SourceText) -> Delete | BoundChange:
    """A DELETE statement.

    If its condition reads other rows or has no kernel, Spark computes it over the last committed epoch.

    Raises: SqlError; UnsupportedQueryError if its result would be arbitrary.
    """
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("DELETE", "FROM")
    relation = named_table(sandbox, cursor)
    _refuse_if_append_only(cursor, table_of(relation), "DELETE")
    if has_subquery(sandbox, parsed.condition()):
        return bind_change(sandbox, source, relation, parsed)
    try:
        _, where, _ = _bind_row_expressions(
            ExpressionWalk(sandbox, source, "DELETE"), relation, parsed.table(), [], [], parsed.condition()
        )
    except UnsupportedQueryError:
        if _calls_python(sandbox, source):
            raise
        return bind_change(sandbox, source, relation, parsed)
    assert where is not None, "the condition of a DELETE without WHERE is TRUE"
    if not _have_kernels(sandbox, [where]):
        return bind_change(sandbox, source, relation, parsed)
    return Delete(relation.name, None if where == Literal(True, "boolean") else where)


def _calls_python(sandbox: Sandbox, source: SourceText) -> bool:
    """Whether a text may call a Python function. These run only in views."""
    return any(r.kind is RelationKind.FUNCTION for r in sandbox.relations_mentioned(source))


def _have_kernels(sandbox: Sandbox, exprs: Sequence[Expr]) -> bool:
    """Whether actors can compute the expressions when they replay the statement."""
    return sandbox.has_kernel is None or all(map(sandbox.has_kernel, exprs))


def bind_truncate(sandbox: Sandbox, source: SourceText) -> Delete:
    """A TRUNCATE TABLE statement: a DELETE of all rows."""
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("TRUNCATE", "TABLE")
    relation = named_table(sandbox, cursor)
    _refuse_if_append_only(cursor, table_of(relation), "TRUNCATE TABLE")
    cursor.end()
    assert parsed.productPrefix() == "TruncateTable"
    return Delete(relation.name, None)


def bind_merge(sandbox: Sandbox, source: SourceText) -> BoundChange:
    """A MERGE INTO statement. Raises SqlError, and UnsupportedQueryError if its result would be arbitrary."""
    parsed = sandbox.parse_statement(source)
    cursor = Cursor(source)
    cursor.expect("MERGE")
    if not cursor.accept("INTO") or parsed.withSchemaEvolution():
        raise cursor.error("expected MERGE INTO table")
    relation = named_table(sandbox, cursor)
    if not (parsed.matchedActions().isEmpty() and parsed.notMatchedBySourceActions().isEmpty()):
        _refuse_if_append_only(cursor, table_of(relation), "MERGE with WHEN MATCHED or WHEN NOT MATCHED BY SOURCE")
    bound = bind_change(sandbox, source, relation, parsed)
    _refuse_source(sandbox, Cursor(source))
    return bound


def _refuse_source(sandbox: Sandbox, cursor: Cursor) -> None:
    """Raises SqlError if a MERGE reads a source, whose rows are not stored."""
    while not cursor.accept("USING"):
        cursor.at += 1
    begin = cursor.at
    name = written_name(cursor)
    if name is not None and (relation := sandbox.relations.get(name)) is not None and _stores_no_rows(relation):
        cursor.at = begin
        raise cursor.complaint(
            f"MERGE cannot read source {name!r}, because a source stores no rows. Create a view over it (CREATE "
            f"MATERIALIZED VIEW {name}_rows AS SELECT * FROM {name}), run an epoch, and write USING {name}_rows. A "
            "MERGE runs once; rows that must follow every new file belong in a view"
        )


def _stores_no_rows(relation: Relation) -> bool:
    """Whether a relation is a source without a key: its only state table has the taken input."""
    return relation.kind is RelationKind.SOURCE and len(relation.state_tables) <= 1


def _refuse_if_append_only(cursor: Cursor, table: CreateTable, statement: str) -> None:
    """Raises SqlError at the name that the cursor has just read, if the table is append-only."""
    if table.append_only:
        cursor.at -= 1  # the name in the schema, if it is qualified
        raise cursor.complaint(append_only_refusal(table.name, statement))


def _bind_row_expressions(
    walk: ExpressionWalk,
    relation: Relation,
    target: JavaObject,
    columns: Sequence[int],
    values: Sequence[JavaObject],
    condition: JavaObject | None,
) -> tuple[tuple[Expr, ...], Expr | None, tuple[bool, ...]]:
    """Values cast to their columns' types, and the condition, over the table's columns; and which values may be NULL.

    All are in one projection, because the optimizer would split a condition in a filter.
    """
    sandbox, source, table = walk.sandbox, walk.source, table_of(relation)
    exprs = [*values, *([] if condition is None else [condition])]
    frame = sandbox.dataset_of(relation)
    if target.productPrefix() == "SubqueryAlias":
        frame = under_alias(sandbox.session, frame, target)
    with translating_errors(source):
        raw = frame.select(seq_of(sandbox, [column_of(sandbox, e).alias(f"c{i}") for i, e in enumerate(exprs)]))
        output = list(items(raw.queryExecution().analyzed().output()))
    types = [a.dataType() for a in output]
    outputs: list[JavaObject] = []
    for i, column in enumerate(columns):
        check_value(walk, values[i], types[i], table, column)
        outputs.append(raw.col(f"c{i}").cast(sandbox.data_type(table.fields[column].type)).alias(f"c{i}"))
    if condition is not None:
        require_boolean(walk, condition, types[-1])
        outputs.append(raw.col(f"c{len(columns)}"))
    try:
        with translating_errors(source):
            bound = bind_projection(sandbox, source, raw.select(seq_of(sandbox, outputs)), walk.within)
    except SqlError as err:
        kinds = [table.fields[column].type for column in columns]
        if (bad := first_unfit(sandbox, values, kinds)) is None:
            raise
        raise unfit_value(source, table, columns[bad], shown_literal(values[bad]), begin_of(walk, values[bad])) from err
    nullable = tuple(bool(a.nullable()) for a in output)
    return bound[: len(columns)], None if condition is None else bound[-1], nullable


def named_table(sandbox: Sandbox, cursor: Cursor) -> Relation:
    """The table whose name comes next. Raises SqlError."""
    begin = cursor.at
    name = cursor.name("the table")
    relation = sandbox.relations.get(name)
    if relation is None or relation.kind is not RelationKind.TABLE:
        cursor.at = begin
        tables = (
            ", ".join(sorted(r.name for r in sandbox.relations.values() if r.kind is RelationKind.TABLE)) or "none yet"
        )
        what = (
            f"there is no table {name!r}"
            if relation is None
            else f"{name!r} is a {relation.kind}: only tables can be changed"
        )
        raise sql_error(cursor.source, cursor.offset, f"{what}; tables that exist: {tables}")
    return relation


def _target_columns(
    source: SourceText, offset: int, table: CreateTable, named: Sequence[str], width: int
) -> tuple[int, ...]:
    """The table's column for each column of the rows."""
    index = {c.name.lower(): i for i, c in enumerate(table.fields)}
    there = ", ".join(c.name for c in table.fields)
    unknown = [n for n in named if n.lower() not in index]
    if unknown:
        raise sql_error(source, offset, f"table {table.name!r} has no column {unknown[0]!r}; its columns: {there}")
    targets = tuple(index[n.lower()] for n in named) if named else tuple(range(len(table.fields)))
    if len(set(targets)) < len(targets):
        raise sql_error(source, offset, f"a column is named twice in ({', '.join(named)})")
    if len(targets) != width:
        raise sql_error(
            source,
            offset,
            f"table {table.name!r} needs {len(targets)} values per row here ({', '.join(named) or there}), found "
            f"{width}",
        )
    for column in table.key:
        if column not in targets:
            raise sql_error(
                source, offset, f"key column {table.fields[column].name!r} of table {table.name!r} gets no value"
            )
    return targets


def _unfit_value(frame: DataFrame, into: BoundInsertSelect) -> tuple[int, int, str] | None:
    """The first value of a frame that its column's type cannot hold: (row, column of the frame, the value as text)."""
    for i, target in enumerate(into.targets):
        kind = into.table.fields[target].type
        try:
            tried = frame.selectExpr(
                f"c{i} AS found", f"c{i} IS NOT NULL AND try_cast(c{i} AS {kind}) IS NULL AS bad"
            ).toArrow()
        except PySparkException:  # the value raises an error itself, or has no such cast
            continue
        if (row := pc.index(tried["bad"], True).as_py()) >= 0:
            value = tried["found"][row].as_py()
            return row, i, repr(value) if isinstance(value, str) else str(value)
    return None
