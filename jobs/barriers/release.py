"""Release the input that committed epochs have taken from servers which keep it until then: logs of databases."""

import logging

from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.barriers.taken_tables import statement_of, taken_table
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.sources.keyed import is_log
from tussock.jobs.sources.postgres import release_slots
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)


def release_taken_input(meta: MetaStore, version: HummockVersion | None = None) -> None:
    """Let servers remove the input that is committed.

    A failure is logged, and the next run repeats it. A branch releases nothing, because its parent may need the input.

    Args:
        version: a committed version that was already read; None: the newest.

    Cost: a connection per slot of the store's sources.
    """
    if meta.settings.origin is not None:
        return
    version = meta.read_latest() if version is None else version
    sources = [r for r in version.catalog.live_relations() if r.kind is RelationKind.SOURCE and is_log(statement_of(r))]
    if not sources:
        return
    base = Base(version)
    try:
        release_slots([(statement_of(relation), taken_table(meta, base, relation)) for relation in sources])
    except (InputError, SourceAwayError) as err:
        log.warning("the log of a database is still held: %s", err)
