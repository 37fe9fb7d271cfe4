"""Let Spark read objects without Hadoop's module for their server: the driver serves them over HTTP.

Spark's readers open files through Hadoop's file systems. The one for S3 (hadoop-aws, with Amazon's SDK) is not among
Spark's jars. The one for WebHDFS is, and needs only HTTP. So the driver answers the requests of its client:

    GET /webhdfs/v1/<ticket>/data.csv?op=GETFILESTATUS       size, time and ETag, as JSON
                                      op=LISTSTATUS          the same, as a list of one file
                                      op=GETFILEBLOCKLOCATIONS   no host is closer than another
                                      op=OPEN                a redirect to this address with `data=true`
                                      op=OPEN&data=true&offset=n&length=m   the bytes from n on, at most m

A ticket contains the place and the ETag of one object, and a signature with a secret of this process. So the server
serves only objects that the driver named, with the content that it named, for a day. Executors need no credentials for
them: the driver reads S3 with its own, and the checks in tasks ask the driver too (served_object.py). Nothing is copied
to a disk. Cost: all bytes pass through the driver, 8 MB at a time per reader.
"""

import io
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import parse_qs, urlsplit
from weakref import WeakKeyDictionary

from tussock.jobs.outside.deadline import Deadline
from tussock.jobs.settings.object_ticket import SCHEME, VALID_S, Ticket, suffix_of
from tussock.jobs.sources.errors import NeedsHadoopAwsError
from tussock.jobs.spark.encryption import why_encrypted
from tussock.jobs.spark.session import driver_address
from tussock.statestore.errors import TussockError
from tussock.statestore.forks import new_lock, renew_in_child
from tussock.statestore.objectstore.base import ObjectInfo, ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import address_of, open_bucket

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_HADOOP_AWS = "org.apache.hadoop:hadoop-aws"
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_ROOT = "/webhdfs/v1/"
_BLOCK_BYTES = 8 << 20
_IDLE_S = 60.0  # for the next request of a connection, all of its head
_STRANGERS = 256  # connections without a valid ticket; for one more, the one that came first has to go
_STALLED_S = 60 * 60  # one whose reader takes nothing ends; a task may compute between two reads

_lock = new_lock()
_decided: "WeakKeyDictionary[SparkContext, dict[bool, ObjectGateway | None]]" = WeakKeyDictionary()
renew_in_child(_decided.clear)  # the threads of its servers are the parent's


def gateway_of(spark: "SparkSession", scheme: str) -> "ObjectGateway | None":
    """Return the gateway of a Spark application; None if it has Hadoop's module for S3 and reads the objects itself.

    Args:
        scheme: of the objects. Those of Google's and Azure's storage are always served, since Hadoop's modules would
            need credentials in Spark's settings.

    Raises NeedsHadoopAwsError. Cost: a few calls of the JVM, once per application.
    """
    context = spark.sparkContext
    with _lock:
        decided = _decided.setdefault(context, {})
        if (in_s3 := scheme == "s3") not in decided:
            decided[in_s3] = _gateway_for(spark, in_s3)
        return decided[in_s3]


def _gateway_for(spark: "SparkSession", in_s3: bool) -> "ObjectGateway | None":
    jvm: Any = spark._jvm
    if in_s3 and jvm.org.apache.spark.util.Utils.classIsLoadable(_S3A):
        return None
    context = spark.sparkContext
    bind, host = driver_address(context)
    on = why_encrypted(context.getConf())
    if on is not None and host != "127.0.0.1":
        hadoop = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        raise NeedsHadoopAwsError(f"{on} is on", f"{_HADOOP_AWS}:{hadoop}")
    return ObjectGateway(bind, host)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # the tasks of a stage connect at once

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._strangers: dict[socket.socket, None] = {}  # in the order in which they came

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin to serve a connection in a thread."""
        self._strangers[request] = None
        for first in list(self._strangers)[:-_STRANGERS]:
            with suppress(OSError):
                first.shutdown(socket.SHUT_RDWR)  # its thread ends
        super().process_request(request, client_address)

    def know(self, connection: socket.socket) -> None:
        """Note that a connection has shown a valid ticket, or has ended."""
        self._strangers.pop(connection, None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self.know(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error of this server. A connection that ended early is none: strangers could fill the log."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Heads(io.RawIOBase):
    """The requests of a connection. The deadline is counted once for a whole head, however slowly its bytes come."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.deadline = connection, Deadline(_IDLE_S)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, room: Any) -> int:
        """Receive some bytes. Raises TimeoutError after the deadline."""
        if not (left_s := self.deadline.left_s):
            raise TimeoutError
        self._connection.settimeout(left_s)
        read = self._connection.recv_into(room)
        self._connection.settimeout(_IDLE_S)
        return read


class ObjectGateway:
    """A server of objects in buckets for Spark. It ends with its process. Thread-safe.

    Args:
        bind: the address to listen on.
        host: the name under which executors reach it.
    """

    def __init__(self, bind: str, host: str) -> None:
        self._secret = os.urandom(32)
        self._server = _Listener((bind, 0), _handler_of(self._secret))
        self._address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="object gateway", daemon=True).start()

    def url(self, store: ObjectStore, name: str, size: int = -1, etag: str = "") -> str:
        """Return the address under which Spark reads an object. It keeps the suffix, which Hadoop interprets.

        Args:
            size, etag: of the content to read; other content is refused. -1 and empty: unknown.
        """
        at = address_of(store)
        assert at is not None, "only objects in buckets are served"
        ticket = Ticket(at.root, at.prefix, at.options, name, size, etag, int(time.time()) + VALID_S)
        return f"{SCHEME}://{self._address}/{ticket.sign(self._secret)}/data{suffix_of(name)}"


def _handler_of(secret: bytes) -> type[BaseHTTPRequestHandler]:
    """Return the class whose objects answer the requests of a gateway with this secret."""

    class Handler(_Answering):
        key = secret

    return Handler


class _Answering(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    key: ClassVar[bytes]
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def setup(self) -> None:
        """Prepare to read requests, each within its deadline."""
        super().setup()
        self._heads = _Heads(self.connection)
        self.rfile = io.BufferedReader(self._heads)

    def handle_one_request(self) -> None:
        """Wait for a request and answer it."""
        self._heads.deadline.renew()
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer one request. An error after the first byte closes the connection, so the reader sees it."""
        try:
            asked = urlsplit(self.path)
        except ValueError as err:  # no address
            self._refuse(403, "AccessControlException", str(err))
            return
        parameters = {name.lower(): values[-1] for name, values in parse_qs(asked.query).items()}
        try:
            ticket = self._ticket(asked.path)
            cast("_Listener", self.server).know(self.connection)
            store = open_bucket(ticket.bucket, ticket.prefix, ticket.options)
            now = store.head(ticket.name)
        except PermissionError as err:
            self._refuse(403, "AccessControlException", str(err))
            return
        except ObjectNotFoundError as err:
            self._refuse(404, "FileNotFoundException", str(err))
            return
        except TussockError as err:
            self._refuse(500, "IOException", str(err))
            return
        match parameters.get("op", "").upper():
            case "GETFILESTATUS":
                self._say({"FileStatus": _status_document(now)})
            case "LISTSTATUS":
                self._say({"FileStatuses": {"FileStatus": [_status_document(now)]}})
            case "GETFILEBLOCKLOCATIONS":
                self._say({"BlockLocations": {"BlockLocation": []}})
            case "OPEN" if not all(parameters.get(name, "0").isdecimal() for name in ("offset", "length")):
                self._refuse(400, "IOException", "offset and length must be numbers of bytes")
            case "OPEN" if not ticket.matches_object(now.size, now.etag):
                self._refuse(409, "IOException", f"{ticket.address} has changed since the driver named it")
            case "OPEN" if "data" not in parameters:
                host = self.headers.get("Host", "")
                self._begin(307, 0, ("Location", f"http://{host}{self.path}&data=true"))
            case "OPEN":
                start, most = int(parameters.get("offset", "0")), int(parameters.get("length", now.size))
                self._send(store, ticket.name, start, min(now.size, start + most))
            case other:
                self._refuse(400, "UnsupportedOperationException", f"operation {other} is not supported")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def _ticket(self, path: str) -> Ticket:
        """Return the ticket of an address. Raises PermissionError for an invalid one."""
        return Ticket.verify_text(path.removeprefix(_ROOT).partition("/")[0], self.key)

    def _send(self, store: ObjectStore, name: str, start: int, end: int) -> None:
        self._begin(200, max(0, end - start))
        try:
            self.connection.settimeout(_STALLED_S)
            for at in range(start, end, _BLOCK_BYTES):
                self.wfile.write(store.get_ranges(name, [(at, min(_BLOCK_BYTES, end - at))])[0])
            self.connection.settimeout(_IDLE_S)
        except (TussockError, OSError):  # the latter: the reader has enough
            self.close_connection = True

    def _say(self, answer: object, status: int = 200) -> None:
        body = json.dumps(answer).encode()
        self._begin(status, len(body))  # without a type: to parse one, the client needs a class that its jar lacks
        self.wfile.write(body)

    def _refuse(self, status: int, kind: str, reason: str) -> None:
        package = "java.io" if kind != "AccessControlException" else "org.apache.hadoop.security"
        error = {"exception": kind, "javaClassName": f"{package}.{kind}", "message": reason}
        self._say({"RemoteException": error}, status)

    def _begin(self, status: int, length: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(length))):
            self.send_header(name, value)
        self.end_headers()


def _status_document(now: ObjectInfo) -> dict[str, object]:
    """Return an object's state as WebHDFS describes a file, and its ETag."""
    times = {"accessTime": now.modified_ms, "modificationTime": now.modified_ms}
    numbers = {**times, "blockSize": max(now.size, 1), "length": now.size}
    text = {"etag": now.etag, "group": "", "owner": "", "pathSuffix": "", "permission": "444", "type": "FILE"}
    return {**numbers, **text, "childrenNum": 0, "fileId": 0, "replication": 1, "storagePolicy": 0}
