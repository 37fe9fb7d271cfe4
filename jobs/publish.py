"""Publishing to tables outside of the store as a job: what `tussock publish` runs, and what a DAG submits where Spark writes the tables.

    python -m jobs.publish --pipeline FOLDER [--epoch N | --tidy]

Safe to kill at any point and to run twice at once (jobs/sinks/publication.py). Under spark-submit the session needs the settings of
jobs/sinks/delta_packages.py when it starts.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.settings.pipeline import Pipeline, PipelineError, load_pipeline
from jobs.settings.process import clock_ms, open_meta
from jobs.sinks.kinds import opened_sinks
from jobs.sinks.publication import PublishedTable, publish_tables, tidy_tables
from statestore.errors import TussockError
from statestore.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """The job's entry. Exit code 0: done; 1: an error, in one message."""
    parser = argparse.ArgumentParser(prog="python -m jobs.publish", description="Bring a pipeline's tables to a published epoch.")
    parser.add_argument("--pipeline", required=True, metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    add_arguments(parser)
    chosen = parser.parse_args(arguments)
    try:
        run_publish(load_pipeline(Path(chosen.pipeline)), chosen.epoch, tidy=chosen.tidy, progress=_say)
    except TussockError as err:
        print(f"error: {err}", *getattr(err, "__notes__", ()), sep="\n  ", file=sys.stderr, flush=True)
        return 1
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `tussock publish` and this job share."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--epoch", type=int, metavar="N", help="a published epoch (default: the one that readers see)")
    what.add_argument("--tidy", action="store_true", help="instead merge small files and remove what is older than [publish] keep")


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


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
