"""A resident process of a store, without a pipeline and a JVM. Arguments: the store, and the pause in seconds."""

import sys
from pathlib import Path
from threading import Event

from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.publish import publish_epoch
from tussock.jobs.driver.runner import LevelRunner
from tussock.jobs.operations.resident import run_repeatedly
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.tables import EpochSettings, Runner

if __name__ == "__main__":
    meta = open_meta(sys.argv[1])
    pipeline = Pipeline("shop", Path(), sys.argv[1], (), epoch=EpochSettings(runner=Runner.AUTO))

    def run(runner: LevelRunner) -> None:
        """Run and publish all waiting input."""
        for summary in advance_store(runner, meta, settings=pipeline.epoch):
            publish_epoch(meta, summary.epoch)

    run_repeatedly(
        PipelineStore(pipeline, meta), float(sys.argv[2]), Event(), run, lambda line: print(line, flush=True)
    )
