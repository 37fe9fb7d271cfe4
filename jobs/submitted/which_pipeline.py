"""The options by which a job finds its pipeline."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tussock.jobs.settings.pipeline import Pipeline, load_pipeline


def pipeline_arguments(parser: argparse.ArgumentParser, *, or_store: bool = False) -> None:
    """Add --pipeline and --env, and with `or_store` the alternative --store."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--pipeline", metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    if or_store:
        which.add_argument("--store", metavar="URI")
    parser.add_argument("--env", metavar="NAME", help="environment of the pipeline (default: $TUSSOCK_ENV)")


def given_pipeline(chosen: argparse.Namespace) -> Pipeline:
    """Load the pipeline of the options. Raises as `load_pipeline`."""
    return load_pipeline(Path(chosen.pipeline), chosen.env)


def options_of(pipeline: Pipeline, folder: Path) -> Sequence[str]:
    """Return the options for a pipeline that another process finds at `folder`."""
    return ["--pipeline", str(folder), *(["--env", pipeline.environment] if pipeline.environment else [])]
