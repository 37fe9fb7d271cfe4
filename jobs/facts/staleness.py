"""Views that are older than their pipeline allows, with one alert for each time that a view becomes too old.

The first process to alert creates a small object `alerts/<view>.json` in the store with put-if-absent, so of several
processes only one alerts. The object is deleted when a check or a publish finds that the view is no longer too old.
Committed epochs are no evidence of that, because they may concern other views.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from tussock.jobs.facts.moment import age_text
from tussock.jobs.facts.sources import list_sources
from tussock.jobs.facts.views import ViewFacts, list_views
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectNotFoundError


class Stale(msgspec.Struct, frozen=True):
    """The age of a view at one moment."""

    view: str
    age_s: float | None  # of the oldest change that readers do not see; None if unknown
    wanted_s: float
    published_epoch: int | None
    published_at: datetime | None

    @property
    def behind(self) -> bool:
        """Whether readers miss a change, or this is unknown."""
        return self.age_s is None or self.age_s > 0

    @property
    def too_old(self) -> bool:
        """Whether the view is older than allowed.

        An unknown age counts as too old, because this is checked when a run is late.
        """
        return self.age_s is None or self.age_s > self.wanted_s

    def __str__(self) -> str:
        at = self.published_at
        seen = "readers see no rows of it yet" if at is None else f"readers see it as of {at:%Y-%m-%d %H:%M:%S} UTC"
        missed = (
            "the missing changes are unknown"
            if self.age_s is None
            else f"and miss a change of {age_text(self.age_s)} ago"
        )
        return f"view {self.view} should be at most {age_text(self.wanted_s)} old: {seen}, {missed}"


def measure_staleness(meta: MetaStore, view: str, wanted_ms: int, now: datetime) -> Stale | None:
    """Return the age of a view; None if it does not exist. Cost: as `sources` of sources.py and `views` of views.py."""
    version = meta.read_latest()
    views = list_views(
        meta, now, version, sources=list_sources(meta, version), barrier=meta.barrier_after(version.epoch)
    )
    one: ViewFacts | None = next((f for f in views if f.view == view), None)
    return (
        None if one is None else Stale(view, one.freshness_s, wanted_ms / 1000, one.published_epoch, one.published_at)
    )


def first_to_say(meta: MetaStore, stale: Stale, now: datetime) -> bool:
    """Record an alert for a view. Returns False if it was already recorded since the view became too old."""
    said = msgspec.json.encode({"writer": meta.writer, "at": now.isoformat(), "said": str(stale)})
    return meta.objects.put_if_absent(_alert_name(stale.view), said)


def delete_past_alerts(meta: MetaStore, wanted: Mapping[str, int], now: datetime) -> None:
    """Delete the alerts of views that are no longer too old. The next time that one becomes too old is a new alert.

    Args:
        wanted: the maximum age of views, ms by name.

    Cost: one HEAD request per view; if an alert exists, also `measure_staleness`.
    """
    for view, wanted_ms in wanted.items():
        try:
            meta.objects.head(_alert_name(view))
        except ObjectNotFoundError:
            continue
        if (stale := measure_staleness(meta, view, wanted_ms, now)) is None or not stale.too_old:
            meta.objects.delete([_alert_name(view)])


def _alert_name(view: str) -> str:
    return f"alerts/{view}.json"
