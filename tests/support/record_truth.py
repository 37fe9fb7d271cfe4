"""Record the answers of the installed Spark: `make truth` (see recorded_truth.py). `--anew` asks everything again."""

import sys

from tests.support.jobs.kernels.spark_truth import record_kernels
from tests.support.local_spark import local_session


def main() -> None:
    """Write all records of the installed version."""
    spark = local_session()
    record_kernels(spark, "--anew" in sys.argv[1:])
    spark.stop()


if __name__ == "__main__":
    main()
