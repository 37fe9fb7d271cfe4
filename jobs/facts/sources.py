"""What each source has taken, and what waits."""

import msgspec

from jobs.catalog.reader import open_table
from jobs.catalog.rejected import rejected
from jobs.plan.definition import source_of
from jobs.sources.describe import place_text
from jobs.sources.registry import reader_of
from jobs.sql.statements import CreateSource
from statestore.errors import InputError, RetryableError
from statestore.meta.catalog import Relation
from statestore.meta.store import MetaStore
from statestore.meta.version import HummockVersion


class SourceFacts(msgspec.Struct, frozen=True):
    """One source: what it has taken, and what waits for the next epochs."""

    source: str
    format: str
    path: str
    taken_files: int
    taken_bytes: int
    waiting_files: int
    waiting_bytes: int
    trouble: str  # why what waits could not be looked up; empty: it could
    held: tuple[str, ...] = ()  # why what waits was not taken in, with the epoch that first went on without it
    rejects: int | None = None  # records that could not be read, in the source's table of them; None where it has none


def sources(meta: MetaStore) -> tuple[SourceFacts, ...]:
    """The sources, in order of creation. Cost: one listing each, one scan of the files it has taken, and one of its rejects."""
    version = meta.latest()
    rejects = rejected(meta.objects, version)
    found = ((relation, source_of(relation)) for relation in version.catalog.live())
    both = ((relation, statement) for relation, statement in found if statement is not None)
    return tuple(_source(meta, version, relation, statement, rejects.get(relation.name)) for relation, statement in both)


def _source(meta: MetaStore, version: HummockVersion, relation: Relation, statement: CreateSource, rejects: int | None) -> SourceFacts:
    reader, table = reader_of(statement), open_table(meta.objects, version, relation.state_tables[0])
    taken, trouble = reader.taken_items(table), ""
    try:
        waiting = reader.waiting(statement, table)
    except (InputError, RetryableError) as err:
        waiting, trouble = (), str(err)
    return SourceFacts(
        relation.name,
        statement.format,
        place_text(statement),
        len(taken),
        sum(item.nbytes for item in taken),
        len(waiting),
        sum(item.nbytes for item in waiting),
        trouble,
        tuple(f"held since epoch {h.since}: {h.reason}" for h in relation.holds),
        rejects,
    )
