"""Rebalance: which vnodes should move between units, and the move."""

from dataclasses import dataclass

from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.upkeep import rebalance as upkeep
from tussock.jobs.upkeep.rebalance import MoveVerdict, Rebalance, UnitShare, VnodeHotKey
from tussock.statestore.meta.version import HummockVersion

__all__ = ["Planned", "Rebalance", "measure", "move", "plan", "require_units_of_file", "verify"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the key behind the hottest vnode, if that is the cause."""

    rebalance: Rebalance
    cause: VnodeHotKey | None

    @property
    def moves(self) -> bool:
        """Whether anything moves."""
        return self.rebalance.verdict is MoveVerdict.MOVE


def measure(at: PipelineStore) -> tuple[UnitShare, ...]:
    """What each parallel unit has and carries."""
    return upkeep.plan(upkeep.measure(at.meta)).before


def plan(at: PipelineStore, units: int | None, target: float | None, approved: str | None = None) -> Planned:
    """Which vnodes should move: to another number of units, or off the units that carry more than `target` times the mean.

    Args:
        target: None: the pipeline's.
        approved: the digest of the only moves that are wanted.

    Raises: SettingError; OtherMovesError.
    """
    measured = upkeep.measure(at.meta)
    found = upkeep.plan(measured, units, at.pipeline.rebalance.target if target is None else target)
    if approved:
        upkeep.require_approved(found, approved)
    return Planned(found, upkeep.cause_of(at.meta, measured, found))


def require_units_of_file(at: PipelineStore, units: int | None) -> None:
    """Raises UnitsInFileError if pipeline.toml names another number of units."""
    upkeep.require_units_of_file(at.pipeline, units)


def move(at: PipelineStore, rebalance: Rebalance) -> HummockVersion:
    """Put a plan's mapping in force; without effect if it is.

    Raises: LostRaceError if another mapping came between; UnitsInFileError if pipeline.toml names another number of units by now.
    """
    require_units_of_file(at, None if rebalance.target is not None else rebalance.planned.unit_count)
    return upkeep.move(at.meta, rebalance)


def verify(at: PipelineStore, rebalance: Rebalance) -> tuple[UnitShare, ...]:
    """Read back what was moved: what each unit has now. Raises OtherMappingError, DamagedSstError."""
    return upkeep.verify(at.meta, rebalance)
