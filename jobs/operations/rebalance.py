"""Rebalance: plan which vnodes move between units, and move them."""

from dataclasses import dataclass

from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.upkeep import rebalance as upkeep
from tussock.jobs.upkeep.rebalance import MoveVerdict, Rebalance, UnitShare, UnitsInFileError, VnodeHotKey
from tussock.statestore.meta.version import HummockVersion

__all__ = [
    "PlannedRebalance",
    "Rebalance",
    "commit_mapping",
    "measure_units",
    "move_objection",
    "plan_moves",
    "require_units_of_file",
    "verify_mapping",
]


@dataclass(frozen=True, slots=True)
class PlannedRebalance:
    """A plan, and the key that makes a vnode hot, if a single key is the cause."""

    rebalance: Rebalance
    cause: VnodeHotKey | None

    @property
    def moves(self) -> bool:
        """Return whether any vnode moves."""
        return self.rebalance.verdict is MoveVerdict.MOVE


def measure_units(store: PipelineStore) -> tuple[UnitShare, ...]:
    """Return the share and the load of each parallel unit."""
    return upkeep.plan_rebalance(upkeep.measure_loads(store.meta)).before


def plan_moves(store: PipelineStore, units: int | None, target: float | None, approved: str | None) -> PlannedRebalance:
    """Plan moves: to another number of units, or away from units that carry more than `target` times the mean.

    Args:
        target: None means the pipeline's.
        approved: the digest of the only acceptable moves.

    Raises: SettingError; OtherMovesError.
    """
    measured = upkeep.measure_loads(store.meta)
    plan = upkeep.plan_rebalance(measured, units, store.pipeline.rebalance.target if target is None else target)
    if approved:
        upkeep.require_approved(plan, approved)
    return PlannedRebalance(plan, upkeep.cause_of(store.meta, measured, plan))


def require_units_of_file(store: PipelineStore, units: int | None) -> None:
    """Raises UnitsInFileError if pipeline.toml sets another number of units."""
    upkeep.require_units_of_file(store.pipeline, units)


def move_objection(store: PipelineStore, units: int | None) -> str | None:
    """Return why a move to this number of units would be refused; None if it would not be."""
    try:
        require_units_of_file(store, units)
    except UnitsInFileError as err:
        return str(err)
    return None


def commit_mapping(store: PipelineStore, rebalance: Rebalance) -> HummockVersion:
    """Commit a plan's mapping. No effect if it is already in force.

    Raises: LostRaceError if another mapping was committed in between; UnitsInFileError if pipeline.toml now sets
        another number of units.
    """
    require_units_of_file(store, None if rebalance.target is not None else rebalance.planned.unit_count)
    return upkeep.move_vnodes(store.meta, rebalance)


def verify_mapping(store: PipelineStore, rebalance: Rebalance) -> tuple[UnitShare, ...]:
    """Check that the plan's mapping is in force and that each SST's index can be read, and return the new shares.

    Raises: OtherMappingError; MissingSstError, DamagedSstError.
    """
    return upkeep.verify_rebalance(store.meta, rebalance)
