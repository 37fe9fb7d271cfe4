"""Sources with the option `columns 'evolve'`: the columns that waiting files bring to them.

New columns are logged before the barrier that pins the files, so one epoch has both. A wider type changes the views
that read the column. Spark binds them again (`widen_columns` of jobs/session.py), so a run logs wider types before its
first barrier. If a view cannot follow, the reader of the file holds the source.
"""

import logging
from collections.abc import Iterator

import msgspec
from xxhash import xxh3_64_hexdigest

from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.barriers.taken_tables import statement_of, taken_table
from tussock.jobs.catalog.definition import stores_rows
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.logical.statements import AddSourceColumns, SetSourceColumns
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.file_options import NewColumns
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.new_columns import evolved_fields, new_columns_mode, widened_fields
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore

log = logging.getLogger(__name__)


def follow_columns(meta: MetaStore, base: Base, interval: Interval | None) -> None:
    """Log the new columns of waiting files, for sources that take them. Cost: a listing, and a look into new files."""
    for relation, waiting in _evolving_sources(meta, base, interval):
        source = statement_of(relation)
        if added := evolved_fields(source, waiting)[len(source.fields) :]:
            log.warning("source %s: new columns %s", source.name, ", ".join(f"{f.name} {f.type}" for f in added))
            # Another process may log it too. Only the first entry has an effect.
            columns = xxh3_64_hexdigest(msgspec.json.encode((source.name, added)))
            statement = AddSourceColumns(source.name, None, added)
            meta.append_log(f"columns/{base.version.epoch}/{columns}", msgspec.json.encode(statement))


def wider_columns(meta: MetaStore, interval: Interval | None) -> tuple[SetSourceColumns, ...]:
    """Return the changes by which sources get the wider types of waiting files. None while a barrier is open.

    A statement of another process since the version that `meta` has seen may be overlooked until the next call: then
    the source of a wider file is held until that call.

    Cost: none if no source takes new columns. Otherwise, for such sources, a listing, and a look into new files.
    """
    if (seen := meta.newest_seen) is not None and not takes_new_columns(seen.catalog):
        return ()
    base = Base(meta.read_latest())
    changes = list[SetSourceColumns]()
    for relation, waiting in _evolving_sources(meta, base, interval):
        source = statement_of(relation)
        if not stores_rows(relation) and (fields := widened_fields(source, waiting)) != source.fields:
            changes.append(SetSourceColumns(source.name, source.fields, fields))
    return () if changes and meta.barrier_after(base.version.epoch) is not None else tuple(changes)


def _evolving_sources(
    meta: MetaStore, base: Base, interval: Interval | None
) -> Iterator[tuple[Relation, tuple[Item, ...]]]:
    """The sources that take new columns, with their waiting files."""
    for relation in base.version.catalog.live_relations():
        if relation.kind is not RelationKind.SOURCE or meta.follows:
            continue
        source = statement_of(relation)
        if new_columns_mode(source) is not NewColumns.EVOLVE:
            continue
        try:
            yield relation, tuple(reader_of(source).waiting(source, taken_table(meta, base, relation), interval))
        except (InputError, SourceAwayError):  # the pin meets the error again, and holds the source
            continue


def takes_new_columns(catalog: Catalog) -> bool:
    """Return whether files may bring columns to a source."""
    sources = (r for r in catalog.live_relations() if r.kind is RelationKind.SOURCE)
    return any(new_columns_mode(statement_of(r)) is NewColumns.EVOLVE for r in sources)


def describe_columns(before: Catalog, after: Catalog) -> tuple[str, ...]:
    """Describe the columns that files brought to the sources that take new columns."""
    known = {r.id: r for r in before.live_relations() if r.kind is RelationKind.SOURCE}
    notes = list[str]()
    for source in after.live_relations():
        if (was := known.get(source.id)) is None or new_columns_mode(statement_of(source)) is not NewColumns.EVOLVE:
            continue
        if added := source.columns[len(was.columns) :]:
            notes.append(f"source {source.name} has the new columns {', '.join(f'{c.name} {c.type}' for c in added)}")
        pairs = zip(was.columns, source.columns, strict=False)
        if wider := [f"{now.name} {now.type} (was {then.type})" for then, now in pairs if then.type != now.type]:
            notes.append(f"source {source.name} has wider columns: {', '.join(wider)}")
    return tuple(notes)
