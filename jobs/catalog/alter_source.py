"""ALTER SOURCE: change the columns or the options of a source, for the files that it takes from then on.

Files that were taken before have NULL in the new columns, also for views that are created later. Whether their
records can be read is already decided, and two views over one source never differ in their rows. So a source records
the number of columns that its earlier files have (`CreateSource.widths`). The statement cannot contain the file
number, because files are taken until its epoch; the barrier of that epoch sets it (`set_first_files`).

A source with a key stores its rows. New columns are added to its tables, with NULL in the rows that are stored.

RENAME COLUMN and ALTER COLUMN … TYPE: files that were taken before are read by their earlier names and types
(`CreateSource.column_changes`), and their values are converted to the present types. So a type may only become wider.
The views that read the source are bound again in the same entry of the log.

SET OPTIONS: an option that locates input or only decides when it is read, such as `path`, holds at once. An option that
decides rows, such as `sep`, holds for files taken from then on. A source records the earlier values
(`CreateSource.option_changes`), because views that are created later, and restatements, read earlier files again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from tussock.jobs.catalog.create import columns_of, with_stored_columns
from tussock.jobs.catalog.definition import (
    SourceDefinition,
    definition_of,
    encode_definition,
    find_relation,
    source_of,
    stores_rows,
)
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import (
    AddSourceColumns,
    CreateSource,
    EarlierBase,
    EarlierColumns,
    EarlierOptions,
    Narrower,
    SetSourceColumns,
    SetSourceOptions,
)
from tussock.jobs.sources.base import OptionEffect
from tussock.jobs.sources.deliveries import folders_of
from tussock.jobs.sources.files import FileSource
from tussock.jobs.sources.keyed import deliveries_in, has_envelopes, takes_whole_deliveries
from tussock.jobs.sources.registry import READERS, reader_of
from tussock.jobs.sources.widening import WIDER_TYPES, is_wider
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind

ColumnsT = TypeVar("ColumnsT", Narrower, EarlierColumns)

NOT_SETTLED = -1  # in place of a file number, until the barrier of the statement sets it


class CannotAlterSourceError(InputError):
    """A source cannot be altered as requested."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"source {self.name!r} cannot be altered like this: {self.reason}. Nothing was changed."


def add_source_columns(catalog: Catalog, statement: AddSourceColumns) -> Catalog:
    """Add columns at the end of a source. Views keep the columns that they read.

    Raises: CannotAlterSourceError.
    """
    if (known := statement.known) is None:
        source = source_of(find_relation(catalog, statement.name, RelationKind.SOURCE))
        assert source is not None
        known = source.fields
        there = {field.name.lower() for field in known}
        statement = msgspec.structs.replace(
            statement, fields=tuple(f for f in statement.fields if f.name.lower() not in there)
        )
        if not statement.fields:
            return catalog
    return set_source_columns(catalog, SetSourceColumns(statement.name, known, (*known, *statement.fields)))


def set_source_columns(catalog: Catalog, statement: SetSourceColumns) -> Catalog:
    """Rename, widen or add columns of a source. Raises: CannotAlterSourceError."""
    relation = find_relation(catalog, statement.name, RelationKind.SOURCE)
    if stores_rows(relation) and changes_shape(statement):
        reason = (
            "its rows are a table by its key, whose columns keep their names and types. Columns can be added at the "
            "end. For other changes, drop the source and create it again"
        )
        raise CannotAlterSourceError(relation.name, reason)
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    before, fields = definition.statement, statement.fields
    if before.fields != statement.known:
        raise CannotAlterSourceError(
            relation.name, "it was altered after this statement was checked; run the statement again"
        )
    if not (isinstance(READERS.get(before.format), FileSource) or has_envelopes(before)):
        raise CannotAlterSourceError(
            relation.name, f"only CREATE SOURCE defines the columns of a {before.format} source"
        )
    if (objection := columns_objection(before.fields, fields)) is not None:
        raise CannotAlterSourceError(relation.name, objection)
    width, to = len(before.fields), msgspec.structs.replace(before, fields=fields)
    if len(fields) > width and not has_envelopes(before):  # the columns of an envelope's record stay
        to = msgspec.structs.replace(to, widths=(*before.widths, Narrower(width, NOT_SETTLED)))
    if changes_shape(statement):
        were = EarlierColumns(before.fields, NOT_SETTLED)
        to = msgspec.structs.replace(to, column_changes=(*before.column_changes, were))
    reader_of(to).check(to)
    relation = _tried_again(relation, to)  # a file that did not fit may fit now
    created = created_source(definition)
    if statement.declared is not None:
        created = msgspec.structs.replace(created, fields=statement.declared)
    if stores_rows(relation):
        relation, definition = with_stored_columns(relation, definition, to)
    return with_definition(catalog, relation, msgspec.structs.replace(definition, statement=to, created=created))


def changes_shape(statement: SetSourceColumns) -> bool:
    """Whether a statement changes names or types, and not only adds columns."""
    return statement.fields[: len(statement.known)] != statement.known


def columns_objection(known: Sequence[Field], fields: Sequence[Field]) -> str | None:
    """Why the columns of a source cannot become these; None if they can.

    Columns keep their places. Each keeps its name or gets one that is new, and keeps its type or gets a wider one.
    """
    if len(fields) < len(known):
        return f"columns cannot be removed ({', '.join(f.name for f in known[len(fields) :])})"
    names = [f.name.lower() for f in fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"it would have two columns {twice!r}"
    were = {f.name.lower() for f in known}
    for was, now in zip(known, fields, strict=False):
        if was.name.lower() != now.name.lower() and now.name.lower() in were:
            return f"column {now.name!r} cannot change its place"
        if was.type != now.type and not is_wider(was.type, now.type):
            return (
                f"column {was.name!r} cannot change from {was.type} to {now.type}, because earlier values might not be "
                f"the same ones. {WIDER_TYPES}"
            )
    return None


def set_source_options(catalog: Catalog, statement: SetSourceOptions) -> Catalog:
    """Change the options of a source. Raises: CannotAlterSourceError; errors of its reader's `check`."""
    relation = find_relation(catalog, statement.name, RelationKind.SOURCE)
    definition = definition_of(relation)
    assert isinstance(definition, SourceDefinition)
    before, options = definition.statement, statement.options
    if before.options != statement.known:
        raise CannotAlterSourceError(
            relation.name, "it was altered after this statement was checked; run the statement again"
        )
    reader = reader_of(before)
    changed = [o for o in dict.fromkeys((*before.options, *options)) if before.options.get(o) != options.get(o)]
    for option in changed:
        if (reason := reader.effect_of(option).refusal) is not None:
            raise CannotAlterSourceError(relation.name, f"option {option} is fixed: {reason}")
    of_rows = [o for o in changed if reader.effect_of(option=o) is OptionEffect.NEW_INPUT]
    to = msgspec.structs.replace(before, options=options)
    if "path" in changed:
        to = msgspec.structs.replace(to, relative=statement.relative)
        _require_same_names(before, to)
    if of_rows:
        were = {o: before.options[o] for o in of_rows if o in before.options}
        undo = EarlierOptions(were, tuple(o for o in of_rows if o not in before.options), NOT_SETTLED)
        to = msgspec.structs.replace(to, option_changes=(*before.option_changes, undo))
    reader.check(to)
    relation = _tried_again(relation, to)  # a file that failed with other options may fit now
    created = created_source(definition)
    if statement.declared:
        created = msgspec.structs.replace(created, options=options, relative=to.relative)
    return with_definition(catalog, relation, msgspec.structs.replace(definition, statement=to, created=created))


def _require_same_names(before: CreateSource, to: CreateSource) -> None:
    """Require that the files of a source keep their names in positions. Raises: CannotAlterSourceError."""
    is_ordered = before.keyed is not None or takes_whole_deliveries(before)
    if not is_ordered or not reader_of(before).hidden(before):  # without hidden columns, it has no files
        return
    folder = folders_of(before)[0]
    if folders_of(to)[0] == folder and deliveries_in(to) == deliveries_in(before):
        return
    what = "deliveries" if takes_whole_deliveries(before) else "changes"
    raise CannotAlterSourceError(
        before.name,
        f"option path is fixed as far as its first wildcard ({folder}) and in its placeholders: the names of the files "
        f"below this folder order its {what}, also those that it has taken. Put new files below the folder, or drop "
        "the source and create it again",
    )


def _tried_again(relation: Relation, to: CreateSource) -> Relation:
    """The source with holds that end when a run wants their files and can read them, even if the files are the same.

    They are not removed: a file of an interval that no later run processes would be forgotten. Only a hold of a file
    that the changed source does not name ends.
    """
    reader = reader_of(to)
    named = (hold for hold in relation.holds if not hold.file or reader.wants(to, None, hold.file))
    return msgspec.structs.replace(relation, holds=tuple(msgspec.structs.replace(hold, mark="") for hold in named))


def set_first_files(catalog: Catalog, next_number: Callable[[Relation], int]) -> Catalog:
    """Set the first file with the new columns or options in each altered source.

    Args:
        next_number: the number of the first file that a source has not taken by the previous epoch.
    """
    for relation in catalog.live_relations():
        definition = definition_of(relation) if relation.kind is RelationKind.SOURCE else None
        if not isinstance(definition, SourceDefinition):
            continue
        statement = definition.statement
        if NOT_SETTLED in (c.below for c in _all_changes(statement)):
            below = next_number(relation)
            statement = msgspec.structs.replace(
                statement,
                widths=_columns_put_in(statement.widths, below),
                option_changes=_options_put_in(statement.option_changes, below),
                column_changes=_columns_put_in(statement.column_changes, below),
                moves=_bases_put_in(statement.moves, below),
            )
            catalog = with_definition(catalog, relation, msgspec.structs.replace(definition, statement=statement))
    return catalog


def _columns_put_in(changes: Iterable[ColumnsT], below: int) -> tuple[ColumnsT, ...]:
    """Set the missing file number.

    If several entries have one number, the first counts, which has the files' columns. An entry with number 0 is
    dropped, because no file was taken before it.
    """
    columns_by_number: dict[int, ColumnsT] = {}
    for one in changes:
        number = below if one.below == NOT_SETTLED else one.below
        columns_by_number.setdefault(number, msgspec.structs.replace(one, below=number))
    columns_by_number.pop(0, None)
    return tuple(columns_by_number.values())


def _options_put_in(changes: Iterable[EarlierOptions], below: int) -> tuple[EarlierOptions, ...]:
    """Set the missing file number. A change before the first file is dropped."""
    options = (
        msgspec.structs.replace(one, below=below) if one.below == NOT_SETTLED else one
        for one in changes
        if one.below != NOT_SETTLED or below
    )
    return tuple(options)


def _bases_put_in(moves: Iterable[EarlierBase], below: int) -> tuple[EarlierBase, ...]:
    """Set the missing file number. Moves between which no file was taken become one.

    A move before the first file, or back to the first folder, stays: it has an epoch, in which nothing is taken.
    """
    merged_moves = list[EarlierBase]()
    for move in moves:
        number = below if move.below == NOT_SETTLED else move.below
        if merged_moves and (merged_moves[-1].to, merged_moves[-1].below) == (move.base, number):
            merged_moves[-1] = EarlierBase(merged_moves[-1].base, move.to, number)
        else:
            merged_moves.append(EarlierBase(move.base, move.to, number))
    return tuple(merged_moves)


def _all_changes(source: CreateSource) -> tuple[Narrower | EarlierOptions | EarlierColumns | EarlierBase, ...]:
    return (*source.widths, *source.option_changes, *source.column_changes, *source.moves)


def with_definition(catalog: Catalog, relation: Relation, definition: SourceDefinition) -> Catalog:
    """The catalog with a changed source."""
    columns = columns_of(definition.statement.fields)
    changed = msgspec.structs.replace(relation, definition=encode_definition(definition), columns=columns)
    return msgspec.structs.replace(
        catalog, relations=tuple(changed if r.id == relation.id else r for r in catalog.relations)
    )


def created_source(definition: SourceDefinition) -> CreateSource:
    """A source as its original CREATE defined it."""
    return definition.created or definition.statement
