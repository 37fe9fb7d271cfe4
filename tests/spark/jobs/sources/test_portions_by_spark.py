"""Portions of the files that Spark reads: for the epoch, and for `tussock verify`. Compared with the written rows."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.spark.jobs.sources.test_spark_files import read
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.pins import PinnedFile, Portion, Portions, recorded_etag
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sources.row_ids import file_of, position_of
from tussock.statestore.objectstore.local import LocalObjectStore

pytestmark = pytest.mark.spark
ROWS = [f"a {n}" for n in range(1_000)]
XML = "\n".join(f"<r><value>{row}</value></r>" for row in ROWS)
FIELDS = (Field("value", "string"),)
FORMATS: Mapping[str, tuple[Callable[[Path], object], dict[str, str]]] = {
    "csv": (lambda path: path.write_text("\n\n".join(ROWS)), {"quote": "'"}),
    "json": (
        lambda path: path.write_text("\n".join(f"{{'value': '{row}'}}" for row in ROWS)),
        {"allowSingleQuotes": "true"},
    ),
    "text": (lambda path: path.write_text("\n".join(ROWS)), {}),
    "xml": (lambda path: path.write_text(f"<rows>\n{XML}\n</rows>"), {"rowTag": "r"}),
    "orc": (lambda path: orc.write_table(pa.table({"value": ROWS}), path), {}),
}


def portions(path: Path) -> list[PinnedFile]:
    """A file in portions of 300, 300 and 400 records."""
    info = LocalObjectStore(path.parent).head(path.name)
    etag = recorded_etag(str(path), info.size, info.etag)
    divided = Portions(300, 3, (Portion(4), Portion(5), Portion(6)))
    return [PinnedFile(str(path), info.size, etag, n, portions=divided) for n in (4, 5, 6)]


@pytest.mark.parametrize("format", FORMATS)
def test_spark_reads_each_portion_with_the_positions_of_its_records(
    spark: SparkSession, format: str, tmp_path: Path
) -> None:
    write, options = FORMATS[format]
    path = tmp_path / f"a.{format}"
    write(path)
    made = CreateSource("s", format, FIELDS, {"path": str(path), **options})
    first, second, third = portions(path)
    for chosen, wanted in (([second], range(300, 600)), ([first, third], [*range(300), *range(600, 1_000)])):
        found = read(spark, chosen, made, (0,))
        ids = found.column(1).to_numpy()
        by_position = dict(zip(position_of(ids).tolist(), found.column(0).to_pylist(), strict=True))
        assert by_position == {n: ROWS[n] for n in wanted}
        assert set(file_of(ids).tolist()) == {file.number for file in chosen}
        verified = reader_of(made).by_spark(spark, made, document_of(chosen)).toArrow()
        assert sorted(verified.column(0).to_pylist()) == sorted(ROWS[n] for n in wanted)


def test_spark_verifies_portions_of_parquet_files(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"value": ROWS}), path, row_group_size=170)
    for options in ({}, {"on_error": "quarantine"}):
        made = CreateSource("s", "parquet", FIELDS, {"path": str(path), **options})
        found = reader_of(made).by_spark(spark, made, document_of(portions(path)[1:2])).toArrow()
        assert sorted(found.column(0).to_pylist()) == sorted(ROWS[300:600])
