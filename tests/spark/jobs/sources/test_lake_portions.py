"""Spark and pyiceberg read the same rows of a first portion as the engine takes, for `tussock verify`."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.support.jobs.iceberg.tables import NAME, catalog_in, options_of, rows_of
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.delta_files import PinnedVersions
from tussock.jobs.sources.iceberg_files import PinnedSnapshots
from tussock.jobs.sources.iceberg_taken import BoundColumns
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.snapshot_cuts import SnapshotCut

FIELDS = (Field("id", "bigint"), Field("v", "double"), Field("p", "string"))
CUTS = (SnapshotCut(1), SnapshotCut(1, 7), SnapshotCut(0, 15), None)
EACH = 20
Table = tuple[CreateSource, list[Path], Callable[[SnapshotCut | None], msgspec.Struct]]


def delta_table(folder: Path) -> Table:
    """A table of three files, in partitions."""
    place = folder / "table"
    for number in range(3):
        rows = rows_of(*((i, float(i), "abc"[number]) for i in range(EACH * number, EACH * number + EACH)))
        write_deltalake(place, rows, mode="append", partition_by=["p"])
    table = DeltaTable(place)
    files = [place / path for path in sorted(table.get_add_actions().column("path").to_pylist())]
    table_id, version = str(table.metadata().id), table.version()
    source = CreateSource("s", "delta", FIELDS, {"path": str(place)})
    return source, files, lambda end: PinnedVersions(str(place), table_id, version, 0, end=end)


def iceberg_table(folder: Path) -> Table:
    """A table of three files."""
    table = catalog_in(folder / "lake").create_table(NAME, rows_of().schema)
    for number in range(3):
        table.append(rows_of(*((i, float(i), "ab"[i % 2]) for i in range(EACH * number, EACH * number + EACH))))
    files = sorted(Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files())
    source = CreateSource("s", "iceberg", FIELDS, options_of(folder / "lake"))
    place = f"{source.options['catalog']}.{source.options['table']}"
    columns = BoundColumns({field.name: field.field_id for field in table.schema().fields})
    snapshot = table.current_snapshot()
    assert snapshot is not None
    last, uuid = snapshot.snapshot_id, str(table.metadata.table_uuid)
    return source, files, lambda end: PinnedSnapshots(place, uuid, 0, last, 0, columns, end=end)


@pytest.mark.spark
@pytest.mark.parametrize("make", [delta_table, iceberg_table])
def test_a_first_portion_has_the_rows_of_the_first_files(
    make: Callable[[Path], Table], spark: SparkSession, tmp_path: Path
) -> None:
    source, files, pinned = make(tmp_path)
    ids = [i for file in files for i in pq.ParquetFile(file).read(["id"]).column(0).to_pylist()]
    for cut in CUTS:
        count = len(ids) if cut is None else cut.files * EACH + cut.rows
        read = reader_of(source).by_spark(spark, source, msgspec.Raw(msgspec.json.encode(pinned(cut))))
        assert sorted(row["id"] for row in read.collect()) == sorted(ids[:count]), cut
