"""The differences between the supported releases of Spark, each behind one function.

Plans do not depend on the release. A feature that the installed release lacks raises SparkReleaseError, which names
the first release that has it. `make matrix` tests the releases and writes docs/versions.md.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tussock.jobs.chunks.spark_hash import spark_hash
from tussock.statestore.errors import InputError

#: Catalyst's nodes that have another name in an older release: their name there and the one in plans.
_RENAMED = {"TimeAdd": "TimestampAddInterval"}  # before Spark 4.1
_IDS = re.compile(r"#\d+L?")
#: The installed release of pyspark: (major, minor).
RELEASE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


class SparkReleaseError(InputError):
    """A feature needs a later release of Spark than the installed one."""

    feature: str
    first: str
    installed: str

    def __str__(self) -> str:
        return (
            f"{self.feature} need Spark {self.first} or later; Spark {self.installed} is installed. Nothing was "
            f'changed. Install a later release: pip install "pyspark>={self.first}"'
        )


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The Arrow types of a DataFrame's columns; timestamps are in UTC."""
    return to_arrow_schema(schema, **_UTC)


def arrow_function(function: Callable[..., pa.Array], returns: str, feature: str) -> Any:
    """Wrap a function of Arrow arrays as a Spark UDF.

    Raises SparkReleaseError before Spark 4.1; `feature` is the subject of its message, in the plural.
    """
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError as err:
        raise SparkReleaseError(feature, "4.1", pyspark.__version__) from err
    made: Any = arrow_udf  # its declared overloads have no function of several arrays
    return made(function, returns)


def node_name(node: JavaObject) -> str:
    """The name of a Catalyst node, as plans have it in every release."""
    name = str(node.productPrefix())
    return _RENAMED.get(name, name)


def column_name(name: str) -> str:
    """A column's name in plans.

    Before Spark 4.1, the name of a grouping expression contains ids, as in `upper(item#12)`.
    """
    return name if RELEASE >= (4, 1) or "(" not in name else _IDS.sub("", name)


def replaces_rows(insert: JavaObject) -> bool:
    """Whether a parsed INSERT has REPLACE WHERE or REPLACE USING as a field; older releases parse it as another
    statement."""
    return RELEASE >= (4, 2) and bool(insert.replaceCriteriaOpt().isDefined())


def exchange_rows(frame: DataFrame, partitions: int) -> DataFrame:
    """Send each row to the partition of its int column `slot`: `slot % partitions`, where 0 <= slot.

    Before Spark 4.1 a partition cannot be named. There, rows are partitioned by the hash of a number that falls
    into the wanted partition. Requires: adaptive execution is off.
    """
    partition = F.col("slot") % partitions
    if RELEASE >= (4, 1):
        return frame.repartitionById(partitions, partition)
    numbers = F.array(*(F.lit(int(n)) for n in _numbers_by_partition(partitions)))
    return frame.repartition(partitions, F.element_at(numbers, partition + 1))


def _numbers_by_partition(partitions: int) -> np.ndarray:
    """int32 (partitions,): a number for each partition that Spark's hash partitioning puts there."""
    first: dict[int, int] = {}
    start, size = 0, 32 * partitions
    while len(first) < partitions:
        candidates = np.arange(start, start + size, dtype=np.int32)
        partition_numbers, places = np.unique(spark_hash(candidates).astype(np.int64) % partitions, return_index=True)
        first = dict(zip(partition_numbers.tolist(), candidates[places].tolist(), strict=True)) | first
        start += size
    return np.array([first[p] for p in range(partitions)], dtype=np.int32)
