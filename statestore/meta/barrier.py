"""Barriers: the inputs and changes of one epoch, pinned before anything runs. All attempts of all tasks then agree.

A barrier is never edited. Until its epoch is committed, another barrier with the same prev epoch and the next attempt
number can supersede it. The first of them to commit wins.
"""

from enum import StrEnum

import msgspec

from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, VnodeMapping


class MutationKind(StrEnum):
    """The change that a barrier makes to the graph of views. If it makes several, the first in this order."""

    UNDO = "undo"  # all relations and rows become those of an earlier epoch
    ADD = "add"  # relations start; the epoch may read other relations in full
    STOP = "stop"  # relations end
    BUILD = "build"  # continues building relations that start in a later epoch
    PAUSE = "pause"  # views keep the rows that they have
    UPDATE = "update"  # the vnode mapping changes to another number of units
    NOTHING = "nothing"


class Undo(msgspec.Struct, frozen=True):
    """The return to an earlier epoch.

    `keeps_input`: input that was taken since then counts as taken, and its rows are not read. Else it is taken again.
    """

    to: int
    keeps_input: bool


class Mutation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change that a barrier makes to the graph of views."""

    kind: MutationKind = MutationKind.NOTHING
    relations: tuple[int, ...] = ()  # ids of the affected relations, in order
    undo: Undo | None = None  # of kind UNDO


class TimeSpan(msgspec.Struct, frozen=True):
    """A time span in Unix microseconds, end exclusive."""

    start: int
    end: int


class BarrierPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a barrier that the driver decides. Meta assigns the rest."""

    mapping: VnodeMapping  # the version's mapping, unless this epoch runs on another one
    log_end: int  # the epoch takes log entries below this position
    splits: dict[int, msgspec.Raw] = {}  # by source id: the input to take, as JSON of the source reader; opaque here
    catalog: Catalog | None = None  # after this barrier; None: unchanged
    mutation: Mutation = Mutation()
    run: dict[str, str] = {}  # facts about the scheduler's run, e.g. its data interval; opaque here
    skipped: tuple[str, ...] = ()  # inputs that `tussock barrier abandon` skipped, as text for people
    columns: tuple[str, ...] = ()  # columns that files brought to their sources, as text for people
    # By source id, like `splits`: inputs that count as taken and are not read.
    unread: dict[int, msgspec.Raw] = msgspec.field(default_factory=dict, name="skipped_files")
    by_spark: dict[int, dict[str, str]] = {}  # by source id and file: why Spark reads it; the engine reads the others
    skipped_entries: tuple[int, ...] = ()  # log positions that are not replayed
    # Unix microseconds: the value of now() in views, at least the previous version's. 0: the previous version's.
    moment: int = 0
    by_intervals: bool = False  # epochs without an interval keep the moment; ignored if `moment` is 0
    passed_over: TimeSpan | None = None  # the time before the moment whose intervals have not run
    follows: int = 0  # of a branch: the parent's version that committed the epoch which this one takes; 0: none


class Barrier(BarrierPlan, frozen=True, kw_only=True):
    """One attempt at the epoch after `prev_epoch`."""

    prev_epoch: int
    epoch: int  # unique to this attempt
    attempt: int  # starts at 0; each superseding barrier adds 1
    writer: str
    log_start: int  # the log end of the version at `prev_epoch`


def barrier_of(plan: BarrierPlan, version: HummockVersion, *, epoch: int, attempt: int, writer: str) -> Barrier:
    """Complete `plan` to the barrier of one attempt at the epoch after `version`.

    Its moment goes back only to that of an earlier epoch whose rows it restores.
    """
    decided = {name: getattr(plan, name) for name in BarrierPlan.__struct_fields__}
    if plan.mutation.undo is None:
        decided["moment"] = max(plan.moment, version.moment)
    if not plan.moment:
        decided["by_intervals"] = version.by_intervals
    prev_epoch, log_start = version.epoch, version.log_end
    return Barrier(**decided, prev_epoch=prev_epoch, epoch=epoch, attempt=attempt, writer=writer, log_start=log_start)
