"""The row of an error message, as the task that met it describes it to the driver."""

import pyarrow as pa

from tussock.jobs.executors.operator import ExpressionError
from tussock.jobs.wire.failed_row import failed_row
from tussock.statestore.months import shown_at
from tussock.statestore.types import MONTHS


def test_values_that_python_cannot_represent_are_shown() -> None:
    """An error while the message is written would hide the row and its remedy."""
    rows = pa.table(
        {
            "c0": pa.array([b"ok", b"a\xc3"]).view(pa.string()),  # Spark keeps such bytes in CAST(binary AS string)
            "c1": pa.array([0, 3_700_000], pa.int32()).view(pa.date32()),
            "c2": pa.array([14, -14], pa.int64()).view(MONTHS),
            "c3": pa.array([b"x", None]),
        }
    )
    failed = failed_row("v", 1, 0, ExpressionError(0, "upper(c0)", "no text", rows, 1))
    assert failed.values == [r"'a\\xc3'", "12100-04-04", "INTERVAL '-1-2' YEAR TO MONTH", "NULL"]
    nested = pa.array([{"s": b"\xff"}], pa.struct([("s", pa.binary())])).field(0).view(pa.string())
    assert "not UTF-8" in str(shown_at(pa.StructArray.from_arrays([nested], ["s"]), 0))
