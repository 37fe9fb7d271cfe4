"""The status of a pipeline at one moment, with its troubles first."""

from datetime import datetime

import msgspec

from tussock.jobs.facts.barrier import BarrierFacts
from tussock.jobs.facts.branches import BranchFacts
from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.facts.published import CopyFacts, PublishedFacts
from tussock.jobs.facts.readers import ReaderFacts
from tussock.jobs.facts.runs import RunFacts, last_sign
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.store import CostFacts, StoreFacts, VacuumFacts
from tussock.jobs.facts.trouble import HealthVerdict, Trouble, health_verdict
from tussock.jobs.facts.units import UnitFacts
from tussock.jobs.facts.verified import VerifiedFacts
from tussock.jobs.facts.views import ViewFacts
from tussock.jobs.facts.zones import ZoneDatabases, ZoneFacts
from tussock.jobs.settings.printed_commands import in_commands


class WorkFacts(msgspec.Struct, frozen=True):
    """Long work in progress: an epoch's levels, a compaction."""

    what: str
    began: datetime
    at: datetime  # time of this report
    done: int  # tasks
    total: int  # so far as known


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline at one moment. All parts are of one version."""

    pipeline: str  # empty if only its store was given
    environment: str = ""  # the chosen environment of the pipeline; empty if none
    store: str  # its address
    at: datetime
    version: int
    committed: datetime | None  # of the committed epoch; None: no epoch yet
    published: datetime | None  # of the published one
    floor: datetime | None  # of the oldest readable epoch
    statements: int  # waiting in the log
    troubles: tuple[Trouble, ...]  # wrong ones first
    open: BarrierFacts | None  # the running epoch
    sources: tuple[SourceFacts, ...]
    views: tuple[ViewFacts, ...]
    epochs: tuple[EpochFacts, ...]  # the newest, oldest first
    units: tuple[UnitFacts, ...]
    shape: StoreFacts
    cost: CostFacts
    vacuum: VacuumFacts | None = None  # None: not computed
    work: tuple[WorkFacts, ...] = ()  # long work in progress
    tables: tuple[PublishedFacts, ...] = ()  # one per sink; none if no epoch is published
    copy: CopyFacts | None = None  # the store was moved or copied, and the user has not yet confirmed which
    verified: VerifiedFacts | None = None  # the last comparison with Spark's results; None: no comparison yet
    run: RunFacts | None = None  # the last one; None: it has left no record
    zones: tuple[ZoneFacts, ...] = ()  # time zones with recorded rules; none if all times are in UTC
    zone_databases: ZoneDatabases | None = None  # of this host; None: no rules are recorded
    branch: BranchFacts | None = None  # the store is this branch
    branches: tuple[str, ...] = ()  # the open branches of this store
    readers: tuple[ReaderFacts, ...] = ()  # sources of other stores that read this one
    reads: tuple[ReaderFacts, ...] = ()  # its own sources that read other stores

    @property
    def verdict(self) -> HealthVerdict:
        """The health in one word."""
        return health_verdict(self.troubles)

    @property
    def wrong(self) -> bool:
        """Whether any trouble is wrong."""
        return any(trouble.wrong for trouble in self.troubles)

    @property
    def silent_since(self) -> datetime | None:
        """The last sign of a process that works on the open epoch, if none has given one for a minute."""
        return None if self.open is None else last_sign(self.open.at, self.run, self.at)

    @property
    def pipeline_argument(self) -> str:
        """The pipeline as an argument of a command."""
        return in_commands(self.pipeline or "PIPELINE", self.environment, self.branch.name if self.branch else "")

    @property
    def pipeline_option(self) -> str:
        """The pipeline as an option of a command."""
        return f" --pipeline {self.pipeline_argument}" if self.pipeline else ""
