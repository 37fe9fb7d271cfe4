"""The model's train: epochs that have run and are not committed yet, and the base of the next one."""

from dataclasses import dataclass, field

from tests.support.statestore.hummock.store_model import State
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.hummock.shared_buffer import Load, SharedBuffer
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.delta import EpochCommitted, VersionDelta, apply_delta
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion, SstInfo


@dataclass
class Flight:
    """An epoch of a train. Some rows were uploaded when they were sealed; the rest is in memory until it lands."""

    barrier: Barrier
    drafted: bool  # not in force yet
    uploaded: list[SstInfo]
    held: list[SealedBatch]
    state: State
    landed: bool = False


@dataclass
class Train:
    """A process that starts an epoch before the previous ones are committed, on a version that it has pinned onward."""

    meta: MetaStore
    pin: Pin
    stand: HummockVersion
    flights: list[Flight] = field(default_factory=list)  # newer than the stand, oldest first

    @property
    def in_flight(self) -> list[Flight]:
        """Those that are not committed."""
        return [flight for flight in self.flights if not flight.landed]

    def base(self) -> tuple[HummockVersion, SharedBuffer]:
        """The input of its next epoch: the pinned version with all flights, and their rows that are in no SST."""
        version, runs = self.stand, dict[int, list[tuple[int, Load]]]()
        for flight in self.flights:
            barrier = flight.barrier
            change = EpochCommitted(barrier.prev_epoch, barrier.epoch, barrier.attempt, tuple(flight.uploaded), 0)
            version = apply_delta(version, VersionDelta(version.id + 1, self.meta.writer, change))
            for batch in flight.held:
                runs.setdefault(batch.table_id, []).append(
                    (barrier.epoch, lambda batch=batch: batch)  # type: ignore[misc]
                )
        return version, SharedBuffer(runs)
