"""Optional packages, and the extra of this project that installs each one."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tussock.statestore.errors import InputError

EXTRAS = {
    "airflow": "airflow",
    "asgiref": "airflow",
    "boto3": "s3",
    "botocore": "s3",
    "confluent_kafka": "kafka-sink",
    "cryptography": "spark",
    "delta": "delta-spark",
    "deltalake": "delta",
    "fastapi": "airflow",
    "fastavro": "kafka-avro",
    "great_expectations": "quality",
    "httpx2": "kafka-avro",
    "jinja2": "airflow",
    "obstore": "clouds",
    "openlineage": "openlineage",
    "pandas": "spark",
    "pendulum": "airflow",
    "psycopg": "postgres",
    "py4j": "spark",
    "pydantic": "airflow",
    "pyiceberg": "iceberg",
    "pyroaring": "delta",
    "pyspark": "spark",
    "pytest": "test",
    "sqlalchemy": "airflow",
    "sqlglot": "dialects",
    "starlette": "airflow",
    "yaml": "spark",
}
"""Extra by imported module, for every optional module that this project imports."""


class MissingExtraError(InputError):
    """An optional package is required and is not installed."""

    module: str
    extra: str

    @property
    def command(self) -> str:
        """The command that installs the extra."""
        return f'pip install "tussock[{self.extra}]"'

    def __str__(self) -> str:
        return (
            f"the Python package {self.module!r} is not installed. This call needs the extra {self.extra!r}; the core "
            "installation supports reads and sessions with the local runner. Install the extra, then repeat the call: "
            f"{self.command}"
        )


def missing_spark() -> MissingExtraError | None:
    """Return an error if pyspark is not installed; None if it is. Imports nothing."""
    try:
        spec = find_spec("pyspark")
    except ModuleNotFoundError:
        spec = None
    return None if spec is not None else MissingExtraError("pyspark", EXTRAS["pyspark"])


@contextmanager
def extras_named() -> Iterator[None]:
    """Turn a failed import of an optional package into MissingExtraError.

    Public functions and main functions use it.
    """
    try:
        yield
    except ModuleNotFoundError as err:
        module = (err.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        raise MissingExtraError(module, EXTRAS[module]) from err
