"""Views that a run pauses automatically, if `[epoch] on_error = "pause"`. They and their readers keep their rows.

If a view's rows raise, the barrier is superseded by one that pauses the view (jobs/trouble/supersede.py). The catalog
contains the pause from then on (`Relation.paused`, `paused_for`), so later runs do not fail on the same row. The run
that paused a view fails with PausedViewsError after everything else is committed; later runs succeed.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tussock.jobs.catalog.definition import with_readers
from tussock.jobs.driver.summary import EpochSummary
from tussock.jobs.reading.read import PausedViewWarning
from tussock.jobs.settings.row_values import printed_reason
from tussock.jobs.settings.shared_reasons import shared_reasons
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, RelationKind, shown_view
from tussock.statestore.meta.store import MetaStore


@dataclass(frozen=True, slots=True)
class PausedByRun:
    """A view that a run paused. `over` contains its readers, which were paused with it."""

    epoch: int
    reason: str
    over: tuple[str, ...] = ()


class PausedViewsError(InputError, hides_row_values=True):
    """Views were paused because their rows raise. Everything else was taken in. `reasons` is by view."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)

    def without_views(self, said: str) -> "PausedViewsError | None":
        """The error without the views whose reasons a message contains, such as a failed assertion's."""
        left = {view: reason for view, reason in self.reasons.items() if reason.rstrip(".") not in said}
        return PausedViewsError(left) if left else None

    def __str__(self) -> str:
        reasons = shared_reasons({shown_view(view): printed_reason(reason) for view, reason in self.reasons.items()})
        paused = [f"{', '.join(v)} {'are' if v[1:] else 'is'} paused: {reason}" for v, reason in reasons.groups]
        lines = "\n  ".join(filter(None, (*paused, reasons.ending)))
        resume = " ".join(f"--resume {view}" for view in self.reasons)
        return (
            f"{lines}\n  They keep the rows of the previous epoch, as do the views that read them. Everything else "
            "was taken and committed. Correct the row (UPDATE or DELETE it in its table, or restate its repaired file) "
            f"or the view's SELECT. Then `tussock apply PIPELINE {resume}` or CREATE OR REPLACE MATERIALIZED VIEW "
            "rebuilds the paused views."
        )


def paused_views(catalog: Catalog) -> dict[str, PausedByRun]:
    """Return the views that runs have paused and that are not yet resumed, by name."""
    pause_by_view: dict[str, PausedByRun] = {}
    for view in catalog.live_relations():
        if view.paused is not None and view.paused_for:
            ids = with_readers(catalog, view) - {view.id}
            over = tuple(r.name for r in catalog.live_relations() if r.id in ids and r.kind is RelationKind.VIEW)
            pause_by_view[view.name] = PausedByRun(view.paused, view.paused_for, over)
    return pause_by_view


def paused_by(catalog: Catalog, epochs: Iterable[int]) -> dict[str, PausedByRun]:
    """Return the views that one of these epochs paused."""
    wanted = set(epochs)
    return {view: paused for view, paused in paused_views(catalog).items() if paused.epoch in wanted}


def require_none_paused(meta: MetaStore, done: Iterable[EpochSummary]) -> None:
    """Raises PausedViewsError if one of these epochs of a run paused a view."""
    _require_none(paused_by(meta.read_latest().catalog, (s.epoch for s in done)))


def require_none_paused_by(meta: MetaStore, run: Mapping[str, str]) -> None:
    """Raises PausedViewsError if a view is still paused by an epoch whose barrier this run injected.

    Cost: two GETs per paused view.
    """
    catalog = meta.read_latest().catalog
    epochs = {paused.epoch for paused in paused_views(catalog).values()}
    _require_none(paused_by(catalog, (epoch for epoch in epochs if _run_of(meta, epoch) == run)))


def warn_of_paused(catalog: Catalog, done: EpochSummary) -> None:
    """Warns with PausedViewWarning for each view that an epoch paused."""
    for view, paused in paused_by(catalog, [done.epoch]).items():
        warnings.warn(PausedViewWarning(view, paused.epoch, paused.reason), stacklevel=3)


def _run_of(meta: MetaStore, epoch: int) -> Mapping[str, str] | None:
    """Return the run of a committed epoch's barrier; None if the epoch is below the floor."""
    sealed = meta.read_manifest(epoch)
    barrier = None if sealed is None else meta.barrier_after(sealed.prev_epoch)
    return None if barrier is None else barrier.run


def _require_none(paused: Mapping[str, PausedByRun]) -> None:
    if paused:
        raise PausedViewsError({view: f"{of.reason}{_readers_text(of)}" for view, of in paused.items()})


def _readers_text(paused: PausedByRun) -> str:
    return f" (with {', '.join(paused.over)}, which read it)" if paused.over else ""
