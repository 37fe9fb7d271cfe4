"""The catalog: relations (sources, tables, views) and their state tables, as plain data.

Definitions of relations are opaque here: `definition` is JSON that jobs/ reads and writes. The state store only needs
the state tables, their schemas and the relation that owns each one.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from tussock.statestore.zones import RuledZone, ZoneRules, install_rules, ruled_in


class ColumnSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column: its name, and its type by Spark's name (see tussock.statestore.types).

    `missing` belongs to a state table's column that was added when the table already had rows. It is the value of this
    column in those rows: an Arrow IPC stream of one row (tussock.statestore.hummock.row_shape). Empty: all rows contain
    the column.
    """

    name: str
    type: str
    missing: bytes = b""


class KeyColumn(msgspec.Struct, frozen=True):
    """One column of a primary key: its position in the row and its order.

    NULLs sort first unless `nulls_last`. `descending` inverts the order of the other values and leaves NULLs in place.
    """

    column: int
    descending: bool = False
    nulls_last: bool = False


class TableSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state table: `table_id | vnode | primary key -> row`.

    `key` lists the primary key's columns in key order. `distribution` lists the columns that are hashed to the vnode,
    in hash order; all of them belong to the key. An empty distribution is a singleton: all rows are in vnode 0.

    `retired`: names of columns that an undo has removed. Stored rows may still contain them.
    """

    table_id: int
    name: str
    columns: tuple[ColumnSpec, ...]
    key: tuple[KeyColumn, ...]
    distribution: tuple[int, ...]
    retired: tuple[str, ...] = ()

    def unused_names(self, count: int) -> list[str]:
        """Names for more columns, which no stored row contains. Requires: its columns are named c0, c1, …."""
        first = len(self.columns) + len(self.retired)
        return [f"c{place}" for place in range(first, first + count)]


class RelationKind(StrEnum):
    """The kinds of catalog entries. The values are stored."""

    SOURCE = "source"
    TABLE = "table"
    VIEW = "view"  # a materialized view
    PLAIN_VIEW = "plain view"  # a name for a query; stores no rows
    FUNCTION = "function"  # a user's Python function


INTERNAL = "__quality__"
"""Prefix of the names of internal views: measures of quality suites (jobs/quality/measures.py)."""
_INTERNAL_NAME = re.compile(rf"{INTERNAL}(.+)_([a-z]+)_[0-9a-f]{{32}}")


def shown_name(name: str) -> str:
    """Return the name of a relation for people. That of an internal view is `assertion paid`, or `numbers of daily`."""
    if (match := _INTERNAL_NAME.fullmatch(name)) is None:
        return name
    subject, kind = match.groups()
    return f"{kind} {subject}" if kind == "assertion" else f"{kind} of {subject}"


def written_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a person wrote, without those of internal views."""
    return tuple(name for name in names if not name.startswith(INTERNAL))


def shown_view(name: str) -> str:
    """Return a view for a sentence: `view 'daily'`, or the name of an internal view for people."""
    return shown_name(name) if name.startswith(INTERNAL) else f"view {name!r}"


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why a source's new files wait."""

    reason: str  # text for people
    since: int  # the first epoch that ran without the files
    kind: str  # the class of the error
    file: str = ""  # the failing file, if a single file fails
    mark: str = ""  # the failed file's mark; it is not retried until its mark changes. Empty: retried in each epoch


class Relation(msgspec.Struct, frozen=True):
    """A source, table or view, or a relation without rows: a plain view or a function.

    `created`, `dropped` and `paused` are epochs. Readers at epoch e see the relation if created <= e < dropped. From
    `paused` on they see the rows of the epoch before it, and no epoch changes them.
    """

    id: int
    name: str
    kind: RelationKind
    columns: tuple[ColumnSpec, ...]  # the visible columns, in order
    definition: msgspec.Raw  # JSON, opaque here
    state_tables: tuple[TableSchema, ...] = ()
    depends_on: tuple[int, ...] = ()
    created: int = 0
    dropped: int | None = None
    paused: int | None = None  # a paused view stays paused until it is dropped
    holds: tuple[Hold, ...] = ()  # of a source: one per failing file
    paused_for: str = ""  # why a run paused the view, for people; empty: a person did, or its input is paused

    @property
    def is_internal(self) -> bool:
        """Whether this is an internal view: never listed for people, never published, and dropped with its input."""
        return self.kind is RelationKind.VIEW and self.name.startswith(INTERNAL)

    def paused_at(self, epoch: int) -> bool:
        """Whether readers at `epoch` see rows of an earlier epoch."""
        return self.paused is not None and self.paused <= epoch


class Build(msgspec.Struct, frozen=True):
    """Views that are built over several epochs, because their inputs are too large for one.

    Readers do not see them until their inputs are read completely. The epoch that reads the last part activates them.

    `read`: progress by id of each input relation outside this build. Rows of vnodes below the value are read; of a
    source, the files that it has taken with numbers below the value. ALL_READ: everything.
    """

    began: int  # the first epoch that read
    relations: tuple[Relation, ...]  # the views, each after its inputs; `created` is `began`
    replaces: tuple[int, ...]  # ids of the relations that end when these start
    changed: tuple[Relation, ...]  # existing views that will read these, in their future form
    read: dict[int, int]
    bytes_read: int = 0  # approximate, by the end of the last epoch
    bytes_total: int = 0  # approximate, of all inputs

    @property
    def progress(self) -> str:
        """Progress as text for people."""
        return f"since epoch {self.began}, {100 * self.bytes_read // max(1, self.bytes_total)} % read"


ALL_READ = 1 << 62  # greater than every vnode and every file number


def name_in_build(view: str) -> str:
    """Name a view under construction in texts and stored counts. Another view may have its plain name; never parsed."""
    return f"{view} (being built)"


class Catalog(msgspec.Struct, frozen=True, omit_defaults=True):
    """All relations, including dropped ones that are still readable. Ids are assigned once and never reused.

    `zones`: the rules of the store's time zone and of zones that its statements name. A process that decodes a catalog
    can convert by them. `schemas`: in addition to the default one, in alphabetical order.
    """

    relations: tuple[Relation, ...] = ()
    next_relation_id: int = 1
    next_table_id: int = 1
    builds: tuple[Build, ...] = ()
    zones: tuple[ZoneRules, ...] = ()
    schemas: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        install_rules(self.zones)

    def resolve_zone(self, name: str) -> RuledZone:
        """The time zone with this name, by its recorded rules. Without rules if the store has no statement yet."""
        return ruled_in(self.zones, name)

    def live_relations(self) -> tuple[Relation, ...]:
        """Relations that are not dropped, in order of creation."""
        return tuple(r for r in self.relations if r.dropped is None)

    def relations_by_name(self) -> dict[str, Relation]:
        """Live relations by name, and relations under construction by `name_in_build`."""
        built = {name_in_build(r.name): r for build in self.builds for r in build.relations}
        return {**{r.name: r for r in self.live_relations()}, **built}

    def stored_relations(self) -> tuple[Relation, ...]:
        """All relations with state tables: in the catalog and under construction."""
        return (*self.relations, *(r for build in self.builds for r in build.relations))

    def relations_at(self, epoch: int) -> tuple[Relation, ...]:
        """The relations that readers at `epoch` see."""
        return tuple(r for r in self.relations if r.created <= epoch and (r.dropped is None or epoch < r.dropped))
