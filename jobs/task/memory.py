"""The limit of `[epoch] memory`, in a process that runs units.

    decoded blocks of SSTs       1/4
    rows of state tables         1/8
    a query of the kernel        1/4, before it uses the local disk
    received cells               1/8, before they go to the local disk
    a read of many blocks        1/8, in portions
    a scan that merges runs      1/16
    rows of corrected files      1/16, before they go to the local disk

Modules and NumPy take about 130 MB more in each process.
"""

from tussock.jobs.kernels.kernel import thread_kernel
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.memory import memory_limit
from tussock.statestore.table.row_cache import process_row_cache

_BLOCKS_PART, _ROWS_PART, _KERNEL_PART = 4, 8, 4
_LEAST_KERNEL = 64 << 20


def apply_memory(memory: int | None, processes: int) -> None:
    """Limit this process, one of `processes` that share the memory. Without a setting, nothing changes."""
    if memory is None:
        return
    memory_limit.nbytes = memory // max(processes, 1)
    blocks, rows = process_cache(), process_row_cache()
    blocks.capacity = memory_limit.limit_share(blocks.capacity, _BLOCKS_PART)
    rows.capacity = memory_limit.limit_share(rows.capacity, _ROWS_PART)
    thread_kernel(f"{max(_LEAST_KERNEL, memory_limit.nbytes // _KERNEL_PART) >> 20}MB")
