"""The verification job, submitted by a DAG. It does the same as `tussock verify`.

spark-submit jobs/submitted/verification.py --pipeline FOLDER [--env NAME] [--percent N] [--repair]
python -m tussock.jobs.submitted.verification …
"""

import argparse
import sys
from collections.abc import Sequence

from tussock.jobs.operations.store import open_pipeline
from tussock.jobs.operations.verify import verify
from tussock.jobs.submitted.exits import exit_code, say
from tussock.jobs.submitted.which_pipeline import given_pipeline, pipeline_arguments
from tussock.jobs.texts.verification import verification_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. Exit code 0: no view differs from Spark's result; 1: a view differs, or could not be read."""
    parser = argparse.ArgumentParser(
        prog="python -m tussock.jobs.submitted.verification",
        description="Compare a pipeline's views with Spark's results.",
    )
    pipeline_arguments(parser)
    parser.add_argument("--percent", type=int, default=100, help="percentage of each view's keys to compare")
    parser.add_argument("--repair", action="store_true", help="rebuild the views that differ with the next epoch")
    chosen = parser.parse_args(arguments)

    def job() -> int:
        at = open_pipeline(given_pipeline(chosen))
        found = verify(at, percent=chosen.percent, repair=chosen.repair, progress=say)
        say(verification_text(found))
        if found.different:
            print(
                f"error: these views differ from Spark's result: {', '.join(found.different)}",
                file=sys.stderr,
                flush=True,
            )
            return 1
        return 0

    return exit_code(job, chosen)


if __name__ == "__main__":
    sys.exit(main())
