"""Bound statements: a user's SQL with every name resolved and every expression typed.

The log stores `Statement`. The binder returns `Bound`, which differs in INSERTs, whose rows are stored before they are
logged, and in statements that only read. Names of relations are in lower case.
"""

import hashlib
from enum import StrEnum

import msgspec
import pyarrow as pa

from tussock.jobs.logical.nodes import Expr, Field, Literal, Place, Plan
from tussock.jobs.logical.source_text import SourceText
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.sight import Sight
from tussock.statestore.zones import ZoneRules

OP = "op"  # the first column of a Change's rows
ROW_ID_TYPE = "bigint"  # the hidden last column of a table without a primary key


class Narrower(msgspec.Struct, frozen=True):
    """Files that a source took when it had fewer columns.

    Files numbered below `below` have only the first `columns`; the others are NULL.
    """

    columns: int
    below: int


class EarlierOptions(msgspec.Struct, frozen=True):
    """Files that a source took when it had other options.

    Files numbered below `below` are read with the values `were`, and without the options `added`.
    """

    were: dict[str, str]
    added: tuple[str, ...]
    below: int


class EarlierColumns(msgspec.Struct, frozen=True):
    """Files that a source took when its columns had other names or narrower types.

    Files numbered below `below` are read with `fields` in place of as many first columns.
    """

    fields: tuple[Field, ...]
    below: int


class RelativePath(msgspec.Struct, frozen=True):
    """The path of a source that its statement wrote relative to a folder, over a store in a folder.

    Both folders may move together (jobs/catalog/move_source.py).

    Args:
        path: as written.
        base: the folder that it starts from, absolute, as of the last epoch.
        from_store: `base`, relative to the store's folder.
    """

    path: str
    base: str
    from_store: str


class EarlierBase(msgspec.Struct, frozen=True):
    """A move of a source's folder from `base` to `to`.

    Files numbered below `below` that are below `to` now were below `base` before. Rows that contain the name of a file
    keep the name that it had when it was taken.
    """

    base: str
    to: str
    below: int


class KeyedBy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The key of a source whose records change rows (jobs/sources/keyed.py).

    Args:
        columns: indices of the key's columns.
        delete_when: the bound condition of the option `delete_when`, over the columns; None: it is not set.
    """

    columns: tuple[int, ...]
    delete_when: Expr | None = None


class CreateSource(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A stream of external rows. `options` contains `path` and the options of the format.

    Args:
        widths: one entry per addition of columns, fewest columns first.
        option_changes: one entry per change of options that decide rows, the oldest first.
        column_changes: one entry per change of names or types of columns, the oldest first.
        relative: None if the path was written absolute, or if the store is in a bucket.
        moves: one entry per move of its folder, the oldest first. Moves between which no file was taken are one, from
            the first folder to the last.
        keyed: the key of its PRIMARY KEY; None: every record is a row.
    """

    name: str
    format: str  # one of tussock.jobs.sources.registry
    fields: tuple[Field, ...]
    options: dict[str, str]
    if_not_exists: bool = False
    widths: tuple[Narrower, ...] = ()
    option_changes: tuple[EarlierOptions, ...] = ()
    column_changes: tuple[EarlierColumns, ...] = ()
    relative: RelativePath | None = None
    moves: tuple[EarlierBase, ...] = ()
    keyed: KeyedBy | None = None

    def name_in_rows(self, file: int, path: str) -> str:
        """The path of a file, by its number and present path, when the source took it."""
        for move in reversed(self.moves):
            if file < move.below and path.startswith(f"{move.to}/"):
                path = f"{move.base}/{path.removeprefix(f'{move.to}/')}"
        return path

    def as_of(self, file: int) -> "CreateSource":
        """The source with the options and columns by which the file with this number is read.

        `self` if they are the present ones. Each change of options is undone if the file is older, the newest first.
        """
        if self.era_of(file) == (0, 0):
            return self
        options = dict(self.options)
        for change in reversed(self.option_changes):
            if file < change.below:
                options = {k: v for k, v in options.items() if k not in change.added} | change.were
        were = next((change.fields for change in self.column_changes if file < change.below), ())
        return msgspec.structs.replace(
            self,
            options=options,
            fields=(*were, *self.fields[len(were) :]),
            option_changes=(),
            column_changes=(),
        )

    def era_of(self, file: int) -> tuple[int, int]:
        """Files of one era are read with the same options and columns. (0, 0): with the present ones."""
        options = next((change.below for change in self.option_changes if file < change.below), 0)
        return options, next((change.below for change in self.column_changes if file < change.below), 0)

    @property
    def first_number(self) -> int:
        """The least number of a file that is read with the present columns and options."""
        read = (
            *(n.below for n in self.widths),
            *(c.below for c in self.option_changes),
            *(c.below for c in self.column_changes),
        )
        return max((0, *read, *(m.below for m in self.moves)))

    def width_of(self, file: int) -> int:
        """The number of columns by which the file with this number is read."""
        return next((n.columns for n in self.widths if file < n.below), len(self.fields))


class Default(msgspec.Struct, frozen=True):
    """The value of a column that an INSERT omits. `value` is None if each INSERT computes it (current_timestamp())."""

    column: int
    sql: str
    value: Literal | None


class CreateTable(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A table for INSERT, UPDATE and DELETE. A repeated key overwrites; without a key every inserted row is a new row.

    An append-only table accepts only INSERT and keeps the first row of a key.
    """

    name: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]  # columns of the primary key, which reject NULL
    if_not_exists: bool = False
    not_null: tuple[int, ...] = ()  # other columns that reject NULL
    defaults: tuple[Default, ...] = ()
    comment: str | None = None
    comments: tuple[tuple[int, str], ...] = ()  # (column, comment)
    lengths: tuple[tuple[int, str], ...] = ()  # (column, `char(5)` or `varchar(5)`) of string columns with a length
    append_only: bool = False

    def declared_type(self, column: int) -> str:
        """A column's type as declared in CREATE TABLE."""
        return dict(self.lengths).get(column, self.fields[column].type)

    @property
    def required_columns(self) -> tuple[int, ...]:
        """The columns that reject NULL."""
        return (*self.key, *self.not_null)


def append_only_refusal(table: str, statement: str) -> str:
    """The message for a statement that an append-only table rejects."""
    return (
        f"table {table!r} is APPEND ONLY and takes only INSERT, not {statement}: its views keep no state for deleted "
        "rows. Insert a row that corrects the other, or create a table without APPEND ONLY"
    )


class CreateView(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An incrementally maintained view. Its columns are the plan's fields.

    With `or_replace` it replaces the view of the same name. Everything that reads the old view, directly or not, must
    be bound again in the same Transaction. With `rebuilt` it replaces even an identical view and keeps no state.
    """

    name: str
    sql: str  # the user's SELECT, in which names got the schema of the last USE
    plan: Plan
    if_not_exists: bool = False
    columns: tuple[str, ...] = ()  # the statement's column list; empty: the names of the SELECT
    uses: tuple[str, ...] = ()  # the plain views that the SELECT uses
    or_replace: bool = False
    rebuilt: bool = False
    written: str = ""  # see `digest_under`


class CreatePlainView(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A name for a query. Spark expands it in each use, and nothing is stored."""

    name: str
    sql: str  # the query as the user wrote it; names have the schema of the last USE
    fields: tuple[Field, ...]  # types may be any of Spark's
    columns: tuple[str, ...]  # the query's names for these columns
    uses: tuple[str, ...]  # relations that it may read, including plain views
    if_not_exists: bool = False
    or_replace: bool = False
    written: str = ""  # see `digest_under`


class FunctionModule(msgspec.Struct, frozen=True):
    """A file `<name>.py` of the pipeline's folder `functions/`, as of the creation of the function."""

    name: str
    source: str


class CreateFunction(msgspec.Struct, frozen=True, tag=True):
    """A Python function of the user over whole columns, stored with its code.

    Requires: its values depend only on its arguments, row by row.
    """

    name: str
    fields: tuple[Field, ...]  # its parameters
    returns: str
    module: str  # the module in `code` that defines it
    function: str  # its name in the module
    code: tuple[
        FunctionModule, ...
    ] = ()  # the module and its imports from the folder, by name; empty until the files are read
    comment: str | None = None
    if_not_exists: bool = False
    or_replace: bool = False

    @property
    def digest(self) -> str:
        """Identifies the computation: functions with equal digests are equal."""
        types = tuple(f.type for f in self.fields)
        return hashlib.sha256(
            msgspec.json.encode((self.module, self.function, types, self.returns, self.code))
        ).hexdigest()


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Drops a relation. With cascade, also everything that depends on it."""

    kind: RelationKind
    name: str
    cascade: bool = False
    if_exists: bool = False


class CreateSchema(msgspec.Struct, frozen=True, tag=True):
    """Creates an empty schema."""

    name: str
    if_not_exists: bool = False


class DropSchema(msgspec.Struct, frozen=True, tag=True):
    """Drops a schema. With cascade, also its relations and everything that reads them."""

    name: str
    if_exists: bool = False
    cascade: bool = False


class Insert(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Rows to insert or overwrite, stored as one Arrow IPC object outside the log.

    Columns are the table's, in order. `after`: the positions of earlier entries that no epoch had applied, and from
    whose result the rows were computed. An epoch that skips one of them must skip this one.
    """

    table: str
    rows: int
    object: str
    after: tuple[int, ...] = ()


class CreateTableAs(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Creates a table with its first rows, atomically. `rows`, `object` and `after` are as in Insert."""

    table: CreateTable
    rows: int
    object: str
    after: tuple[int, ...] = ()


class AlterTable(msgspec.Struct, frozen=True, tag=True):
    """Changes a table's names and comments: `table` becomes `to`. No effect if the table is no longer `table`."""

    table: CreateTable
    to: CreateTable


class AddColumns(msgspec.Struct, frozen=True, tag=True):
    """Adds columns at the end of a table: `table` becomes `to`. No effect if the table is no longer `table`.

    `held`: per added column, the value in existing rows, in the form of
    `tussock.statestore.hummock.row_shape.value_bytes`.
    """

    table: CreateTable
    to: CreateTable
    held: tuple[bytes, ...]


class AddSourceColumns(msgspec.Struct, frozen=True, tag=True):
    """Adds columns to a source, after the columns `known`, for files taken from now on.

    Rejected if its columns differ. `known` is None for the columns that files brought: those that the source has by
    then are left out.
    """

    name: str
    known: tuple[Field, ...] | None
    fields: tuple[Field, ...]


class SetSourceOptions(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Changes the options of a source from `known` to `options`. Rejected if it has others than `known`.

    `declared`: a CREATE SOURCE in the files has these options now.
    """

    name: str
    known: dict[str, str]
    options: dict[str, str]
    declared: bool = False
    relative: RelativePath | None = None  # of the new path


class MoveSource(msgspec.Struct, frozen=True, tag=True):
    """The folder `was`, from which the relative path of a source starts, is now `base`. The files are the same.

    Its epoch takes no input of the source. No effect if the folder is not `was`.
    """

    name: str
    was: str
    base: str


class SetSourceColumns(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Renames columns of a source, widens their types, or adds columns: `known` becomes `fields`.

    It holds for files taken from now on. Rejected if the source has other columns than `known`. A transaction also
    contains the views that read the source, bound again.

    `declared`: a CREATE SOURCE in the files has these columns now; None: not known.
    """

    name: str
    known: tuple[Field, ...]
    fields: tuple[Field, ...]
    declared: tuple[Field, ...] | None = None


class Change(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The rows that a statement changed, computed over the rows that the earlier entries of the log leave.

    They are stored as one Arrow IPC object outside the log.

    Its columns: `op` (int8: -1 deletes the row of this key, 1 puts this row in its place), then the table's stored
    columns. A hidden row id is NULL in a new row. `after` is as in Insert.
    """

    table: str
    rows: int
    object: str
    after: tuple[int, ...] = ()


class Update(msgspec.Struct, frozen=True, tag=True):
    """Sets columns of the rows that satisfy `where`. Expressions are over the table's columns."""

    table: str
    assignments: tuple[tuple[int, Expr], ...]  # column index, new value of exactly the column's type
    where: Expr | None


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Deletes the rows that satisfy `where`."""

    table: str
    where: Expr | None


class RecordZone(msgspec.Struct, frozen=True, tag=True):
    """Records the rules of a time zone in the catalog, in place of those with the digest `before`.

    `before` is empty if none are recorded. Rejected if others are recorded by then. A transaction that replaces rules
    also contains the views that convert by them, bound again.
    """

    rules: ZoneRules
    before: str = ""

    @property
    def name(self) -> str:
        """The zone's."""
        return self.rules.name


RowChange = Insert | Change | Update | Delete
_Create = CreateSource | CreateTable | CreateTableAs | CreateView | CreatePlainView | CreateFunction
_Alter = AlterTable | AddColumns | AddSourceColumns | SetSourceColumns | SetSourceOptions | MoveSource
Single = _Create | _Alter | Drop | CreateSchema | DropSchema | RecordZone | RowChange


class Transaction(msgspec.Struct, frozen=True, tag=True):
    """Statements that take effect together or not at all, in order. One entry of the log.

    `once`: (index in `statements`, client id). The statement is skipped if its table already has this client id.
    """

    statements: tuple[Single, ...]
    once: tuple[tuple[int, str], ...] = ()


Statement = Single | Transaction


def computed_after(statement: Statement) -> set[int]:
    """The positions of the entries from whose result the rows of a statement were computed."""
    parts = statement.statements if isinstance(statement, Transaction) else (statement,)
    positions: set[int] = set()
    for part in parts:
        if isinstance(part, Insert | Change | CreateTableAs):
            positions.update(part.after)
    return positions


class BoundInsert(msgspec.Struct, frozen=True):
    """An evaluated INSERT of constants. It becomes an `Insert` when its rows are stored, and is never serialised."""

    table: str
    rows: (
        pa.Table
    )  # the table's columns in order, with exactly their types; no NULL in the key; the last of repeated keys wins


class RelationAt(msgspec.Struct, frozen=True):
    """A relation at an epoch that a statement names, or its changes until then. Never serialised."""

    name: str  # its name in the statement's text; no relation of the catalog can have it
    relation: Relation  # as of `epoch`
    epoch: int
    since: int | None = None  # only the changes of the epochs after this one
    seen: Sight | None = None  # for a plain view at a named moment: how its relations are read


class BoundSourceOptions(msgspec.Struct, frozen=True):
    """ALTER SOURCE … SET OPTIONS or UNSET OPTIONS. It becomes a SetSourceOptions, which has all options."""

    name: str
    options: dict[str, str]
    removed: tuple[str, ...] = ()


class BoundInsertSelect(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """An INSERT … SELECT. It reads tables as the waiting statements leave them, and views of the last committed epoch.

    `dml.rows_to_insert` converts its rows.
    """

    table: CreateTable  # as it is now
    targets: tuple[
        int, ...
    ]  # column i of the SELECT goes to column targets[i] of the table; other columns get their defaults
    select: str
    relations: tuple[str, ...]  # relations that the SELECT may read: names that occur in its text
    reads: tuple[str, ...]  # the relations that it reads
    at: tuple[RelationAt, ...] = ()


class BoundChange(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A statement that Spark evaluates when it is given (jobs/sql/change.py). It reads what BoundInsertSelect reads.

    Its changed rows are logged.
    """

    table: CreateTable  # as it is now
    statement: str
    start: Place  # of its first character in the user's script
    relations: tuple[str, ...]  # relations that it may read: names that occur in its text
    reads: tuple[str, ...]  # the relations that it reads, including the table
    at: tuple[RelationAt, ...] = ()


class BoundCreateTableAs(msgspec.Struct, frozen=True):
    """A CREATE TABLE AS SELECT: the table and the source of its rows."""

    table: CreateTable
    rows: BoundInsert | BoundInsertSelect


class Query(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A SELECT over stored rows. Spark can run any SELECT here."""

    source: SourceText
    relations: tuple[str, ...]  # relations that it may read
    fields: tuple[Field, ...]  # any types of Spark, including arrays and structs
    at: tuple[RelationAt, ...] = ()


class Explain(msgspec.Struct, frozen=True):
    """An EXPLAIN of a view. `name` is None for a bare SELECT."""

    name: str | None
    sql: str
    plan: Plan
    notes: tuple[str, ...] = ()  # notes for the user


class UseSchema(msgspec.Struct, frozen=True):
    """Names a schema for the names without one in the following statements of a script. Never serialised."""

    name: str


class Shown(StrEnum):
    """The subjects of SHOW."""

    SOURCES = "sources"
    TABLES = "tables"
    VIEWS = "views"
    RELATIONS = "relations"  # sources, tables and views
    FUNCTIONS = "functions"
    SCHEMAS = "schemas"
    COLUMNS = "columns"  # of one relation
    CREATE = "create"  # the statement that created it


class Show(msgspec.Struct, frozen=True):
    """A SHOW statement. COLUMNS and CREATE concern the relation or function `name`."""

    what: Shown
    name: str | None = None


Bound = (
    CreateSource
    | CreateTable
    | BoundCreateTableAs
    | AlterTable
    | AddColumns
    | AddSourceColumns
    | SetSourceColumns
    | BoundSourceOptions
    | CreateView
    | CreatePlainView
    | CreateFunction
    | Drop
    | CreateSchema
    | DropSchema
    | UseSchema
    | BoundInsert
    | BoundInsertSelect
    | BoundChange
    | Update
    | Delete
    | Query
    | Explain
    | Show
)
