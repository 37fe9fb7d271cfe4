"""Corrections of files that Spark reads.

Old rows and rejects go and the current ones are added. If the file has changed, the old rows come from the kept
bytes.
"""

from pathlib import Path
from typing import Any

import pytest

from tussock.jobs.driver.epoch import next_epoch
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.session import Session
from tussock.jobs.sources.base import Restated
from tussock.jobs.trouble.restate import Restating

pytestmark = pytest.mark.spark
COLUMNS = "id int, v int"


def spark_rows(spark: Any, folder: Path, wanted: str) -> list[Any]:
    """Spark's own read of the current files, in PERMISSIVE mode."""
    read = (
        spark.read.schema(f"{COLUMNS}, bad string")
        .options(mode="PERMISSIVE", columnNameOfCorruptRecord="bad")
        .csv(str(folder))
        .cache()
    )
    try:
        return sorted(
            tuple(row)
            for row in read.where(f"bad IS {'NOT ' if wanted == 'rejects' else ''}NULL")
            .selectExpr(*("bad",) if wanted == "rejects" else ("id", "v"))
            .collect()
        )
    finally:
        read.unpersist()  # another read of the folder would get the cached rows


def test_rows_and_rejects_of_a_text_file_follow_its_correction(spark: Any, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "1.csv").write_text("1,10\n2,x\n3,30\n")
    (files / "2.csv").write_text("4,40\ny,50\n")
    with Session(str(tmp_path / "store"), spark=spark) as session:
        session.execute(f"CREATE SOURCE s ({COLUMNS}) USING csv OPTIONS (path '{files}', on_error 'quarantine')")
        session.execute("CREATE MATERIALIZED VIEW all_rows AS SELECT id, v FROM s")
        session.execute(
            "CREATE MATERIALIZED VIEW extremes AS SELECT min(v) AS low, max(v) AS high, count(*) AS n FROM s"
        )

        def check() -> None:
            session.flush()
            rows = spark_rows(spark, files, "rows")
            assert sorted(tuple(r.values()) for r in session.read("all_rows").to_pylist()) == rows
            values = [v for _, v in rows]
            assert session.read("extremes").to_pylist() == [{"low": min(values), "high": max(values), "n": len(rows)}]
            assert sorted((r["raw"],) for r in session.read("s__rejects").to_pylist()) == spark_rows(
                spark, files, "rejects"
            )

        def restate(name: str, rows: tuple[int, int], **how: bool) -> None:
            restating = Restating(session.meta, "s", Restated(str(files / name), **how))
            assert restating.count_rows(lambda: spark) == rows
            restating.begin_restating()
            next_epoch(SparkRunner(spark), session.meta)

        check()
        (files / "1.csv").write_text("1,11\n2,20\nz,30\n5,z\n6,60\n")
        restate("1.csv", (2, 3))
        session.flush()
        check()
        (files / "2.csv").unlink()
        restate("2.csv", (1, 0), gone=True)
        check()
