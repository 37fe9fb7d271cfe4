"""Publish to tables outside of the store."""

from tussock.jobs.settings.pipeline import Pipeline, PipelineError
from tussock.jobs.settings.process import clock_ms, open_meta
from tussock.jobs.sinks.kinds import opened_sinks
from tussock.jobs.sinks.publication import PublishedTable, publish_tables, tidy_tables
from tussock.statestore.progress import Progress


def run_publish(pipeline: Pipeline, epoch: int | None, *, tidy: bool, progress: Progress) -> tuple[PublishedTable, ...]:
    """Publish, or tidy up. Raises PipelineError for a pipeline without `[publish]`; as `publish_tables`."""
    if (settings := pipeline.publish) is None:
        raise PipelineError(str(pipeline.folder / "pipeline.toml"), "publish", "nothing", "a table [publish] with a key `to`")
    meta = open_meta(pipeline.store)
    _ = meta.settings
    with opened_sinks(settings, f"tussock publish {pipeline.name}", pipeline.spark) as sink_of:
        if tidy:
            tidy_tables(meta, settings, sink_of, clock_ms(), progress)
            return ()
        return publish_tables(meta, settings, sink_of, epoch, progress)
