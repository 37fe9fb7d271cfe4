"""TableReplay: apply the log's INSERT, UPDATE and DELETE entries that a barrier pinned to the rows of a table.

Every actor replays all entries on its vnodes in log order, each on the result of the earlier ones. A key that is
inserted, updated and deleted in one epoch therefore has the same result as in a database. The output is netted over the
epoch: -old +new per changed key, with the row from before the epoch as old.

Rows from another fragment are applied after the entries. They are rows that a source feeds (catalog/fed_tables.py).
A DELETE of the same epoch does not see them.

A table without a primary key has a hidden last column, the row id: position in the log << 32 | index among the entry's
rows. It depends on the log alone, so every attempt and every replay gives a row the same id.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import WEIGHT, chunk_of_difference, empty_chunk, rows_of, some_rows
from tussock.jobs.executors.base import state_table
from tussock.jobs.executors.operator import Actor, ComputedColumn, Entry, Executor, Origin, Own, PlainNode, column_list
from tussock.jobs.executors.unbounded import WHOLE_TABLES, UnboundedCost
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.nodes import Call, Column, Expr, Literal
from tussock.jobs.logical.statements import OP, Change, Delete, Insert, Update
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.key import encode_keys
from tussock.statestore.hummock.row_shape import repeat_value, value_of
from tussock.statestore.hummock.same_rows import same_rows
from tussock.statestore.meta.catalog import KeyColumn, TableSchema
from tussock.statestore.months import shown_at
from tussock.statestore.nested import conform_rows
from tussock.statestore.stacked import take_rows
from tussock.statestore.table.columns import take_columns
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import vnodes_of

_PLACE_BITS = 32  # low bits of a row id, with the index of the row; the position in the log is above them
MAX_NAMED_KEYS = 10_000  # a WHERE that names more keys scans the table


class StatementRowError(InputError):
    """An expression of an UPDATE or DELETE raised on a row of its table. `entry`: the statement's place in the log."""

    table: str
    statement: str
    key: str
    reason: str
    entry: int

    def __str__(self) -> str:
        return (
            f"table {self.table!r}, {self.statement}, row with key {self.key}: {self.reason} Nothing of this epoch was "
            f"committed. To continue without this statement, run `tussock barrier abandon --skip-entry {self.entry}`, "
            "and give it again corrected."
        )


class TableReplay(PlainNode, frozen=True, omit_defaults=True):
    """Applies the pinned DML entries of one table to its rows.

    State: the table. Output: the table's changes, all columns.

    `row_id`: the last column is the hidden row id, which is the key. `append_only`: rows are never deleted or changed;
    if a key repeats, the first row stays.
    """

    keeps_relation: ClassVar[bool] = True

    relation_id: int
    key: tuple[int, ...]
    types: tuple[str, ...]
    row_id: bool = False
    append_only: bool = False

    def state_tables(self) -> tuple[TableSchema, ...]:
        """The table: key -> row, distributed by the whole key."""
        return (state_table("rows", self.types, [KeyColumn(k) for k in self.key], self.key),)

    def column_origins(self) -> tuple[Origin, ...]:
        own = tuple(Own(i) for i in range(len(self.types) - self.row_id))
        return (*own, ComputedColumn("_row_id")) if self.row_id else own

    def expressions(self) -> tuple[Expr, ...]:
        return ()  # expressions belong to the entries: StatementRowError contains the entry

    def explain_text(self) -> str:
        return f"TableReplay key=[{column_list(self.key)}]" + (" append-only" if self.append_only else "")

    def describe_cost(self) -> str:
        return "rows that statements select by key; the whole table for each other UPDATE or DELETE"

    def unbounded_costs(self) -> tuple[UnboundedCost, ...]:
        return (WHOLE_TABLES,)

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return TableReplayExecutor(self, tables[0], actor)


class TableReplayExecutor:
    """Applies row changes of one table on the vnodes of one actor.

    State: the table, key -> row.
    Invariant: the sum of all output chunks is the table's content on these vnodes.
    """

    def __init__(self, node: TableReplay, table: StateTable, actor: Actor) -> None:
        self._node, self._table, self._kernel = node, table, actor.kernel
        self._entries, self._payload = actor.entries, actor.payload
        self._vnodes = tuple(actor.vnodes)
        self._mine = np.zeros(actor.vnode_count, np.bool_)
        self._mine[list(actor.vnodes)] = True
        self._schema = pa.schema([(f"c{i}", arrow_type(t)) for i, t in enumerate(node.types)])

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Apply the actor's entries, then the chunks.

        The entries belong to this table and are in log order. The chunks have the table's columns and are distributed
        by its key. A delete in a chunk is ignored if the row does not exist, because a statement may have deleted it.

        Returns: a chunk of the table's columns; at most one -old and one +new per key.

        Raises: StatementRowError if an expression raises on a row; the state is then unusable.

        Cost: one batched read per INSERT, and per UPDATE or DELETE that selects rows by key; one scan of the actor's
            vnodes per other UPDATE or DELETE. Memory: the changed rows.
        """
        touched = _Touched(self._node, self._schema)
        for entry in self._entries:
            match entry.statement:
                case Insert():
                    self._insert_rows(self._payload(entry.statement.object), entry, touched)
                case Change():
                    self._apply_change(self._payload(entry.statement.object), entry, touched)
                case Update():
                    self._update_rows(entry.statement, entry.position, touched)
                case Delete():
                    self._delete_rows(entry.statement, entry.position, touched)
        for chunk in chunks:
            self._take_in(chunk, touched)
        return touched.net_change(self._table)

    def _take_in(self, chunk: pa.Table, touched: "_Touched") -> None:
        if chunk.num_rows == 0:
            return
        goes, rows = pc.less(chunk[WEIGHT], 0), conform_rows(rows_of(chunk), self._schema)
        self._delete_keys(rows.filter(goes), touched)
        come = rows.filter(pc.invert(goes))
        self._put_rows(come, touched)

    def _insert_rows(self, rows: pa.Table, entry: Entry, touched: "_Touched") -> None:
        """Insert the rows of an INSERT.

        Without a key, each row is new. Otherwise, a row replaces the row with its key, and the last row per key counts.
        """
        rows = self._add_missing_columns(rows, rows.num_columns)
        if self._node.row_id:
            rows = rows.append_column("id", pa.array(row_ids(entry, rows.num_rows)))
            rows = self._own_rows(conform_rows(rows, self._schema))
            touched.record_rows(
                rows, _null_rows(self._schema, rows.num_rows), pa.array(np.zeros(rows.num_rows, np.bool_))
            )
            self._table.insert_rows(rows)
            return
        self._put_rows(self._own_rows(conform_rows(rows, self._schema)), touched)

    def _apply_change(self, rows: pa.Table, entry: Entry, touched: "_Touched") -> None:
        goes = pc.less(rows[OP], 0)
        rows = rows.drop_columns([OP])
        rows = self._add_missing_columns(rows, rows.num_columns - self._node.row_id)
        if self._node.row_id:
            ids = pc.coalesce(rows.column(rows.num_columns - 1), pa.array(row_ids(entry, rows.num_rows)))
            rows = rows.set_column(rows.num_columns - 1, "id", ids)
        rows = conform_rows(rows, self._schema)
        self._delete_keys(self._own_rows(rows.filter(goes)), touched)
        self._put_rows(self._own_rows(rows.filter(pc.invert(goes))), touched)

    def _add_missing_columns(self, rows: pa.Table, own: int) -> pa.Table:
        """Add missing columns.

        Rows logged before columns were added have the first `own` ones; the others get their default.
        """
        for place in range(own, len(self._node.types) - self._node.row_id):
            value = value_of(self._table.layout.schema.columns[place].missing)
            rows = rows.add_column(place, f"c{place}", repeat_value(value, rows.num_rows))
        return rows

    def _delete_keys(self, rows: pa.Table, touched: "_Touched") -> None:
        """Delete the given rows that exist. Requires: no key twice."""
        if rows.num_rows == 0:
            return
        stored_rows = self._table.get_rows(rows.select(list(self._node.key)))
        old = conform_rows(stored_rows.rows, self._schema)
        touched.record_rows(rows, old, stored_rows.found)
        self._table.delete_rows(old.filter(stored_rows.found))

    def _put_rows(self, rows: pa.Table, touched: "_Touched") -> None:
        """Insert rows, or replace those with the same keys; in an append-only table, insert new keys only.

        Of several rows with one key, the last one counts; in an append-only table the first.
        """
        if rows.num_rows == 0:
            return
        which = _first_of_each if self._node.append_only else _last_of_each
        rows = take_rows(rows, which(touched.keys_of(rows)))
        stored_rows = self._table.get_rows(rows.select(list(self._node.key)))
        if self._node.append_only:
            rows = rows.filter(pc.invert(stored_rows.found))
            stored_rows = self._table.get_rows(rows.select(list(self._node.key)))
        touched.record_rows(rows, conform_rows(stored_rows.rows, self._schema), stored_rows.found)
        self._table.insert_rows(rows)

    def _update_rows(self, entry: Update, number: int, touched: "_Touched") -> None:
        assigned = dict(entry.assignments)
        exprs = [assigned.get(i, Column(i, t)) for i, t in enumerate(self._node.types)]
        matches = list(self._matching_rows(entry, number))
        # The scan must not see the statement's writes, so all rows are found first.
        for old in matches:
            try:
                new = self._kernel.project_columns(old, exprs, self._node.types)
            except RowError as err:
                raise self._row_error(entry, number, old, exprs[err.expression], err) from err
            new = conform_rows(new, self._schema)
            touched.record_rows(old, old, _all_true(old.num_rows))
            self._table.update_rows(old, new)

    def _delete_rows(self, entry: Delete, number: int, touched: "_Touched") -> None:
        for old in list(self._matching_rows(entry, number)):
            touched.record_rows(old, old, _all_true(old.num_rows))
            self._table.delete_rows(old)

    def _matching_rows(self, entry: Update | Delete, number: int) -> Iterator[pa.Table]:
        """The current rows of this actor for which WHERE is true."""
        keys = self._named_keys(entry.where)
        if keys is None:
            candidates: Iterator[pa.Table] = iter(self._table.scan(self._vnodes))
        else:
            own = keys.filter(pa.array(self._is_mine(keys.columns)))
            stored_rows = self._table.get_rows(own)
            candidates = iter([stored_rows.rows.filter(stored_rows.found)])
        for batch in candidates:
            rows = conform_rows(batch, self._schema)
            if rows.num_rows == 0:
                continue
            if entry.where is not None:
                try:
                    rows = conform_rows(self._kernel.filter_rows(rows, entry.where), self._schema)
                except RowError as err:
                    raise self._row_error(entry, number, rows, entry.where, err) from err
            if rows.num_rows:
                yield rows

    def _named_keys(self, where: Expr | None) -> pa.Table | None:
        """The distinct keys to which WHERE restricts the rows; None if it does not.

        WHERE must still be checked for them.
        """
        choices = _pinned_columns(where, self._node)
        if choices is None:
            return None
        columns = [self._constant_array(c) for c in choices]
        lengths = [len(c) for c in columns]
        if int(np.prod(lengths)) > MAX_NAMED_KEYS:
            return None
        picks = np.meshgrid(*(np.arange(n) for n in lengths), indexing="ij")
        keys = pa.table(
            [c.take(pa.array(p.ravel())) for c, p in zip(columns, picks, strict=True)],
            names=[f"c{k}" for k in self._node.key],
        )
        places = tuple(KeyColumn(i) for i in range(len(columns)))
        return keys.take(_last_of_each(encode_keys(0, np.zeros(keys.num_rows, np.uint16), keys.columns, places)))

    def _constant_array(self, literals: Sequence[Literal]) -> pa.Array:
        """Constants of one type as an array. The kernel computes them, so that they mean the same as in WHERE."""
        one_row = pa.table({"c0": pa.array([0], pa.int64())})
        row = self._kernel.project_columns(one_row, list(literals), [v.type for v in literals])
        return pa.concat_arrays([row.column(i).combine_chunks() for i in range(row.num_columns)])

    def _own_rows(self, rows: pa.Table) -> pa.Table:
        return some_rows(rows, self._is_mine([rows.column(k) for k in self._node.key]))

    def _is_mine(self, keys: Sequence[pa.ChunkedArray]) -> np.ndarray:
        return self._mine[vnodes_of(keys, len(self._mine))]

    def _row_error(
        self, entry: Update | Delete, number: int, rows: pa.Table, raised: Expr, err: RowError
    ) -> StatementRowError:
        key = "unknown"
        if 0 <= err.row < rows.num_rows:
            visible = range(len(self._node.types) - 1) if self._node.row_id else self._node.key
            key = "(" + ", ".join(repr(shown_at(rows.column(c), err.row)) for c in visible) + ")"
        statement = f"{type(entry).__name__.upper()} at log entry {number}"
        reason = f"{expression_text(raised)} raised: {err.reason}."
        return StatementRowError(entry.table, statement, key, reason, number)


def row_ids(entry: Entry, rows: int) -> np.ndarray:
    """(rows,) int64, the row ids for the rows of a log entry."""
    return (np.int64(entry.position) << _PLACE_BITS) + np.arange(entry.before, entry.before + rows, dtype=np.int64)


class _Touched:
    """The keys that an epoch has touched, and each key's row before the first touch."""

    def __init__(self, node: TableReplay, schema: pa.Schema) -> None:
        self._node, self._schema = node, schema
        self._keys: list[pa.Array] = []
        self._columns: list[pa.Table] = []
        self._before: list[pa.Table] = []
        self._exists: list[pa.Array] = []

    def keys_of(self, rows: pa.Table) -> pa.BinaryArray:
        """The bytes of each row's key: equal if and only if the keys are equal, -0.0 and NaN included."""
        columns = [rows.column(k) for k in self._node.key]
        places = tuple(KeyColumn(i) for i in range(len(columns)))
        return encode_keys(0, np.zeros(rows.num_rows, np.uint16), columns, places)

    def record_rows(self, rows: pa.Table, before: pa.Table, exists: pa.BooleanArray) -> None:
        """Record rows that are about to change (no key twice), and the current rows with their keys, if `exists`."""
        self._keys.append(self.keys_of(rows))
        self._columns.append(rows.select(list(self._node.key)))
        self._before.append(before)
        self._exists.append(exists)

    def net_change(self, table: StateTable) -> pa.Table:
        """-old +new for each touched key whose row differs from the one before the epoch."""
        if not self._keys:
            return empty_chunk(self._node.types)
        first = _first_of_each(pa.chunked_array(self._keys, pa.binary()))
        existed = pa.chunked_array(self._exists, pa.bool_()).take(first).to_numpy()
        before = take_columns([*self._before], first)
        now = table.get_rows(pa.concat_tables(self._columns).take(first))
        after = conform_rows(now.rows, self._schema)
        exists = now.found.to_numpy(zero_copy_only=False)
        same = existed & exists & same_rows(before, after)
        return chunk_of_difference(some_rows(before, existed & ~same), some_rows(after, exists & ~same))


def _pinned_columns(where: Expr | None, node: TableReplay) -> list[tuple[Literal, ...]] | None:
    """Per key column, the constants that WHERE's conjuncts allow.

    None if a key column is not restricted in this way.
    """
    allowed: dict[int, tuple[Literal, ...]] = {}
    waiting = [] if where is None else [where]
    while waiting:
        expr = waiting.pop()
        match expr:
            case Call(node="And", args=args):
                waiting.extend(args)
            case Call(node="EqualTo" | "EqualNullSafe", args=(Column(index=index), Literal() as value)):
                allowed[index] = (value,)
            case Call(node="EqualTo" | "EqualNullSafe", args=(Literal() as value, Column(index=index))):
                allowed[index] = (value,)
            case Call(node="In" | "InSet", args=(Column(index=index), *values)) if all(
                isinstance(v, Literal) for v in values
            ):
                allowed.setdefault(index, tuple(v for v in values if isinstance(v, Literal)))
    confined = [allowed.get(k) for k in node.key]
    if any(c is None or any(v.type != node.types[k] for v in c) for c, k in zip(confined, node.key, strict=True)):
        return None
    return [c for c in confined if c is not None]


def _null_rows(schema: pa.Schema, count: int) -> pa.Table:
    return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)


def _all_true(count: int) -> pa.BooleanArray:
    return pa.array(np.ones(count, np.bool_))


def _last_of_each(keys: pa.Array) -> pa.Array:
    """The index of the last row of each distinct key, ascending."""
    return _pick_per_key(keys, "max")


def _first_of_each(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The index of the first row of each distinct key, ascending."""
    return _pick_per_key(keys, "min")


def _pick_per_key(keys: pa.Array | pa.ChunkedArray, which: str) -> pa.Array:
    places = pa.table({"key": keys, "at": pa.array(np.arange(len(keys)))})
    picked = places.group_by("key", use_threads=False).aggregate([("at", which)])[f"at_{which}"]
    return pa.array(np.sort(picked.to_numpy()))
