"""The steps of an epoch DAG that need no Spark, against a real store."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.plugins import by_name as steps
from tests.support.plugins import steps as shared
from tests.support.plugins.steps import write_day
from tussock.jobs.driver import runner
from tussock.jobs.session import Session
from tussock.jobs.sources.file_documents import files_of

meta = shared.meta


@pytest.mark.spark
def test_small_epochs_run_in_this_process_and_others_on_spark_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "WORTH_MACHINES_BYTES", 8 << 20)
    folder = tmp_path / "pipelines/shop"
    folder.mkdir(parents=True)
    text = f'name = "shop"\nstore = "{tmp_path}/store"\nsql = ["views.sql"]\n[epoch]\nin_flight = 1\n'
    (folder / "pipeline.toml").write_text(text)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    assert not steps.runs_small_epochs_here("shop"), "Spark is the default"
    (folder / "pipeline.toml").write_text(text + 'runner = "auto"\n')
    assert steps.runs_small_epochs_here("shop")
    (tmp_path / "data").mkdir()
    with Session(str(tmp_path / "store"), runner="local") as session:
        options = f"USING parquet OPTIONS (path '{tmp_path}/data/{{start:%Y-%m-%d}}.parquet')"
        session.execute(
            f"CREATE SOURCE orders (id bigint) {options};"
            " CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM orders"
        )
        session.flush()
        meta = session.meta
        write_day(tmp_path, "2013-01-01")
        write_day(tmp_path, "2013-01-02")
        said: list[str] = []
        for day in (1, 2, 2):  # the second one again: nothing waits
            moments = datetime(2013, 1, day, tzinfo=UTC), datetime(2013, 1, day + 1, tzinfo=UTC)
            steps.advance("shop", *moments, {"run": "a"}, said.append)
        before = meta.read_latest()
        assert session.read("n", epoch=before.epoch).to_pylist() == [{"n": 6}]
        assert sum("sealed" in line for line in said) == 2

        # Three epochs wait, and the second is large: the first is committed here, the second is left to Spark.
        for day, rows in (("2013-01-03", 3), ("2013-01-04", 1_200_000), ("2013-01-05", 3)):
            ids = pa.table({"id": pa.array(range(rows), pa.int64())})
            pq.write_table(
                ids, tmp_path / f"data/{day}.parquet", compression="none", use_dictionary=False, row_group_size=rows
            )
        (folder / "pipeline.toml").write_text(text + 'runner = "auto"\nmax_bytes = 1\n')
        assert steps.advance("shop", None, None, {"run": "b"}, said.append).needs_spark
        assert session.read("n", epoch=meta.read_latest().epoch).to_pylist() == [{"n": 9}]
        barrier = steps.inject("shop", None, None, {"run": "b"})  # the job's first step
        assert barrier is not None
        open_barrier = meta.open_barrier()
        assert open_barrier is not None
        assert [Path(f.path).stem for document in open_barrier.splits.values() for f in files_of(document)] == [
            "2013-01-04"
        ]
