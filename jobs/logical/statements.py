"""Bound statements: what a user's SQL asks for. Every name is resolved, every expression typed.

`Statement` is what the log holds. `Bound` is what the binder gives: the same, but for INSERTs, whose rows have to be stored before they are
logged, and for statements that only ask. Names of relations are in lower case.
"""

import hashlib
from enum import StrEnum

import msgspec
import pyarrow as pa

from tussock.jobs.logical.nodes import Expr, Field, Literal, Place, Plan
from tussock.jobs.logical.source_text import SourceText
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.sight import Sight

OP = "op"  # the first column of a Change's rows
ROW_ID_TYPE = "bigint"  # of the hidden last column of a table without a primary key


class Narrower(msgspec.Struct, frozen=True):
    """Files that a source took when it had fewer columns: those numbered `below` this have the first `columns`, and NULL in the others."""

    columns: int
    below: int


class CreateSource(msgspec.Struct, frozen=True, tag=True):
    """A stream of rows from outside. `options` holds `path` and the format's own options.

    `narrower`, of a source that was altered: by number of files, the fewest columns first; unset is not stored.
    `zoned_from`: the number of the first file whose times without an offset are in the pipeline's time zone (jobs/plan/source_zone.py).
    """

    name: str
    format: str  # one of tussock.jobs.sources.registry
    fields: tuple[Field, ...]
    options: dict[str, str]
    if_not_exists: bool = False
    narrower: tuple[Narrower, ...] | msgspec.UnsetType = msgspec.UNSET
    zoned_from: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def widths(self) -> tuple[Narrower, ...]:
        """`narrower`, empty where it is not set."""
        return () if isinstance(self.narrower, msgspec.UnsetType) else self.narrower

    def width_of(self, file: int) -> int:
        """How many of the columns the file of this number is read by."""
        return next((n.columns for n in self.widths if file < n.below), len(self.fields))

    def zone_of(self, file: int, time_zone: str) -> str:
        """The time zone of times without an offset in the file of this number. `time_zone`: the store's."""
        return "UTC" if isinstance(self.zoned_from, msgspec.UnsetType) or file < self.zoned_from else time_zone

    def awaits_zone(self, file: int) -> bool:
        """Whether the file of this number is still read in UTC, in a store of another time zone."""
        return not isinstance(self.zoned_from, msgspec.UnsetType) and file < self.zoned_from


class Default(msgspec.Struct, frozen=True):
    """What a column holds where an INSERT gives it no value; `value` is None where each INSERT computes it anew (current_timestamp())."""

    column: int
    sql: str
    value: Literal | None


class CreateTable(msgspec.Struct, frozen=True, tag=True):
    """A table that takes INSERT, UPDATE and DELETE. A repeated key overwrites; without a key every row is a row of its own.

    One that is append-only takes INSERTs alone, and the first row of a key stays; unset is not stored.
    """

    name: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]  # columns of the primary key; NULL is refused there
    if_not_exists: bool = False
    not_null: tuple[int, ...] = ()  # other columns in which NULL is refused
    defaults: tuple[Default, ...] = ()
    comment: str | None = None
    comments: tuple[tuple[int, str], ...] = ()  # (column, what it says)
    lengths: tuple[
        tuple[int, str], ...
    ] = ()  # (column, `char(5)` or `varchar(5)`) of string columns whose texts have a length
    append_only: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def only_grows(self) -> bool:
        """Whether it is append-only."""
        return self.append_only is True

    def declared(self, column: int) -> str:
        """A column's type as CREATE TABLE says it."""
        return dict(self.lengths).get(column, self.fields[column].type)

    @property
    def required(self) -> tuple[int, ...]:
        """The columns in which NULL is refused."""
        return (*self.key, *self.not_null)


def append_only_refusal(table: str, statement: str) -> str:
    """Why an append-only table does not take a statement, and what to do."""
    return (
        f"table {table!r} is APPEND ONLY and takes only INSERT, not {statement}: its views keep no state for rows that go. "
        "Insert a row that corrects the other, or create a table without APPEND ONLY"
    )


class CreateView(msgspec.Struct, frozen=True, tag=True):
    """An incrementally maintained view; its columns are the plan's fields.

    With `or_replace` it takes the place of the view of its name. Whatever reads that one, directly or not, has to follow in the same
    Transaction, bound anew. With `rebuilt` it does so even if it is the same, and keeps no state; unset is not stored.
    """

    name: str
    sql: str  # the SELECT as the user wrote it
    plan: Plan
    if_not_exists: bool = False
    columns: tuple[str, ...] = ()  # as the statement names them apart from the SELECT; empty: the SELECT does
    uses: tuple[str, ...] = ()  # the plain views by which the SELECT was bound
    or_replace: bool = False
    rebuilt: bool | msgspec.UnsetType = msgspec.UNSET


class CreatePlainView(msgspec.Struct, frozen=True, tag=True):
    """A name for a query, which Spark expands wherever it is used; nothing is stored of it."""

    name: str
    sql: str  # the query as the user wrote it
    fields: tuple[Field, ...]  # types may be any of Spark's
    columns: tuple[str, ...]  # the query's own names of these columns
    uses: tuple[str, ...]  # relations that it may read, plain views among them
    if_not_exists: bool = False
    or_replace: bool = False


class FunctionModule(msgspec.Struct, frozen=True):
    """A file of the pipeline's folder `functions/`: `<name>.py`, as it was when the function was created."""

    name: str
    source: str


class CreateFunction(msgspec.Struct, frozen=True, tag=True):
    """A Python function of the user, over whole columns; its code goes with it. Its values depend on its arguments alone, row by row: to
    create it is to say so."""

    name: str
    fields: tuple[Field, ...]  # its parameters
    returns: str
    module: str  # where it is, among `code`
    function: str  # its name there
    code: tuple[
        FunctionModule, ...
    ] = ()  # the module and what it imports of the folder, by name; empty until the files are read
    comment: str | None = None
    if_not_exists: bool = False
    or_replace: bool = False

    @property
    def digest(self) -> str:
        """Names what it computes: equal digests are equal functions."""
        types = tuple(f.type for f in self.fields)
        return hashlib.sha256(
            msgspec.json.encode((self.module, self.function, types, self.returns, self.code))
        ).hexdigest()


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Drops a relation; with cascade also what depends on it."""

    kind: RelationKind
    name: str
    cascade: bool = False
    if_exists: bool = False


class Insert(msgspec.Struct, frozen=True, tag=True):
    """Rows to insert or overwrite, kept as one Arrow IPC object outside the log; columns are the table's, in order."""

    table: str
    rows: int
    object: str


class CreateTableAs(msgspec.Struct, frozen=True, tag=True):
    """A table and its first rows, both or none; `rows` and `object` as an Insert's."""

    table: CreateTable
    rows: int
    object: str


class AlterTable(msgspec.Struct, frozen=True, tag=True):
    """A table's names and comments are others from now on: where it is `table` still, it becomes `to`."""

    table: CreateTable
    to: CreateTable


class AddColumns(msgspec.Struct, frozen=True, tag=True):
    """A table has more columns from now on, behind those it had: where it is `table` still, it becomes `to`.

    `held`: per added column what rows from before hold there, as `tussock.statestore.hummock.row_shape.value_bytes` stores it.
    """

    table: CreateTable
    to: CreateTable
    held: tuple[bytes, ...]


class AddSourceColumns(msgspec.Struct, frozen=True, tag=True):
    """A source has more columns in the files that it takes from now on, behind those `known`, where it has these still."""

    name: str
    known: tuple[Field, ...]
    fields: tuple[Field, ...]


class Change(msgspec.Struct, frozen=True, tag=True):
    """Rows that a statement changed, as computed over the rows of the epoch before: kept as one Arrow IPC object outside the log.

    Its columns: `op` (int8: -1 the row of this key goes, 1 this row is put in its key's place), then the table's stored columns. A hidden
    row id that is NULL is one of a new row.
    """

    table: str
    rows: int
    object: str


class Update(msgspec.Struct, frozen=True, tag=True):
    """Sets columns of the rows for which `where` holds; expressions are over the table's columns."""

    table: str
    assignments: tuple[tuple[int, Expr], ...]  # column index, new value of exactly the column's type
    where: Expr | None


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Deletes the rows for which `where` holds."""

    table: str
    where: Expr | None


RowChange = Insert | Change | Update | Delete
_Create = CreateSource | CreateTable | CreateTableAs | CreateView | CreatePlainView | CreateFunction
Single = _Create | AlterTable | AddColumns | AddSourceColumns | Drop | RowChange


class Transaction(msgspec.Struct, frozen=True, tag=True):
    """Statements that take effect together or not at all, in their order; one entry of the log.

    `once`: (place in `statements`, what names the statement to its table): one that its table knows by this name already is passed over.
    """

    statements: tuple[Single, ...]
    once: tuple[tuple[int, str], ...] = ()


Statement = Single | Transaction


class BoundInsert(msgspec.Struct, frozen=True):
    """An INSERT of constants, evaluated: what becomes an `Insert` once its rows are stored. Never serialised itself."""

    table: str
    rows: (
        pa.Table
    )  # the table's columns, in order, of exactly their types; no NULL in the key; keys may repeat (the last wins)


class RelationAt(msgspec.Struct, frozen=True):
    """A relation that a statement names at an epoch of its own, or its changes until then. Never serialised."""

    name: str  # by which the statement's text calls it; no relation of the catalog can have it
    relation: Relation  # as it was at `epoch`
    epoch: int
    since: int | None = None  # its changes alone, of the epochs after this one
    seen: Sight | None = None  # what a plain view's relations are read at, where a moment was named


class BoundInsertSelect(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """An INSERT whose rows a SELECT over relations gives: to be run over the last committed epoch, then `dml.rows_to_insert`."""

    table: CreateTable  # as it is now
    targets: tuple[
        int, ...
    ]  # the SELECT's column i goes to the table's column targets[i]; the other columns get their defaults
    select: str
    relations: tuple[str, ...]  # what the SELECT may read: names that occur in its text
    reads: tuple[str, ...]  # what it does read
    at: tuple[RelationAt, ...] = ()


class BoundChange(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A statement whose changes are computed over the last committed epoch (tussock.jobs.sql.change) and logged as rows."""

    table: CreateTable  # as it is now
    statement: str
    start: Place  # of its first character in the user's script
    relations: tuple[str, ...]  # what it may read: names that occur in its text
    reads: tuple[str, ...]  # what it does read, the table itself among them
    at: tuple[RelationAt, ...] = ()


class BoundCreateTableAs(msgspec.Struct, frozen=True):
    """A CREATE TABLE AS SELECT: its table, and where its rows come from."""

    table: CreateTable
    rows: BoundInsert | BoundInsertSelect


class Query(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A SELECT to answer once, from stored rows; any that Spark can run."""

    source: SourceText
    relations: tuple[str, ...]  # what it may read, by name in the catalog
    fields: tuple[Field, ...]  # types may be any of Spark's, arrays and structs too
    at: tuple[RelationAt, ...] = ()


class Explain(msgspec.Struct, frozen=True):
    """How a view would be kept; `name` is None for a bare SELECT."""

    name: str | None
    sql: str
    plan: Plan
    notes: tuple[str, ...] = ()  # what the user should know of it


class Shown(StrEnum):
    """What SHOW shows: of the catalog, or of one relation."""

    SOURCES = "sources"
    TABLES = "tables"
    VIEWS = "views"
    RELATIONS = "relations"  # all three
    FUNCTIONS = "functions"
    COLUMNS = "columns"  # of one
    CREATE = "create"  # the statement that made it


class Show(msgspec.Struct, frozen=True):
    """What the catalog holds, or COLUMNS or CREATE of the relation or function `name`."""

    what: Shown
    name: str | None = None


Bound = (
    CreateSource
    | CreateTable
    | BoundCreateTableAs
    | AlterTable
    | AddColumns
    | AddSourceColumns
    | CreateView
    | CreatePlainView
    | CreateFunction
    | Drop
    | BoundInsert
    | BoundInsertSelect
    | BoundChange
    | Update
    | Delete
    | Query
    | Explain
    | Show
)
