"""A relation's rows as Arrow, read in this process: no SQL, no JVM."""

import warnings
from collections.abc import Sequence

import pyarrow as pa

from jobs.catalog.reader import open_table, stored_table
from jobs.plan.definition import UnknownRelationError
from statestore.errors import InputError
from statestore.meta.catalog import Relation
from statestore.meta.version import HummockVersion
from statestore.objectstore.base import ObjectStore
from statestore.types import arrow_type


class NotThereYetError(InputError):
    """A relation was read at an epoch that does not hold it yet. `since` is the epoch that does, None while none is committed."""

    def __init__(self, name: str, epoch: int, since: int | None = None) -> None:
        super().__init__(name, epoch, since)
        self.name, self.epoch, self.since = name, epoch, since

    def __str__(self) -> str:
        where = f"epoch {self.epoch}" if self.epoch else "any epoch"
        if self.since is not None:
            return f"{self.name!r} is not in {where} yet: it came with epoch {self.since}; read that one or a later one"
        return f"{self.name!r} is in the log, not yet in {where}; run an epoch (`tussock epoch`, Session.flush) and ask again"


class PausedViewWarning(UserWarning):
    """A view is read that is paused: its rows are older than the epoch that is read."""

    def __init__(self, name: str, epoch: int) -> None:
        super().__init__(name, epoch)
        self.name, self.epoch = name, epoch

    def __str__(self) -> str:
        return (
            f"view {self.name!r} is paused since epoch {self.epoch}: its rows are those of the epoch before. "
            "To go on with it, drop it and create it again."
        )


class UnknownColumnError(InputError):
    """A column that a relation does not have."""

    def __init__(self, relation: str, column: str, existing: tuple[str, ...]) -> None:
        super().__init__(relation, column, existing)
        self.relation, self.column, self.existing = relation, column, existing

    def __str__(self) -> str:
        return f"{self.relation!r} has no column {self.column!r}; those that exist: {', '.join(self.existing)}"


def relation_at(version: HummockVersion, epoch: int, name: str) -> Relation:
    """The table or view of this name at `epoch`, as Spark would find it: whatever its letters' case. Raises UnknownRelationError."""
    there = version.catalog.at(epoch)
    for relation in there:
        if relation.name == name.lower():
            return relation
    raise UnknownRelationError(name, "relation", tuple(sorted(r.name for r in there)))


def warn_of_pause(relation: Relation, epoch: int) -> None:
    """Warns PausedViewWarning where the rows of `epoch` are older than it."""
    if relation.paused is not None and relation.paused_at(epoch):
        warnings.warn(PausedViewWarning(relation.name, relation.paused), stacklevel=3)


def read_relation(
    objects: ObjectStore, version: HummockVersion, relation: Relation, epoch: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of a relation at an epoch.

    Args:
        version: any version that holds `epoch`.
        columns: names, in the order wanted; all when None.

    Returns: (rows, columns), in no particular order of rows.

    Requires: the version's SSTs stay while rows are read, as for `jobs.catalog.reader.scan_relation`.
    Raises: NoStoredRowsError for a source; UnknownColumnError.
    Cost: a scan of the whole relation; blocks hold all columns, so fewer columns save memory, not requests.
    """
    known = {c.name.lower(): i for i, c in enumerate(relation.columns)}
    wanted = [c.name for c in relation.columns] if columns is None else list(columns)
    if unknown := [name for name in wanted if name.lower() not in known]:
        raise UnknownColumnError(relation.name, unknown[0], tuple(c.name for c in relation.columns))
    places = [known[name.lower()] for name in wanted]
    schema = pa.schema([(relation.columns[i].name, arrow_type(relation.columns[i].type)) for i in places])
    table = open_table(objects, version, stored_table(relation), epoch)
    parts = (part.rename_columns(schema.names) for part in table.scan(columns=tuple(places)))
    return pa.concat_tables([schema.empty_table(), *parts])
