"""The quality gate: Great Expectations suites over the views of one committed epoch; Spark is started where a suite needs it.

Suites are files `<view>.json` in the pipeline's quality folder; jobs/gate/suite.py says what is in them.

The outcome is a record in the store (jobs/gate/record.py), which is what `publish_views` goes by, and Data Docs in a folder outside of the
store, for people. An epoch that these very suites have judged before is not judged again, and no Spark is started.

    spark-submit jobs/submitted/quality.py --pipeline FOLDER --epoch N        (or python -m tussock.jobs.submitted.quality …)
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.gate.gate import validate_epoch
from tussock.jobs.gate.record import HeldViewsError, QualityGateError, QualityRecord, judged, record_lines
from tussock.jobs.gate.suite import read_suites
from tussock.jobs.settings.pipeline import GateScope, Pipeline, load_pipeline
from tussock.jobs.submitted.exits import exit_code
from tussock.statestore.meta.store import MetaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: Sequence[str] | None = None) -> int:
    """The job's entry. Exit code 0: the epoch passed, or the gate judges view by view; 1: it did not, or could not be asked; the reason is
    on standard error."""
    from tussock.jobs.settings.process import open_meta

    parser = argparse.ArgumentParser(
        prog="python -m tussock.jobs.submitted.quality", description="Run a pipeline's quality suites at a committed epoch."
    )
    parser.add_argument("--pipeline", required=True, metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    parser.add_argument("--epoch", required=True, type=int, help="a committed epoch")
    chosen = parser.parse_args(arguments)

    def job() -> None:
        pipeline = load_pipeline(Path(chosen.pipeline))
        meta = open_meta(pipeline.store)
        suites = read_suites(pipeline.quality)
        if (record := judged(meta.objects, chosen.epoch, suites)) is not None:
            print(f"epoch {chosen.epoch} was judged by these suites before", flush=True)
        else:
            record = _validate(meta, pipeline, chosen.epoch)
        for line in record_lines(record):
            print(line, flush=True)
        if not record.passed and pipeline.quality is not None:
            if pipeline.quality.scope is GateScope.PIPELINE:
                raise QualityGateError(record)
            print(HeldViewsError(record), flush=True)

    return exit_code(job)


def _validate(meta: MetaStore, pipeline: Pipeline, epoch: int) -> QualityRecord:
    with ExitStack() as stack:

        def start(reasons: Sequence[str]) -> "SparkSession":
            from tussock.jobs.spark.session import build_spark

            print("Spark judges", *reasons, sep="\n  ", flush=True)
            spark = build_spark(f"tussock quality {pipeline.name}", settings=pipeline.spark)
            stack.callback(spark.stop)
            return spark

        return validate_epoch(start, meta, pipeline, epoch)


if __name__ == "__main__":
    sys.exit(main())
