"""The input of epochs from each source, as their barriers pinned it."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.sources.base import Item
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.store import MetaStore

MOST_EPOCHS = 1_000  # searched in one call


class SourceIntake(NamedTuple):
    """The input of one epoch from one source.

    `rows` and `came` are None if they are uncounted, or if no view reads the source.
    """

    epoch: int
    source: int  # the relation's id
    items: tuple[Item, ...]
    rows: int | None  # new rows minus rows that were taken back
    came: int | None  # new rows
    run: Mapping[str, str]  # the scheduler's run that injected the barrier


class Intakes(NamedTuple):
    """The input of several epochs, newest first.

    Args:
        whole: all epochs were searched; False: only the newest.
    """

    entries: tuple[SourceIntake, ...]
    whole: bool


def read_intakes(meta: MetaStore, catalog: Catalog, since: int, until: int, most: int = MOST_EPOCHS) -> Intakes:
    """Return the input of the epochs after `since`, up to `until`.

    Cost: two GETs per epoch, for at most `most` epochs.
    """
    sources = {r.id: (r.name, reader_of(source)) for r in catalog.relations if (source := source_of(r)) is not None}
    intakes: list[SourceIntake] = []
    for _ in range(most):
        if until <= since or (sealed := meta.read_manifest(until)) is None:
            return Intakes(tuple(intakes), until <= since)
        barrier = meta.barrier_after(sealed.prev_epoch)
        pinned: Mapping[int, msgspec.Raw] = {} if barrier is None or barrier.epoch != until else barrier.splits
        for relation, document in pinned.items():
            if barrier is not None and relation in sources:
                name, reader = sources[relation]
                counts = (sealed.rows or {}).get(name)
                rows = None if counts is None else counts.net
                came = None if counts is None or rows is None else (counts.rows_out + counts.matched + rows) // 2
                intakes.append(SourceIntake(until, relation, tuple(reader.items(document)), rows, came, barrier.run))
        until = sealed.prev_epoch
    return Intakes(tuple(intakes), until <= since)
