"""The footers that a process remembers."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from tussock.jobs.sources.parquet_footer import _MOST_BYTES, _Footers

MEMORY_PER_STORED_BYTE = 8  # measured: the growth of a process that keeps 1,000 footers of 2, 20 and 200 columns


def test_remembered_footers_are_bounded_by_the_memory_they_take() -> None:
    pq.write_table(pa.table({f"c{n}": pa.array([n]) for n in range(200)}), file := io.BytesIO())
    footer, footers = pq.read_metadata(file), _Footers()
    for number in range(2 * _MOST_BYTES // (MEMORY_PER_STORED_BYTE * footer.serialized_size)):
        footers.add_footer((f"{number}.parquet", 1, "", ""), footer)
    remembered = sum(footers.find_footer((f"{n}.parquet", 1, "", "")) is not None for n in range(number + 1))
    assert remembered > 1
    assert remembered * MEMORY_PER_STORED_BYTE * footer.serialized_size <= _MOST_BYTES
    assert footers.find_footer((f"{number}.parquet", 1, "", "")) is footer, "the one read last"
