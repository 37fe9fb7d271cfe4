"""A store's past, epoch by epoch: pages of epochs, their effect on each view, and the epochs of one run."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from tussock.jobs.facts.barrier import FileFacts, files_of
from tussock.jobs.facts.epochs import EpochFacts, epoch_facts, list_epochs
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class EpochPage(msgspec.Struct, frozen=True):
    """Some epochs, newest first.

    Args:
        older: the last of them, before which the next page begins; None if no older epochs are known.
    """

    epochs: tuple[EpochFacts, ...]
    older: int | None


class ViewPoint(msgspec.Struct, frozen=True):
    """The effect of one epoch on a view."""

    epoch: int
    at: datetime
    rows_in: int
    rows_out: int  # changes; an update is two changes
    seconds: float | None  # of the epoch's levels, which compute all its views; None if unknown
    # Age of the view's rows when this epoch replaced them, counted from the barrier before it; None: the first epoch.
    behind_s: float | None


def epoch_page(meta: MetaStore, before: int | None, count: int, version: HummockVersion | None = None) -> EpochPage:
    """Return up to `count` committed epochs, newest first, from the newest or from before `before`.

    Args:
        version: a version that was already read; None: the newest.

    Cost: as `epochs`. Epochs below the floor are listed until vacuum removes their manifests.
    """
    epochs = tuple(reversed(list_epochs(meta, count + 1, before, version)))
    return EpochPage(epochs[:count], epochs[count - 1].epoch if len(epochs) > count else None)


def one_epoch(meta: MetaStore, epoch: int) -> EpochFacts | None:
    """Return a committed epoch; None if it is not committed or its manifest is gone. Cost: two GETs."""
    version = meta.read_latest()
    sealed = meta.read_manifest(epoch) if 0 < epoch <= version.epoch else None
    return None if sealed is None else epoch_facts(sealed, version)


def injected_by(meta: MetaStore, epoch: EpochFacts) -> Mapping[str, str]:
    """Return the scheduler's name of the run that injected an epoch's barrier; empty if no run did. Cost: two GETs."""
    barrier = meta.barrier_after(epoch.prev_epoch)
    return {} if barrier is None else barrier.run


def epochs_of_run(meta: MetaStore, run: Mapping[str, str], newest: int | None, most: int) -> tuple[EpochFacts, ...]:
    """Return the epochs whose barriers a run injected, newest first.

    Args:
        newest: the epoch at which the search starts, backwards; None: the newest epoch.
        most: the number of epochs before it to search.

    Cost: three GETs per searched epoch. The search ends after the run's epochs, which are consecutive.
    """
    first = None if newest is None else one_epoch(meta, newest)
    looked_at = (*(() if first is None else (first,)), *reversed(list_epochs(meta, most, newest)))
    epochs: list[EpochFacts] = []
    for epoch in looked_at:
        if injected_by(meta, epoch) == run:
            epochs.append(epoch)
        elif epochs:
            break
    return tuple(epochs)


def taken_by(meta: MetaStore, epochs: Sequence[EpochFacts]) -> tuple[FileFacts, ...]:
    """Return the files that epochs took, newest epoch first. Cost: two GETs per epoch."""
    catalog = meta.read_latest().catalog
    barriers = (meta.barrier_after(epoch.prev_epoch) for epoch in epochs)
    return tuple(file for barrier in barriers if barrier is not None for file in files_of(barrier, catalog))


def points_by_relation(looked_at: Sequence[EpochFacts]) -> Mapping[str, tuple[ViewPoint, ...]]:
    """Return the effect of these epochs on each relation, oldest first.

    `looked_at`: consecutive epochs, newest first.
    """
    moments = {epoch.epoch: epoch.at for epoch in looked_at}
    points_by_name: dict[str, list[ViewPoint]] = {}
    for epoch in reversed(looked_at):
        before = moments.get(epoch.prev_epoch)
        behind = None if before is None else (epoch.at - before).total_seconds()
        seconds = None if epoch.seconds is None else epoch.seconds.run
        for rows in epoch.rows:
            points_by_name.setdefault(rows.relation, []).append(
                ViewPoint(epoch.epoch, epoch.at, rows.rows_in, rows.rows_out, seconds, behind)
            )
    return {relation: tuple(of) for relation, of in points_by_name.items()}
