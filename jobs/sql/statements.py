"""Bound statements: what a user's SQL asks for. Every name is resolved, every expression typed.

`Statement` is what the log holds. `Bound` is what the binder gives: the same, but for INSERTs, whose rows have to be stored before they are
logged, and for statements that only ask. Names of relations are in lower case.
"""

import msgspec
import pyarrow as pa

from jobs.sql.logical import Expr, Field, Plan


class CreateSource(msgspec.Struct, frozen=True, tag=True):
    """A stream of rows from outside. `options` holds `path` and the format's own options."""

    name: str
    format: str  # one of jobs.sources.registry
    fields: tuple[Field, ...]
    options: dict[str, str]
    if_not_exists: bool = False


class CreateTable(msgspec.Struct, frozen=True, tag=True):
    """A table that takes INSERT, UPDATE and DELETE; a repeated key overwrites."""

    name: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]  # columns of the primary key; NULL is refused there
    if_not_exists: bool = False


class CreateView(msgspec.Struct, frozen=True, tag=True):
    """An incrementally maintained view; its columns are the plan's fields."""

    name: str
    sql: str  # the SELECT as the user wrote it
    plan: Plan
    if_not_exists: bool = False


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Drops a relation; with cascade also what depends on it."""

    kind: str  # source | table | view
    name: str
    cascade: bool = False
    if_exists: bool = False


class Insert(msgspec.Struct, frozen=True, tag=True):
    """Rows to insert or overwrite, kept as one Arrow IPC object outside the log; columns are the table's, in order."""

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


Statement = CreateSource | CreateTable | CreateView | Drop | Insert | Update | Delete


class BoundInsert(msgspec.Struct, frozen=True):
    """An INSERT of constants, evaluated: what becomes an `Insert` once its rows are stored. Never serialised itself."""

    table: str
    rows: pa.Table  # the table's columns, in order, of exactly their types; no NULL in the key; keys may repeat (the last wins)


class BoundInsertSelect(msgspec.Struct, frozen=True):
    """An INSERT whose rows a SELECT over relations gives: to be run over the last committed epoch, then `dml.rows_to_insert`."""

    table: str
    fields: tuple[Field, ...]  # of the table
    key: tuple[int, ...]  # of the table
    targets: tuple[int, ...]  # the SELECT's column i goes to the table's column targets[i]; the other columns are NULL
    select: str
    relations: tuple[str, ...]  # what the SELECT may read: names that occur in its text
    reads: tuple[str, ...]  # what it does read


class Query(msgspec.Struct, frozen=True):
    """A SELECT to answer once, from stored rows; any that Spark can run."""

    sql: str
    relations: tuple[str, ...]  # what it may read, by name in the catalog
    fields: tuple[Field, ...]  # types may be any of Spark's, arrays and structs too


class Explain(msgspec.Struct, frozen=True):
    """How a view would be kept; `name` is None for a bare SELECT."""

    name: str | None
    sql: str
    plan: Plan


class Show(msgspec.Struct, frozen=True):
    """What the catalog holds: `what` is sources, tables, views or relations (all three); or columns or create (the statement that made it)
    of the relation `name`."""

    what: str
    name: str | None = None


Bound = CreateSource | CreateTable | CreateView | Drop | BoundInsert | BoundInsertSelect | Update | Delete | Query | Explain | Show
