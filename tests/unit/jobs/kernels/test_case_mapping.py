"""Upper and lower case of every character, compared with Spark."""

import pyarrow as pa
import pytest

from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.nodes import Call, Column


def test_a_letter_newer_than_pythons_unicode_raises() -> None:
    for node, letter in (("Upper", "\u019b"), ("Lower", "\u1c89"), ("Lower", "\u03a3\u1c8a")):
        with pytest.raises(RowError, match="newer than Unicode 14 is not supported"):
            thread_kernel().project_columns(
                pa.table({"c0": ["a", letter]}), [Call(node, "string", (Column(0, "string"),))], ["string"]
            )
