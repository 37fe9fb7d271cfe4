"""Answer SELECTs with filters, aggregates, joins and an order as Spark does, by DuckDB in this process, without a JVM.

A query is answered here only if each part has a rule: its text (plain_syntax.py), its types (plain_types.py), its
expressions (the tested list of jobs/kernels) and its aggregates (below). Otherwise Spark answers it, also if a value
raises: the message is Spark's then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from tussock.jobs.kernels.duck import cast, decimal_of
from tussock.jobs.kernels.errors import KernelError, UnsupportedExpressionError
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.kernels.registry import FLOATS, INTEGERS, family_of, may_raise
from tussock.jobs.kernels.render import check, render
from tussock.jobs.logical.expression_tree import columns_of
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.jobs.logical.statements import CreateTable
from tussock.jobs.plan.definition import created_by
from tussock.jobs.reading.duck_query import ScannedRows, duck_name
from tussock.jobs.reading.plain_syntax import NotPlainError, PlainSort, PlainTerm, PlainText, select_text
from tussock.jobs.reading.plain_types import KEY_TYPES, MOST_DIGITS, PLAIN_TYPES, PlainBinder, PlainColumn
from tussock.jobs.reading.reader import stored_table
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.version import part_of
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.types import arrow_type

MOST_BYTES = 64 * 2**20
"""Maximum bytes of SSTs that a query may read here. Starting Spark costs more than a scan of these. For more rows,
Spark has several workers, and reads only a part of an ordered view."""
_EXACT_DOUBLES = 2**53
_MOST_SUMMED_DIGITS = 28  # of a decimal whose sum of 10^10 rows has at most 38


@contextmanager
def plain_rows(
    objects: ObjectStore, stored: StoredRows, sql: str, time_zone: str, epoch: int | Sight | None = None
) -> Iterator[pa.RecordBatchReader | None]:
    """Yield the answer, batch by batch, or None if Spark must answer. Batches must be read inside the block.

    Args:
        time_zone: the store's.
        epoch: None: the published one.

    Warns: PausedViewWarning, HeldViewWarning.
    Raises: EpochNotCommittedError, EpochExpiredError; errors of the scans, such as MissingSstError.
    Cost: a scan of the columns that the query reads. Memory: rows of aggregates, joins and sorts spill; the answer is
        read whole before it is yielded if a value may raise.
    """
    failed: list[TussockError] = []
    try:
        text = select_text(sql)
    except NotPlainError:
        yield None
        return
    with stored.seeing(epoch) as (version, sight):
        try:
            found = [_stored(version, sight, scan.relation) for scan in text.scans]
            _require_little(version, found)
            bound = _bound(text, found, time_zone)
        except (NotPlainError, UnsupportedExpressionError):
            yield None
            return
        rows = {
            f"r{i}": ScannedRows(objects, version, relation, sight.epoch_of(relation.name), failed, columns)
            for i, (relation, columns) in enumerate(zip(found, bound.columns, strict=True))
        }
        for relation in found:
            stored.found(version, sight, relation.name)  # warns
        with ExitStack() as stack:
            yield _answer(bound, rows, failed, stack)


def _answer(
    bound: "_Bound", rows: Mapping[str, ScannedRows], failed: Sequence[TussockError], stack: ExitStack
) -> pa.RecordBatchReader | None:
    """The rows, to be read before `stack` is closed. None if a value raises. Raises the error of a scan."""
    try:
        if bound.constants:
            with thread_kernel().answering(f"SELECT {', '.join(bound.constants)}", {}) as constants:
                constants.read_all()
        answer = stack.enter_context(thread_kernel().answering(bound.sql, rows))
        batches = _typed(answer, bound.schema, failed)
        if bound.may_raise:
            batches = iter([*batches])
    except (KernelError, duckdb.Error, pa.ArrowException) as err:
        if failed:
            raise failed[0] from err
        return None
    return pa.RecordBatchReader.from_batches(bound.schema, batches)


def _typed(answer: pa.RecordBatchReader, schema: pa.Schema, failed: Sequence[TussockError]) -> Iterator[pa.RecordBatch]:
    """Batches with the names of a schema. Raises the error of a scan, or KernelError."""
    try:
        for batch in answer:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except (duckdb.Error, OSError, pa.ArrowException) as err:
        if failed:
            raise failed[0] from err
        raise KernelError("a query", str(err)) from err


def _stored(version: HummockVersion, sight: Sight, name: str) -> Relation:
    """The visible table or materialized view of this name, if a query sees its columns as they are stored."""
    relations = sight.relations(version.catalog)
    functions = any(r.kind is RelationKind.FUNCTION for r in relations)  # one may have the name of a built-in function
    found = next((r for r in relations if r.name == name.lower()), None)
    if found is None or functions or found.kind not in (RelationKind.TABLE, RelationKind.VIEW):
        raise NotPlainError
    created = created_by(found)
    if isinstance(created, CreateTable) and created.lengths:
        raise NotPlainError  # Spark pads values of char columns to compare them
    return found


def _require_little(version: HummockVersion, relations: Sequence[Relation]) -> None:
    tables = {stored_table(relation).table_id for relation in relations}
    levels = part_of(version, tables).levels
    if sum(s.bytes for level in levels for sst in level for s in sst.sections if s.table_id in tables) > MOST_BYTES:
        raise NotPlainError


# From terms to DuckDB's text ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bound:
    """A query over relations `r0`, `r1`, …, of which it reads `columns`."""

    sql: str
    columns: tuple[tuple[str, ...], ...]
    schema: pa.Schema
    may_raise: bool
    constants: tuple[str, ...]
    """Constants that may raise. Spark computes them also if there is no row."""


@dataclass(slots=True)
class _Groups:
    """The grouping of a query. Its columns are the keys, and then the numbers that aggregates need."""

    keys: list[Expr]
    terms: list[PlainTerm]  # the keys, resolved
    inputs: list[Expr] = field(default_factory=list)  # the arguments of aggregates
    parts: list[str] = field(default_factory=list)  # DuckDB's aggregates over them

    def part(self, template: str, argument: Expr, kind: str) -> Column:
        """The column of one aggregate over an argument, whose name replaces `{0}`."""
        if argument not in self.inputs:
            self.inputs.append(argument)
        sql = template.format(f"a{self.inputs.index(argument)}")
        if sql not in self.parts:
            self.parts.append(sql)
        return Column(len(self.keys) + self.parts.index(sql), kind)


def _bound(text: PlainText, relations: Sequence[Relation], time_zone: str) -> _Bound:
    """The query with types and names. Raises NotPlainError, UnsupportedExpressionError."""
    known = [
        PlainColumn(scan.alias.lower(), c.name, c.type)
        for scan, relation in zip(text.scans, relations, strict=True)
        for c in relation.columns
    ]
    if len({scan.alias.lower() for scan in text.scans}) != len(text.scans):
        raise NotPlainError
    base = PlainBinder(known, time_zone)
    where = None if text.where is None else base.condition(text.where)
    joins = _joins(text, base, known, relations)
    items = _items(text, known)
    _require_own_names(text, items, known)
    grouped = _grouping(text, items, base)
    binder = base if grouped is None else PlainBinder(known, time_zone, _special(grouped, base))
    outputs = [binder.bound(term) for term, _ in items]
    if (text.distinct or text.having is not None) and not all(_names_item(s.term, items) for s in text.order):
        raise NotPlainError  # Spark refuses some of these
    order = [(s, _order_key(s, items, outputs, binder, text.distinct)) for s in text.order]
    having = None if text.having is None or grouped is None else binder.condition(text.having)
    if (text.having is not None and grouped is None) or any(o.type == "void" for o in outputs):
        raise NotPlainError
    if (having is not None and may_raise(having)) or (where is not None and joins[1:] and may_raise(where)):
        raise NotPlainError  # Spark tests some parts before it groups or joins, so also on other rows
    if text.distinct and not all(family_of(o.type) in KEY_TYPES for o in outputs):
        raise NotPlainError
    before = [e for e in (where, *(grouped.keys if grouped else ())) if e is not None]
    after = [*outputs, *(key for _, key in order), *([having] if having is not None else [])]
    for expr in (*before, *after):
        check(expr)
    over_rows = [*before, *(after if grouped is None else grouped.inputs)]
    read = {i for e in over_rows for i in columns_of(e)} | {i for pairs in joins for pair in pairs for i in pair}
    rows = _kept(_joined(text, relations, joins, read), where)
    return _Bound(
        _limited(
            _ordered(_projected(outputs, order, _grouped(rows, grouped, having)), text, outputs, order), text.limit
        ),
        tuple(tuple(c.name for _, c in columns) for columns in _by_relation(relations, read)),
        pa.schema([(name, arrow_type(o.type)) for (_, name), o in zip(items, outputs, strict=True)]),
        grouped is not None or any(map(may_raise, (*before, *after))),
        tuple(
            render(c) for e in (*before, *after, *(grouped.inputs if grouped else ())) for c in _raising_constants(e)
        ),
    )


def _raising_constants(expr: Expr) -> Iterator[Expr]:
    """The largest parts that read no column and may raise."""
    if isinstance(expr, Call) and may_raise(expr):
        if columns_of(expr):
            for part in expr.args:
                yield from _raising_constants(part)
        else:
            yield expr


def _by_relation(relations: Sequence[Relation], read: set[int]) -> list[list[tuple[int, ColumnSpec]]]:
    """The columns to read of each relation, with their indices; one at least, whose values may not matter."""
    found, end = [], 0
    for relation in relations:
        begin, end = end, end + len(relation.columns)
        columns = [(i, c) for i, c in enumerate(relation.columns, begin) if i in read]
        columns = columns or [(i, c) for i, c in enumerate(relation.columns, begin) if family_of(c.type) in PLAIN_TYPES]
        if not columns:
            raise NotPlainError
        found.append(columns if read & {*range(begin, end)} else columns[:1])
    return found


def _joined(
    text: PlainText, relations: Sequence[Relation], joins: Sequence[Sequence[tuple[int, int]]], read: set[int]
) -> str:
    columns = _by_relation(relations, read)
    places = {i: f"r{n}.{duck_name(c.name)}" for n, own in enumerate(columns) for i, c in own}
    tables = "r0"
    for n, (scan, pairs) in enumerate(zip(text.scans[1:], joins[1:], strict=True), 1):
        equal = " AND ".join(f"{places[a]} = {places[b]}" for a, b in pairs)
        tables += f" {'LEFT' if scan.left else 'INNER'} JOIN r{n} ON {equal}"
    return f"SELECT {', '.join(f'{place} AS c{i}' for i, place in places.items())} FROM {tables}"


def _kept(rows: str, condition: Expr | None) -> str:
    """The rows that meet a condition. In a CASE, because DuckDB runs the parts of a plain AND in any order."""
    if condition is None:
        return rows
    return f"SELECT * FROM ({rows}) WHERE CASE WHEN {render(condition)} THEN TRUE ELSE FALSE END"


def _grouped(rows: str, groups: _Groups | None, having: Expr | None) -> str:
    if groups is None:
        return rows
    keys = [f"g{i}" for i in range(len(groups.keys))]
    values = [f"{render(key)} AS g{i}" for i, key in enumerate(groups.keys)]
    values += [f"{render(value)} AS a{i}" for i, value in enumerate(groups.inputs)]
    columns = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate((*keys, *groups.parts)))
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    return _kept(f"SELECT {columns} FROM (SELECT {', '.join(values)} FROM ({rows})){by}", having)


def _projected(outputs: Sequence[Expr], order: Sequence[tuple[PlainSort, Expr]], rows: str) -> str:
    keys = [f"{render(key)} AS k{i}" for i, (_, key) in enumerate(order) if key not in outputs]
    return f"SELECT {', '.join((*(f'{render(o)} AS o{i}' for i, o in enumerate(outputs)), *keys))} FROM ({rows})"


def _ordered(rows: str, text: PlainText, outputs: Sequence[Expr], order: Sequence[tuple[PlainSort, Expr]]) -> str:
    names = ", ".join(f"o{i}" for i in range(len(outputs)))
    keys = [
        f"{f'o{outputs.index(key)}' if key in outputs else f'k{i}'} {'DESC' if entry.descending else 'ASC'} "
        f"NULLS {'FIRST' if entry.nulls_first else 'LAST'}"
        for i, (entry, key) in enumerate(order)
    ]
    found = f"SELECT DISTINCT {names} FROM ({rows})" if text.distinct else rows
    return f"SELECT {names} FROM ({found})" + (f" ORDER BY {', '.join(keys)}" if keys else "")


def _limited(rows: str, limit: int | None) -> str:
    return rows if limit is None else f"{rows} LIMIT {limit}"


def _joins(
    text: PlainText, base: PlainBinder, known: Sequence[PlainColumn], relations: Sequence[Relation]
) -> list[list[tuple[int, int]]]:
    """By relation: the pairs of columns that its join compares, each column of the relation second."""
    found, end = [], 0
    for scan, relation in zip(text.scans, relations, strict=True):
        begin, end = end, end + len(relation.columns)
        pairs = []
        for terms in scan.on:
            left, right = sorted(map(base.column, terms))
            if not (left < begin <= right < end) or known[left].type != known[right].type:
                raise NotPlainError
            if family_of(known[left].type) not in KEY_TYPES:
                raise NotPlainError
            pairs.append((left, right))
        found.append(pairs)
    return found


def _items(text: PlainText, known: Sequence[PlainColumn]) -> list[tuple[PlainTerm, str]]:
    """The SELECT list: terms and Spark's names for them."""
    found: list[tuple[PlainTerm, str]] = []
    for item in text.items:
        if item.term.node == "*":
            if len(text.scans) > 1:
                raise NotPlainError
            found += [(PlainTerm("name", text=c.name), c.name) for c in known]
        else:
            found.append((item.term, item.name or _name_of(item.term)))
    names = [name.lower() for _, name in found]
    if len(set(names)) < len(names):
        raise NotPlainError
    return found


def _name_of(term: PlainTerm) -> str:
    """Spark's name of a term without an alias."""
    match term:
        case PlainTerm(node="name", text=name):
            return name
        case PlainTerm(node="call", text="count", args=(PlainTerm(node="*") | PlainTerm(node="number", text="1"),)):
            return "count(1)"
        case PlainTerm(node="call" | "distinct" as kind, text=name, args=(PlainTerm(node="name", text=of),)) if (
            name in _AGGREGATES
        ):
            return f"{name}({'DISTINCT ' if kind == 'distinct' else ''}{of})"
    raise NotPlainError


def _require_own_names(text: PlainText, items: Sequence[tuple[PlainTerm, str]], known: Sequence[PlainColumn]) -> None:
    """Raise NotPlainError if a clause has a name that is an alias and another column.

    Clauses of Spark differ in which of the two they mean. WHERE, joins and the SELECT list mean columns.
    """
    columns = {c.name.lower() for c in known}
    clauses = (*text.groups, *(entry.term for entry in text.order), *([text.having] if text.having else ()))
    named = {name for term in clauses for name in _names_in(term)}
    for term, name in items:
        hides = name.lower() in columns
        if hides and not (term.node == "name" and term.text.lower() == name.lower()) and name.lower() in named:
            raise NotPlainError


def _names_in(term: PlainTerm) -> Iterator[str]:
    if term.node == "name":
        yield term.text.lower()
    for part in term.args:
        yield from _names_in(part)


def _grouping(text: PlainText, items: Sequence[tuple[PlainTerm, str]], base: PlainBinder) -> _Groups | None:
    """The keys of GROUP BY; None: the query has no aggregate."""
    if not text.groups and not any(
        map(_has_aggregate, (*(t for t, _ in items), *([text.having] if text.having else ())))
    ):
        return None
    if any(_has_aggregate(s.term) for s in text.order) and text.distinct:
        raise NotPlainError
    keys: list[Expr] = []
    terms: list[PlainTerm] = []
    for term in text.groups:
        meant = term if term.node == "name" and base.knows(term.text) else _meant(term, items)
        if _has_aggregate(meant):
            raise NotPlainError
        key = base.bound(meant)
        if isinstance(key, Literal) or family_of(key.type) not in KEY_TYPES:
            raise NotPlainError
        keys.append(key)
        terms.append(base.resolved(meant))
    return _Groups(keys, terms)


def _meant(term: PlainTerm, items: Sequence[tuple[PlainTerm, str]]) -> PlainTerm:
    """The term that an entry of GROUP BY or ORDER BY means: a place or a name of the SELECT list, or itself."""
    if term.node == "number":
        if not term.text.isdigit() or not 1 <= int(term.text) <= len(items):
            raise NotPlainError
        return items[int(term.text) - 1][0]
    if term.node == "name" and not term.of:
        return next((t for t, name in items if name.lower() == term.text.lower()), term)
    return term


def _names_item(term: PlainTerm, items: Sequence[tuple[PlainTerm, str]]) -> bool:
    """Whether an entry of ORDER BY is a place or a name of the SELECT list."""
    named = term.node == "name" and not term.of and term.text.lower() in {name.lower() for _, name in items}
    return named or term.node == "number"


def _has_aggregate(term: PlainTerm) -> bool:
    is_call = term.node in ("call", "distinct") and term.text in _AGGREGATES
    return is_call or any(map(_has_aggregate, term.args))


def _order_key(
    entry: PlainSort,
    items: Sequence[tuple[PlainTerm, str]],
    outputs: Sequence[Expr],
    binder: PlainBinder,
    distinct: bool,
) -> Expr:
    found = binder.bound(_meant(entry.term, items))
    if isinstance(found, Literal) or family_of(found.type) not in PLAIN_TYPES or (distinct and found not in outputs):
        raise NotPlainError
    return found


# Aggregates -----------------------------------------------------------------------------------------------------------

#: Returns the expression over the columns after grouping that equals Spark's aggregate.
_Aggregate = Callable[[_Groups, Expr], Expr]


def _count(groups: _Groups, value: Expr) -> Expr:
    return groups.part("count({0})", value, "bigint")


def _sum(groups: _Groups, value: Expr) -> Expr:
    """Integers and decimals, of which sums are exact. Spark adds doubles in the order of its tasks.

    Spark raises also if only the sum of some rows is too large for a bigint, depending on their order.
    """
    kind = value.type
    if kind == "bigint":
        most = f"sum(abs(CAST({{0}} AS HUGEINT))) > {2**63 - 1}"
        return groups.part(f"CASE WHEN {most} THEN error('overflow') ELSE CAST(sum({{0}}) AS BIGINT) END", value, kind)
    if kind in INTEGERS:
        return groups.part("CAST(sum({0}) AS BIGINT)", value, "bigint")
    if family_of(kind) != "decimal":
        raise NotPlainError
    precision, scale = decimal_of(kind)
    total = f"decimal({min(precision + 10, MOST_DIGITS)},{scale})"
    if precision <= _MOST_SUMMED_DIGITS:
        return groups.part(cast("sum({0})", total), value, total)
    # If the absolute values fit together, so do sums in any order, and Spark raises in none. DuckDB raises, too.
    nines = "9" * MOST_DIGITS
    most = f"sum(abs({{0}})) > CAST('{nines[scale:]}.{nines[:scale]}' AS DECIMAL({MOST_DIGITS}, {scale}))"
    return groups.part(f"CASE WHEN {most} THEN error('overflow') ELSE sum({{0}}) END", value, total)


def _average(groups: _Groups, value: Expr) -> Expr:
    """The exact sum, divided once. Spark adds integers as doubles: exact while all sums are below 2^53."""
    number = groups.part("count({0})", value, "bigint")
    if value.type in INTEGERS:
        most = "sum(abs(CAST({0} AS HUGEINT)))"
        mean = "CAST(sum({0}) AS DOUBLE) / nullif(count({0}), 0)"
        guarded = f"CASE WHEN {most} > {_EXACT_DOUBLES} THEN error('inexact') ELSE {mean} END"
        return groups.part(guarded, value, "double")
    precision, scale = _summed(value.type)
    places = Call("Cast", "decimal(20,0)", (number,), "ANSI")
    return Call("Divide", f"decimal({precision + 4},{scale + 4})", (_sum(groups, value), places), "ANSI")


def _summed(kind: str) -> tuple[int, int]:
    if family_of(kind) != "decimal" or decimal_of(kind)[0] > _MOST_SUMMED_DIGITS:
        raise NotPlainError
    return decimal_of(kind)


def _extreme(function: str) -> _Aggregate:
    def found(groups: _Groups, value: Expr) -> Expr:
        """Of types whose equal values are identical, and of doubles unless zeros of both signs are in a group.

        NaN is the greatest value, as in Spark. If the answer is a zero, Spark returns the first one that it meets.
        """
        extreme = f"{function}({{0}})"
        if family_of(value.type) in FLOATS:
            signs = "count(DISTINCT signbit({0})) FILTER ({0} = 0)"
            extreme = f"CASE WHEN {extreme} = 0 AND {signs} > 1 THEN error('order') ELSE {extreme} END"
        elif family_of(value.type) not in KEY_TYPES:
            raise NotPlainError
        return groups.part(extreme, value, value.type)

    return found


_AGGREGATES: dict[str, _Aggregate] = {
    "count": _count,
    "sum": _sum,
    "avg": _average,
    "min": _extreme("min"),
    "max": _extreme("max"),
}


def _special(groups: _Groups, base: PlainBinder) -> Callable[[PlainTerm], Expr | None]:
    """Binds aggregates and keys as columns after grouping. Raises NotPlainError for a column that is neither."""

    def bound(term: PlainTerm) -> Expr | None:
        if term.node in ("call", "distinct") and term.text in _AGGREGATES:
            return _aggregate(groups, base, term)
        if not _has_aggregate(term):
            resolved = base.resolved(term)
            if resolved in groups.terms:
                index = groups.terms.index(resolved)
                return Column(index, groups.keys[index].type)
        if term.node == "name":
            raise NotPlainError
        return None

    return bound


def _aggregate(groups: _Groups, base: PlainBinder, term: PlainTerm) -> Expr:
    if len(term.args) != 1 or _has_aggregate(term.args[0]):
        raise NotPlainError
    if term.args[0].node == "*":
        if term.text != "count" or term.node == "distinct":
            raise NotPlainError
        return groups.part("count(*)", Literal(True, "boolean"), "bigint")
    value = base.bound(term.args[0])
    if value.type == "void":
        raise NotPlainError
    check(value)
    if term.node == "distinct":
        if term.text != "count" or family_of(value.type) not in KEY_TYPES:
            raise NotPlainError
        return groups.part("count(DISTINCT {0})", value, "bigint")
    return _AGGREGATES[term.text](groups, value)
