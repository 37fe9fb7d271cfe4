"""ORC files, by Spark's reader."""

from typing import ClassVar

from jobs.sources.spark_files import SparkTypedFiles


class OrcFiles(SparkTypedFiles):
    """ORC files, by Spark's reader."""

    format: ClassVar[str] = "orc"
    options_class: ClassVar[str] = "execution.datasources.orc.OrcOptions"
