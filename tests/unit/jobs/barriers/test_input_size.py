"""The expected size of an epoch: rows of corrected files that stay equal count little. No Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, epoch, new_store
from tussock.jobs.barriers.epoch_plan import changed_bytes
from tussock.jobs.driver.epoch import next_epoch
from tussock.jobs.driver.runner import LevelsToRun, LocalRunner
from tussock.jobs.driver.sealed_tables import SealedTables
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.sources.base import Item, Restated
from tussock.jobs.trouble.restate import Restating
from tussock.jobs.wire.flush_policy import ExpectedSize

MB = 1 << 20
FIELDS = (Field("k", "bigint"),)


class Observed(LocalRunner):
    """Keeps the sizes that it is told."""

    expected: ExpectedSize
    nbytes: int

    def run(self, levels: LevelsToRun) -> tuple[pa.Table, SealedTables]:
        self.expected, self.nbytes = levels.task.expected, levels.nbytes
        return super().run(levels)


@pytest.mark.parametrize(
    ("goes", "comes", "expected"),
    [
        pytest.param(0, 8, 8, id="new files count whole"),
        pytest.param(8, 0, 8, id="removed files count whole"),
        pytest.param(8, 8, 2, id="of corrected files, both contents count an eighth"),
        pytest.param(8, 12, 6, id="files that come with corrected ones count whole"),
    ],
)
def test_bytes_that_replace_others_count_little(goes: int, comes: int, expected: int) -> None:
    items = [Item("old", goes * MB, goes=True), Item("new", comes * MB)]
    assert changed_bytes(items) == expected * MB


def test_five_corrected_files_are_a_small_epoch(tmp_path: Path) -> None:
    files = [tmp_path / "files" / f"{n}.parquet" for n in range(5)]
    files[0].parent.mkdir()

    def write(version: int) -> None:
        for n, file in enumerate(files):
            values = list(range(n * 100_000, n * 100_000 + 60_000))
            rows = pa.table({"k": [values[0] + version, *values[1:]]})
            pq.write_table(rows, file, compression="none", use_dictionary=False)

    write(0)
    meta, runner = new_store(tmp_path / "store"), Observed()
    append(meta, CreateSource("s", "parquet", FIELDS, {"path": str(files[0].parent), "retain": "files"}))
    append(meta, CreateView("v", "SELECT …", Scan("s", (0,), FIELDS)))
    epoch(meta, runner)
    whole = runner.nbytes
    assert (runner.expected, whole > 2 * MB) == (ExpectedSize.MUCH, True)

    write(1)
    names = [str(file) for file in files]
    assert Restating(meta, "s", Restated(names[0], more=tuple(names[1:]))).begin_restating() is not None
    done = next_epoch(runner, meta)
    assert done is not None
    assert (runner.expected, done.rows["s"].rows_out) == (ExpectedSize.LITTLE, 2 * len(files))
    assert runner.nbytes < whole / 2
