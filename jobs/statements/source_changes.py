"""Changes of a source's options and columns: by ALTER SOURCE, and by an edited CREATE SOURCE in a pipeline."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.catalog.alter_source import CannotAlterSourceError, columns_objection, created_source
from tussock.jobs.catalog.definition import SourceDefinition, definition_of, find_relation
from tussock.jobs.catalog.difference import is_same_place, list_differences
from tussock.jobs.catalog.move_source import move_source, moved_sources
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import (
    BoundSourceOptions,
    CreateSource,
    MoveSource,
    SetSourceColumns,
    SetSourceOptions,
)
from tussock.jobs.sources.base import OptionEffect
from tussock.jobs.sources.csv_header import has_header, is_enforced
from tussock.jobs.sources.describe import describe_source, place_source
from tussock.jobs.sources.file_options import MISSING
from tussock.jobs.sources.other_store import refuse_own_store
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.rejects import quarantines_rejects
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock.statestore.objectstore.base import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def set_options(
    catalog: Catalog, bound: BoundSourceOptions, base: Path, store: ObjectStore, spark: "Callable[[], SparkSession]"
) -> SetSourceOptions:
    """The statement of the log for ALTER SOURCE … SET or UNSET OPTIONS. `base`: the folder for a relative path.

    Raises: BadOptionError, with the nearest name for a mistyped option; MissingPathError for a new path;
    CannotAlterSourceError if the source's folder moved, and no epoch has recorded that yet.
    """
    if any(move.name == bound.name for move in moved_sources(catalog, store)):
        raise CannotAlterSourceError(
            bound.name,
            "its folder has moved, and no epoch has recorded that yet. Run `tussock epoch`, then repeat this",
        )
    source = _source_definition(catalog, bound.name).statement
    options = _without_options(source.options, (*bound.options, *bound.removed)) | dict(bound.options)
    to = place_source(msgspec.structs.replace(source, options=options, relative=None), base, store)
    refuse_own_store(to, store)
    return _check_options(source, to, spark)


def edited_source(
    catalog: Catalog, wanted: CreateSource, store: ObjectStore, spark: "Callable[[], SparkSession]"
) -> Sequence[SetSourceOptions | SetSourceColumns | MoveSource]:
    """The changes by which a source gets the options and columns of its edited CREATE SOURCE.

    Changes by ALTER SOURCE stay, unless the edit changes the same option or column. Empty if the source does not
    exist, if nothing differs, or if something differs that cannot change. If its folder moved, and no epoch has
    recorded that yet, they begin with the move.

    Raises: as `set_options`; CannotAlterSourceError for a type that is not wider.
    """
    there = next((r for r in catalog.live_relations() if r.name == wanted.name.lower()), None)
    if there is None or there.kind is not RelationKind.SOURCE:
        return ()
    moves = [move for move in moved_sources(catalog, store) if move.name == there.name]
    for move in moves:
        catalog = move_source(catalog, move)
    definition = _source_definition(catalog, there.name)
    was, now = created_source(definition), definition.statement
    columns = wanted.fields or was.fields
    if not (list_differences(was, wanted) and list_differences(now, wanted)):
        return ()
    if list_differences(msgspec.structs.replace(was, options=wanted.options, fields=columns), wanted):
        return ()
    changes = list[SetSourceOptions | SetSourceColumns | MoveSource](moves)
    if columns != was.fields:
        fields = _edited_columns(was.fields, columns, now.fields)
        if fields is None:
            return ()
        if (objection := columns_objection(now.fields, fields)) is not None:
            raise CannotAlterSourceError(there.name, objection)
        changes.append(SetSourceColumns(now.name, now.fields, fields, declared=columns))
        now = msgspec.structs.replace(now, fields=fields)
    if list_differences(msgspec.structs.replace(was, fields=columns), wanted):
        same = {"path"} if is_same_place(was, wanted) else set()
        edited = {o: v for o, v in wanted.options.items() if was.options.get(o) != v and o not in same}
        gone = [o for o in was.options if o not in wanted.options]
        to = msgspec.structs.replace(wanted, options=_without_options(now.options, (*edited, *gone)) | edited)
        change = _check_options(now, to, spark)
        changes.append(msgspec.structs.replace(change, declared=True))
    return changes


def _edited_columns(was: Sequence[Field], wanted: Sequence[Field], now: Sequence[Field]) -> tuple[Field, ...] | None:
    """The present columns with the changes between two texts of CREATE SOURCE.

    A column with another name at its place was renamed, if its old name is gone and the new one is new. None if
    columns were removed or exchanged.
    """
    names = {f.name.lower() for f in was}
    if len(wanted) < len(was):
        return None
    fields = list(now)
    for place, (before, after) in enumerate(zip(was, wanted, strict=False)):
        if before.name.lower() != after.name.lower() and after.name.lower() in names:
            return None
        if before != after:
            fields[place] = after
    there = {f.name.lower(): place for place, f in enumerate(fields)}
    for added in wanted[len(was) :]:
        if added.name.lower() in there:
            fields[there[added.name.lower()]] = added
        else:
            fields.append(added)
    return tuple(fields)


def change_notes(source: CreateSource, changes: Iterable[object]) -> Iterator[str]:
    """Describe the effects of changes of a source, and the files and commands that they require.

    Args:
        source: as changed.
    """
    for change in changes:
        match change:
            case SetSourceOptions():
                yield from _option_notes(source, changed_options(change))
            case SetSourceColumns(_, known, fields):
                yield from _column_notes(source, known, fields)


def _column_notes(source: CreateSource, known: Sequence[Field], fields: Sequence[Field]) -> Iterator[str]:
    for was, now in zip(known, fields, strict=False):
        if was.name != now.name:
            yield (
                f"{was.name} is now {now.name}: files that are read from now on must call it {now.name}"
                f"{_if_not(source)}. Rows of earlier files keep their values"
            )
        if was.type != now.type:
            yield (
                f"{now.name}: {now.type} for files that are read from now on, and earlier values are converted. Views "
                "that read it are rebuilt"
            )
            if quarantines_rejects(source):
                yield (
                    f"to read rejected records of earlier files again, run, after the next epoch, `tussock restate "
                    f"{source.name} --options`"
                )
    for added in fields[len(known) :]:
        yield f"{added.name}: for files that are read from now on, NULL in rows of earlier files"


def _if_not(source: CreateSource) -> str:
    """The effect on a file that lacks a declared column, in parentheses; empty if none is known."""
    if source.format in ("json", "xml", "orc", "avro") or source.options.get(MISSING) == "null":
        return " (without it, the value is NULL)"
    by_header = source.format == "csv" and has_header(source.options) and not is_enforced(source.options)
    return " (otherwise they are held)" if by_header or source.format == "parquet" else ""


def _option_notes(source: CreateSource, options: Iterable[str]) -> Iterator[str]:
    reader = reader_of(source)
    of_rows = [o for o in options if reader.effect_of(o) is OptionEffect.NEW_INPUT]
    at_once = [o for o in options if reader.effect_of(o) is OptionEffect.AT_ONCE]
    if at_once:
        yield f"{', '.join(at_once)}: from the next epoch on"
    if of_rows:
        yield (
            f"{', '.join(of_rows)}: for files that are read from now on. To read earlier files again, run, after the "
            f"next epoch, `tussock restate {source.name} --options`"
        )


def changed_options(change: SetSourceOptions) -> tuple[str, ...]:
    """The names of the options that a statement changes."""
    names = dict.fromkeys((*change.known, *change.options))
    return tuple(o for o in names if change.known.get(o) != change.options.get(o))


def _source_definition(catalog: Catalog, name: str) -> SourceDefinition:
    definition = definition_of(find_relation(catalog, name, RelationKind.SOURCE))
    assert isinstance(definition, SourceDefinition)
    return definition


def _without_options(options: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The options without these names, in any case of letters, as Spark reads them."""
    folded = {name.lower() for name in names}
    return {option: value for option, value in options.items() if option.lower() not in folded}


def _check_options(source: CreateSource, to: CreateSource, spark: "Callable[[], SparkSession]") -> SetSourceOptions:
    """The statement that gives a source the options of another one. Raises errors of its reader."""
    describe_source(msgspec.structs.replace(source, options=to.options, option_changes=()), spark)
    moves = source.options.get("path") != to.options.get("path")
    return SetSourceOptions(source.name, source.options, to.options, relative=to.relative if moves else None)
