"""DuckDB shuts its instance down on bytes that are not UTF-8; the kernel continues with a new one."""

import pyarrow as pa
import pytest

from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import Call, Column


def test_a_kernel_whose_connection_died_computes_the_next_query() -> None:
    kernel = Kernel()
    upper = Call("Upper", "string", (Column(0, "string"),))
    bad = pa.table({"c0": pa.array([b"ok", b"\xff\xfe"]).view(pa.string())})
    with pytest.raises(RowError, match=r"not UTF-8.* make_valid_utf8") as err:
        kernel.project_columns(bad, (upper,), ("string",))
    assert err.value.row == 1
    good = pa.table({"c0": pa.array(["a", "ß"])})
    assert kernel.project_columns(good, (upper,), ("string",))["c0"].to_pylist() == ["A", "SS"]
    assert kernel.compute_columns("c0 || '!' AS x", good)["x"].to_pylist() == ["a!", "ß!"]
