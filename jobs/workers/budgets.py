"""The memory of one of several worker processes on a host.

A Spark worker takes the whole budget of a process for each cache, because Spark decides how many there are. The local
workers share the host, so each takes its part.
"""

from dataclasses import dataclass

from tussock.jobs.kernels.kernel import thread_kernel
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.memory import whole_memory
from tussock.statestore.table.row_cache import process_row_cache

_MB = 1 << 20
_BLOCKS, _ROWS, _KERNEL, _MAIL = 8, 16, 8, 16  # all workers together take 1/8 of the host's memory for blocks, …
_LEAST = 64 * _MB


@dataclass(frozen=True, slots=True)
class Budgets:
    """Bytes that one worker may use.

    Args:
        blocks: decoded blocks of SSTs.
        rows: rows of state tables.
        kernel: a query of the kernel, before it spills to the local disk.
        mail: received cells, before they go to the local disk.
    """

    blocks: int
    rows: int
    kernel: int
    mail: int

    @staticmethod
    def for_workers(workers: int, memory: int) -> "Budgets":
        """The budget of one of `workers` processes on a host or in a container with `memory` bytes."""

        def share_of_memory(share: int, most: int) -> int:
            return max(_LEAST, min(most, memory // share // workers))

        return Budgets(
            share_of_memory(_BLOCKS, 1024 * _MB),
            share_of_memory(_ROWS, 256 * _MB),
            share_of_memory(_KERNEL, 512 * _MB),
            share_of_memory(_MAIL, 256 * _MB),
        )

    def apply_limits(self) -> None:
        """Limit the caches of this process and the kernel of this thread. Call it before they are used."""
        process_cache().capacity = self.blocks
        process_row_cache().capacity = self.rows
        thread_kernel(f"{self.kernel // _MB}MB")


def budgets_here(workers: int) -> Budgets:
    """The budget of one of `workers` processes on this host."""
    return Budgets.for_workers(workers, whole_memory())
