"""Bound statements: what a user's SQL asks for, ready for the log. Every name is resolved, every expression typed."""

import msgspec

from jobs.sql.logical import Expr, Field, Plan


class CreateSource(msgspec.Struct, frozen=True, tag=True):
    """An append-only stream of files. `options` holds `path` and the format's own options."""

    name: str
    format: str  # parquet | csv
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
    """Rows to insert or overwrite, kept as one Arrow IPC object beside the log; columns are the table's, in order."""

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
