"""What the epochs took in of each source, as their barriers pinned it."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tussock.jobs.plan.definition import source_of
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.store import MetaStore

MOST_EPOCHS = 1_000  # that one look goes through


class SourceIntake(NamedTuple):
    """What one epoch took in of one source."""

    epoch: int
    source: int  # the relation's id
    items: tuple[Item, ...]
    rows: (
        int | None
    )  # that came, less those that were taken back; None: nobody counted them, or no view reads the source
    run: Mapping[str, str]  # of the scheduler, that injected the barrier


class Intakes(NamedTuple):
    """What some epochs took in, newest first. `whole`: all of them were looked at, else only the newest."""

    found: tuple[SourceIntake, ...]
    whole: bool


def intakes(meta: MetaStore, catalog: Catalog, since: int, until: int, most: int = MOST_EPOCHS) -> Intakes:
    """What the epochs after `since` up to `until` took in.

    Cost: two GETs for each of these epochs, `most` of them.
    """
    sources = {r.id: (r.name, reader_of(source)) for r in catalog.relations if (source := source_of(r)) is not None}
    found: list[SourceIntake] = []
    for _ in range(most):
        if until <= since or (sealed := meta.sealed(until)) is None:
            return Intakes(tuple(found), until <= since)
        barrier = meta.barrier_after(sealed.prev_epoch)
        pinned: Mapping[int, msgspec.Raw] = {} if barrier is None or barrier.epoch != until else barrier.splits
        for relation, document in pinned.items():
            if barrier is not None and relation in sources:
                name, reader = sources[relation]
                counts = (sealed.rows or {}).get(name)
                rows = None if counts is None else counts.net
                found.append(SourceIntake(until, relation, tuple(reader.items(document)), rows, barrier.run))
        until = sealed.prev_epoch
    return Intakes(tuple(found), until <= since)
