"""The flush decision: which process merges an epoch's sealed MemTables into SSTs and uploads them.

An epoch writes at most ceil(bytes / target) + 1 SSTs. There are three ways to merge:

    DRIVER    Cells carry the MemTables to the driver, which saves an exchange. For small epochs.
    UNIT      Each unit merges its own MemTables in parallel, and nothing travels. If one SST per unit is
              within the bound above, or if a unit of a small epoch seals more than its share of the driver's memory.
    EXCHANGE  A few extra tasks merge after one more exchange. If many units sealed too little for an SST each.

In each case, the sealing unit cuts off whole SSTs of the target size and uploads them. The driver decides the
`ExpectedSize` when it plans the epoch. Units then decide with `choose_flush`, because they know how much they sealed.
"""

from dataclasses import dataclass
from enum import Enum

from tussock.statestore.hummock.ingest import DEFAULT_TARGET_BYTES


class ExpectedSize(Enum):
    """How much an epoch is likely to seal, estimated from its input."""

    LITTLE = "little"
    MUCH = "much"


class Flush(Enum):
    """Which process merges sealed MemTables."""

    DRIVER = "driver"
    UNIT = "unit"
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Sizes, in bytes, that decide a flush and limit the memory of an epoch.

    Args:
        memory: of rows in the processes of an epoch on one host, together; None: the limits of their caches.
        target_bytes: size of an SST.
        driver_bytes: size of all sealed MemTables that the driver accepts per epoch.
        task_bytes: input of one task after the exchange. Few tasks write few SSTs.
        little_file_bytes, little_rows: an epoch with at most this many bytes of files and inserted rows is likely to
            seal little.
    """

    target_bytes: int = DEFAULT_TARGET_BYTES
    driver_bytes: int = 64 << 20
    task_bytes: int = 512 << 20
    little_file_bytes: int = 2 << 20
    little_rows: int = 50_000
    memory: int | None = None

    def predict_amount(self, *, file_bytes: int, rows: int, creates: bool) -> ExpectedSize:
        """Estimate how much an epoch seals.

        An epoch that creates relations seals much, because it reads others in full.
        """
        little = not creates and file_bytes <= self.little_file_bytes and rows <= self.little_rows
        return ExpectedSize.LITTLE if little else ExpectedSize.MUCH

    def choose_flush(self, expected: ExpectedSize, sealed: int, units: int) -> Flush:
        """Choose the process that merges one unit's sealed MemTables.

        Args:
            sealed: bytes of the unit's sealed MemTables: this level's so far for LITTLE, all levels' for MUCH.
            units: number of units that run the epoch.
        """
        if expected is ExpectedSize.LITTLE:
            return Flush.DRIVER if sealed <= self.driver_bytes // units else Flush.UNIT
        return Flush.UNIT if units <= -(-sealed * units // self.target_bytes) + 1 else Flush.EXCHANGE

    def may_exchange(self, expected: ExpectedSize, units: int) -> bool:
        """Whether units may use the exchange.

        Never if one SST per unit is within the bound, however small the SSTs are.
        """
        return self.choose_flush(expected, 1, units) is Flush.EXCHANGE

    def whole_bytes(self, sealed: int) -> int:
        """How many bytes of a sealed MemTable the sealing unit uploads: whole SSTs of the target size."""
        return sealed // self.target_bytes * self.target_bytes

    def exchange_tasks(self, sealed: int) -> int:
        """The number of tasks that merge after the exchange."""
        return -(-sealed // self.task_bytes)
