"""Opens an object store by its URI.

    /a/path, file:///a/path      a local directory
    s3://bucket/prefix?endpoint=http://host:port&path_style=true&region=eu-central-1
                                 an S3 bucket; prefix and options are optional
    branch:pr-142,1,4711,0:URI   a branch of the store at URI (branch.py)
    gs://bucket/prefix           a bucket of Google Cloud Storage
    az://container/prefix?account=name
                                 a container of Azure Blob Storage
                                 both also with endpoint=http://host:port
    hdfs://host:port/path?endpoint=http://host:9870
                                 a folder of HDFS; the endpoint is WebHDFS, by default port 9870 of the host

A URI never contains credentials; they come from the standard chain of boto3, or of each cloud.

An absolute path is taken literally. In the two forms with a scheme, `%XX` encodes a character. Code that has a bucket
and a key calls `open_s3` and never builds a URI, because a parser would interpret `%`, `?` and `#`.

The environment variable TUSSOCK_STORE_SCHEMES adds schemes: `scheme=module:function,…`. The function receives the URI
and returns an ObjectStore whose `uri` uses the same scheme. Worker processes inherit the variable and must be able to
import the module.
"""

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlsplit

from tussock.statestore.extras import extras_named
from tussock.statestore.objectstore.base import BadStoreError, ObjectStore, checked_name
from tussock.statestore.objectstore.branch import SCHEME, BranchObjects, split_branch_uri
from tussock.statestore.objectstore.local import LocalObjectStore

if TYPE_CHECKING:
    from tussock.statestore.objectstore.clouds import CloudAddress
    from tussock.statestore.objectstore.hdfs import HdfsAddress
    from tussock.statestore.objectstore.s3 import S3Address, S3ObjectStore

_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?/?")  # no user, password or query
_ACCOUNT_ENDPOINT = re.compile(_ENDPOINT.pattern + r"[a-z0-9]*")  # Azurite has the account in the path
_NOT_IN_URIS = re.compile(r"[#\t\r\n]")
SCHEMES_VARIABLE = "TUSSOCK_STORE_SCHEMES"
S3_OPTIONS = ("endpoint", "path_style", "region")
REMOTE = ("s3://", "gs://", "az://", "hdfs://")
"""The beginnings of an address in a bucket, or in HDFS, whose name node stands for the bucket."""
CLOUD_OPTIONS = {"gs": ("endpoint",), "az": ("account", "endpoint"), "hdfs": ("endpoint",)}
"""Options of a URI, by its scheme."""


def open_object_store(uri: str) -> ObjectStore:
    """Open the store of a URI. Sends no request: an unreachable endpoint fails at the first operation.

    Raises:
        BadStoreError: the URI has none of the forms above. The message omits users, passwords and unknown options.
    """
    if uri.startswith("/"):
        return LocalObjectStore(Path(uri))
    if uri.startswith(SCHEME):
        mark, parent = split_branch_uri(uri)
        return BranchObjects(open_object_store(parent), mark)
    if (dropped := _NOT_IN_URIS.search(uri)) is not None:  # urlsplit would silently open another store.
        raise BadStoreError(
            uri.partition("#")[0],
            f"{dropped[0]!r} is not allowed in a URI; write %{ord(dropped[0]):02X} if it is part of a name",
        )
    parts = urlsplit(uri)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else uri
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise BadStoreError(shown, "a file URI needs an absolute path and no host, e.g. file:///data/store")
        if "?" in uri:
            raise BadStoreError(shown, "a file URI has no options; write %3F for a ? in a name")
        return LocalObjectStore(Path(os.fsdecode(unquote_to_bytes(parts.path))))
    if parts.scheme in ("s3", "s3a"):
        return _open_s3(uri, shown)
    if parts.scheme in CLOUD_OPTIONS:
        return _open_cloud(parts.scheme, uri, shown)
    for entry in filter(None, os.environ.get(SCHEMES_VARIABLE, "").split(",")):
        scheme, _, opener = entry.partition("=")
        if scheme == parts.scheme:
            module, _, function = opener.partition(":")
            store: ObjectStore = getattr(importlib.import_module(module), function)(uri)
            return store
    raise BadStoreError(
        shown,
        "expected an absolute path, file:///a/path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
        "hdfs://host:port/path",
    )


def open_s3(bucket: str, prefix: str, options: Mapping[str, str] | None) -> ObjectStore:
    """Open a bucket as a store, or the objects below `prefix`. Sends no request.

    Args:
        bucket, prefix: literal names; slashes at the ends of the prefix are ignored.
        options: S3_OPTIONS. With an endpoint, path style is the default.

    Raises: BadStoreError for an invalid option; BadObjectNameError for an invalid prefix; MissingExtraError.
    """
    with extras_named():  # imported here, so that local stores do not spend 0.3 s on importing boto3
        from tussock.statestore.objectstore.s3 import S3Address, S3ObjectStore

    chosen, shown = options or {}, f"s3://{bucket}/{prefix}"
    endpoint = _checked_endpoint(chosen, shown)
    path_style = chosen.get("path_style", "true" if endpoint else "false")
    if path_style not in ("true", "false"):
        raise BadStoreError(shown, f"path_style is {path_style!r}, expected true or false")
    prefix = _checked_prefix(prefix)
    return S3ObjectStore(S3Address(bucket, prefix, endpoint, path_style == "true", chosen.get("region") or None))


def open_bucket(root: str, prefix: str = "", options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open a bucket as a store, or the objects below `prefix`. Sends no request.

    Args:
        root: scheme and bucket, as returned by `split_address`.
        prefix: a literal name; slashes at its ends are ignored.
        options: as returned by `read_options` for the scheme.

    Raises: as `open_s3` and `open_cloud`.
    """
    scheme, _, bucket = root.partition("://")
    if scheme == "hdfs":
        return open_hdfs(bucket, prefix, options)
    return open_s3(bucket, prefix, options) if scheme == "s3" else open_cloud(scheme, bucket, prefix, options)


def split_address(address: str) -> tuple[str, str]:
    """Split an address in a bucket: `gs://bucket/a/b` into `gs://bucket` and `a/b`.

    Requires: the address begins with one of REMOTE.
    """
    scheme, _, rest = address.partition("://")
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}", name


def address_of(store: ObjectStore) -> "S3Address | CloudAddress | HdfsAddress | None":
    """Return the address of a store in a bucket or in HDFS; None for other stores."""
    hdfs = sys.modules.get("tussock.statestore.objectstore.hdfs")
    if hdfs is not None and isinstance(store, hdfs.HdfsObjectStore):
        place: HdfsAddress = store.address
        return place
    cloud = sys.modules.get("tussock.statestore.objectstore.clouds")
    if cloud is not None and isinstance(store, cloud.CloudObjectStore):
        address: CloudAddress = store.address
        return address
    return None if (bucket := as_s3(store)) is None else bucket.address


def as_s3(store: ObjectStore) -> "S3ObjectStore | None":
    """Return the store if it is an S3 bucket, else None. Never imports boto3: opening a bucket has done so already."""
    module = sys.modules.get("tussock.statestore.objectstore.s3")
    return store if module is not None and isinstance(store, module.S3ObjectStore) else None


def open_cloud(scheme: str, bucket: str, prefix: str, options: Mapping[str, str] | None) -> ObjectStore:
    """Open a bucket of Google's storage ("gs") or a container of Azure's ("az"), or the objects below `prefix`.

    Sends no request.

    Args:
        bucket, prefix: literal names; slashes at the ends of the prefix are ignored.
        options: those in CLOUD_OPTIONS.

    Raises: BadStoreError for an invalid option; BadObjectNameError for an invalid prefix; MissingExtraError.
    """
    with extras_named():
        from tussock.statestore.objectstore.clouds import CloudAddress, CloudObjectStore

    chosen = options or {}
    pattern = _ACCOUNT_ENDPOINT if scheme == "az" else _ENDPOINT
    endpoint = _checked_endpoint(chosen, f"{scheme}://{bucket}/{prefix}", pattern)
    kind: Literal["gs", "az"] = "gs" if scheme == "gs" else "az"
    return CloudObjectStore(
        CloudAddress(kind, bucket, _checked_prefix(prefix), chosen.get("account") or None, endpoint)
    )


def open_hdfs(authority: str, prefix: str, options: Mapping[str, str] | None) -> ObjectStore:
    """Open a folder of HDFS. Sends no request.

    Args:
        authority: host and port of the name node, or the name of a service, which needs an endpoint.
        prefix: a literal path; slashes at its ends are ignored.
        options: those in CLOUD_OPTIONS.

    Raises: BadStoreError for an invalid option; BadObjectNameError for an invalid prefix.
    """
    from tussock.statestore.objectstore.hdfs import HdfsAddress, HdfsObjectStore

    endpoint = _checked_endpoint(options or {}, f"hdfs://{authority}/{prefix}")
    return HdfsObjectStore(HdfsAddress(authority, _checked_prefix(prefix), endpoint))


def s3_options(query: str, shown: str) -> dict[str, str]:
    """Parse the query of an `s3://` URI. Raises BadStoreError about the URI `shown` if an option is unknown."""
    return _parse_options(query, S3_OPTIONS, shown)


def read_options(address: str, query: str) -> dict[str, str]:
    """Parse the query of an address in a bucket. Raises BadStoreError about `address` if an option is unknown."""
    return _parse_options(query, CLOUD_OPTIONS.get(address.partition(":")[0], S3_OPTIONS), address)


def _parse_options(query: str, known: Sequence[str], shown: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(known)):
        reason = f"unknown option {', '.join(unknown)}; the options are {', '.join(known)}. Write %3F for a ? in a name"
        raise BadStoreError(shown, reason)
    return options


def _checked_endpoint(options: Mapping[str, str], shown: str, pattern: re.Pattern[str] = _ENDPOINT) -> str | None:
    endpoint = options.get("endpoint") or None
    if endpoint is not None and pattern.fullmatch(endpoint) is None:
        raise BadStoreError(shown, "endpoint must be http://host:port or https://host:port, without user or password")
    return endpoint


def _checked_prefix(prefix: str) -> str:
    prefix = prefix.strip("/")
    return checked_name(prefix) if prefix else ""


def _open_s3(uri: str, shown: str) -> ObjectStore:
    parts = urlsplit(uri)
    if not parts.netloc or "@" in parts.netloc:
        raise BadStoreError(shown, "expected s3://bucket/prefix; the URI must not contain credentials")
    return open_s3(parts.netloc, unquote(parts.path), s3_options(parts.query, shown))


def _open_cloud(scheme: str, uri: str, shown: str) -> ObjectStore:
    parts = urlsplit(uri)
    if not parts.netloc or "@" in parts.netloc:
        raise BadStoreError(shown, f"expected {scheme}://name/prefix; the URI must not contain credentials")
    options = _parse_options(parts.query, CLOUD_OPTIONS[scheme], shown)
    if scheme == "hdfs":
        return open_hdfs(parts.netloc, unquote(parts.path), options)
    return open_cloud(scheme, parts.netloc, unquote(parts.path), options)
