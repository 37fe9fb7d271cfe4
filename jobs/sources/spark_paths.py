"""Addresses of files for Spark's readers: `file:`, `s3a:`, or the address of an object which the driver serves."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tussock.jobs.settings.object_ticket import SCHEME
from tussock.jobs.sources.kept import place_of_bytes
from tussock.jobs.sources.pins import PinnedFile, open_pinned
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.open import REMOTE

_HDFS = "hdfs://"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def literal_path(path: str) -> str:
    """Return a file's path for Spark: s3a for S3, wildcards escaped."""
    literal = "".join("\\" + c if c in "*?[]{}\\" else c for c in path)
    if path.startswith(_HDFS):
        return literal
    return "s3a://" + literal.removeprefix("s3://") if path.startswith("s3://") else "file://" + literal


def spark_paths_of(session: "SparkSession", files: Sequence[PinnedFile], options: Mapping[str, str]) -> list[str]:
    """Return the addresses under which Spark reads the bytes of pinned files. Another call may return other ones.

    Args:
        options: the source's options, which locate an object's server.

    Raises: NeedsHadoopAwsError; BadStoreError.
    """
    # The ETag is not a copy's.
    return [
        spark_path(session, place_of_bytes(f), *open_pinned(f, options), f.size, "" if f.store else f.etag)
        for f in files
    ]


def is_served(address: str) -> bool:
    """Return whether the driver serves the object at an address of `spark_paths_of`."""
    return address.startswith(f"{SCHEME}:")


def spark_path(
    session: "SparkSession", place: str, store: ObjectStore, name: str, size: int = -1, etag: str = ""
) -> str:
    """Return the address under which Spark reads a file.

    Args:
        place: its path, as in `ListedFile.path`.
        store, name: the same file.
        size, etag: of the content to read; -1 and empty if unknown.

    Raises NeedsHadoopAwsError.
    """
    if not place.startswith(REMOTE) or place.startswith(_HDFS):  # every Spark has a client of HDFS
        return literal_path(place)
    from tussock.jobs.sources.object_gateway import gateway_of  # only drivers with such files serve HTTP

    gateway = gateway_of(session, place.partition(":")[0])
    return literal_path(place) if gateway is None else gateway.url(store, name, size, etag)


def place_of(spark_path: str) -> str:
    """Return the place of a file from `_metadata.file_path` (an encoded URI); an address of a gateway is returned as it
    is.
    """
    scheme, _, rest = spark_path.partition(":")
    if scheme == SCHEME:
        return spark_path
    if scheme in ("s3a", "hdfs"):
        return f"{scheme.removesuffix('a')}:{unquote(rest)}"
    return "/" + unquote(rest).lstrip("/")
