"""The options by which a job finds its pipeline."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.jobs.settings.row_values import prints_for_airflow


def pipeline_arguments(parser: argparse.ArgumentParser, *, or_store: bool = False) -> None:
    """Add --pipeline and --env, and with `or_store` the alternative --store."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--pipeline", metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    if or_store:
        which.add_argument("--store", metavar="URI")
    parser.add_argument("--env", metavar="NAME", help="environment of the pipeline (default: $TUSSOCK_ENV)")


def given_pipeline(chosen: argparse.Namespace) -> Pipeline:
    """Load the pipeline of the options. Raises as `load_pipeline`.

    The job's output is a log of Airflow, so it contains rows only if all readers of the DAG may see them.
    """
    pipeline = load_pipeline(Path(chosen.pipeline), chosen.env)
    prints_for_airflow(pipeline.pages.rows)
    return pipeline


def options_of(pipeline: Pipeline, folder: Path) -> Sequence[str]:
    """Return the options for a pipeline that another process finds at `folder`."""
    return ["--pipeline", str(folder), *(["--env", pipeline.environment] if pipeline.environment else [])]
