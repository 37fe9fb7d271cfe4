"""Tables with dates and moments that Python lacks: a text such as 20225-01-01 is a date of Spark."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sinks.shop import Shop
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable

DAYS = pa.array([0, 6_666_666, -800_000, None], pa.int32()).cast(pa.date32())
MOMENTS = pa.array([0, 253_402_300_800_000_000, -(10**17), None], pa.int64()).cast(pa.timestamp("us", "UTC"))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_with_moments_that_python_lacks_are_published_and_deleted(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path, kind=kind)
    shop.settings = msgspec.structs.replace(shop.settings, relations=("days",))
    fields = Field("id", "bigint"), Field("day", "date"), Field("at", "timestamp")
    shop.append(CreateTable("days", fields, (0,)))
    ids = pa.array([0, 1, 2, 3])
    shop.session.insert("days", pa.table([ids, DAYS, MOMENTS], names=["id", "day", "at"]))
    shop.commit()
    shop.publish()
    shop.session.insert("days", pa.table([ids[1:2], DAYS[2:3], MOMENTS[1:2]], names=["id", "day", "at"]))
    shop.commit()
    shop.publish()
    first, *_ = sorted(Path(shop.folder / "tables").rglob("*.parquet"), key=lambda file: file.stat().st_mtime)
    rows = pq.read_table(first, columns=["id", "day", "at"])
    rows = rows.take(pc.sort_indices(rows["id"]))
    assert rows["day"].combine_chunks().equals(DAYS)
    assert rows["at"].combine_chunks().cast(pa.int64()).equals(MOMENTS.cast(pa.int64()))
