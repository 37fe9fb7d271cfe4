"""Opens an object store by its URI.

    /a/path, file:///a/path      a local directory
    s3://bucket/prefix?endpoint=http://host:port&path_style=true&region=eu-central-1      an S3 bucket; prefix and options may be left out

A URI never holds credentials: boto3's standard chain gives them.

An absolute path is a name: its characters mean themselves. In the two forms with a scheme, `%XX` stands for a character. Code that has
names (a bucket, a key) opens them with `open_s3` and never builds a URI of them, since a parser would take `%`, `?` and `#` apart.

Other schemes are opened by what the environment variable TUSSOCK_STORE_SCHEMES names, `scheme=module:function,…`: the function takes
the URI and returns an ObjectStore whose `uri` is such a one. Worker processes inherit the variable and have to find the module.
"""

import importlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlsplit

from tussock.statestore.extras import extras_named
from tussock.statestore.objectstore.base import BadStoreError, ObjectStore, checked_name
from tussock.statestore.objectstore.local import LocalObjectStore

if TYPE_CHECKING:
    from tussock.statestore.objectstore.s3 import S3ObjectStore

_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?/?")  # no user, no password, no query
_NOT_IN_URIS = re.compile(r"[#\t\r\n]")
SCHEMES_VARIABLE = "TUSSOCK_STORE_SCHEMES"
S3_OPTIONS = ("endpoint", "path_style", "region")


def open_object_store(uri: str) -> ObjectStore:
    """The store a URI names. Sends nothing: an endpoint that refuses shows at the first operation.

    Raises:
        BadStoreError: the URI has none of the forms above. What is shown of it holds no user, password or unknown option.
    """
    if uri.startswith("/"):
        return LocalObjectStore(Path(uri))
    if (dropped := _NOT_IN_URIS.search(uri)) is not None:  # urlsplit would open another store without a word
        raise BadStoreError(
            uri.partition("#")[0],
            f"{dropped[0]!r} has no meaning in a URI; as part of a name, write %{ord(dropped[0]):02X}",
        )
    parts = urlsplit(uri)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else uri
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise BadStoreError(shown, "a file URI needs an absolute path and no host, e.g. file:///data/store")
        if "?" in uri:
            raise BadStoreError(shown, "a file URI has no options; a ? that is part of a name is written %3F")
        return LocalObjectStore(Path(os.fsdecode(unquote_to_bytes(parts.path))))
    if parts.scheme in ("s3", "s3a"):
        return _open_s3(uri, shown)
    for entry in filter(None, os.environ.get(SCHEMES_VARIABLE, "").split(",")):
        scheme, _, opener = entry.partition("=")
        if scheme == parts.scheme:
            module, _, function = opener.partition(":")
            store: ObjectStore = getattr(importlib.import_module(module), function)(uri)
            return store
    raise BadStoreError(shown, "expected an absolute path, file:///a/path or s3://bucket/prefix")


def open_s3(bucket: str, prefix: str = "", options: Mapping[str, str] | None = None) -> ObjectStore:
    """The store of a bucket's objects below `prefix`. Sends nothing.

    Args:
        bucket, prefix: names, taken as they are; slashes around the prefix do not count.
        options: S3_OPTIONS. If there is an endpoint, the path style is the default.

    Raises: BadStoreError for an option's value; BadObjectNameError for a prefix that no object can have; MissingExtraError.
    """
    with extras_named():  # here, because importing boto3 takes 0.3 s that local stores can save
        from tussock.statestore.objectstore.s3 import S3Address, S3ObjectStore

    given, shown = options or {}, f"s3://{bucket}/{prefix}"
    endpoint = given.get("endpoint") or None
    if endpoint is not None and _ENDPOINT.fullmatch(endpoint) is None:
        raise BadStoreError(shown, "endpoint has to be http://host:port or https://host:port, without user or password")
    path_style = given.get("path_style", "true" if endpoint else "false")
    if path_style not in ("true", "false"):
        raise BadStoreError(shown, f"path_style is {path_style!r}, expected true or false")
    prefix = prefix.strip("/")
    if prefix:
        checked_name(prefix)
    return S3ObjectStore(S3Address(bucket, prefix, endpoint, path_style == "true", given.get("region") or None))


def as_s3(store: ObjectStore) -> "S3ObjectStore | None":
    """The store if it is a bucket's. Imports nothing: whoever opened a bucket has imported its module."""
    module = sys.modules.get("tussock.statestore.objectstore.s3")
    return store if module is not None and isinstance(store, module.S3ObjectStore) else None


def s3_options(query: str, shown: str) -> dict[str, str]:
    """The options in the query of an `s3://` URI. `shown`: the URI for an error. Raises BadStoreError for one that is unknown."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(S3_OPTIONS)):
        reason = f"unknown option {', '.join(unknown)}; known are {', '.join(S3_OPTIONS)}. A ? that is part of a name is written %3F"
        raise BadStoreError(shown, reason)
    return options


def _open_s3(uri: str, shown: str) -> ObjectStore:
    parts = urlsplit(uri)
    if not parts.netloc or "@" in parts.netloc:
        raise BadStoreError(shown, "expected s3://bucket/prefix; credentials do not belong into the URI")
    return open_s3(parts.netloc, unquote(parts.path), s3_options(parts.query, shown))
