"""Run epochs on a cluster whose executors are killed in the middle of exchanges, and print what happened as JSON.

    python lose_executors.py STORE OUT EPOCHS      OUT is a folder for markers; one executor is killed per epoch

SPARK_MASTER_URL is the address of the cluster, TUSSOCK_CODE the archive of the code for the workers.
"""

import json
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.spark.session import build_spark
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

NOW = 1_800_000_000_000
SETTINGS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.deploy.maxExecutorRetries": "-1",
}


class KillingExecutors:
    """In place of the measurements of a runner: kills the executor of the task that first finishes a level."""

    def __init__(self, folder: str) -> None:
        self._folder, self._epoch = folder, 0

    def begin(self, epoch: int) -> None:
        self._epoch = epoch

    def report(self, _: object) -> None:
        from socket import gethostname

        with suppress(FileExistsError):
            marker = os.open(f"{self._folder}/{self._epoch}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            pid = os.getppid()  # the daemon that forks Python workers
            executor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            os.write(marker, f"{os.environ.get('SPARK_LOCAL_IP', gethostname())}\n".encode())
            os.kill(executor, signal.SIGKILL)

    def add_to(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()


def main(store: str, out: str, epochs: str) -> None:
    """Run the waiting entries of the log, one epoch each."""
    spark = build_spark("lost executors", os.environ["SPARK_MASTER_URL"], SETTINGS)
    spark.sparkContext.addPyFile(os.environ["TUSSOCK_CODE"])
    spark.sparkContext.addPyFile(__file__)
    runner, killing = SparkRunner(spark), KillingExecutors(out)
    runner._measuring = killing  # type: ignore[assignment]
    meta = MetaStore(open_object_store(store), "the same", lambda: NOW)
    for epoch in range(int(epochs)):
        killing.begin(epoch)
        barrier = inject_barrier(meta)
        assert barrier is not None
        run_epoch(runner, meta, barrier)
    sealed = meta.read_manifest(meta.read_latest().epoch)
    print(json.dumps({"ran": "" if sealed is None else sealed.ran}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
