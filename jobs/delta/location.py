"""The location of sinks: a folder or a bucket's prefix, in the forms of the store, Delta and Arrow."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow.fs as pafs

from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.base import BadStoreError, ObjectStore, checked_name
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import address_of, as_s3, open_object_store

if TYPE_CHECKING:
    from tussock.statestore.objectstore.s3 import S3Address


@dataclass(frozen=True)
class Location:
    """The root of a pipeline's sinks. Its credentials are read at the first use, so create one for each publish.

    Args:
        address: of a bucket; None: a local folder.
    """

    root: str  # /a/path, or bucket/prefix
    address: "S3Address | None"
    objects: ObjectStore

    def table_uri(self, table: str) -> str:
        """Return the address of a table's folder for display, unescaped."""
        return f"{self.root}/{table}" if self.address is None else f"s3://{self.root}/{table}"

    def delta_url(self, table: str) -> str:
        """Return the address of a table's folder for the deltalake package.

        Raises BadStoreError if the package cannot open it.
        """
        name = f"{self.root}/{table}"
        if (
            reason := unfit_for_delta(name) or (unfit_to_write_delta(name) if self.address is None else None)
        ) is not None:
            raise BadStoreError(
                self.table_uri(table),
                f"{reason}. Publish Delta tables to another folder, or Parquet tables to this one",
            )
        return delta_url("" if self.address is None else f"s3://{self.address.bucket}", name.partition("/")[2])

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
        bucket = as_s3(self.objects)
        assert bucket is not None
        with TemporaryFolder("publish") as folder:
            yield (file := Path(folder) / "rows")
            bucket.put_file(name, file)

    @cached_property
    def delta_options(self) -> dict[str, str]:
        """The package's options: endpoint, current credentials of boto3's chain, and commits by conditional PUT."""
        if self.address is None:
            return {}
        options = {
            "conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(not self.address.path_style).lower(),
        }
        if self.address.endpoint is not None:
            options |= {"aws_endpoint": self.address.endpoint, "aws_allow_http": "true"}
        access, secret, token, region = _read_credentials(self.address)
        options |= {"aws_access_key_id": access, "aws_secret_access_key": secret, "aws_region": region}
        return options | ({"aws_session_token": token} if token else {})

    @cached_property
    def file_system(self) -> pafs.FileSystem:
        """Arrow's file system for the location."""
        if self.address is None:
            return pafs.LocalFileSystem()
        access, secret, token, region = _read_credentials(self.address)
        scheme, _, host = (self.address.endpoint or "").rstrip("/").rpartition("://")
        return pafs.S3FileSystem(
            access_key=access,
            secret_key=secret,
            session_token=token or None,
            region=region,
            endpoint_override=host or None,
            scheme=scheme or "https",
            force_virtual_addressing=not self.address.path_style,
        )


def location_of(uri: str) -> Location:
    """Return the location of an address: `/a/path` or `s3://bucket/prefix?…`, as for stores. Raises BadStoreError."""
    return location_in(open_object_store(uri))


def location_in(objects: ObjectStore) -> Location:
    """Return the location of a store's objects.

    Raises BadStoreError if they are neither in a folder nor in a bucket.
    """
    if isinstance(objects, LocalObjectStore):
        return Location(str(objects.root), None, objects)
    if (bucket := as_s3(objects)) is not None:
        address = bucket.address
        return Location(f"{address.bucket}/{address.prefix}" if address.prefix else address.bucket, address, objects)
    raise BadStoreError(objects.uri, "views are published to a folder or to s3://bucket/prefix")


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
