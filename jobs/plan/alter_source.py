"""ALTER SOURCE … ADD COLUMN: add columns to a source, for the files that it takes from then on.

Files that were taken before have NULL in the new columns, also for views that are created later. Whether their
records can be read is already decided, and two views over one source never differ in their rows. So a source records
the number of columns that its earlier files have (`CreateSource.narrower`). The statement cannot contain the file
number, because files are taken until its epoch; the barrier of that epoch sets it (`settled`).
"""

from collections.abc import Callable, Iterable

import msgspec

from tussock.jobs.logical.statements import AddSourceColumns, CreateSource, Narrower
from tussock.jobs.plan.create import columns_of
from tussock.jobs.plan.definition import SourceDefinition, definition_of, encoded, find
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.registry import READERS, reader_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind

_NOT_SETTLED = -1


class CannotAlterSourceError(InputError):
    """Columns cannot be added to a source."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"source {self.name!r} cannot be altered like this: {self.reason}. Nothing was changed."


def add_source_columns(catalog: Catalog, statement: AddSourceColumns) -> Catalog:
    """Add columns at the end of a source. Views keep the columns that they read.

    Raises: CannotAlterSourceError.
    """
    relation = find(catalog, statement.name, RelationKind.SOURCE)
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    before = definition.statement
    if before.fields != statement.known:
        raise CannotAlterSourceError(
            relation.name, "it was altered after this statement was checked; run the statement again"
        )
    narrower = (*before.widths, Narrower(len(before.fields), _NOT_SETTLED))
    to = msgspec.structs.replace(before, fields=(*before.fields, *statement.fields), narrower=narrower)
    if not isinstance(READERS.get(to.format), FileSource):
        raise CannotAlterSourceError(relation.name, f"only CREATE SOURCE defines the columns of a {to.format} source")
    reader_of(to).check(to)
    created = before if isinstance(definition.created, msgspec.UnsetType) else definition.created
    return _with(catalog, relation, msgspec.structs.replace(definition, statement=to, created=created))


def settled(catalog: Catalog, next_number: Callable[[Relation], int]) -> Catalog:
    """Set the first file with the new columns in each altered source.

    Args:
        next_number: the number of the first file that a source has not taken by the previous epoch.
    """
    for relation in catalog.live():
        definition = definition_of(relation) if relation.kind is RelationKind.SOURCE else None
        if isinstance(definition, SourceDefinition) and any(
            n.below == _NOT_SETTLED for n in definition.statement.widths
        ):
            below = next_number(relation)
            statement = msgspec.structs.replace(
                definition.statement, narrower=_put_in(definition.statement.widths, below)
            )
            catalog = _with(catalog, relation, msgspec.structs.replace(definition, statement=statement))
    return catalog


def _put_in(widths: Iterable[Narrower], below: int) -> tuple[Narrower, ...] | msgspec.UnsetType:
    """Set the missing file number.

    If several entries have one number, the first counts; an entry with number 0 is dropped, because no file was taken
    before it.
    """
    found: dict[int, Narrower] = {}
    for one in widths:
        number = below if one.below == _NOT_SETTLED else one.below
        found.setdefault(number, Narrower(one.columns, number))
    found.pop(0, None)
    return tuple(found.values()) or msgspec.UNSET


def _with(catalog: Catalog, relation: Relation, definition: SourceDefinition) -> Catalog:
    columns = columns_of(definition.statement.fields)
    changed = msgspec.structs.replace(relation, definition=encoded(definition), columns=columns)
    return msgspec.structs.replace(
        catalog, relations=tuple(changed if r.id == relation.id else r for r in catalog.relations)
    )


def created_source(definition: SourceDefinition) -> CreateSource:
    """A source as its original CREATE defined it."""
    return definition.statement if isinstance(definition.created, msgspec.UnsetType) else definition.created
