"""Rows and changes of a relation together with their stored keys, for copies that find rows by a locator.

The stored key is unique for each row. A relation without a key, or with equal rows, has hidden columns in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.reading.reader import open_table, stored_table
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.months import given_rows
from tussock.statestore.objectstore.base import ObjectStore


@dataclass(frozen=True, slots=True)
class RowsWithKeys:
    """Rows with their visible columns, and the key of each: its columns in key order."""

    rows: pa.Table
    keys: pa.Table


@dataclass(frozen=True, slots=True)
class ChangesWithKeys:
    """Net changes: the keys of rows to remove, and the rows to write. A row that changes is in both."""

    removed: pa.Table
    written: RowsWithKeys

    @property
    def is_empty(self) -> bool:
        """Return whether there is no change."""
        return not self.removed.num_rows and not self.written.rows.num_rows


def keyed_rows_at(
    objects: ObjectStore, version: HummockVersion, relation: Relation, epoch: int
) -> Iterator[RowsWithKeys]:
    """Read all rows in the order of their keys. Requires: the version's SSTs stay meanwhile."""
    columns = _places_of(relation)
    for rows in open_table(objects, version, stored_table(relation), epoch).scan_in_order(columns=columns):
        yield _with_keys(relation, rows)


def keyed_changes_between(
    objects: ObjectStore, version: HummockVersion, relation: Relation, since: int, until: int
) -> ChangesWithKeys:
    """Return the net changes by stored key, in an order that only their keys decide.

    Requires: the relation exists at `since`; the version's SSTs stay meanwhile. Raises EpochExpiredError.
    Cost: the rows written in between.
    """
    table = open_table(objects, version, stored_table(relation), until)
    columns = _places_of(relation)
    none = table.layout.rows.empty_table().select(columns)
    removed, written = [none], [none]
    for changed in table.read_changes(since, columns=columns):
        came = pc.greater(changed.weights, 0)
        removed.append(changed.rows.filter(pc.invert(came)))
        written.append(changed.rows.filter(came))
    gone = _with_keys(relation, pa.concat_tables(removed).combine_chunks())
    return ChangesWithKeys(gone.keys, _with_keys(relation, pa.concat_tables(written).combine_chunks()))


def _places_of(relation: Relation) -> list[int]:
    """The visible columns of the stored rows, then the hidden ones of their key."""
    width = len(relation.columns)
    return [*range(width), *sorted(key.column for key in stored_table(relation).key if key.column >= width)]


def _with_keys(relation: Relation, rows: pa.Table) -> RowsWithKeys:
    """`rows`: the columns of `_places_of`."""
    visible = rows.select(range(len(relation.columns))).rename_columns([c.name for c in relation.columns])
    at = {column: place for place, column in enumerate(_places_of(relation))}
    places = [at[key.column] for key in stored_table(relation).key]
    keys = rows.select(places).rename_columns([f"k{place}" for place in range(len(places))])
    return RowsWithKeys(given_rows(visible), keys)
