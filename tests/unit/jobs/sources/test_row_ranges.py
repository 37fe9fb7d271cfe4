"""A large row group in several splits: together they are pyarrow's read of the whole file."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sources.pinned import pinned
from tussock.jobs.logical.nodes import Field
from tussock.jobs.sources.errors import UnreadableFileError
from tussock.jobs.sources.parquet import Split, cut_splits, read_split
from tussock.jobs.sources.rejects import REJECT

ROWS = 150_001  # more than two of pyarrow's batches
FIELDS = (
    Field("id", "bigint"),
    Field("name", "string"),
    Field("at", "timestamp"),
    Field("tags", "map<string,int>"),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two row groups: a large one, and one with a single row."""
    path = tmp_path_factory.mktemp("ranges") / "rows.parquet"
    some = range(ROWS)
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    columns = {
        "id": pa.array(some, pa.int64()),
        "name": pa.array([None if i % 5 == 0 else f"n{i % 7}" for i in some]).dictionary_encode(),
        "at": pa.array([start + dt.timedelta(seconds=i) for i in some], pa.timestamp("us", "UTC")),
        "tags": pa.array([[("a", i), ("b", -i)][: i % 3] for i in some], pa.map_(pa.string(), pa.int32())),
    }
    pq.write_table(pa.table(columns), path, row_group_size=ROWS - 1, use_deprecated_int96_timestamps=True)
    return path


def test_several_splits_of_a_row_group_are_all_of_its_rows_in_their_places(file: Path) -> None:
    pin = pinned(file, number=3)
    parts = cut_splits(pin, FIELDS, pin.size // 10, {})
    assert [(part.row_groups, part.first_row, part.rows) for part in parts] == [
        *(((0,), 37_500 * piece, 37_500) for piece in range(4)),
        ((1,), ROWS - 1, None),
    ]
    read = [read_split(part, (1, 0, 3, 2), FIELDS, {}).rows for part in parts]
    whole = pq.read_table(file)
    together = pa.concat_tables(read)
    assert together["_row_id"].to_pylist() == [(3 << 40) + i for i in range(ROWS)]
    assert together["id"].to_pylist() == list(range(ROWS))
    for name in ("name", "tags"):
        assert together[name].to_pylist() == whole[name].to_pylist()
    assert together["at"].cast(pa.timestamp("us")).equals(whole["at"].cast(pa.timestamp("us")))
    assert max(rows.get_total_buffer_size() for rows in read) < 2 * min(r.get_total_buffer_size() for r in read[:4])
    ids = read_split(parts[2], (), FIELDS, {}).rows
    assert ids["_row_id"].to_pylist() == [(3 << 40) + i for i in range(75_000, 112_500)]


def test_a_rejected_record_of_a_later_split_has_its_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    values = [1] * 8
    values[6] = 1 << 40
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), path)
    split = Split(pinned(path), (0,), 4, 4, 4)
    rows = read_split(split, (0,), (Field("id", "int"),), {"on_error": "quarantine"}).rows
    (reject,) = (text for text in rows[REJECT].to_pylist() if text is not None)
    assert "7" in str(reject)
    assert rows["_row_id"].to_pylist() == [4, 5, 6, 7]


def test_a_row_group_of_one_row_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    assert len(cut_splits(pinned(path), FIELDS[:1], 1, {})) == 1


def test_a_row_group_cut_short_is_reported_by_the_split_that_meets_it(file: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "rows.parquet"
    data = bytearray(file.read_bytes())
    data[100:5000] = bytes(4900)
    damaged.write_bytes(data)
    with pytest.raises(UnreadableFileError):
        read_split(Split(pinned(damaged), (0,), 10, 10, 10), (0, 1), FIELDS, {})
