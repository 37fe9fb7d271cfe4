"""Statements whose changes are computed over the last committed epoch and logged as rows.

These are MERGE INTO, and the UPDATE and DELETE statements that read other rows, set a key column, or may put NULL
into a NOT NULL column.

Each is a list of *actions* over *frames*. A frame contains candidate rows: for an UPDATE or DELETE, the rows of the
table; for a MERGE, the matching pairs, the unmatched source rows, and the unmatched table rows. As in Spark's MERGE,
the first action whose condition is true applies to a candidate. The frames are analyzed over empty relations when the
statement is bound, and run by Spark over the stored rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from tussock.jobs.logical.key_columns import require_values
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, schema_of, split_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import OP, ROW_ID_TYPE, BoundChange, CreateTable
from tussock.jobs.logical.text_lengths import fitted_texts
from tussock.jobs.spark.collected import collect_rows
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.sql.assign import assignments_of, check_value, default_expression, require_boolean
from tussock.jobs.sql.expressions import ExpressionWalk
from tussock.jobs.sql.qualified_names import name_beside_with, under_alias
from tussock.jobs.sql.refusals import refuse_unstable
from tussock.jobs.sql.sandbox import Sandbox, column_of, items, option_of, table_of
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.meta.catalog import KeyColumn, Relation
from tussock.statestore.months import shown_at
from tussock.statestore.nested import conform_rows
from tussock.statestore.types import arrow_type

_OLD, _NEW, _ACTION = "__old", "__new", "__action"  # columns of frames, in addition to the user's
_SOURCE = "__source"  # a MERGE's source without a name
_NOTHING = -1  # in `__action`: no condition is true


class TwoSourceRowsError(InputError):
    """A MERGE matches rows of the table with several source rows each, so its result would be arbitrary."""

    table: str
    key: str
    rows: int

    def __str__(self) -> str:
        return (
            f"MERGE INTO {self.table}: {self.rows} rows of the table match more than one row of the source, the "
            f"first of them ({self.key}). Nothing was changed. Make the source's rows unique by the columns of ON "
            "(SELECT DISTINCT, GROUP BY)."
        )


class TwoRowsOfOneKeyError(InputError):
    """A statement would leave two rows with one primary key."""

    table: str
    key: str
    rows: int

    def __str__(self) -> str:
        return (
            f"table {self.table!r} would have two rows with the primary key ({self.key}); {self.rows} keys are "
            "affected. Nothing was changed. Give each row a unique key, or delete the other row first."
        )


class Kind(Enum):
    """The kinds of actions."""

    UPDATE = "update"  # replace the table's row
    DELETE = "delete"  # remove it
    INSERT = "insert"  # add a row


@dataclass(frozen=True, slots=True)
class MergeBranch:
    """One WHEN of a MERGE, or the action of an UPDATE or DELETE. Expressions are Catalyst's, unresolved."""

    kind: Kind
    condition: JavaObject | None
    columns: tuple[int, ...] = ()  # that get the values; an INSERT gives defaults to the others, an UPDATE keeps them
    values: tuple[JavaObject, ...] = ()
    star: bool = False  # SET * and INSERT *: every column gets the source column of its name


@dataclass(frozen=True, slots=True)
class Candidates:
    """A frame of candidate rows and their actions. `pairs`: the rows are pairs of a table row and a source row."""

    frame: DataFrame
    actions: tuple[MergeBranch, ...]
    source: str = ""  # for a MERGE: the name of the source
    pairs: bool = False


def bind_change(sandbox: Sandbox, source: SourceText, relation: Relation, parsed: JavaObject) -> BoundChange:
    """The statement, checked. Raises SqlError, and UnsupportedQueryError if its result would be arbitrary."""
    table = table_of(relation)
    within = {"UpdateTable": "UPDATE", "DeleteFromTable": "DELETE"}.get(parsed.productPrefix(), "MERGE")
    walk = ExpressionWalk(sandbox, source, within)
    for other in sandbox.relations_mentioned(source):
        sandbox.dataset_of(other)  # register their names
    target = DataFrame(sandbox.dataset_of(relation), sandbox.session)
    reads = {table.name, *sandbox.plain_views(source)}
    with translating_errors(source):
        for candidates in _candidate_frames(walk, sandbox.session, target, table, parsed):
            frame = candidates.frame
            for action in candidates.actions:
                columns, exprs = _given_values(walk, table, action, candidates)
                types = [a.dataType() for a in items(frame.select(*exprs)._jdf.queryExecution().analyzed().output())]
                for column, value, value_type in zip(columns, _written_values(action, columns), types, strict=True):
                    if value is not None:
                        check_value(walk, value, value_type, table, column)
                if action.condition is not None:
                    judged = frame.select(_classic_column(walk, action.condition))._jdf.queryExecution().analyzed()
                    require_boolean(walk, action.condition, next(items(judged.output())).dataType())
            analyzed = _changed_rows(walk, table, candidates)._jdf.queryExecution().analyzed()
            refuse_unstable(walk, analyzed, clock_is_fixed=True, rows_are_logged=True)
            reads.update(sandbox.read_by(analyzed))
    relations = tuple(r.name for r in sandbox.relations_mentioned(source))
    return BoundChange(table, source.text, source.start, relations, tuple(sorted(reads)))


def changed_rows(sandbox: Sandbox, session: SparkSession, target: DataFrame, bound: BoundChange) -> pa.Table:
    """The changes of the statement. Every relation that it reads is a view over its stored rows in the session.

    Args:
        target: the table's stored rows, with a hidden row id as the last column.

    Returns: the rows of a `statements.Change`: `op`, then the table's stored columns. Their keys may collide with keys
    of existing rows.

    Raises: TwoSourceRowsError, NullKeyError; Spark's own errors.
    Cost: up to three Spark queries over the table. The changed rows are collected in the driver.
    """
    source = SourceText(bound.statement, bound.start)
    table = bound.table
    walk = ExpressionWalk(sandbox, source)
    with sandbox.active():
        parsed = sandbox.parse_statement(source)
    for name in bound.relations if DEFAULT_SCHEMA in source.text.lower() else ():
        if schema_of(name) == DEFAULT_SCHEMA:
            name_beside_with(session, name)
    with translating_errors(source):
        rows_by_candidates = [
            (c, collect_rows(_changed_rows(walk, table, c, hidden=not table.key)))
            for c in _candidate_frames(walk, session, target, table, parsed)
        ]
    schema = _stored_schema(table)
    gone, come = [schema.empty_table()], [schema.empty_table()]
    for candidates, rows in rows_by_candidates:
        if candidates.pairs:
            rows = _single_pairs(table, candidates.actions, rows)
        # An updated row is deleted and inserted, since its key may change. Without a key, its row id puts it in its
        # place.
        leaves = {Kind.DELETE, Kind.UPDATE} if table.key else {Kind.DELETE}
        gone.append(
            _without_values(table, _columns_of_struct(_of_kinds(rows, candidates.actions, leaves), _OLD, schema))
        )
        come.append(_columns_of_struct(_of_kinds(rows, candidates.actions, {Kind.UPDATE, Kind.INSERT}), _NEW, schema))
    puts, leaving = pa.concat_tables(come), pa.concat_tables(gone)
    require_values(table, puts)
    puts = fitted_texts(table, puts)
    op = np.concatenate([np.full(leaving.num_rows, -1, np.int8), np.ones(puts.num_rows, np.int8)])
    return pa.concat_tables([leaving, puts]).add_column(0, OP, pa.array(op))


def _of_kinds(rows: pa.Table, actions: Sequence[MergeBranch], kinds: set[Kind]) -> pa.Table:
    """The candidates to which an action of one of these kinds applies."""
    wanted = [number for number, action in enumerate(actions) if action.kind in kinds]
    return rows.filter(pc.is_in(rows[_ACTION], pa.array(wanted, pa.int32())))


# --- frames -----------------------------------------------------------------------------------------------------------


def _candidate_frames(
    walk: ExpressionWalk, session: SparkSession, target: DataFrame, table: CreateTable, parsed: JavaObject
) -> list[Candidates]:
    """The frames of a statement with their actions.

    `target` has the table's columns, and a hidden row id if rows are stored.
    """
    kind = parsed.productPrefix()
    if kind in ("UpdateTable", "DeleteFromTable"):
        rows = _frame_under_name(target, table, parsed.table())
        if kind == "UpdateTable":
            condition = option_of(parsed.condition())
            columns, values = assignments_of(walk, table, parsed.assignments())
            action = MergeBranch(Kind.UPDATE, None, tuple(columns), tuple(values))
        else:
            condition, action = parsed.condition(), MergeBranch(Kind.DELETE, None)
        return [Candidates(rows if condition is None else rows.filter(_classic_column(walk, condition)), (action,))]
    rows = _frame_under_name(target, table, parsed.targetTable())
    source_rows = walk.sandbox.java("org.apache.spark.sql.classic.Dataset").ofRows(
        session._jsparkSession, parsed.sourceTable()
    )
    origin = parsed.sourceTable()
    source = DataFrame(source_rows, session)
    match origin.productPrefix():
        case "SubqueryAlias":
            name = str(origin.alias())
        case "UnresolvedRelation":
            name = str(list(items(origin.multipartIdentifier()))[-1])
        case _:
            name = _SOURCE
            source = source.alias(name)
    on = _classic_column(walk, parsed.mergeCondition())
    matched = tuple(_merge_branch(walk, table, a) for a in items(parsed.matchedActions()))
    inserts = tuple(_merge_branch(walk, table, a) for a in items(parsed.notMatchedActions()))
    alone = tuple(_merge_branch(walk, table, a) for a in items(parsed.notMatchedBySourceActions()))
    candidates = []
    if matched:
        candidates.append(Candidates(rows.join(source, on, "inner"), matched, name, pairs=True))
    if inserts:
        candidates.append(Candidates(source.join(rows, on, "left_anti"), inserts, name))
    if alone:
        candidates.append(Candidates(rows.join(source, on, "left_anti"), alone))
    return candidates


def _frame_under_name(target: DataFrame, table: CreateTable, relation: JavaObject) -> DataFrame:
    """The table's rows under the statement's name for it, with the whole row as an additional struct column."""
    whole = F.struct(*(F.col(quote_name(c)).alias(f"c{i}") for i, c in enumerate(target.columns)))
    visible = [F.col(quote_name(f.name)) for f in table.fields]
    rows = target.select(*visible, whole.alias(_OLD))
    if relation.productPrefix() != "SubqueryAlias":
        return rows.alias(split_name(table.name)[1])
    return DataFrame(under_alias(target.sparkSession, rows._jdf, relation), target.sparkSession)


def _merge_branch(walk: ExpressionWalk, table: CreateTable, action: JavaObject) -> MergeBranch:
    condition = option_of(action.condition())
    match action.productPrefix():
        case "DeleteAction":
            return MergeBranch(Kind.DELETE, condition)
        case "UpdateStarAction":
            return MergeBranch(Kind.UPDATE, condition, star=True)
        case "InsertStarAction":
            return MergeBranch(Kind.INSERT, condition, star=True)
        case name:
            columns, values = assignments_of(walk, table, action.assignments())
            return MergeBranch(
                Kind.UPDATE if name == "UpdateAction" else Kind.INSERT, condition, tuple(columns), tuple(values)
            )


def _changed_rows(walk: ExpressionWalk, table: CreateTable, candidates: Candidates, hidden: bool = False) -> DataFrame:
    """One row per candidate: `__action` (the index of the action, -1: none), and the structs `__old` and `__new`.

    The structs have the table's stored columns c0, c1, …; with `hidden`, a row id is the last one.
    """
    which = F.lit(_NOTHING)
    for number, action in reversed(list(enumerate(candidates.actions))):
        applies = F.lit(True) if action.condition is None else _classic_column(walk, action.condition)
        which = F.when(applies, F.lit(number)).otherwise(which)
    decided = candidates.frame.withColumn(_ACTION, which)
    width = len(table.fields)
    has_old = _OLD in candidates.frame.columns
    cases: list[list[tuple[int, Column]]] = [[] for _ in range(width)]
    for number, action in enumerate(candidates.actions):
        if action.kind is Kind.DELETE:
            continue
        columns, exprs = _given_values(walk, table, action, candidates)
        for column, expr in zip(columns, exprs, strict=True):
            cases[column].append((number, expr))
    new = []
    for column, field in enumerate(table.fields):
        value = F.col(f"{_OLD}.c{column}") if has_old else F.lit(None)
        for number, expr in reversed(cases[column]):
            value = F.when(F.col(_ACTION) == number, expr.cast(field.type)).otherwise(value.cast(field.type))
        new.append(value.cast(field.type).alias(f"c{column}"))
    kinds = [f.type for f in table.fields]
    if hidden:  # an updated row keeps its row id
        kinds.append(ROW_ID_TYPE)
        new.append((F.col(f"{_OLD}.c{width}") if has_old else F.lit(None)).cast(ROW_ID_TYPE).alias(f"c{width}"))
    nothing = F.struct(*(F.lit(None).cast(kind).alias(f"c{i}") for i, kind in enumerate(kinds)))
    return decided.select(F.col(_ACTION), (F.col(_OLD) if has_old else nothing).alias(_OLD), F.struct(*new).alias(_NEW))


def _given_values(
    walk: ExpressionWalk, table: CreateTable, action: MergeBranch, candidates: Candidates
) -> tuple[tuple[int, ...], list[Column]]:
    """The columns to which an action gives values, and the values. For an INSERT, all columns."""
    if action.kind is Kind.DELETE:
        return (), []
    if action.star:
        return tuple(range(len(table.fields))), [
            F.col(f"{quote_name(candidates.source)}.{quote_name(f.name)}") for f in table.fields
        ]
    columns = action.columns
    exprs = [_classic_column(walk, v) for v in action.values]
    if action.kind is Kind.INSERT:
        missing = tuple(i for i in range(len(table.fields)) if i not in columns)
        columns = (*columns, *missing)
        exprs += [_classic_column(walk, default_expression(walk.sandbox, table, i)) for i in missing]
    return columns, exprs


def _written_values(action: MergeBranch, columns: Sequence[int]) -> list[JavaObject | None]:
    """The values of `_given_values` as written in the statement. None for values that it does not contain."""
    return [*action.values, *[None] * (len(columns) - len(action.values))]


def _classic_column(walk: ExpressionWalk, expr: JavaObject) -> Column:
    return ClassicColumn(column_of(walk.sandbox, expr))


# --- rows -------------------------------------------------------------------------------------------------------------


def require_one_row_a_key(table: CreateTable, changed: pa.Table, live: pa.BooleanArray) -> None:
    """Raises TwoRowsOfOneKeyError if new rows share a key with each other, or with a remaining row.

    Args:
        changed: the result of `changed_rows`.
        live: (new rows,) whether the table has a row with that key.
    """
    if not table.key:
        return
    keys = _row_identities(table, changed.drop_columns([OP]))
    goes = pc.less(changed[OP], 0)
    put = keys.filter(pc.invert(goes))
    counted = pa.table({"key": put}).group_by("key", use_threads=False).aggregate([([], "count_all")])
    stays = pc.and_(live, pc.invert(pc.is_in(put, keys.filter(goes))))
    twice = pc.or_(stays, pc.is_in(put, counted["key"].filter(pc.greater(counted["count_all"], 1)).combine_chunks()))
    if (first := pc.index(twice, True).as_py()) >= 0:
        rows = changed.drop_columns([OP]).filter(pc.invert(goes))
        raise TwoRowsOfOneKeyError(table.name, _shown_key(table, rows, first), len(pc.unique(put.filter(twice))))


def _stored_schema(table: CreateTable) -> pa.Schema:
    """The table's stored columns. A hidden row id is the last one."""
    types = [arrow_type(f.type) for f in table.fields]
    return pa.schema([(f"c{i}", t) for i, t in enumerate(types if table.key else [*types, pa.int64()])])


def _columns_of_struct(rows: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """The fields of a struct column as a table."""
    whole = rows[name].combine_chunks()
    return conform_rows(pa.table(whole.flatten(), schema.names), schema)


def _without_values(table: CreateTable, rows: pa.Table) -> pa.Table:
    """Deleted rows with only their key values, because a replay needs nothing else."""
    named = table.key or (len(table.fields),)
    columns = [c if i in named else pa.nulls(rows.num_rows, c.type) for i, c in enumerate(rows.columns)]
    return pa.table(columns, schema=rows.schema)


def _row_identities(table: CreateTable, rows: pa.Table) -> pa.BinaryArray:
    """Keys (or row ids) as bytes that are equal if the keys are equal, including -0.0 and NaN."""
    columns = [rows.column(k) for k in table.key or (len(table.fields),)]
    places = tuple(KeyColumn(i) for i in range(len(columns)))
    return encode_keys(0, np.zeros(rows.num_rows, np.uint16), columns, places)


def _single_pairs(table: CreateTable, actions: Sequence[MergeBranch], rows: pa.Table) -> pa.Table:
    """The pairs of a MERGE, with each table row in at most one pair. Raises TwoSourceRowsError.

    As in Spark, rows with several matches are allowed only if the only action is an unconditional DELETE.
    """
    old = _columns_of_struct(rows, _OLD, _stored_schema(table))
    numbered = pa.table({"key": _row_identities(table, old), "at": pa.array(np.arange(rows.num_rows))})
    counted = numbered.group_by("key", use_threads=False).aggregate([("at", "min"), ("at", "count")])
    twice = counted.filter(pc.greater(counted["at_count"], 1))
    if twice.num_rows == 0:
        return rows
    if len(actions) == 1 and actions[0].kind is Kind.DELETE and actions[0].condition is None:
        return rows.take(counted["at_min"])
    raise TwoSourceRowsError(table.name, _shown_key(table, old, twice["at_min"][0].as_py()), twice.num_rows)


def _shown_key(table: CreateTable, rows: pa.Table, row: int) -> str:
    """The key of a row for a message, or the whole row if there is no key."""
    return ", ".join(repr(shown_at(rows.column(c), row)) for c in table.key or range(len(table.fields)))
