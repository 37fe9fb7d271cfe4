"""Where a run's epochs run, and the Spark application that it starts for them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING

from tussock.jobs.driver.runner import AutoRunner, LevelRunner, no_spark
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import Runner
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession


class Where(Enum):
    """Where the epochs of a run run."""

    AS_SET = auto()  # as the pipeline's `[epoch] runner`: Spark is started if it is needed
    SPARK = auto()  # on Spark: the process is an application of Spark's
    HERE = auto()  # in this process, which starts no Spark


@contextmanager
def runner_of(at: PipelineStore, where: Where, what: str, progress: Progress = no_progress) -> Iterator[LevelRunner]:
    """The runner of a run. Spark is stopped at the end if the runner has started it.

    Args:
        what: the name of Spark's application, after `tussock`.

    With `HERE` the runner raises SparkWantedError for an epoch that Spark should run.
    """
    if where is Where.HERE:
        yield AutoRunner(no_spark)
        return
    with ExitStack() as stack:

        @cache
        def on_spark() -> LevelRunner:
            from tussock.jobs.driver.spark_runner import SparkRunner

            if where is Where.AS_SET:
                progress("starting Spark")
            return SparkRunner(stack.enter_context(spark_of(at, what)))

        small_here = where is Where.AS_SET and at.pipeline.epoch.runner is Runner.AUTO
        yield AutoRunner(on_spark, lambda: on_spark.cache_info().currsize > 0) if small_here else on_spark()


def spark_of(at: PipelineStore, what: str) -> "AbstractContextManager[SparkSession]":
    """A Spark session with the pipeline's settings; one that was there before is used and left running."""
    from tussock.jobs.spark.session import spark_session

    return spark_session(" ".join(filter(None, ("tussock", what, at.pipeline.name))), at.pipeline.spark)
