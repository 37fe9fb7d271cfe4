"""A dry run of upkeep: the work that retention, compaction and vacuum would do."""

import msgspec

from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep.compaction import due_picks
from tussock.jobs.upkeep.vacuum import sweep_store
from tussock.statestore.hummock.amplification import LevelShape, measure_amplification
from tussock.statestore.meta.readable import retained_floor
from tussock.statestore.meta.store import MetaStore


class UpkeepFacts(msgspec.Struct, frozen=True):
    """The work that is due for upkeep."""

    floor: int  # the oldest readable epoch
    floor_after: int  # after retention
    let_go: int  # epochs between the two floors
    due: tuple[str, ...]  # reasons to merge SSTs, most urgent first; empty: nothing is due
    levels: tuple[LevelShape, ...]
    removable_objects: int  # unreferenced at the current floor; a higher floor frees more
    removable_bytes: int
    kept_objects: int  # in data/
    kept_bytes: int


def find_due_work(meta: MetaStore, retention: Retention) -> UpkeepFacts:
    """Return the work that is due. Cost: lists the store; one GET for each of the newest versions."""
    version = meta.read_latest()
    after = max(
        version.min_readable_epoch,
        retained_floor(version, retention.keep_epochs, retention.keep_ms, meta.moment_now() // 1000),
    )
    sweep = sweep_store(meta, dry_run=True)
    sizes = [*(g.size for g in (*sweep.vacuumed.garbage, *sweep.copies)), *(t.size for t in sweep.temporary)]
    return UpkeepFacts(
        version.min_readable_epoch,
        after,
        sum(epoch < after for epoch in version.epochs),
        tuple(pick.reason for pick in due_picks(meta)),
        measure_amplification(meta).levels,
        len(sizes),
        sum(sizes),
        sweep.vacuumed.kept_objects,
        sweep.vacuumed.kept_bytes,
    )
