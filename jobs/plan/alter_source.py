"""ALTER SOURCE … ADD COLUMN: a source has more columns, in the files that it takes from then on.

Files that were taken before have NULL there, for views that are made later too: whether a record of theirs can be read is settled, and two
views over one source never differ in their rows. So a source remembers how many columns it had up to which file
(`CreateSource.narrower`). The statement says no number, as files are taken until its epoch: that one's barrier puts it in (`settled`).
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
    """A source that can't get more columns."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"source {self.name!r} can't be altered so: {self.reason}. Nothing was changed."


def add_source_columns(catalog: Catalog, statement: AddSourceColumns) -> Catalog:
    """The catalog in which a source has more columns, behind those it has; views keep what they read. Raises CannotAlterSourceError."""
    relation = find(catalog, statement.name, RelationKind.SOURCE)
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    before = definition.statement
    if before.fields != statement.known:
        raise CannotAlterSourceError(
            relation.name, "it has been altered since this statement was checked; give it again"
        )
    narrower = (*before.widths, Narrower(len(before.fields), _NOT_SETTLED))
    to = msgspec.structs.replace(before, fields=(*before.fields, *statement.fields), narrower=narrower)
    if not isinstance(READERS.get(to.format), FileSource):
        raise CannotAlterSourceError(relation.name, f"the columns of a {to.format} source are those of its CREATE")
    reader_of(to).check(to)
    created = before if isinstance(definition.created, msgspec.UnsetType) else definition.created
    return _with(catalog, relation, msgspec.structs.replace(definition, statement=to, created=created))


def settled(catalog: Catalog, next_number: Callable[[Relation], int]) -> Catalog:
    """The catalog in which each source knows from which file on it has its columns.

    Args:
        next_number: of the first file that a source has not taken by the epoch before.
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
    """With the number where it is missing; of several with one number the first one counts, and none does where no file was taken."""
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
    """What a source's own CREATE says."""
    return definition.statement if isinstance(definition.created, msgspec.UnsetType) else definition.created
