"""The runner of a run's epochs, and the Spark application that it starts for them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING

from tussock.jobs.driver.runner import AutoRunner, LevelRunner, count_cores, no_spark
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.tables import Runner, is_local_master
from tussock.jobs.wire.flush_policy import FlushPolicy
from tussock.statestore.progress import Progress

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession


class Where(Enum):
    """The process in which a run's epochs run."""

    AS_SET = auto()  # as configured in the pipeline's `[epoch] runner`: starts Spark if necessary
    SPARK = auto()  # on Spark: the process is already a Spark application
    HERE = auto()  # on this host, without Spark
    SMALL_HERE = auto()  # the same, but large epochs belong on Spark, which has other machines


@contextmanager
def runner_of(store: PipelineStore, where: Where, what: str, progress: Progress) -> Iterator[LevelRunner]:
    """Yield the runner of a run, and stop Spark at the end if the runner started it.

    Args:
        what: part of the Spark application's name, after `tussock`.

    With `HERE` and `SMALL_HERE`, the runner raises SparkWantedError for an epoch that Spark should run.
    """
    workers = store.pipeline.epoch.workers or count_cores()
    policy = FlushPolicy(memory=store.pipeline.epoch.memory)
    if where in (Where.HERE, Where.SMALL_HERE):
        yield AutoRunner(no_spark, lambda: where is Where.SMALL_HERE, policy, workers)
        return
    with ExitStack() as stack:

        def on_spark() -> LevelRunner:
            from tussock.jobs.driver.spark_runner import SparkRunner

            return SparkRunner(stack.enter_context(spark_of(store.pipeline, what)), policy)

        if where is Where.AS_SET and store.pipeline.epoch.runner is Runner.AUTO:
            has_machines = not is_local_master(store.pipeline.spark.get("spark.master", "local"))
            yield AutoRunner(on_spark, lambda: has_machines, policy, workers, progress)
        else:
            if where is Where.AS_SET:
                progress("starting Spark")
            yield on_spark()


def spark_of(
    pipeline: Pipeline, what: str = "", settings: Mapping[str, str] | None = None, *, brief: bool = False
) -> "AbstractContextManager[SparkSession]":
    """Open the Spark application of an operation. A session that already exists is used and not stopped.

    Args:
        what: part of the application's name, between `tussock` and the pipeline's name.
        settings: of Spark; None means the pipeline's.
        brief: Spark only binds statements, see `build_spark`.
    """
    from tussock.jobs.spark.session import spark_session

    name = " ".join(filter(None, ("tussock", what, pipeline.name)))
    return spark_session(name, pipeline.spark if settings is None else settings, brief=brief)
