"""A pipeline's files brought into its store: what `tussock plan`, `tussock apply` and the DAG deploy_<pipeline> have in common."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from jobs.catalog.deployment import Deployment, Derived
from jobs.gate.measures import statements_for
from jobs.gate.suite import read_suite
from jobs.session import Session
from jobs.settings.pipeline import NEW_STORE_UNITS, Pipeline
from jobs.settings.process import open_meta
from jobs.shell.deployment_text import deployment_text
from statestore.errors import InputError
from statestore.meta.errors import AlreadyInitialisedError, NotInitialisedError
from statestore.meta.store import MetaStore
from statestore.objectstore.open import open_object_store
from statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PlanOutdatedError(InputError):
    """What an apply would do is not what was approved."""

    def __init__(self, pipeline: str, now: str) -> None:
        super().__init__(pipeline, now)
        self.pipeline, self.now = pipeline, now

    def __str__(self) -> str:
        return (
            f"what is to be done in {self.pipeline!r} is not what was approved: its files or its store have changed since. Nothing was "
            f"changed. Plan anew. Now it would be:\n{self.now}"
        )


def plan(pipeline: Pipeline, prune: bool = False, resume: Sequence[str] = (), progress: Progress = no_progress) -> Deployment:
    """What `apply` would do now. Nothing is written; of a store that is not there yet, everything is new.

    Args:
        prune, resume: as Session.apply has them.
        progress: called with one line where Spark starts.

    Raises: InputError branches that name file and place.
    """
    with ExitStack() as stack:
        store = pipeline.store
        try:
            _ = open_meta(store).settings
        except NotInitialisedError:
            progress(f"{store} does not exist yet; `tussock apply {pipeline.name}` makes it")
            store = stack.enter_context(TemporaryDirectory(prefix="tussock-plan-"))  # so that there is an empty one to compare with
            MetaStore.init(open_object_store(store), time_zone=pipeline.time_zone)
        session = stack.enter_context(_session(pipeline, store, progress))
        return session.plan(pipeline.scripts(), prune=prune, resume=resume, derived=measures(pipeline))


def apply(
    pipeline: Pipeline,
    prune: bool = False,
    resume: Sequence[str] = (),
    approved: str | None = None,
    progress: Progress = no_progress,
) -> Deployment:
    """Make the pipeline's files hold, all or nothing; the store is made where there is none.

    Args:
        prune, resume: as Session.apply has them.
        approved: the text of the plan that somebody has approved, if that was asked for.

    Raises: PlanOutdatedError where that plan is another now; as `plan` does.
    """
    if approved is not None and (now := deployment_text(plan(pipeline, prune, resume), pipeline.name)) != approved:
        raise PlanOutdatedError(pipeline.name, now)
    try:
        epoch, objects = pipeline.epoch, open_object_store(pipeline.store)
        MetaStore.init(objects, vnode_count=epoch.vnodes, units=epoch.units or NEW_STORE_UNITS, time_zone=pipeline.time_zone)
        progress(f"created {pipeline.store}")
    except AlreadyInitialisedError:
        pass
    with _session(pipeline, pipeline.store, progress) as session:
        return session.apply(pipeline.scripts(), prune=prune, resume=resume, derived=measures(pipeline))


def measures(pipeline: Pipeline) -> Derived:
    """What a pipeline's suites want kept of its views. Raises QualitySuiteError for a suite that can't be read."""
    return partial(statements_for, [read_suite(file) for file in (pipeline.quality.suites() if pipeline.quality is not None else ())])


@contextmanager
def _session(pipeline: Pipeline, store: str, progress: Progress) -> Iterator[Session]:
    """A session over a store, whose Spark is started where it is needed, with the pipeline's settings."""

    def started() -> "SparkSession":
        from jobs.spark import spark_session

        progress("starting Spark")
        return stack.enter_context(spark_session(f"tussock {pipeline.name}", pipeline.spark))

    with ExitStack() as stack:
        yield stack.enter_context(Session(store, started, create=False))
