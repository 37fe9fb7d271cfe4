"""Rows of an exchange in parts by range of vnodes, for a reader that can process one part after the other.

    sender     VnodeParts encodes rows while they are read. A cell has the rows of one part for one unit
    receiver   PartCells keeps cells in memory, above a bound in a file, and returns the rows of one part at a time

So neither side holds all rows. Few rows are not divided and travel in the usual cells.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tussock.jobs.chunks.chunk import decode_tables, encode_whole
from tussock.jobs.exchange.mailbox import Mailbox
from tussock.jobs.executors.operator import VnodePart
from tussock.jobs.wire.cell import Address, make_cells
from tussock.statestore.local_disk import local_folder
from tussock.statestore.memory import memory_limit
from tussock.statestore.vnode import vnodes_of

PARTS = 64
DIVIDED_ROWS = 1 << 17  # divided at once; fewer rows travel in the usual cells
ENCODED_BYTES = 32 << 20  # encoded at once. A constant, because the bytes of cells must not depend on a setting
KEPT_BYTES = 64 << 20  # of cells that a receiver keeps in memory
_MEMORY_PART = 16  # of a limited memory


def _part_count(vnode_count: int) -> int:
    return min(PARTS, vnode_count)


class VnodeParts:
    """Divides the rows of one exchange on the sending unit.

    `rest`: chunks of the rows that are not divided. Complete after `close`.
    """

    def __init__(self, producer: int, exchange: int, keys: Sequence[int], units: npt.NDArray[np.int64]) -> None:
        """
        Args:
            producer, exchange: the address of the exchange.
            keys: columns of the distribution key; not empty.
            units: (vnode count,) the mapping, vnode -> unit.
        """
        self.rest: list[pa.Table] = []
        self._producer, self._exchange, self._keys, self._vnode_count = producer, exchange, keys, len(units)
        self._parts = _part_count(len(units))
        self._place_of_vnode = units * self._parts + np.arange(len(units)) * self._parts // len(units)
        self._divided: dict[int, list[pa.Table]] = {}
        self._rest_rows = self._divided_bytes = 0

    def add_rows(self, chunk: pa.Table) -> Iterator[pa.RecordBatch]:
        """Add a chunk, and yield the cells that are complete."""
        self.rest.append(chunk)
        self._rest_rows += chunk.num_rows
        if self._rest_rows >= DIVIDED_ROWS:
            self._divide_rest()
            if self._divided_bytes >= ENCODED_BYTES:
                yield from self.close()

    def close(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining cells."""
        divided, self._divided, self._divided_bytes = self._divided, {}, 0
        for place in sorted(divided):
            unit, part = divmod(place, self._parts)
            cell = encode_whole(pa.concat_tables(divided.pop(place)))
            yield make_cells(unit, Address.of_part(self._producer, self._exchange, part), [cell])

    def _divide_rest(self) -> None:
        chunk = pa.concat_tables(self.rest).combine_chunks()
        self.rest, self._rest_rows = [], 0
        places = self._place_of_vnode[vnodes_of([chunk.column(k) for k in self._keys], self._vnode_count)]
        counts = np.bincount(places)
        order = np.argsort(places.astype(np.uint16 if len(counts) < 1 << 16 else np.int64), kind="stable")
        grouped = chunk.take(pa.array(order))
        starts = np.cumsum(counts) - counts
        for place in np.flatnonzero(counts).tolist():
            self._divided.setdefault(place, []).append(grouped.slice(int(starts[place]), int(counts[place])))
        self._divided_bytes += grouped.nbytes


class PartCells:
    """The cells with parts that a unit received at one level. Not thread-safe.

    `rows`, `nbytes`: of the parts that were taken.
    """

    def __init__(self, vnode_count: int, *, encrypts: bool = False) -> None:
        """`encrypts`: as in Mailbox."""
        self.rows = self.nbytes = 0
        self._vnode_count = vnode_count
        self._numbers: dict[Address, int] = {}
        self._unit = 0
        self._box = Mailbox(
            folder=local_folder(), kept_bytes=memory_limit.limit_share(KEPT_BYTES, _MEMORY_PART), encrypts=encrypts
        )

    def put_cell(self, address: Address, cell: pa.RecordBatch) -> None:
        """Keep one cell of a part. Raises LocalDiskError."""
        self._unit = cell.column(0)[0].as_py()
        self._box.put_cells(self._numbers.setdefault(address, len(self._numbers)), cell)

    def has_parts(self, exchange: Address | None = None) -> bool:
        """Whether there are cells: of any exchange, or of one."""
        return bool(self._numbers) if exchange is None else any(a.exchange == exchange for a in self._numbers)

    def take_parts(self, exchange: Address) -> Iterator[VnodePart]:
        """Yield all parts of an exchange, also those without rows, and forget their cells. Call it once."""
        parts = _part_count(self._vnode_count)
        ends = [-(-part * self._vnode_count // parts) for part in range(parts + 1)]
        for part in range(parts):
            number = self._numbers.get(Address.of_part(*exchange, part))
            batches = () if number is None else self._box.take_cells(number, self._unit)
            cells = [cell.as_buffer() for batch in batches for cell in batch.column(3)]
            rows = decode_tables(
                sorted(cells, key=xxhash.xxh3_128_digest)
            )  # in an order that is equal in every attempt
            if rows is not None:
                self.rows, self.nbytes = self.rows + rows.num_rows, self.nbytes + rows.nbytes
            yield VnodePart(range(ends[part], ends[part + 1]), rows)

    def close(self) -> None:
        """Delete the file."""
        self._box.close()
