"""The settings that a Spark application needs from its start to write Delta tables. DAG files import this module."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from tussock.statestore.errors import InputError

_DELTA = "4.4.0"
_RELEASES = ("4.0", "4.1", "4.2")  # of Spark, for which that release of Delta Lake is published
_OTHERS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # the tables' logs are small; the default is 50 tasks per read
}


class NoDeltaReleaseError(InputError, hides_row_values=True):
    """No release of Delta Lake is known for the installed release of Spark."""

    spark: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Tables cannot be published by Spark {self.spark}: Delta Lake is known for Spark {', '.join(self.known)} "
            'alone. Nothing was written. Write the tables without Spark: set engine = "deltalake" in the table '
            "[publish] of pipeline.toml, remove the tables that Spark wrote before, and install the extra: "
            'pip install "tussock[delta]"'
        )


def require_delta_release() -> None:
    """Raise NoDeltaReleaseError if the installed Spark has no Delta Lake."""
    if (release := _installed_spark()) is not None and release not in _RELEASES:
        raise NoDeltaReleaseError(release, _RELEASES)


def with_delta(settings: Mapping[str, str]) -> dict[str, str]:
    """Add Delta's settings to a pipeline's Spark settings. Spark downloads the named package once.

    It never fails, because DAG files call it: `require_delta_release` reports a release without Delta Lake.
    """
    lists = {  # settings whose value is a list with commas: the pipeline's entries stay
        "spark.jars.packages": f"io.delta:delta-spark_{_spark_release()}_2.13:{_DELTA}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    }
    joined = {name: ",".join(filter(None, (settings.get(name), value))) for name, value in lists.items()}
    return {**_OTHERS, **settings, **joined}


def _spark_release() -> str:
    release = _installed_spark()
    return release if release in _RELEASES else _RELEASES[-1]


def _installed_spark() -> str | None:
    """The installed release of Spark, as "4.2". A scheduler may have Spark's client alone, or neither."""
    for package in ("pyspark", "pyspark-client"):
        try:
            return ".".join(version(package).split(".")[:2])
        except PackageNotFoundError:
            continue
    return None
