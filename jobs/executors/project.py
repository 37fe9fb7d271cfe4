"""Project: computes columns; weights stay."""

import pyarrow as pa

from jobs.executors.base import net
from jobs.kernels.kernel import Kernel
from jobs.plan import nodes
from jobs.wire.chunk import WEIGHT


class ProjectExecutor:
    """One output column per expression. A change that no kept column shows is netted away."""

    def __init__(self, node: nodes.Project, kernel: Kernel) -> None:
        self._node, self._kernel = node, kernel

    def apply(self, *chunks: pa.Table) -> pa.Table:
        """Raises RowError where an expression raises on a row of the chunk. Cost: one kernel query, none for plain columns."""
        (chunk,) = chunks
        return net(self._kernel.project(chunk, self._node.exprs, self._node.types, keep=(WEIGHT,)))
