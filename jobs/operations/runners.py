"""The runner of a run's epochs, and the Spark application that it starts for them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING

from tussock.jobs.driver.runner import AutoRunner, LevelRunner, no_spark
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import Pipeline, Runner
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession


class Where(Enum):
    """The process in which a run's epochs run."""

    AS_SET = auto()  # as configured in the pipeline's `[epoch] runner`: starts Spark if necessary
    SPARK = auto()  # on Spark: the process is already a Spark application
    HERE = auto()  # in this process, without Spark


@contextmanager
def runner_of(at: PipelineStore, where: Where, what: str, progress: Progress = no_progress) -> Iterator[LevelRunner]:
    """Yield the runner of a run, and stop Spark at the end if the runner started it.

    Args:
        what: part of the Spark application's name, after `tussock`.

    With `HERE`, the runner raises SparkWantedError for an epoch that Spark should run.
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
            return SparkRunner(stack.enter_context(spark_of(at.pipeline, what)))

        small_here = where is Where.AS_SET and at.pipeline.epoch.runner is Runner.AUTO
        yield AutoRunner(on_spark, lambda: on_spark.cache_info().currsize > 0) if small_here else on_spark()


def spark_of(
    pipeline: Pipeline, what: str = "", settings: Mapping[str, str] | None = None
) -> "AbstractContextManager[SparkSession]":
    """Open the Spark application of an operation. A session that already exists is used and not stopped.

    Args:
        what: part of the application's name, between `tussock` and the pipeline's name.
        settings: of Spark; None means the pipeline's.
    """
    from tussock.jobs.spark.session import spark_session

    name = " ".join(filter(None, ("tussock", what, pipeline.name)))
    return spark_session(name, pipeline.spark if settings is None else settings)
