"""The result of the last `tussock verify`, which compares the views with Spark's results."""

from datetime import datetime

import msgspec

from tussock.jobs.catalog.builds import find_planned
from tussock.jobs.verify.record import Verdict, read_last
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.meta.epoch import time_of_ms
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion


class VerifiedFacts(msgspec.Struct, frozen=True):
    """The newest result of each view."""

    at: datetime  # of the newest
    views: dict[str, int]  # number of views per verdict
    different: tuple[str, ...] = ()  # views that differed and were not rebuilt since
    since: datetime | None = None  # when the first of these was found; None if no view differs
    repair_waits: bool = False  # the next epochs rebuild all of these


def read_verified(meta: MetaStore, version: HummockVersion) -> VerifiedFacts | None:
    """Return the newest results of the existing views; None if no view was compared. Cost: one GET."""
    last = read_last(meta.objects)
    live = {r.name: r for r in version.catalog.live_relations() if r.kind is RelationKind.VIEW}
    checks = [check for check in last.views if check.view in live] if last is not None else []
    if last is None or not checks:
        return None
    wrong = [c for c in checks if c.verdict is Verdict.DIFFERENT and live[c.view].created <= c.epoch]
    logged = (
        set(last.repair.views) if last.repair is not None and last.repair.position >= version.log_end else set[str]()
    )
    return VerifiedFacts(
        time_of_ms(max(c.finished_ms for c in checks)),
        {str(verdict): n for verdict in Verdict if (n := sum(c.verdict is verdict for c in checks))},
        tuple(c.view for c in wrong),
        time_of_ms(min(c.finished_ms for c in wrong)) if wrong else None,
        bool(wrong) and all(c.view in logged or find_planned(version.catalog, c.view) is not None for c in wrong),
    )
