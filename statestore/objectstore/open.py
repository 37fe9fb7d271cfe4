"""Opens an object store by its URI.

    /a/path, file:///a/path      a local directory
    s3://bucket/prefix?endpoint=http://host:port&path_style=true&region=eu-central-1      an S3 bucket; prefix and options may be left out

A URI never holds credentials: boto3's standard chain gives them.

Other schemes are opened by what the environment variable TUSSOCK_STORE_SCHEMES names, `scheme=module:function,…`: the function takes
the URI and returns an ObjectStore whose `uri` is such a one. Worker processes inherit the variable and have to find the module.
"""

import importlib
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from statestore.objectstore.base import BadStoreError, ObjectStore, checked_name
from statestore.objectstore.local import LocalObjectStore

_ENDPOINT = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?/?")  # no user, no password, no query
SCHEMES_VARIABLE = "TUSSOCK_STORE_SCHEMES"
_S3_OPTIONS = ("endpoint", "path_style", "region")


def open_object_store(uri: str) -> ObjectStore:
    """The store a URI names. Sends nothing: an endpoint that refuses shows at the first operation.

    Raises:
        BadStoreError: the URI has none of the forms above. What is shown of it holds no user, password or unknown option.
    """
    if uri.startswith("/"):
        return LocalObjectStore(Path(uri))
    parts = urlsplit(uri)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else uri
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise BadStoreError(shown, "a file URI needs an absolute path and no host, e.g. file:///data/store")
        return LocalObjectStore(Path(unquote(parts.path)))
    if parts.scheme in ("s3", "s3a"):
        return _open_s3(uri, shown)
    for entry in filter(None, os.environ.get(SCHEMES_VARIABLE, "").split(",")):
        scheme, _, opener = entry.partition("=")
        if scheme == parts.scheme:
            module, _, function = opener.partition(":")
            store: ObjectStore = getattr(importlib.import_module(module), function)(uri)
            return store
    raise BadStoreError(shown, "expected an absolute path, file:///a/path or s3://bucket/prefix")


def _open_s3(uri: str, shown: str) -> ObjectStore:
    from statestore.objectstore.s3 import S3Address, S3ObjectStore  # here, because importing boto3 takes 0.3 s that local stores can save

    parts = urlsplit(uri)
    if not parts.netloc or "@" in parts.netloc:
        raise BadStoreError(shown, "expected s3://bucket/prefix; credentials do not belong into the URI")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - set(_S3_OPTIONS)):
        raise BadStoreError(shown, f"unknown option {', '.join(unknown)}; known are {', '.join(_S3_OPTIONS)}")
    endpoint = options.get("endpoint") or None
    if endpoint is not None and _ENDPOINT.fullmatch(endpoint) is None:
        raise BadStoreError(shown, "endpoint has to be http://host:port or https://host:port, without user or password")
    path_style = options.get("path_style", "true" if endpoint else "false")
    if path_style not in ("true", "false"):
        raise BadStoreError(shown, f"path_style is {path_style!r}, expected true or false")
    prefix = unquote(parts.path).strip("/")
    if prefix:
        checked_name(prefix)
    return S3ObjectStore(S3Address(parts.netloc, prefix, endpoint, path_style == "true", options.get("region") or None))
