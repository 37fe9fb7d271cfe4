"""The catalog: relations (sources, tables, views) and state tables, as plain data.

Definitions of relations are opaque here (`definition` is JSON that jobs/ writes and reads); the state store only needs to know
which state tables exist, how their rows look and which relation owns them.
"""

from enum import StrEnum

import msgspec


class ColumnSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column: its name and its type by Spark's name (see tussock.statestore.types).

    `missing`, of a state table's column that was added after the table had rows: what rows written before hold there, an Arrow IPC stream
    of one row (tussock.statestore.hummock.row_shape). Empty: every row was written with the column.
    """

    name: str
    type: str
    missing: bytes = b""


class KeyColumn(msgspec.Struct, frozen=True):
    """One column of a primary key: its place in the row and its order. NULLs sort first unless `nulls_last`; DESC inverts all
    but the place of NULL."""

    column: int
    descending: bool = False
    nulls_last: bool = False


class TableSchema(msgspec.Struct, frozen=True):
    """A state table: `table_id | vnode | primary key -> row`.

    `key` names the primary key's columns in key order; `distribution` the row columns hashed to the vnode, in hash order, all of
    them part of the key (empty: vnode 0, a singleton).
    """

    table_id: int
    name: str
    columns: tuple[ColumnSpec, ...]
    key: tuple[KeyColumn, ...]
    distribution: tuple[int, ...]


class RelationKind(StrEnum):
    """What a name of the catalog stands for. The values are stored."""

    SOURCE = "source"
    TABLE = "table"
    VIEW = "view"  # materialized
    PLAIN_VIEW = "plain view"  # a name for a query
    FUNCTION = "function"  # the user's, in Python


INTERNAL = "__quality__"
"""What the names of views begin with that the project keeps for itself: measures of quality suites (jobs/gate/measures.py)."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a source's new files wait."""

    reason: str  # for a person
    since: int  # the epoch that first went on without them
    kind: str  # of the error, by its class
    file: str = ""  # the one in trouble, where it is one
    mark: str = ""  # of the file as it could not be read: it is not tried again before it has another. Empty: it is tried each time


class Relation(msgspec.Struct, frozen=True):
    """A source, a table, a view, or what has no rows of its own: a plain view (a name for a query), a function.

    `created`, `dropped` and `paused` are epochs: a reader at epoch e sees it iff created <= e < dropped, and from `paused` on it sees the
    rows of the epoch before: no epoch changes them any more.
    """

    id: int
    name: str
    kind: RelationKind
    columns: tuple[ColumnSpec, ...]  # what a reader sees, in order
    definition: msgspec.Raw  # JSON, opaque here
    state_tables: tuple[TableSchema, ...] = ()
    depends_on: tuple[int, ...] = ()
    created: int = 0
    dropped: int | None = None
    paused: int | None = None  # a view that is, stays so until it is dropped
    holds: tuple[Hold, ...] = ()  # of a source in trouble, a file each
    paused_for: str = ""  # why a run paused the view, for a person; empty: a person did, or a view that it reads is

    @property
    def internal(self) -> bool:
        """Whether it is kept for the project's own use: no list that is for people shows it, nothing publishes it, and it goes with what it
        is over."""
        return self.kind is RelationKind.VIEW and self.name.startswith(INTERNAL)

    def paused_at(self, epoch: int) -> bool:
        """Whether a reader at `epoch` sees rows of an earlier one."""
        return self.paused is not None and self.paused <= epoch


class Build(msgspec.Struct, frozen=True):
    """Views that are built over several epochs, since they read more than one is to take in. Nobody sees them until all of it is read; the
    epoch that reads the last of it puts them in their places.

    `read`: by the id of a relation that they read and that is none of them, how far: rows of vnodes below this are read, of a source
    what it has taken under a number below this. ALL_READ: all of it.
    """

    began: int  # the first epoch that read
    relations: tuple[Relation, ...]  # they, each behind what it reads; `created` is `began`
    replaces: tuple[int, ...]  # ids of those that end where they begin
    changed: tuple[Relation, ...]  # views that are there and go on over them, as they will be
    read: dict[int, int]
    bytes_read: int = 0  # of all that they read, about; by the end of the last epoch
    bytes_total: int = 0

    @property
    def progress(self) -> str:
        """How far it is, for a person."""
        return f"since epoch {self.began}, {100 * self.bytes_read // max(1, self.bytes_total)} % read"


ALL_READ = 1 << 62  # beyond every vnode and every number of a file


def name_in_build(view: str) -> str:
    """How texts and stored counts name a view that is being built, since another view may have its name. Never read back."""
    return f"{view} (being built)"


class Catalog(msgspec.Struct, frozen=True):
    """All relations, those dropped but still readable included. Ids are allotted once and never reused.

    `one_zone`: no view at work holds rows that an earlier release computed in another time zone (jobs/plan/view_zone.py). Unset is not
    stored.
    """

    relations: tuple[Relation, ...] = ()
    next_relation_id: int = 1
    next_table_id: int = 1
    builds: tuple[Build, ...] = ()
    one_zone: bool | msgspec.UnsetType = msgspec.UNSET

    def live(self) -> tuple[Relation, ...]:
        """Relations that are not dropped, in order of creation."""
        return tuple(r for r in self.relations if r.dropped is None)

    def called(self) -> dict[str, Relation]:
        """Live relations by name, and those that are being built, under a name of their own: another may have theirs."""
        built = {name_in_build(r.name): r for build in self.builds for r in build.relations}
        return {**{r.name: r for r in self.live()}, **built}

    def stored(self) -> tuple[Relation, ...]:
        """All relations that have state tables: those of the catalog, and those that are being built."""
        return (*self.relations, *(r for build in self.builds for r in build.relations))

    def at(self, epoch: int) -> tuple[Relation, ...]:
        """Relations a reader at `epoch` sees."""
        return tuple(r for r in self.relations if r.created <= epoch and (r.dropped is None or epoch < r.dropped))
