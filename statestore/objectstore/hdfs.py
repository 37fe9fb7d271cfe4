"""A folder of HDFS, through WebHDFS: the HTTP interface of name nodes and data nodes.

    hdfs://namenode:8020/prefix?endpoint=http://namenode:9870      the default endpoint is port 9870 of the host

A write goes to a temporary file next to its name and gets the name by a rename, with or without replacing. A file that
`create(overwrite=false)` makes has its name before it has its bytes, so readers would see a part of it, and a writer
that dies would leave the name taken for ever. A killed writer leaves a file `.put-…`, which no listing shows.
An HttpFS server ignores how a rename treats an existing file, so it serves reads only.

The user is HADOOP_USER_NAME, or the user of the process, as in Hadoop's simple authentication.
"""

import getpass
import http.client
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
)
from tussock.statestore.objectstore.ranges import PARALLEL_REQUESTS, ByteRange
from tussock.statestore.objectstore.server import ServerAddress, ServerObjectStore, checked_folder, send_repeatedly
from tussock.statestore.objectstore.settled import WriteFailure

TIMEOUT_S = 30.0  # of each step of a request
_PORT = 9870  # of a name node's HTTP server
_TEMPORARY = ".put-"
_BACKOFF_S = 0.2
_DIRECTORY = "DIRECTORY"
_DENIED = ("AccessControlException", "SecurityException", "AuthenticationException", "AuthorizationException")
_FULL = ("DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeExceededException")
_WITHOUT_OPTIONS = (
    "the server at {} ignores the options of a rename, as HttpFS does, so two writers could each believe that they had "
    "created a file. Name WebHDFS of the name node in ?endpoint=…; HttpFS serves sources only"
)
_TRANSIENT = ("StandbyException", "RetriableException", "SafeModeException")


@dataclass(frozen=True, slots=True)
class HdfsAddress(ServerAddress):
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
    def options(self) -> dict[str, str]:
        """The options that `open_bucket` needs to reach the server."""
        return {} if self.endpoint is None else {"endpoint": self.endpoint}


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


class HdfsObjectStore(ServerObjectStore[HdfsAddress]):
    """Objects below `prefix` in HDFS. Thread-safe; other processes open the store by `uri` or unpickle it.

    Cost: a read is two requests, and a write three. `list` sends one request per folder, `delete` one per object.
    """

    client_errors = (_RefusedError, OSError, http.client.HTTPException)

    def __init__(self, address: HdfsAddress) -> None:
        super().__init__(address, f"/{address.prefix}/" if address.prefix else "/")

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        folder = checked_folder(prefix)
        with self._translate_errors("list", prefix):
            yield from self._walk(folder, prefix, start_after)

    def delete(self, names: Iterable[str]) -> None:
        paths = [self._full_name(name) for name in names]
        if paths:
            with self._translate_errors("delete", paths[0]), ThreadPoolExecutor(PARALLEL_REQUESTS) as threads:
                list(threads.map(self._delete_path, paths))

    def _fetch_object(self, full: str) -> bytes:
        return self._read(full)

    def _read(self, path: str, **span: int) -> bytes:
        self.requests.count_gets()
        data = self._ask("GET", path, "OPEN", **span).body
        self.requests.count_gets(len(data), requests=0)
        return data

    def _fetch_range(self, full: str, read: ByteRange) -> bytes:
        start, length = read.offset, read.length
        if start < 0:
            start = max(0, int(self._fetch_file_status(full)["length"]) + start)
        try:
            return self._read(full, offset=start, length=length)
        except _RefusedError as err:
            if err.kind == "FileNotFoundException" or start < int(self._fetch_file_status(full)["length"]):
                raise
            return b""  # the object ends before the range

    def _fetch_info(self, name: str, full: str) -> ObjectInfo:
        return _object_info(name, self._fetch_file_status(full))

    def _fetch_file_status(self, path: str) -> dict[str, Any]:
        """The facts of a file. Raises _RefusedError also for a folder, which is no object."""
        self.requests.count_gets()
        status: dict[str, Any] = json.loads(self._ask("GET", path, "GETFILESTATUS").body)["FileStatus"]
        if status["type"] == _DIRECTORY:
            raise _RefusedError(404, "FileNotFoundException")
        return status

    def _replace_object(self, full: str, data: bytes) -> None:
        send_repeatedly(f"put {full}", lambda: self._write(full, data, "OVERWRITE"), self._may_pass, _BACKOFF_S)

    def _create_object(self, full: str, data: bytes) -> None:
        self._write(full, data, "NONE")

    def _write(self, path: str, data: bytes, replacing: str) -> None:
        """Write a file with a temporary name, then rename it. `replacing`: OVERWRITE, or NONE to keep an existing file.

        Data nodes have all bytes when the file gets its name.
        """
        temporary = f"{path.rpartition('/')[0]}/{_TEMPORARY}{os.urandom(8).hex()}"
        self.requests.count_put(len(data))
        try:
            self._ask_once("PUT", temporary, "CREATE", data, overwrite="false")
            renamed = self._ask_once("PUT", temporary, "RENAME", destination=path, renameoptions=replacing)
            if renamed.body:  # whether a rename without options happened
                raise BadStoreError(self.uri, _WITHOUT_OPTIONS.format(self._address.web))
        except BaseException:
            with suppress(OSError, http.client.HTTPException, _RefusedError):
                self._delete_path(temporary)
            raise

    def _delete_path(self, path: str) -> None:
        self.requests.count_delete()
        self._ask("DELETE", path, "DELETE", recursive="false")  # false if there is no such file

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """List a folder in the order of full names, in which folders end with a slash."""
        self.requests.count_listing()
        try:
            body = self._ask("GET", (self._prefix + folder).rstrip("/") or "/", "LISTSTATUS").body
        except _RefusedError as err:
            if err.kind == "FileNotFoundException":
                return
            raise
        entries = json.loads(body)["FileStatuses"]["FileStatus"]
        by_name = [(folder + one["pathSuffix"] + "/" * (one["type"] == _DIRECTORY), one) for one in entries]
        for name, status in sorted(by_name, key=lambda entry: entry[0].encode()):
            if not status["pathSuffix"]:  # the folder is a file
                return
            if name.endswith("/"):
                is_wanted = name.startswith(prefix) or prefix.startswith(name)
                if is_wanted and (start_after.startswith(name) or name.encode() > start_after.encode()):
                    yield from self._walk(name, prefix, start_after)
            elif status["pathSuffix"].startswith(_TEMPORARY):
                continue  # of a writer
            elif name.startswith(prefix) and name.encode() > start_after.encode():
                yield _object_info(name, status)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, operation: str, **parameters: str | int) -> _Answer:
        """Send a request that may be repeated."""

        def send() -> _Answer:
            return self._ask_once(method, path, operation, None, **parameters)

        return send_repeatedly(f"{operation} {path}", send, self._may_pass, _BACKOFF_S)

    def _may_pass(self, err: Exception) -> bool:
        return isinstance(err, self.client_errors) and self._judge_failed_write(err) is WriteFailure.UNKNOWN

    def _judge_failed_write(self, err: Exception) -> WriteFailure:
        if isinstance(err, BadStoreError):
            return WriteFailure.REFUSED
        if not isinstance(err, _RefusedError) or err.is_transient:
            return WriteFailure.UNKNOWN
        return WriteFailure.OTHER if err.kind == "FileAlreadyExistsException" else WriteFailure.REFUSED

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

    def _error_of(self, err: Exception, operation: str, name: str, size: int) -> Exception:
        what = f"{operation} {name!r}"
        if not isinstance(err, _RefusedError):
            refused = isinstance(err, (ConnectionRefusedError, socket.gaierror))
            reason = f"{self._address.web} refuses connections, or its host name is unknown" if refused else str(err)
            return ObjectStoreUnavailableError(self.uri, what, reason)
        reason = err.kind or f"status {err.status}"
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


def _object_info(name: str, status: Mapping[str, Any]) -> ObjectInfo:
    size, modified = int(status["length"]), int(status["modificationTime"])
    return ObjectInfo(name, size, f"{status['fileId']}-{size}-{modified}", modified)
