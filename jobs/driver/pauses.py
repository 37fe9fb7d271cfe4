"""Views that a run pauses by itself, where `[epoch] on_error = "pause"`: their rows stay, with those of the views over them.

What a view cannot compute has its barrier superseded by one that pauses the view (jobs/driver/supersede.py). That stands in the catalog
from
then on (`Relation.paused`, `paused_for`), so no later run meets the row again. The run that paused a view ends with PausedViewsError once
everything else is committed; those after it do not.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.plan.definition import with_readers
from tussock.jobs.reading.read import PausedViewWarning
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock.statestore.meta.store import MetaStore


@dataclass(frozen=True, slots=True)
class Paused:
    """A view that a run paused. `over`: the views that were paused with it, since they read it."""

    epoch: int
    reason: str
    over: tuple[str, ...] = ()


class PausedViewsError(InputError):
    """Views that this run paused, since it met rows that they cannot take. Everything else was taken in. `reasons` by view."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        paused = "\n  ".join(f"view {view!r} is paused: {reason}" for view, reason in self.reasons.items())
        resume = " ".join(f"--resume {view}" for view in self.reasons)
        return (
            f"{paused}\n  They keep the rows of the epoch before, with the views over them. Everything else was taken in and committed. "
            "Correct the row (UPDATE or DELETE it in its table, `tussock restate` its file) or the view's SELECT; then "
            f"`tussock apply PIPELINE {resume}` builds anew what is paused, and so does CREATE OR REPLACE MATERIALIZED VIEW."
        )


def paused_views(catalog: Catalog) -> dict[str, Paused]:
    """The views that runs have paused and that are not resumed yet, by name."""
    found: dict[str, Paused] = {}
    for view in catalog.live():
        if view.paused is not None and view.paused_for:
            ids = with_readers(catalog, view) - {view.id}
            over = tuple(r.name for r in catalog.live() if r.id in ids and r.kind is RelationKind.VIEW)
            found[view.name] = Paused(view.paused, view.paused_for, over)
    return found


def paused_by(catalog: Catalog, epochs: Iterable[int]) -> dict[str, Paused]:
    """Those that one of these epochs paused."""
    wanted = set(epochs)
    return {view: paused for view, paused in paused_views(catalog).items() if paused.epoch in wanted}


def require_none_paused(meta: MetaStore, done: Iterable[EpochSummary]) -> None:
    """Raises PausedViewsError where one of these epochs, a run's own, paused a view."""
    _require_none(paused_by(meta.latest().catalog, (s.epoch for s in done)))


def require_none_paused_by(meta: MetaStore, run: Mapping[str, str]) -> None:
    """Raises PausedViewsError where an epoch whose barrier this run injected paused a view that is paused still.

    Cost: two GETs a paused view.
    """
    catalog = meta.latest().catalog
    epochs = {paused.epoch for paused in paused_views(catalog).values()}
    _require_none(paused_by(catalog, (epoch for epoch in epochs if _run_of(meta, epoch) == run)))


def warn_of_paused(catalog: Catalog, done: EpochSummary) -> None:
    """Warns: PausedViewWarning for each view that an epoch paused."""
    for view, paused in paused_by(catalog, [done.epoch]).items():
        warnings.warn(PausedViewWarning(view, paused.epoch, paused.reason), stacklevel=3)


def _run_of(meta: MetaStore, epoch: int) -> Mapping[str, str] | None:
    """What the barrier of a committed epoch keeps of its run; None where the floor has passed the epoch."""
    sealed = meta.sealed(epoch)
    barrier = None if sealed is None else meta.barrier_after(sealed.prev_epoch)
    return None if barrier is None else barrier.run


def _require_none(paused: Mapping[str, Paused]) -> None:
    if paused:
        raise PausedViewsError({view: f"{of.reason}{_over(of)}" for view, of in paused.items()})


def _over(paused: Paused) -> str:
    return f" (with {', '.join(paused.over)}, over it)" if paused.over else ""
