"""Filter: keeps the changes of rows whose condition is true."""

import pyarrow as pa

from jobs.executors.base import net
from jobs.kernels.kernel import Kernel
from jobs.plan import nodes


class FilterExecutor:
    """An update that moves a row across the condition leaves as its delete or its insert alone: each half is judged by itself."""

    def __init__(self, node: nodes.Filter, kernel: Kernel) -> None:
        self._node, self._kernel = node, kernel

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises RowError where the condition raises on a row of the chunk. Cost: one kernel query."""
        (chunk,) = chunks
        return net(self._kernel.filter(chunk, self._node.condition) if chunk.num_rows else chunk)
