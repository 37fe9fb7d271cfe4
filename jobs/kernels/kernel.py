"""The kernel: one isolated DuckDB connection per thread that computes expressions over Arrow tables.

It uses one DuckDB thread (a Spark task has one core), bounded memory that may spill, UTC and a locked configuration. It
has no access to files, the network or extensions. A connection costs 20 ms, so each thread keeps one. A query costs
about 0.3 ms, so all expressions of a projection are one query, which is prepared once.

Every result has one row per input row, in the same order, because callers pair the two by position
(docs/design/order.md).
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple
from weakref import finalize

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.kernels.duck import duck_type, type_in_duckdb
from tussock.jobs.kernels.errors import KernelError, RowError, UnsupportedExpressionError
from tussock.jobs.kernels.functions import ArrowFunction, called_functions
from tussock.jobs.kernels.python_function import taken_fault
from tussock.jobs.kernels.registry import shape_of
from tussock.jobs.kernels.render import render_expression
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.expression_tree import column_reads, columns_of, split_conjuncts
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal, Physical
from tussock.jobs.settings.cause import cause_of
from tussock.statestore.errors import TussockError
from tussock.statestore.forks import OwnProcess
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.months import shown_at
from tussock.statestore.nested import copy_offset_structs, is_nested, relabel_column
from tussock.statestore.types import arrow_type, is_span

DEFAULT_MEMORY = "512MB"
_SHOWN_CHARACTERS = 100  # of a value in an error message
_KEEP_ORDER = frozenset({"PROJECTION", "PYTHON_ARROW_SCAN"})  # physical operators that keep each row at its position
_MOST_PREPARED = 512  # queries of a kernel
_BATCH_ROWS = 131_072  # of DuckDB's results, as by default
_ROWS = "rows_"  # starts the names of prepared queries
_NUMBER = "row_number_of_the_kernel"
_NOT_UTF8 = (
    "the text is not UTF-8, which kernels cannot read. Where bytes become a text, use make_valid_utf8(…) or "
    "try_validate_utf8(…)"
)
_NOT_A_ROWS_FAULT = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.OutOfMemoryException,
)


class _Source:
    """A relation of DuckDB whose rows change between executions of a prepared query.

    DuckDB asks for the schema when it prepares the query, and for the rows each time it executes it. A registered Arrow
    table would not do: a prepared query keeps the table that it was prepared with.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._nothing = self._rows = schema.empty_table()

    @contextmanager
    def hold_rows(self, rows: pa.Table) -> Iterator[None]:
        """Return these rows during the block."""
        self._rows = rows
        try:
            yield
        finally:
            self._rows = self._nothing

    def __arrow_c_schema__(self) -> object:
        return self._nothing.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


class _Query(NamedTuple):
    """A SELECT list, and the names and types of the columns that it is over."""

    columns: str
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]


class _Prepared(NamedTuple):
    name: str  # of the prepared query and of its relation
    source: _Source
    keeps_order: bool  # whether all operators of DuckDB's plan keep the order of rows


class Kernel:
    """Computes bound expressions over tables whose column i is named `c{i}`."""

    def __init__(self, memory_limit: str = DEFAULT_MEMORY, temp_directory: str | None = None) -> None:
        """`memory_limit` is in DuckDB's notation. Larger queries spill to `temp_directory`, or fail if that is None."""
        self._memory_limit, self._temp_directory = memory_limit, temp_directory
        self._connect()

    def _connect(self) -> None:
        self._connection = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": self._memory_limit})
        for setting in (
            "SET TimeZone = 'UTC'",
            f"SET temp_directory = '{(self._temp_directory or '').replace(chr(39), chr(39) * 2)}'",
            # expression_rewriter turns c0 * 2 > 2 into c0 > 1, which loses the overflow. in_clause turns `x IN (five
            # constants)` into a join, which changes the order of rows and computes x on rows that a CASE excludes.
            "SET disabled_optimizers = 'expression_rewriter,in_clause'",
            "SET python_enable_replacements = false",  # read only registered tables, never the caller's variables
            "SET autoinstall_known_extensions = false",
            "SET autoload_known_extensions = false",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            self._connection.execute(setting)
        self._table_of = table_function(self._connection)
        self._registered = set[str]()  # names of the declared functions that this connection knows
        self._prepared: OrderedDict[_Query, _Prepared] = OrderedDict()  # least recently used first
        self._numbers = count()

    def project_columns(
        self, rows: pa.Table, exprs: Sequence[Expr], types: Sequence[str], keep: Sequence[str] = ()
    ) -> pa.Table:
        """Compute one column per expression.

        Args:
            rows: (n, …), columns named `c0`, `c1`, …; other names are allowed too.
            exprs: bound expressions over those columns.
            types: the type of each expression, by Spark's name.
            keep: names of input columns to append to the computed ones, e.g. `("w",)`.

        Returns:
            (n, len(exprs) + len(keep)) in the order of `rows`: `c0`, `c1`, … of exactly `arrow_type(types[i])`, then
            `keep`.

        Raises:
            RowError: an expression raised on a row, as Spark does in ANSI mode.
            FunctionCodeError, FunctionResultError: the code of a user's function is wrong.
            UnsupportedExpressionError: an expression is not on the tested list.
            KernelError: the rendered query failed for another reason.

        Cost: one query for all expressions (0.3 ms or more). Plain columns need no query and no copy, and fields of
            their structs no query.
        """
        plain_columns = [_find_in_rows(e, rows) for e in exprs]
        places = [i for i, column in enumerate(plain_columns) if column is None]
        answer = self._select_columns(rows, tuple(exprs[i] for i in places), places) if places else None
        columns: list[pa.ChunkedArray] = []
        taken = 0
        for expr, type_name, column in zip(exprs, types, plain_columns, strict=True):
            if column is None:
                assert answer is not None
                column, taken = answer.column(taken), taken + 1
                if type_in_duckdb(wanted := arrow_type(type_name)) != wanted:
                    column = _from_duckdb_column(column, wanted, expr)
            if column.type != arrow_type(type_name):
                raise KernelError(
                    expression_text(expr),
                    f"expected {arrow_type(type_name)} ({type_name}), the query returned {column.type}",
                )
            columns.append(column)
        names = [*(f"c{i}" for i in range(len(columns))), *keep]
        return pa.table([*columns, *(rows[k] for k in keep)], names=names)

    def filter_rows(self, rows: pa.Table, condition: Expr) -> pa.Table:
        """The rows for which the condition is true (not false, not NULL), in order, with all columns.

        Raises the errors of `project_columns`. The condition is computed as a column on every row, so that DuckDB
        cannot move a part of a WHERE before the part that guards it. `IS NOT NULL` costs nothing for columns without
        NULLs, and little for fields of structs. Spark's optimizer adds this test before most joins.
        """
        if all(_holds_for_all(c, rows) for c in split_conjuncts(condition)):
            return rows
        return rows.filter(self.project_columns(rows, (condition,), ("boolean",))["c0"])

    def try_expressions(self, rows: pa.Table, exprs: tuple[Expr, ...]) -> pa.Table | None:
        """Compute one column per expression, with DuckDB's types. None if an expression raises or DuckDB refuses it.

        Requires: no expression calls a Python function. Cost: one query, also if it raises.
        """
        try:
            return self._in_order(_columns_text(exprs), _to_duckdb_rows(_read_columns(rows, exprs)))
        except (duckdb.Error, KernelError):
            return None

    def dry_run(self, exprs: Sequence[Expr]) -> None:
        """Compute expressions over no rows, to learn whether DuckDB accepts their query.

        Raises: UnsupportedExpressionError for the first expression that it does not accept.

        Cost: preparing the query, which the first epoch of this thread then need not do.
        """
        try:
            self._compute_nothing(exprs)
        except KernelError as err:
            for expr in exprs:
                if (reason := self._refusal_of(expr)) is not None:
                    place = expr.place if isinstance(expr, Call) else None
                    shape = shape_of(expr) if isinstance(expr, Call) else f"type {expr.type}"
                    reason = f"is refused by DuckDB: {reason}"
                    raise UnsupportedExpressionError(shape, expression_text(expr), reason, place) from err
            raise

    def _refusal_of(self, expr: Expr) -> str | None:
        try:
            self._compute_nothing((expr,))
        except KernelError as err:
            return err.reason
        return None

    def _compute_nothing(self, exprs: Sequence[Expr]) -> None:
        types = {column.index: column.type for expr in exprs for column in column_reads(expr)}
        fields = [pa.field(f"c{i}", arrow_type(types[i])) for i in sorted(types)]
        with suppress(RowError):  # a constant part raises, which matters only if a row reaches it
            self.project_columns(
                pa.schema([*fields, pa.field("w", pa.int64())]).empty_table(), exprs, [e.type for e in exprs]
            )

    def compute_columns(self, columns: str, rows: pa.Table) -> pa.Table:
        """Compute columns from a SELECT list that an executor writes, e.g. `c0 // 2 AS half, c1`.

        Args:
            columns: a SELECT list over the columns of `rows`.
            rows: (n, …), any names.

        Returns: (n, …) in the order of `rows`; the types are DuckDB's.

        Raises:
            KernelError: contains the text and DuckDB's reason.
        """
        try:
            return self._in_order(columns, rows)
        except duckdb.Error as err:
            raise KernelError(columns, _reason_of(err)) from err

    def make_constants(self, columns: Sequence[Sequence[Physical]], types: Sequence[str]) -> pa.Table:
        """Build a table of constants from values in the form of `Literal.value`.

        Args:
            columns: at least one, all of the same length of at least 1.

        Returns: columns of exactly `arrow_type(types[i])`. Raises KernelError. Cost: one query over the text of all
            values.
        """
        rows = [
            [render_expression(Literal(v, t)) for v, t in zip(row, types, strict=True)]
            for row in zip(*columns, strict=True)
        ]
        sql = "VALUES " + ", ".join(f"({', '.join(row)}, {n})" for n, row in enumerate(rows))
        try:
            answer = self._run_query(sql)
        except duckdb.Error as err:
            raise KernelError(sql, _reason_of(err)) from err
        answer = _put_in_order(answer, len(rows), sql)
        named = [
            _from_duckdb_column(column, arrow_type(t), Literal(None, t))
            for column, t in zip(answer.columns, types, strict=True)
        ]
        return pa.table(named, names=[f"c{i}" for i in range(len(named))])

    def close(self) -> None:
        """Close the connection. The kernel cannot be used afterwards."""
        self._connection.close()

    def _select_columns(self, rows: pa.Table, exprs: tuple[Expr, ...], places: Sequence[int]) -> pa.Table:
        columns = _columns_text(exprs)
        taken_fault()  # of an earlier query that did not fail: DuckDB tries constant calls when it plans a query
        try:
            return self._in_order(columns, _to_duckdb_rows(_read_columns(rows, exprs)))
        except _NOT_A_ROWS_FAULT as err:
            raise KernelError(columns, _reason_of(err)) from err
        except TussockError:
            raise
        except Exception as err:  # DuckDB's, even internal ones; Arrow's and Python's, for unrepresentable values
            if (fault := taken_fault()) is not None:
                raise fault from err
            raise self._row_error(rows, exprs, places, err) from err

    def _in_order(self, columns: str, rows: pa.Table) -> pa.Table:
        """Run a SELECT list over rows.

        The result has one row per input row, in their order; otherwise raises KernelError.
        """
        rows, answer = copy_offset_structs(rows), None
        with self._survive_errors():
            prepared = self._prepared_for(columns, rows.schema)
            if prepared.keeps_order or rows.num_rows < 2:
                with prepared.source.hold_rows(rows):
                    answer = self._table_of(f"EXECUTE {prepared.name}")
        sql = f"SELECT {columns} FROM rows"
        if answer is None:
            numbered = rows.append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
            return _put_in_order(
                self._run_query(f"SELECT {columns}, {_NUMBER} FROM rows", rows=numbered), rows.num_rows, sql
            )
        if answer.num_rows != rows.num_rows:
            raise _other_rows(sql, answer.num_rows, rows.num_rows)
        return answer

    def _prepared_for(self, columns: str, schema: pa.Schema) -> "_Prepared":
        """The prepared query of a SELECT list over rows of these columns.

        Parsing, binding and optimizing a long list takes far longer than computing it for a small chunk.

        The number of rows is not known when the query is prepared. DuckDB chooses among joins, aggregates and sorts by
        that number, but the text of the query alone decides whether the plan contains any of these.
        """
        query = _Query(columns, tuple(schema.names), tuple(schema.types))
        if (known := self._prepared.get(query)) is not None:
            self._prepared.move_to_end(query)
            return known
        if len(self._prepared) >= _MOST_PREPARED:
            _, oldest = self._prepared.popitem(last=False)
            self._connection.execute(f"DEALLOCATE {oldest.name}")
            self._connection.unregister(oldest.name)
        self._register_called(columns)
        name, source = f"{_ROWS}{next(self._numbers)}", _Source(schema)
        self._connection.register(name, source)
        sql = f"SELECT {columns} FROM {name} AS rows"
        try:
            self._connection.execute(f"PREPARE {name} AS {sql}")
            ((_, plan),) = self._connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
        except BaseException:
            self._connection.unregister(name)
            raise
        known = _Prepared(name, source, _operator_names(json.loads(plan)) <= _KEEP_ORDER)
        self._prepared[query] = known
        return known

    def _run_query(self, sql: str, **tables: pa.Table) -> pa.Table:
        """Run a query over tables. The order of the result is arbitrary."""
        self._register_called(sql)
        with self._connect_tables(**tables) as connection:
            return connection.sql(sql).to_arrow_table()

    @contextmanager
    def _connect_tables(self, **tables: object) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection with these tables."""
        with self._survive_errors():
            for name, table in tables.items():
                self._connection.register(name, table)
            try:
                yield self._connection
            finally:
                for name in tables:
                    self._connection.unregister(name)

    @contextmanager
    def _survive_errors(self) -> Iterator[None]:
        """Make a new connection after an internal error of DuckDB, which ends its instance."""
        try:
            yield
        except (duckdb.FatalException, duckdb.InternalException):
            self._connection.close()
            self._connect()
            raise

    def _register_called(self, sql: str) -> None:
        """Register the declared functions that a text calls. Raises KernelError; other queries are not affected."""
        for function in called_functions(sql):
            if function.name not in self._registered:
                self._register_function(function)

    def _register_function(self, function: ArrowFunction) -> None:
        create: Any = self._connection.create_function  # its stubs declare Python values only, not Arrow columns
        try:
            create(
                function.name,
                function.call,
                [self._connection.sqltype(duck_type(p)) for p in function.parameters],
                self._connection.sqltype(duck_type(function.result)),
                type="arrow",
                null_handling="special",
            )
        except duckdb.Error as err:
            shown = f"{function.name}({', '.join(function.parameters)}) -> {function.result}"
            raise KernelError(shown, f"DuckDB does not accept the function: {_reason_of(err)}") from err
        self._registered.add(function.name)

    def _row_error(self, rows: pa.Table, exprs: tuple[Expr, ...], places: Sequence[int], err: Exception) -> Exception:
        """Find the expression that raised and its first such row: run each alone, then bisect. O(log n) queries."""
        for place, expr in zip(places, exprs, strict=True):
            if (cause := self._failure_reason(rows, expr)) is None:
                continue
            low, high = 0, rows.num_rows  # rows[:low] passes, rows[:high] fails
            while high - low > 1:
                middle = (low + high) // 2
                failure = self._failure_reason(rows.slice(low, middle - low), expr)
                low, high, cause = (middle, high, cause) if failure is None else (low, middle, failure)
            reason = (
                _NOT_UTF8 if _holds_bytes(rows, low, expr) else self._failure_reason(rows.slice(low, 1), expr) or cause
            )
            return RowError(expression_text(expr), f"{reason}, with {_shown_inputs(rows, low, expr)}", low, place)
        return KernelError(_columns_text(exprs), _reason_of(err))

    def _failure_reason(self, rows: pa.Table, expr: Expr) -> str | None:
        try:
            self._run_query(f"SELECT {_columns_text((expr,))} FROM rows", rows=_to_duckdb_rows(rows))
        except Exception as err:
            return _reason_of(err)
        return None


def table_function(connection: duckdb.DuckDBPyConnection) -> Callable[[str], pa.Table]:
    """The fastest function of this DuckDB that runs a statement of any kind, and returns its rows.

    The public one keeps the rows of a statement that is not a SELECT, and then reads them with a second query. For a
    thousand rows this takes longer than the statement itself; for more rows, it is one more copy. The function below it
    has neither step, but a release of DuckDB may change it. It is used if it works here.
    """

    def run_directly(sql: str) -> pa.Table:
        return connection._submit(sql, None, "arrow", _BATCH_ROWS).arrow_table()

    def run_publicly(sql: str) -> pa.Table:
        return connection.sql(sql).to_arrow_table()

    connection.execute("PREPARE probe AS SELECT range AS n, 'a' AS t, [range] AS l FROM range(3)")
    try:
        return run_directly if run_directly("EXECUTE probe").equals(run_publicly("EXECUTE probe")) else run_publicly
    except Exception:  # of any kind: the function is another one
        return run_publicly
    finally:
        connection.execute("DEALLOCATE probe")


def _find_in_rows(expr: Expr, rows: pa.Table) -> pa.ChunkedArray | None:
    """The values of an expression that rows contain as a column or inside of a struct; None for other expressions."""
    match expr:
        case Column(index=index):
            return rows[f"c{index}"]
        case Call(node="GetStructField", args=(struct,), params=(("ordinal", place),)):
            if (around := _find_in_rows(struct, rows)) is not None:
                field = pc.struct_field(around, [int(place)])
                return field if field.type == arrow_type(expr.type) else None
    return None


def _holds_for_all(condition: Expr, rows: pa.Table) -> bool:
    """Whether a condition is true for every row, decided without a query."""
    match condition:
        case Call(node="IsNotNull", args=(value,)):
            return (values := _find_in_rows(value, rows)) is not None and not values.null_count
    return False


@lru_cache(maxsize=1024)
def _columns_text(exprs: tuple[Expr, ...]) -> str:
    return ", ".join(f"{render_expression(e)} AS c{i}" for i, e in enumerate(exprs))


def _read_columns(rows: pa.Table, exprs: Sequence[Expr]) -> pa.Table:
    """The columns that expressions read, in order: DuckDB is slow over many columns. Constants get the last column."""
    read = sorted(frozenset().union(*(columns_of(e) for e in exprs)))
    return rows.select([f"c{i}" for i in read] or rows.column_names[-1:])


def _operator_names(plan: list[Any]) -> set[str]:
    """The names of all operators of a plan from EXPLAIN (FORMAT JSON)."""
    return {node["name"].strip() for node in plan}.union(*(_operator_names(node["children"]) for node in plan))


def _put_in_order(answer: pa.Table, count: int, sql: str) -> pa.Table:
    """Sort `answer` by its last column, the rows' numbers, and drop that column.

    Raises KernelError if a number is missing.
    """
    numbers = answer.column(answer.num_columns - 1)
    order = pc.sort_indices(numbers)
    if answer.num_rows != count or not np.array_equal(numbers.take(order).to_numpy(), np.arange(count)):
        raise _other_rows(sql, answer.num_rows, count)
    return answer.remove_column(answer.num_columns - 1).take(order)


def _other_rows(sql: str, row_count: int, expected: int) -> KernelError:
    return KernelError(sql, f"expected {expected} rows, each once, DuckDB returned {row_count}")


def _to_duckdb_rows(rows: pa.Table) -> pa.Table:
    """Convert rows for DuckDB: nested columns get its field names, intervals become integers."""
    for i, field in enumerate(rows.schema):
        if (is_nested(field.type) or is_span(field.type)) and (kind := type_in_duckdb(field.type)) != field.type:
            rows = rows.set_column(i, field.name, relabel_column(rows.column(i), kind))
    return rows


def _from_duckdb_column(column: pa.ChunkedArray, wanted: pa.DataType, expr: Expr) -> pa.ChunkedArray:
    """Convert a column from DuckDB's type to the bound type."""
    if column.type == wanted:
        return column
    if column.type != type_in_duckdb(wanted):
        raise KernelError(expression_text(expr), f"expected {wanted}, the query returned {column.type}")
    return relabel_column(column, wanted)


def _reason_of(err: Exception) -> str:
    """DuckDB's message without the query text and its advice, which refer to SQL that the user did not write."""
    if not isinstance(err, duckdb.Error):
        return cause_of(err)
    first = str(err).strip().split("\n")[0]
    if isinstance(err, duckdb.OutOfMemoryException):
        return f"{first.rstrip('.')}. Raise the kernel's memory limit, or give it a directory to spill to"
    if "Python exception" in str(err):
        first = re.sub(r"^.*executing the UDF: \w+: ", "", str(err).strip().split("\n")[-1])
    # '' is the result of a pattern that did not match.
    first = re.sub(r"Could not convert string '' to (\w+)", r"the text cannot be read as \1", first)
    return re.sub(r"^(Invalid Input|Out of Range|Conversion) Error: ", "", first).split(" Use TRY(")[0].rstrip(".!;")


def _holds_bytes(rows: pa.Table, row: int, expr: Expr) -> bool:
    """Whether the expression reads a text on a row that is not UTF-8. On such a text, DuckDB ends its database."""
    columns = [rows[f"c{i}"] for i in columns_of(expr)]
    for text in (column.slice(row, 1).cast(pa.binary()) for column in columns if pa.types.is_string(column.type)):
        try:
            text.cast(pa.string())
        except pa.ArrowInvalid:
            return True
    return False


def _shown_inputs(rows: pa.Table, row: int, expr: Expr) -> str:
    """The values that the expression reads on one row, e.g. `c0 = 'abc', c3 = None`."""
    names = [f"c{i}" for i in sorted(columns_of(expr))]
    if not names or not rows.num_rows:
        return "no columns"
    return ", ".join(f"{name} = {_format_value(rows[name], row)}" for name in names)


def _format_value(column: pa.ChunkedArray, row: int) -> str:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        data = column[row].as_buffer()  # a string column may hold bytes that are not valid UTF-8
        value = None if data is None else data.to_pybytes()
        text = repr(
            value.decode(errors="backslashreplace") if value is not None and pa.types.is_string(column.type) else value
        )
    else:
        text = str(shown_at(column, row))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


class _OfThread(threading.local):
    """The kernel of one thread; it is dropped when the thread ends."""

    kept: "_Kept | None" = None


class _Kept:
    """A kernel and its spill folder. Both are closed when the last reference is dropped or the process ends."""

    def __init__(self, memory_limit: str) -> None:
        self.process = OwnProcess()
        folder = TemporaryFolder("kernel")  # in the folder of Spark's workers, which end without exit handlers
        self.kernel = Kernel(memory_limit, folder.name)
        finalize(self, _close_kernel, self.process, self.kernel, folder)


_of_thread = _OfThread()
_of_parent: list[Kernel] = []  # kernels of the parent, in a forked child


def thread_kernel(memory_limit: str = DEFAULT_MEMORY) -> Kernel:
    """This thread's kernel.

    The first call makes it, and the end of the thread closes it. A forked child makes a new one. Later calls keep the
    memory limit of the first.

    Threads do not share a kernel, because it can hold the rows of only one query at a time.
    """
    of_thread = _of_thread.kept
    if of_thread is None or not of_thread.process.is_here:
        of_thread = _of_thread.kept = _Kept(memory_limit)
    return of_thread.kernel


def _close_kernel(process: OwnProcess, kernel: Kernel, folder: TemporaryFolder) -> None:
    if process.is_here:
        kernel.close()
        folder.cleanup()
    else:  # a forked child must not close its parent's connection: a thread of the parent may have held its locks
        _of_parent.append(kernel)
