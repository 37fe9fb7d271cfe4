"""The flush decision: who merges what the units of an epoch sealed into SSTs, and uploads them.

Sealed MemTables become at most ceil(bytes / target) + 1 SSTs an epoch. Three can merge them:

    DRIVER    cells carry them to the driver: one exchange less. Where little is sealed.
    UNIT      the unit that sealed them, side by side with the others: nothing travels. Where an SST a unit is within the bound above, and
              what a unit of a small epoch seals beyond its share of the driver's memory.
    EXCHANGE  a few tasks of their own, after one more exchange: where many units sealed too little for an SST each.

In each case whole SSTs of the target size are cut off and uploaded where they were sealed. The driver decides `Expected` when it
plans the epoch; units decide with `choose` what they do, since only they know what they sealed.
"""

from dataclasses import dataclass
from enum import Enum

from tussock.statestore.hummock.ingest import DEFAULT_TARGET_BYTES


class Expected(Enum):
    """How much an epoch is likely to seal, by what it takes in."""

    LITTLE = "little"
    MUCH = "much"


class Flush(Enum):
    """Who merges sealed MemTables."""

    DRIVER = "driver"
    UNIT = "unit"
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Sizes, in bytes, that decide a flush.

    Args:
        target_bytes: of an SST.
        driver_bytes: of sealed MemTables that the driver takes from all units of an epoch together.
        task_bytes: that one task after the exchange merges: few tasks make few SSTs.
        little_file_bytes, little_rows: of files, of inserted rows: an epoch that takes in no more is likely to seal little.
    """

    target_bytes: int = DEFAULT_TARGET_BYTES
    driver_bytes: int = 64 << 20
    task_bytes: int = 512 << 20
    little_file_bytes: int = 8 << 20
    little_rows: int = 200_000

    def expected(self, *, file_bytes: int, rows: int, creates: bool) -> Expected:
        """What an epoch that takes in so much is likely to seal; one that creates relations reads others in full."""
        little = not creates and file_bytes <= self.little_file_bytes and rows <= self.little_rows
        return Expected.LITTLE if little else Expected.MUCH

    def choose(self, expected: Expected, sealed: int, units: int) -> Flush:
        """Who merges what one unit sealed.

        Args:
            sealed: bytes: with LITTLE those of this level so far, with MUCH those of all levels.
            units: that run the epoch.
        """
        if expected is Expected.LITTLE:
            return Flush.DRIVER if sealed <= self.driver_bytes // units else Flush.UNIT
        return Flush.UNIT if units <= -(-sealed * units // self.target_bytes) + 1 else Flush.EXCHANGE

    def may_exchange(self, expected: Expected, units: int) -> bool:
        """Whether units may hand what they sealed to the exchange: never where an SST a unit is within the bound, however small."""
        return self.choose(expected, 1, units) is Flush.EXCHANGE

    def whole_bytes(self, sealed: int) -> int:
        """How much of a sealed MemTable is uploaded where it was sealed: its whole SSTs of the target size."""
        return sealed // self.target_bytes * self.target_bytes

    def exchange_tasks(self, sealed: int) -> int:
        """How many tasks merge after the exchange."""
        return -(-sealed // self.task_bytes)
