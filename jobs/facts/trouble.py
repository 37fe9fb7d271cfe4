"""A trouble: something that an operator should act on or know about, and the health as one word."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from tussock.jobs.settings.row_values import without_values


class TroubleKind(StrEnum):
    """The conditions that the health consists of. The values are names of metrics."""

    DEFINITION = "definition"  # pipeline.toml cannot be loaded
    STORE_UNREADABLE = "store_unreadable"
    STORE_MISSING = "store_missing"
    STORE_EMPTY = "store_empty"  # no statement was ever given
    STORE_COPIED = "store_copied"
    RUN_FAILED = "run_failed"
    RUN_INCOMPLETE = "run_incomplete"  # it left something undone that no other trouble shows any more
    RUN_INTERRUPTED = "run_interrupted"
    RUN_OVERDUE = "run_overdue"
    EPOCH_STUCK = "epoch_stuck"
    EPOCH_REFUSED = "epoch_refused"  # suites failed, so it is not published
    EPOCH_UNPUBLISHED = "epoch_unpublished"
    SOURCE_HELD = "source_held"
    SOURCE_UNLISTED = "source_unlisted"
    REJECTS = "rejects"
    FILES_MISSING = "files_missing"  # an interval has brought fewer files than pipeline.toml expects, or more
    FILES_LATE = "files_late"  # they arrived after the run of their interval, so that no scheduled run takes them
    VIEW_PAUSED = "view_paused"
    VIEW_HELD_BACK = "view_held_back"
    SUITE_FAILED = "suite_failed"
    SUITE_WARNS = "suite_warns"
    ASSERTION_WARNS = "assertion_warns"
    UNCHECKED = "unchecked"  # an epoch was published without its checks
    VIEW_STALE = "view_stale"
    VIEW_UNKNOWN = "view_unknown"  # of [freshness]
    VIEW_DIFFERENT = "view_different"  # from Spark's result
    TABLES = "tables"  # of [publish]
    COMPACTION_DUE = "compaction_due"
    VERIFIED = "verified"


_QUIET = frozenset({TroubleKind.COMPACTION_DUE, TroubleKind.VERIFIED})
"""Conditions that need no attention: a healthy pipeline may have them."""


class Trouble(msgspec.Struct, frozen=True):
    """Something that an operator should act on or, if not `wrong`, know about."""

    kind: TroubleKind
    about: str  # `source weather`, `view delays`, `epoch`
    what: str
    do: str  # the next step
    wrong: bool = True  # readers miss something, or will
    since: datetime | None = None
    views: tuple[str, ...] = ()  # the views that it concerns, if `about` is not the name of one


_WITH_REASON = frozenset(
    {
        TroubleKind.RUN_FAILED,
        TroubleKind.RUN_INCOMPLETE,
        TroubleKind.EPOCH_REFUSED,
        TroubleKind.SOURCE_HELD,
        TroubleKind.SOURCE_UNLISTED,
        TroubleKind.VIEW_PAUSED,
        TroubleKind.VIEW_HELD_BACK,
        TroubleKind.SUITE_FAILED,
        TroubleKind.SUITE_WARNS,
        TroubleKind.ASSERTION_WARNS,
    }
)
"""Their texts contain errors or findings, which may quote rows."""


def without_row_values(trouble: Trouble) -> Trouble:
    """Return a trouble for people who may not see rows."""
    if trouble.kind not in _WITH_REASON:
        return trouble
    return msgspec.structs.replace(trouble, what=without_values(trouble.what), do=without_values(trouble.do))


class HealthVerdict(StrEnum):
    """The health in one word."""

    HEALTHY = "healthy"
    ATTENTION = "needs attention"  # nothing is missing for readers, but a person should look, for example at rejects
    WRONG = "wrong"


def health_verdict(troubles: Sequence[Trouble]) -> HealthVerdict:
    """Return the health in one word."""
    if any(trouble.wrong for trouble in troubles):
        return HealthVerdict.WRONG
    return HealthVerdict.ATTENTION if any(trouble.kind not in _QUIET for trouble in troubles) else HealthVerdict.HEALTHY
