"""The location of sinks: a folder, a bucket's prefix or a folder of HDFS, in the forms of the store and of Delta."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from tussock.jobs.delta.delta_mirror import mirror_table
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.base import BadStoreError, ObjectStore, checked_name
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import address_of, as_s3, open_object_store
from tussock.statestore.objectstore.range_file import RangeFile

if TYPE_CHECKING:
    from tussock.statestore.objectstore.clouds import CloudAddress
    from tussock.statestore.objectstore.hdfs import HdfsAddress
    from tussock.statestore.objectstore.s3 import S3Address


@dataclass(frozen=True)
class Location:
    """The root of a pipeline's sinks. Its credentials are read at the first use, so create one for each publish.

    Args:
        address: of a bucket or of HDFS; None: a local folder.
    """

    root: str  # /a/path, or scheme://bucket/prefix, unescaped
    address: "S3Address | CloudAddress | HdfsAddress | None"
    objects: ObjectStore

    def table_uri(self, table: str) -> str:
        """Return the address of a table's folder for display, unescaped."""
        return f"{self.root}/{table}"

    @property
    def is_in_hdfs(self) -> bool:
        """Whether the deltalake package cannot reach the location."""
        return self.address is not None and self.address.root.startswith("hdfs://")

    def delta_url(self, table: str) -> str:
        """Return the address of a table's folder for the deltalake package.

        Raises BadStoreError if the package cannot open it.
        """
        bucket, name = ("", f"{self.root}/{table}") if self.address is None else _split_folder(self.address, table)
        if (reason := unfit_for_delta(name) or (unfit_to_write_delta(name) if not bucket else None)) is not None:
            raise BadStoreError(
                self.table_uri(table),
                f"{reason}. Publish Delta tables to another folder, or Parquet tables to this one",
            )
        return delta_url(bucket, name.lstrip("/"))

    def mirror_log(self, table: str, *, rows: bool = False) -> TemporaryFolder:
        """Return a local copy of a table's log, for the deltalake package. Requires: the location is not local."""
        assert self.address is not None
        bucket, name = _split_folder(self.address, table)
        return mirror_table(bucket, name, self.address.options, rows=rows)

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Yield a file to write. It has this name after the block; if the block fails, no file appears.

        Requires: the file is written in one step, because a local file is written in place.
        """
        if self.address is None:
            file = Path(self.root) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            yield file
            return
        with TemporaryFolder("publish") as folder:
            yield (file := Path(folder) / "rows")
            if (bucket := as_s3(self.objects)) is not None:
                bucket.put_file(name, file)
            else:
                self.objects.put(name, file.read_bytes())

    def open_file(self, name: str) -> pa.NativeFile:
        """Open a file to read. Raises FileNotFoundError, ObjectNotFoundError. Cost: a HEAD, and a GET per read."""
        if self.address is None:
            return pa.OSFile(f"{self.root}/{name}")
        return pa.PythonFile(RangeFile(self.objects, name, self.objects.head(name).size), mode="r")

    @cached_property
    def delta_options(self) -> dict[str, str]:
        """The package's options: endpoint and current credentials; in S3, commits by conditional PUT."""
        if self.address is None or self.is_in_hdfs:
            return {}
        if (bucket := as_s3(self.objects)) is None:
            return cloud_options(self.objects)
        address = bucket.address
        options = {
            "conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(not address.path_style).lower(),
        }
        if address.endpoint is not None:
            options |= {"aws_endpoint": address.endpoint, "aws_allow_http": "true"}
        access, secret, token, region = _read_credentials(address)
        options |= {"aws_access_key_id": access, "aws_secret_access_key": secret, "aws_region": region}
        return options | ({"aws_session_token": token} if token else {})


def location_of(uri: str) -> Location:
    """Return the location of an address, as for stores. Raises BadStoreError."""
    return location_in(open_object_store(uri))


def location_in(objects: ObjectStore) -> Location:
    """Return the location of a store's objects.

    Raises BadStoreError if they are neither in a folder, nor in a bucket, nor in HDFS.
    """
    if isinstance(objects, LocalObjectStore):
        return Location(str(objects.root), None, objects)
    if (address := address_of(objects)) is not None:
        return Location(address.folder, address, objects)
    reason = "views are published to a folder, or to an address with s3://, gs://, az:// or hdfs://"
    raise BadStoreError(objects.uri, reason)


def _split_folder(address: "S3Address | CloudAddress | HdfsAddress", table: str) -> tuple[str, str]:
    """The bucket with its scheme, and the path of a table's folder in it."""
    return address.root, f"{address.prefix}/{table}" if address.prefix else table


_UNFIT = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
_NO_HOST = re.compile(r"[\[\]^|]")


def unfit_for_delta(path: str) -> str | None:
    """Return why the deltalake package cannot open a folder of this path; None if it can.

    The package decodes a path twice, and reads a backslash as a slash: for `a%20b` it would read the table in `a b`.
    """
    if (match := _UNFIT.search(path)) is None:
        return None
    return f"the deltalake package misreads {match[0]!r} in a folder's name"


def unfit_to_write_delta(path: str) -> str | None:
    """Return why the deltalake package cannot write to a local folder of this path; None if it can.

    For a write, it parses the path as a host name, which cannot contain these characters.
    """
    if (match := _NO_HOST.search(path)) is None:
        return None
    return f"the deltalake package cannot write to a folder with {match[0]!r} in its path"


def cloud_options(store: ObjectStore) -> dict[str, str]:
    """Return the package's options for a store in Google's or Azure's storage.

    The package takes the credentials from the same variables as the store. Requires: the store is one of these.
    """
    address = address_of(store)
    assert address is not None
    options = dict[str, str]()
    if (account := address.options.get("account")) is not None:
        options["azure_storage_account_name"] = account
    if (endpoint := address.options.get("endpoint")) is not None:
        options["google_base_url" if address.root.startswith("gs://") else "azure_storage_endpoint"] = endpoint
        options["allow_http"] = str(endpoint.startswith("http:")).lower()
    return options


def delta_url(bucket: str, name: str) -> str:
    """Return a folder's address for the deltalake package: a local path, or a quoted URL in a bucket.

    Args:
        bucket: with its scheme; empty for this machine.
        name: the path below the bucket, or below `/`. Requires: `unfit_for_delta` has no objection.
    """
    return f"{bucket}/{quote(name)}" if bucket else f"/{name}"


def folder_name(relation: str) -> str:
    """Return the folder of a relation's table: its name, with special characters as %XX. Raises BadObjectNameError."""
    return checked_name(quote(relation, safe=" "))


def _read_credentials(address: "S3Address") -> tuple[str, str, str, str]:
    """Return access key, secret, token (or an empty string) and region."""
    import boto3

    from tussock.statestore.objectstore.base import AccessDeniedError

    session = boto3.session.Session()
    credentials = session.get_credentials()
    if credentials is None:
        raise AccessDeniedError(address.uri, "publish", "no credentials were found")
    frozen = credentials.get_frozen_credentials()
    region = address.region or session.region_name or "us-east-1"
    return frozen.access_key or "", frozen.secret_key or "", frozen.token or "", region
