"""Verification: compare a pipeline's views with Spark's results, and rebuild views that differ."""

from tussock.jobs.operations.runners import spark_of
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.session import Session
from tussock.jobs.verify.record import Verification, choose_epoch
from tussock.statestore.progress import Progress


def verify_views(
    store: PipelineStore, *views: str, percent: int, epoch: int | None = None, repair: bool, progress: Progress
) -> Verification:
    """Verify views as `Session.verify` does, in a Spark application with the pipeline's settings."""
    choose_epoch(store.meta.read_latest(), epoch)  # raises before Spark starts
    with (
        spark_of(store.pipeline, "verify") as spark,
        Session(store.pipeline.store, spark, create=False) as session,
    ):
        return session.verify(*views, percent=percent, epoch=epoch, repair=repair, progress=progress)
