"""Every condition of a pipeline's health, as facts of a store in which one thing differs from a healthy one."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from tests.unit.jobs.facts.test_status import NOW, look
from tussock.jobs.facts.barrier import BarrierFacts
from tussock.jobs.facts.health import HealthFacts, find_troubles
from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.facts.published import CopyFacts, PublishedFacts
from tussock.jobs.facts.runs import RunFacts, RunState
from tussock.jobs.facts.sources import HoldFacts
from tussock.jobs.facts.status import Status
from tussock.jobs.facts.trouble import Trouble, TroubleKind
from tussock.jobs.facts.unopened import trouble_of_unopened
from tussock.jobs.facts.verified import VerifiedFacts
from tussock.jobs.facts.views import Quality, QualityFacts, ViewState
from tussock.jobs.quality.arrival import LateFiles, MissingFiles
from tussock.jobs.quality.record import Failure, QualityRecord, ViewQuality
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.publishing import DeltaSettings
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.sources.listing import Interval
from tussock.statestore.meta.barrier import Mutation
from tussock.statestore.meta.epoch import COUNTER_BITS
from tussock.statestore.meta.errors import NotInitialisedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStoreUnavailableError

AT = NOW - timedelta(hours=1)
EPOCH = int((NOW - timedelta(hours=2)).timestamp() * 1000) << COUNTER_BITS
LATER = int(AT.timestamp() * 1000) << COUNTER_BITS


def healthy(meta: MetaStore) -> HealthFacts:
    """The facts of a store in which nothing waits: the fixture `shop` of test_status.py, with fixed epochs."""
    found = look(meta)
    assert found.troubles == ()
    status = msgspec.structs.replace(
        found,
        pipeline="shop",
        at=NOW,
        committed=epoch_moment(EPOCH),
        published=epoch_moment(EPOCH),
        statements=0,
        run=None,
        open=None,
        views=tuple(msgspec.structs.replace(view, quality=QualityFacts()) for view in found.views),
        epochs=(),
        copy=None,
    )
    return HealthFacts(status=status, committed=EPOCH, published=EPOCH, overdue=None, freshness={}, publish=())


def change_facts(facts: HealthFacts, **changes: Any) -> HealthFacts:
    """Return the facts with changed fields, of the status too."""
    of_status = {name: value for name, value in changes.items() if name in Status.__struct_fields__}
    others = {name: value for name, value in changes.items() if name in HealthFacts.__struct_fields__}
    if "committed" in others:
        of_status["committed"] = epoch_moment(others["committed"])
    return msgspec.structs.replace(facts, status=msgspec.structs.replace(facts.status, **of_status), **others)


def conditions(facts: HealthFacts) -> Mapping[TroubleKind, tuple[Trouble, ...]]:
    """The troubles of each condition."""
    run = RunFacts(
        state=RunState.FAILED,
        what="epoch",
        began=AT,
        at=AT,
        writer="host-1-abc",
        run={"dag": "epoch_shop", "run": "scheduled__2030-01-01"},
        interval=None,
        kind="ViewRowError",
        error="view 'per_g': division by zero",
    )
    opened = BarrierFacts(EPOCH + 1, AT, EPOCH, 0, "host-1-abc", False, (), (), Mutation(), (), 2, ())
    changes: dict[TroubleKind, dict[str, Any]] = {
        TroubleKind.RUN_FAILED: {"run": run},
        TroubleKind.RUN_INCOMPLETE: {
            "run": msgspec.structs.replace(
                run, state=RunState.INCOMPLETE, error="", undone=("view 'v' is paused\n more",)
            )
        },
        TroubleKind.RUN_INTERRUPTED: {"run": msgspec.structs.replace(run, state=RunState.INTERRUPTED, error="")},
        TroubleKind.RUN_OVERDUE: {"overdue": AT},
        TroubleKind.STORE_EMPTY: {"is_empty": True},
        TroubleKind.STORE_COPIED: {
            "copy": CopyFacts("s3://old/shop", "s3://new/shop", "s3://new/shop"),
            "publish": (DeltaSettings(to="tables"),),
        },
        TroubleKind.EPOCH_STUCK: {"open": opened},
        TroubleKind.EPOCH_REFUSED: {"committed": LATER} | _view(facts, quality=_failed(LATER)),
        TroubleKind.EPOCH_UNPUBLISHED: {"committed": LATER},
        TroubleKind.SOURCE_HELD: _source(
            facts, held=(HoldFacts(EPOCH, AT, "file 2.csv cannot be read as csv", "2.csv"),)
        ),
        TroubleKind.SOURCE_UNLISTED: _source(facts, trouble="no such folder: /data"),
        TroubleKind.REJECTS: _source(facts, rejects=1_200),
        TroubleKind.FILES_MISSING: {
            "missing": (
                MissingFiles("orders", Interval(AT - timedelta(days=1), AT), (), 1, 1, AT + timedelta(minutes=5)),
            )
        },
        TroubleKind.FILES_LATE: _source(
            facts,
            late=(
                LateFiles(Interval(AT - timedelta(days=1), AT), ("day=30/a.csv",)),
                LateFiles(Interval(AT - timedelta(days=2), AT - timedelta(days=1)), ("a.csv", "b.csv")),
            ),
        ),
        TroubleKind.VIEW_PAUSED: _view(facts, state=ViewState.PAUSED, reason="division by zero in row k=1", since=AT),
        TroubleKind.VIEW_HELD_BACK: _view(facts, state=ViewState.HELD_BACK, since=AT, quality=_failed(EPOCH)),
        TroubleKind.SUITE_FAILED: _view(facts, quality=_failed(EPOCH)),
        TroubleKind.SUITE_WARNS: _view(
            facts, quality=QualityFacts(Quality.WARNING, EPOCH, AT, 2, (), ("expect_unique(k): found 2 duplicates",))
        ),
        TroubleKind.ASSERTION_WARNS: {
            "record": QualityRecord(
                EPOCH,
                (ViewQuality("paid.sql", 3, 1, warnings=(Failure("paid.sql", "3 wrong rows"),), holds=("per_g",)),),
            )
        },
        TroubleKind.UNCHECKED: {"record": QualityRecord(EPOCH, (), unchecked="tussock epoch --no-check")},
        TroubleKind.VIEW_STALE: _view(facts, freshness_s=7_200.0, wanted_s=3_600.0),
        TroubleKind.VIEW_UNKNOWN: {"freshness": {"per_gg": 3_600_000}},
        TroubleKind.VIEW_DIFFERENT: {"verified": VerifiedFacts(AT, {"different": 1}, ("per_g",), AT)},
        TroubleKind.VERIFIED: {"verified": VerifiedFacts(AT, {"equal": 3})},
        TroubleKind.TABLES: {
            "tables": (PublishedFacts("delta", "s3://lake/shop", 1, (LATER,), False, "", ""),),
            "publish": (DeltaSettings(to="s3://lake/shop"),),
        },
        TroubleKind.COMPACTION_DUE: {
            "shape": msgspec.structs.replace(facts.status.shape, compaction_due=("L0 has 12 runs",))
        },
    }
    found = {kind: find_troubles(change_facts(facts, **change)) for kind, change in changes.items()}
    broken = PipelineError("pipelines/shop/pipeline.toml", "colour", "1", "no such key")
    found[TroubleKind.DEFINITION] = (trouble_of_unopened(broken, None),)
    away = ObjectStoreUnavailableError("s3://bucket/shop", "GET meta/store.json", "connection refused")
    found[TroubleKind.STORE_UNREADABLE] = (trouble_of_unopened(away, None, "s3://bucket/shop"),)
    pipeline = Pipeline("shop", Path(), "s3://bucket/shop", ())
    found[TroubleKind.STORE_MISSING] = (trouble_of_unopened(NotInitialisedError("s3://bucket/shop"), pipeline),)
    return {kind: found[kind] for kind in TroubleKind}


def _failed(epoch: int) -> QualityFacts:
    return QualityFacts(Quality.FAILED, epoch, epoch_moment(epoch), 2, ("expect_min(n): found -1",))


def _view(facts: HealthFacts, **changes: Any) -> dict[str, Any]:
    first, *others = facts.status.views
    return {"views": [msgspec.structs.replace(first, **changes), *others]}


def _source(facts: HealthFacts, **changes: Any) -> dict[str, Any]:
    (source,) = facts.status.sources
    return {"sources": [msgspec.structs.replace(source, **changes)]}
