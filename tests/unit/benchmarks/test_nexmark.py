"""The Nexmark benchmark: all its sides answer as Spark does, a wrong answer is reported, and the figures are right."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.nexmark import page as nexmark_page
from benchmarks.nexmark.figures import Measured, Part, Record, Run, read_record, table_of, write_record
from benchmarks.nexmark.workload import Events, Sizes, queries

if TYPE_CHECKING:  # imports pyspark
    pass


def _measured(peer: str, cpu: float, query: str = "q1", wrong: str = "") -> Measured:
    return Measured(query, peer, [Run((4.0, 2.0, 1.0, 0.1, 0.3), (4 * cpu, 2 * cpu, cpu, 0.1, 0.3))], 7, wrong)


def test_figures_are_those_of_right_results_and_ratios_refer_to_tussock_on_spark(tmp_path: Path) -> None:
    sizes = Sizes(events=300, epochs=3, small_events=10, small_epochs=2)
    one = [_measured("spark", 2.0), _measured("local", 0.5), _measured("streaming", 1.0, wrong="found 6 rows")]
    two = [_measured("spark", 2.0, "q2"), _measured("local", 2.0, "q2"), Measured("q2", "streaming", refused="no way")]
    record = Record({"cores": 2}, sizes, {"spark": "Spark", "local": "Local", "streaming": "SS"}).plus(one).plus(two)
    (tmp_path / "docs").mkdir()
    write_record(tmp_path / "record.json", record)
    assert read_record(tmp_path / "record.json") == record
    whole, warm, small = (record.cost("q1", "local", part) for part in Part)
    assert whole is not None
    assert (whole.events, whole.wall, whole.cpu, whole.rate) == (300, 7.0, 3.5, pytest.approx(300 / 3.5))
    assert warm is not None
    assert (warm.events, warm.wall, warm.cpu) == (100, 1.0, 0.5)
    assert small is not None
    assert (small.events, small.wall, small.cpu) == (10, 0.2, 0.2)
    assert (record.ratio("q1", "local", Part.WHOLE), record.ratio("q2", "local", Part.WARM)) == (4.0, 1.0)
    mean = record.mean("local", Part.WHOLE)
    assert mean is not None
    assert (mean.queries, mean.ratio) == (2, pytest.approx(2.0))
    assert record.mean("streaming", Part.WHOLE) is None
    assert "q2 streaming: cannot express: no way" in table_of(record)
    with pytest.raises(ValueError, match="WRONG: found 6 rows"):
        nexmark_page.page_of(record)
    one[2] = Measured("q1", "streaming", refused="no way")
    versions = {"date": "2026-01-02", "pyspark": "4.2.1", "duckdb": "2.0.1", "memory": 24 << 30, "driver_memory": "3g"}
    write_record(tmp_path / "record.json", Record({"cores": 2, **versions}, sizes, record.peers).plus(one).plus(two))
    nexmark_page.main([str(tmp_path / "record.json"), "--docs", str(tmp_path / "docs")])
    page = (tmp_path / "docs" / "nexmark.md").read_text()
    assert "Measured on 2026-01-02 with Spark 4.2.1 and DuckDB 2.0.1. The machine has 24 GiB of memory" in " ".join(
        page.split()
    )
    assert "| q1 | 7.00 / 14.00 | 7.00 / 3.50 |  |" in page
    assert "- q2, `streaming`. no way" in page


def test_every_query_is_known_with_its_inputs() -> None:
    found = queries()
    assert list(found) == [f"q{number}" for number in range(23)]
    assert (found["q3"].streams, found["q13"].streams, found["q13"].side_input) == (
        ("person", "auction"),
        ("bid",),
        True,
    )


def test_epochs_take_all_events(tmp_path: Path) -> None:
    sizes = Sizes(events=1_001, epochs=2, small_events=50, small_epochs=1)
    assert sizes.per_epoch == (500, 501, 50)
    events = Events(tmp_path, sizes)
    bids = pa.concat_tables([pq.read_table(file) for file in events.files("bid", 3)])
    assert bids["id"].to_pylist() == [number for number in range(1_051) if number % 50 >= 4]
