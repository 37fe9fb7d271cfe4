"""Verification as a job: what a DAG submits, and `tussock verify` does too.

spark-submit jobs/verification.py --pipeline FOLDER [--percent N] [--repair]        (or python -m jobs.verification …)
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.session import Session
from jobs.settings.jvm_errors import jvm_errors_as_ours
from jobs.settings.pipeline import load_pipeline
from jobs.shell.verify_text import verification_text
from jobs.spark import spark_session
from statestore.errors import TussockError


def main(arguments: Sequence[str] | None = None) -> int:
    """The job's entry. Exit code 0: no view differs from Spark's answer; 1: one does, or the views could not be read."""
    parser = argparse.ArgumentParser(prog="python -m jobs.verification", description="Compare a pipeline's views with Spark's answers.")
    parser.add_argument("--pipeline", required=True, metavar="FOLDER", help="folder of the pipeline, with its pipeline.toml")
    parser.add_argument("--percent", type=int, default=100, help="share of the keys of each view to compare")
    parser.add_argument("--repair", action="store_true", help="build the views that differ anew with the next epoch")
    chosen = parser.parse_args(arguments)
    try:
        pipeline = load_pipeline(Path(chosen.pipeline))
        with (
            jvm_errors_as_ours(),
            spark_session(f"tussock verify {pipeline.name}", pipeline.spark) as spark,
            Session(pipeline.store, spark, create=False) as session,
        ):
            found = session.verify(percent=chosen.percent, repair=chosen.repair, progress=lambda line: print(line, flush=True))
    except TussockError as err:
        print(f"error: {err}", *getattr(err, "__notes__", ()), sep="\n  ", file=sys.stderr, flush=True)
        return 1
    print(verification_text(found, f"--pipeline {pipeline.name}"), flush=True)
    if found.different:
        print(f"error: these views differ from Spark's answer: {', '.join(found.different)}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
