"""A store's past, epoch by epoch: pages of epochs, what each did to a view, and the epochs of one run."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from tussock.jobs.facts.epochs import EpochFacts, epoch_facts, epochs
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class EpochPage(msgspec.Struct, frozen=True):
    """Some epochs, newest first. `older`: the last of them, before which the next page begins; None: nothing is known of older ones."""

    epochs: tuple[EpochFacts, ...]
    older: int | None


class ViewPoint(msgspec.Struct, frozen=True):
    """What one epoch did to a view."""

    epoch: int
    at: datetime
    rows_in: int
    rows_out: int  # changes: an update is two
    seconds: float | None  # of the epoch's levels, in which all its views were computed; None: not kept
    behind_s: (
        float | None
    )  # age of the view's rows when this epoch took their place: since the barrier before it; None: the first epoch


def epoch_page(meta: MetaStore, before: int | None, count: int, version: HummockVersion | None = None) -> EpochPage:
    """Up to `count` committed epochs, from the newest, or the one before `before`, backwards.

    Args:
        version: one that was looked up before; else the newest.

    Cost: that of `epochs`. Epochs below the floor are listed until vacuum has taken their manifests.
    """
    found = tuple(reversed(epochs(meta, count + 1, before, version)))
    return EpochPage(found[:count], found[count - 1].epoch if len(found) > count else None)


def one_epoch(meta: MetaStore, epoch: int) -> EpochFacts | None:
    """A committed epoch; None where it is none, or its manifest is gone. Cost: two GETs."""
    version = meta.latest()
    sealed = meta.sealed(epoch) if 0 < epoch <= version.epoch else None
    return None if sealed is None else epoch_facts(sealed, version)


def injected_by(meta: MetaStore, epoch: EpochFacts) -> Mapping[str, str]:
    """The run that injected an epoch's barrier, as the scheduler named it; empty: nobody's. Cost: two GETs."""
    barrier = meta.barrier_after(epoch.prev_epoch)
    return {} if barrier is None else barrier.run


def epochs_of_run(meta: MetaStore, run: Mapping[str, str], newest: int | None, most: int) -> tuple[EpochFacts, ...]:
    """The epochs whose barriers a run injected, newest first.

    Args:
        newest: where to begin to look, backwards; None: at the newest epoch.
        most: how many epochs to look at before that one.

    Cost: three GETs an epoch looked at. It ends where the run's epochs do, which follow one another.
    """
    first = None if newest is None else one_epoch(meta, newest)
    looked_at = (*(() if first is None else (first,)), *reversed(epochs(meta, most, newest)))
    found: list[EpochFacts] = []
    for epoch in looked_at:
        if injected_by(meta, epoch) == run:
            found.append(epoch)
        elif found:
            break
    return tuple(found)


def points(looked_at: Sequence[EpochFacts]) -> Mapping[str, tuple[ViewPoint, ...]]:
    """What each of these epochs did to each relation that it ran, oldest first. `looked_at`: newest first, one after the other."""
    moments = {epoch.epoch: epoch.at for epoch in looked_at}
    found: dict[str, list[ViewPoint]] = {}
    for epoch in reversed(looked_at):
        before = moments.get(epoch.prev_epoch)
        behind = None if before is None else (epoch.at - before).total_seconds()
        seconds = None if epoch.seconds is None else epoch.seconds.run
        for rows in epoch.rows:
            found.setdefault(rows.relation, []).append(
                ViewPoint(epoch.epoch, epoch.at, rows.rows_in, rows.rows_out, seconds, behind)
            )
    return {relation: tuple(of) for relation, of in found.items()}
