"""A folder of HDFS, through WebHDFS: the HTTP interface of name nodes and data nodes, or of an HttpFS server.

    hdfs://namenode:8020/prefix?endpoint=http://namenode:9870      the default endpoint is port 9870 of the host

A write goes to a temporary file next to its name and gets the name by a rename, with or without replacing. A file that
`create(overwrite=false)` makes has its name before it has its bytes, so readers would see a part of it, and a writer
that dies would leave the name taken for ever. A killed writer leaves a file `.put-…`, which no listing shows.

The user is HADOOP_USER_NAME, or the user of the process, as in Hadoop's simple authentication.
"""

import getpass
import http.client
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadStoreError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStoreFullError,
    ObjectStoreUnavailableError,
    checked_name,
)
from tussock.statestore.objectstore.ranges import PARALLEL_REQUESTS, Read, fetch_ranges
from tussock.statestore.objectstore.requests import RequestCounter
from tussock.statestore.objectstore.settled import ATTEMPTS, WriteFailure, create_once

TIMEOUT_S = 30.0  # of each step of a request
_PORT = 9870  # of a name node's HTTP server
_TEMPORARY = ".put-"
_BACKOFF_S = 0.2
_DIRECTORY = "DIRECTORY"
_DENIED = ("AccessControlException", "SecurityException", "AuthenticationException", "AuthorizationException")
_FULL = ("DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeExceededException")
_TRANSIENT = ("StandbyException", "RetriableException", "SafeModeException")


@dataclass(frozen=True, slots=True)
class HdfsAddress:
    """The location of a store.

    `authority`: host and port of the name node as Hadoop's clients use them, or the name of a service.
    """

    authority: str
    prefix: str = ""  # without leading or trailing slash
    endpoint: str | None = None  # None: port 9870 of the host

    @property
    def web(self) -> str:
        """The address of WebHDFS."""
        return (self.endpoint or f"http://{self.authority.partition(':')[0]}:{_PORT}").rstrip("/")

    @property
    def root(self) -> str:
        """Scheme and name node."""
        return f"hdfs://{self.authority}"

    @property
    def folder(self) -> str:
        """The literal beginning of the addresses of its objects, without a slash at the end."""
        return f"{self.root}/{self.prefix}" if self.prefix else self.root

    @property
    def options(self) -> dict[str, str]:
        """The options that `open_bucket` needs to reach the server."""
        return {} if self.endpoint is None else {"endpoint": self.endpoint}

    @property
    def uri(self) -> str:
        """The canonical URI of this address; `open_object_store` accepts it."""
        query = f"?{urlencode(self.options, safe=':/')}" if self.options else ""
        return f"hdfs://{self.authority}" + (f"/{quote(self.prefix)}" if self.prefix else "") + query


class _Answer(NamedTuple):
    status: int
    location: str
    body: bytes


class _RefusedError(Exception):
    """An answer of WebHDFS that reports an error: its status, and Java's class of the exception, or an empty text."""

    @property
    def status(self) -> int:
        return int(self.args[0])

    @property
    def kind(self) -> str:
        return str(self.args[1])

    @property
    def is_transient(self) -> bool:
        return self.kind in _TRANSIENT or (self.status >= 500 and not self.kind)


class HdfsObjectStore:
    """Objects below `prefix` in HDFS. Thread-safe; other processes open the store by `uri` or unpickle it.

    Cost: a read is two requests, and a write three. `list` sends one request per folder, `delete` one per object.
    """

    def __init__(self, address: HdfsAddress) -> None:
        self._address = address
        self._root = f"/{address.prefix}/" if address.prefix else "/"
        self.uri = address.uri
        self.requests = RequestCounter()

    def __reduce__(self) -> tuple[type["HdfsObjectStore"], tuple[HdfsAddress]]:
        return HdfsObjectStore, (self._address,)

    @property
    def address(self) -> HdfsAddress:
        """The location of the store."""
        return self._address

    def get(self, name: str) -> bytes:
        path = self._full_path(name)
        with self._translate_errors("get", name):
            return self._read(path)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        path = self._full_path(name)
        with self._translate_errors("get_ranges", name):
            return fetch_ranges(self.uri, name, ranges, lambda read: self._read_range(path, read))

    def head(self, name: str) -> ObjectInfo:
        path = self._full_path(name)
        with self._translate_errors("head", name):
            return _object_info(name, self._fetch_file_status(path))

    def put(self, name: str, data: bytes) -> None:
        path = self._full_path(name)
        with self._translate_errors("put", name, len(data)):
            for attempt in range(ATTEMPTS):
                try:
                    self._write(path, data, "OVERWRITE")
                    return
                except (OSError, http.client.HTTPException, _RefusedError) as err:
                    if attempt == ATTEMPTS - 1 or _judge_failed_put(err) is not WriteFailure.UNKNOWN:
                        raise
                    time.sleep(_BACKOFF_S * 2**attempt)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._full_path(name)
        with self._translate_errors("put_if_absent", name, len(data)):
            return create_once(
                self.uri,
                name,
                lambda: self._write(path, data, "NONE"),
                lambda: self._object_equals(path, data),
                _judge_failed_put,
            )

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        if folder:
            checked_name(folder)
        with self._translate_errors("list", prefix):
            yield from self._walk(f"{folder}/" if folder else "", prefix, start_after)

    def delete(self, names: Iterable[str]) -> None:
        paths = [self._full_path(name) for name in names]
        if paths:
            with self._translate_errors("delete", paths[0]), ThreadPoolExecutor(PARALLEL_REQUESTS) as threads:
                list(threads.map(self._delete_path, paths))

    def _full_path(self, name: str) -> str:
        return self._root + checked_name(name)

    def _read(self, path: str, **span: int) -> bytes:
        self.requests.count_gets()
        data = self._ask("GET", path, "OPEN", **span).body
        self.requests.count_gets(len(data), requests=0)
        return data

    def _read_range(self, path: str, read: Read) -> bytes:
        """The bytes of one range: fewer than requested, or none, if the object ends early."""
        start, length = read.offset, read.length
        if start < 0:
            start = max(0, int(self._fetch_file_status(path)["length"]) + start)
        try:
            return self._read(path, offset=start, length=length)
        except _RefusedError as err:
            if err.kind == "FileNotFoundException" or start < int(self._fetch_file_status(path)["length"]):
                raise
            return b""  # the object ends before the range

    def _fetch_file_status(self, path: str) -> dict[str, Any]:
        """The facts of a file. Raises _RefusedError also for a folder, which is no object."""
        self.requests.count_gets()
        status: dict[str, Any] = json.loads(self._ask("GET", path, "GETFILESTATUS").body)["FileStatus"]
        if status["type"] == _DIRECTORY:
            raise _RefusedError(404, "FileNotFoundException")
        return status

    def _write(self, path: str, data: bytes, replacing: str) -> None:
        """Write a file with a temporary name, then rename it. `replacing`: OVERWRITE, or NONE to keep an existing file.

        Data nodes have all bytes when the file gets its name.
        """
        temporary = f"{path.rpartition('/')[0]}/{_TEMPORARY}{os.urandom(8).hex()}"
        self.requests.count_put(len(data))
        try:
            self._ask_once("PUT", temporary, "CREATE", data, overwrite="false")
            self._ask_once("PUT", temporary, "RENAME", destination=path, renameoptions=replacing)
        except BaseException:
            with suppress(OSError, http.client.HTTPException, _RefusedError):
                self._delete_path(temporary)
            raise

    def _object_equals(self, path: str, data: bytes) -> bool | None:
        """Whether the object equals `data`; None if it does not exist."""
        try:
            return self._read(path) == data
        except _RefusedError as err:
            if err.kind == "FileNotFoundException":
                return None
            raise

    def _delete_path(self, path: str) -> None:
        self.requests.count_delete()
        self._ask("DELETE", path, "DELETE", recursive="false")  # false if there is no such file

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """List a folder in the order of full names, in which folders end with a slash."""
        self.requests.count_listing()
        try:
            body = self._ask("GET", (self._root + folder).rstrip("/") or "/", "LISTSTATUS").body
        except _RefusedError as err:
            if err.kind == "FileNotFoundException":
                return
            raise
        entries = json.loads(body)["FileStatuses"]["FileStatus"]
        by_name = [(folder + one["pathSuffix"] + "/" * (one["type"] == _DIRECTORY), one) for one in entries]
        for name, status in sorted(by_name, key=lambda entry: entry[0].encode()):
            if name.endswith("/"):
                is_wanted = name.startswith(prefix) or prefix.startswith(name)
                if is_wanted and (start_after.startswith(name) or name.encode() > start_after.encode()):
                    yield from self._walk(name, prefix, start_after)
            elif status["pathSuffix"].startswith(_TEMPORARY) or not status["pathSuffix"]:
                continue  # of a writer, or the folder is a file
            elif name.startswith(prefix) and name.encode() > start_after.encode():
                yield _object_info(name, status)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, operation: str, **parameters: str | int) -> _Answer:
        """Send a request that may be repeated."""
        for attempt in range(ATTEMPTS):
            try:
                return self._ask_once(method, path, operation, None, **parameters)
            except (OSError, http.client.HTTPException, _RefusedError) as err:
                if attempt == ATTEMPTS - 1 or (isinstance(err, _RefusedError) and not err.is_transient):
                    raise
                time.sleep(_BACKOFF_S * 2**attempt)
        raise AssertionError(operation)

    def _ask_once(
        self, method: str, path: str, operation: str, data: bytes | None = None, **parameters: str | int
    ) -> _Answer:
        """Send a request to the name node, and then to the data node that it names. Raises _RefusedError."""
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        query = urlencode({"op": operation, "user.name": user, **parameters})
        answer = _send(method, f"{self._address.web}/webhdfs/v1{quote(path)}?{query}", None)
        if answer.status == http.client.TEMPORARY_REDIRECT:
            answer = _send(method, answer.location, data)
        if answer.status >= http.client.BAD_REQUEST:
            raise _RefusedError(answer.status, _kind_of(answer.body))
        return answer

    @contextmanager
    def _translate_errors(self, operation: str, name: str, size: int = 0) -> Iterator[None]:
        """Translate errors of WebHDFS and of connections into the errors of base.py."""
        try:
            yield
        except _RefusedError as err:
            raise self._error_of(err, operation, name, size) from err
        except (OSError, http.client.HTTPException) as err:
            refused = isinstance(err, (ConnectionRefusedError, socket.gaierror))
            reason = f"{self._address.web} refuses connections, or its host name is unknown" if refused else str(err)
            raise ObjectStoreUnavailableError(self.uri, f"{operation} {name!r}", reason) from err

    def _error_of(self, err: _RefusedError, operation: str, name: str, size: int) -> Exception:
        what, reason = f"{operation} {name!r}", err.kind or f"status {err.status}"
        if err.kind == "FileNotFoundException":
            return ObjectNotFoundError(self.uri, name)
        if err.kind in _DENIED or err.status == http.client.UNAUTHORIZED:
            return AccessDeniedError(self.uri, what, reason)
        if err.kind in _FULL:
            return ObjectStoreFullError(self.uri, what, size)
        if err.status == http.client.NOT_FOUND and not err.kind:
            return BadStoreError(self.uri, f"{what} returned 404: {self._address.web} does not serve WebHDFS")
        return ObjectStoreUnavailableError(self.uri, what, reason)


def _send(method: str, url: str, data: bytes | None) -> _Answer:
    """Send one request on a new connection."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    headers: Mapping[str, str] = {} if data is None else {"Content-Type": "application/octet-stream"}
    try:
        connection.request(method, f"{parts.path}?{parts.query}", data, headers)
        answer = connection.getresponse()
        return _Answer(answer.status, answer.headers.get("Location") or "", answer.read())
    finally:
        connection.close()


def _kind_of(body: bytes) -> str:
    """The class of Java's exception in an answer. A server's text is not shown, since it may repeat the request."""
    try:
        return str(json.loads(body)["RemoteException"]["exception"])
    except (ValueError, KeyError, TypeError):
        return ""


def _judge_failed_put(err: Exception) -> WriteFailure:
    if not isinstance(err, _RefusedError) or err.is_transient:
        return WriteFailure.UNKNOWN
    return WriteFailure.OTHER if err.kind == "FileAlreadyExistsException" else WriteFailure.REFUSED


def _object_info(name: str, status: Mapping[str, Any]) -> ObjectInfo:
    size, modified = int(status["length"]), int(status["modificationTime"])
    return ObjectInfo(name, size, f"{status['fileId']}-{size}-{modified}", modified)
