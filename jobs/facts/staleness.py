"""Views that are older than their pipeline wants them, and whether somebody has been told: once for each time that a view gets too old.

Who alerts first puts a small object `alerts/<view>.json` into the store, if there is none: of any number of processes that look, one wins.
It goes when a look, or a publish, finds that the view is not too old any more. Epochs say nothing of that: they go on for other views.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from tussock.jobs.facts.moment import age_text
from tussock.jobs.facts.sources import sources
from tussock.jobs.facts.views import ViewFacts, views
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectNotFoundError


class Stale(msgspec.Struct, frozen=True):
    """A view at one moment, as far as its age goes."""

    view: str
    age_s: float | None  # of the oldest change that readers do not see; None: not known
    wanted_s: float
    published_epoch: int | None
    published_at: datetime | None

    @property
    def behind(self) -> bool:
        """Whether readers miss something, or that is not known."""
        return self.age_s is None or self.age_s > 0

    @property
    def too_old(self) -> bool:
        """Whether the view is older than it should be; so is one whose age is not known, for this is asked when a run is late."""
        return self.age_s is None or self.age_s > self.wanted_s

    def __str__(self) -> str:
        at = self.published_at
        seen = "readers see no rows of it yet" if at is None else f"readers see it as of {at:%Y-%m-%d %H:%M:%S} UTC"
        missed = (
            "what they miss is not known" if self.age_s is None else f"and miss a change of {age_text(self.age_s)} ago"
        )
        return f"view {self.view} is to be at most {age_text(self.wanted_s)} old: {seen}, {missed}"


def staleness(meta: MetaStore, view: str, wanted_ms: int, now: datetime) -> Stale | None:
    """How old a view is; None: there is none of this name. Cost: as jobs/facts/sources.py:sources and jobs/facts/views.py:views."""
    version = meta.latest()
    found = views(meta, now, version, sources=sources(meta, version), barrier=meta.barrier_after(version.epoch))
    one: ViewFacts | None = next((f for f in found if f.view == view), None)
    return (
        None if one is None else Stale(view, one.freshness_s, wanted_ms / 1000, one.published_epoch, one.published_at)
    )


def first_to_say(meta: MetaStore, stale: Stale, now: datetime) -> bool:
    """Whether nobody has said yet that the view is too old since it got so; from now on somebody has."""
    said = msgspec.json.encode({"writer": meta.writer, "at": now.isoformat(), "said": str(stale)})
    return meta.objects.put_if_absent(_name(stale.view), said)


def let_go(meta: MetaStore, wanted: Mapping[str, int], now: datetime) -> None:
    """Forget what was said of views that are not too old any more: the next time that one gets so is said again.

    Args:
        wanted: how old views are to be at most, ms by name.

    Cost: a HEAD a view; where something was said, as `staleness`.
    """
    for view, wanted_ms in wanted.items():
        try:
            meta.objects.head(_name(view))
        except ObjectNotFoundError:
            continue
        if (found := staleness(meta, view, wanted_ms, now)) is None or not found.too_old:
            meta.objects.delete([_name(view)])


def _name(view: str) -> str:
    return f"alerts/{view}.json"
