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
from tussock.jobs.sinks.check import check_tables

DAYS = pa.array([0, 6_666_666, -800_000, None], pa.int32()).cast(pa.date32())
MOMENTS = pa.array([0, 253_402_300_800_000_000, -(10**17), None], pa.int64()).cast(pa.timestamp("us", "UTC"))


LAYOUTS = ("", "day, at", "years(day), months(at)", "days(day), hours(at)", "bucket(4, day), bucket(4, at)")


@pytest.mark.parametrize(("kind", "layout"), [("delta", ""), *(("iceberg", layout) for layout in LAYOUTS)])
def test_rows_with_moments_that_python_lacks_are_published_and_deleted(tmp_path: Path, kind: str, layout: str) -> None:
    shop = Shop(tmp_path, kind=kind)
    shop.settings = msgspec.structs.replace(shop.settings, relations=("days",))
    if layout:
        shop.settings = msgspec.structs.replace(shop.settings, partition_by={"days": layout})
    fields = Field("id", "bigint"), Field("day", "date"), Field("at", "timestamp")
    shop.append(CreateTable("days", fields, (0,)))
    ids = pa.array([0, 1, 2, 3])
    shop.session.insert("days", pa.table([ids, DAYS, MOMENTS], names=["id", "day", "at"]))
    shop.commit()
    shop.publish()
    shop.session.insert("days", pa.table([ids[1:2], DAYS[2:3], MOMENTS[1:2]], names=["id", "day", "at"]))
    shop.commit()
    shop.publish()
    assert [check.objection for check in check_tables(shop.meta, shop.settings)] == [None]
    files = Path(shop.folder / "tables").rglob("*.parquet")
    tables = [pq.read_table(file) for file in files if "id" in pq.read_schema(file).names]
    rows = pa.concat_tables(table.select(["id", "day", "at"]) for table in tables)
    changed = pc.and_(pc.equal(rows["id"], 1), pc.equal(rows["day"], DAYS[2]))
    rows = rows.filter(pc.invert(pc.fill_null(changed, False)))
    rows = rows.take(pc.sort_indices(rows["id"]))
    assert rows["day"].combine_chunks().equals(DAYS)
    assert rows["at"].combine_chunks().cast(pa.int64()).equals(MOMENTS.cast(pa.int64()))
