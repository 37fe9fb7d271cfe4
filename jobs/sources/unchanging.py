"""The part of a reader that follows from input that never changes once it is pinned.

    UnchangingInput   versions, snapshots, epochs, ranges of a log: nothing is located or looked up again
    ChangingRows      versions of a table whose rows change: what is pinned belongs together and cannot be skipped

The option `key` names the columns that identify a row of ChangingRows; without it, the row's values do.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import msgspec
import pyarrow as pa

from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import ByColumns, ByValue, Identity, Item, PinChanges, Pins, Revision, RowPlace
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.taken_rows import TakenColumns, make_taken_schema
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.catalog import TableSchema
from tussock.statestore.nested import is_nested
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

KEY = "key"


def key_columns(source: CreateSource) -> tuple[str, ...]:
    """Return the names in the option `key`, in lower case; empty without a key."""
    return tuple(name.strip().lower() for name in source.options.get(KEY, "").split(",") if name.strip())


def key_objection(source: CreateSource, fields: Sequence[Field]) -> tuple[str, str] | None:
    """Return a column of the option `key` that cannot identify a row, and why; None without one.

    Args:
        fields: the columns of the source.
    """
    types = {field.name.lower(): field.type for field in fields}
    for column in key_columns(source):
        if (kind := types.get(column)) is None:
            return column, f"is not a column of the source, which has {', '.join(types)}"
        if is_nested(arrow_type(kind)) or pa.types.is_floating(arrow_type(kind)):
            return column, f"has the type {kind}, which cannot identify a row"
    return None


class UnchangingInput:
    """The methods of a reader whose pinned input is a position in a history, and never changes."""

    lists_deletes: ClassVar[bool] = False
    taken_columns: ClassVar[TakenColumns]  # of the state table of taken input

    # --- at CREATE SOURCE ---------------------------------------------------------------------------------------------

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """See SourceDescriber."""
        return {}

    def append_only(self, source: CreateSource) -> bool:
        """See SourceDescriber."""
        return False

    def hidden(self, source: CreateSource) -> tuple[HiddenColumn, ...]:
        """See SourceDescriber."""
        return ()

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def taken_schema(self, name: str) -> TableSchema:
        """See SourcePinner."""
        return make_taken_schema(name, self.taken_columns)

    def wants(self, source: CreateSource, interval: Interval | None, item: str) -> bool:
        """See SourcePinner."""
        return True

    def changes_since(self, source: CreateSource, document: msgspec.Raw) -> PinChanges:
        """See SourcePinner. There are none."""
        return PinChanges()

    # --- in the epoch -------------------------------------------------------------------------------------------------

    def locate_input(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        """See InputReader."""
        return document

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """See SourceReader."""
        return None

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> RowPlace:
        """See InputReader."""
        return RowPlace("", "")

    # --- taken input --------------------------------------------------------------------------------------------------

    def as_recorded(self, schema: TableSchema, document: msgspec.Raw, epoch: int) -> msgspec.Raw:
        """See SourceHistory."""
        return document

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        """See SourceHistory."""
        raise NotImplementedError

    def taken_total(self, taken: StorageTable) -> tuple[int, int]:
        """See SourceHistory."""
        items = self.taken_items(taken)
        return len(items), sum(item.nbytes for item in items)

    def taken_by_spark(self, taken: StorageTable) -> tuple[int, str]:
        """See SourceHistory. It counts files beside the engine, and there are none."""
        return 0, ""

    def kept_objects(self, taken: StorageTable) -> Collection[str]:
        """See SourceHistory."""
        return ()

    def taken_sizes(self, taken: StorageTable) -> Mapping[int, int] | None:
        """See SourceHistory. Such input is read as a whole."""
        return None


class ChangingRows(UnchangingInput):
    """The methods of a reader of versions: the key identifies a row, or else its values do."""

    lists_deletes: ClassVar[bool] = True

    def identity(self, source: CreateSource) -> Identity:
        """See SourceDescriber."""
        names = [f.name.lower() for f in source.fields]
        key = tuple(names.index(column) for column in key_columns(source))
        return ByColumns(key) if key else ByValue()

    def refuse_skip(self, source: CreateSource, skip: Sequence[str]) -> None:
        """Raise an error if one of these items is of the source: later versions change the rows of earlier ones."""
        raise NotImplementedError

    def revise(self, source: CreateSource, taken: StorageTable | None, revision: Revision, keeper: Keeper) -> Pins:
        """See SourcePinner. Returns the same pins."""
        self.refuse_skip(source, revision.skip)
        return revision.pins

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        """See SourcePinner. Returns None: the changes between two versions belong together."""
        return None
