"""Barriers: what one epoch is about to take in, pinned before anything runs, so that every attempt of every task computes the same.

A barrier is never edited. While it is uncommitted it can be superseded by another with the same prev epoch and the next attempt;
whichever commits first wins.
"""

from enum import StrEnum

import msgspec

from tussock.statestore.meta.catalog import Catalog
from tussock.statestore.meta.version import HummockVersion, VnodeMapping


class MutationKind(StrEnum):
    """What a barrier changes in the graph of views. Where it changes several things, the first of them in this order."""

    ADD = "add"  # relations begin: an epoch that may read others in full
    STOP = "stop"  # relations end
    BUILD = "build"  # relations that begin in a later epoch are built on
    PAUSE = "pause"  # views stay at the rows they have
    UPDATE = "update"  # the vnode mapping: from here on another number of units
    RESUME = "resume"  # paused views go on; no driver does this yet
    NOTHING = "nothing"


class Mutation(msgspec.Struct, frozen=True):
    """What the barrier changes in the graph of views."""

    kind: MutationKind = MutationKind.NOTHING
    relations: tuple[int, ...] = ()  # relation ids it is about, in order


class BarrierPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver decides; the rest of a barrier is allotted by meta."""

    mapping: VnodeMapping  # the version's, unless this epoch is to run on another
    log_end: int  # entries of the log below this position are taken
    splits: dict[
        int, msgspec.Raw
    ] = {}  # source's relation id -> what to take of it: JSON of its reader's own, opaque here
    catalog: Catalog | None = None  # after this barrier; None: unchanged
    mutation: Mutation = Mutation()
    run: dict[str, str] = {}  # of the scheduler, e.g. its data interval; opaque here
    skipped: tuple[str, ...] = ()  # what `tussock barrier abandon` left out, as text for a person
    unread: dict[int, msgspec.Raw] = msgspec.field(
        default_factory=dict, name="skipped_files"
    )  # likewise: counts as taken, is not read
    skipped_entries: tuple[int, ...] = ()  # positions in the log that are not replayed
    moment: int = (
        0  # Unix microseconds: what now() is to mean in views; at least that of the version before. 0: as before
    )


class Barrier(BarrierPlan, frozen=True, kw_only=True):
    """One attempt at the epoch after `prev_epoch`."""

    prev_epoch: int
    epoch: int  # of this attempt alone
    attempt: int  # 0, then +1 with each barrier that supersedes
    writer: str
    log_start: int  # where the version at `prev_epoch` stopped reading the log


def barrier_of(plan: BarrierPlan, version: HummockVersion, *, epoch: int, attempt: int, writer: str) -> Barrier:
    """`plan` as the barrier of one attempt at the epoch after `version`. Its moment never goes back."""
    decided = {name: getattr(plan, name) for name in BarrierPlan.__struct_fields__}
    decided["moment"] = max(plan.moment, version.moment)
    prev_epoch, log_start = version.epoch, version.log_end
    return Barrier(**decided, prev_epoch=prev_epoch, epoch=epoch, attempt=attempt, writer=writer, log_start=log_start)
