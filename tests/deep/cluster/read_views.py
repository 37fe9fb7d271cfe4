"""Read views on a cluster with its executors, in plain Python, and record which code the executors' Python loaded.

    python read_views.py STORE OUT VIEW…      writes OUT/<view>.parquet and OUT/origins.json

SPARK_MASTER_URL is the address of the cluster, TUSSOCK_CODE the archive of the code for the workers.
"""

import json
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq

from tussock.jobs.session import Session
from tussock.jobs.spark.session import build_spark

TASKS = 16
SETTINGS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
}


def origin_of(task: int) -> tuple[str, str, str, str]:
    """The place of one task: its executor's folder, its Python, and the loaded files of our packages."""
    from threading import Event

    import tussock.jobs
    import tussock.statestore

    Event().wait(0.1)  # so that no executor does all tasks alone
    return str(Path.cwd()), sys.prefix, str(tussock.jobs.__file__), str(tussock.statestore.__file__)


def main(store: str, out: Path, views: list[str]) -> None:
    spark = build_spark("read views", os.environ["SPARK_MASTER_URL"], SETTINGS)
    spark.sparkContext.addPyFile(os.environ["TUSSOCK_CODE"])
    origins = sorted(set(spark.sparkContext.parallelize(range(TASKS), TASKS).map(origin_of).collect()))
    (out / "origins.json").write_text(json.dumps(origins))
    with Session(store, spark, create=False) as session:
        for view in views:
            pq.write_table(session.query(f"SELECT * FROM {view}"), out / f"{view}.parquet")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
