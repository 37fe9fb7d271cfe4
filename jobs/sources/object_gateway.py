"""Let Spark read objects in S3 without Hadoop's module for S3: the driver serves them over HTTP.

Spark's readers open files through Hadoop's file systems. The one for S3 (hadoop-aws, with Amazon's SDK) is not among
Spark's jars. The one for WebHDFS is, and needs only HTTP. So the driver answers the requests of its client:

    GET /webhdfs/v1/<ticket>/data.csv?op=GETFILESTATUS       size and time, as JSON
                                      op=LISTSTATUS          the same, as a list of one file
                                      op=GETFILEBLOCKLOCATIONS   no host is closer than another
                                      op=OPEN                a redirect to this address with `data=true`
                                      op=OPEN&data=true&offset=n   the bytes from n on

A ticket contains the place of one object, and a signature with a secret of this process. So the server serves only
objects that the driver named. Executors get no credentials: the driver reads S3 with those of the store. Nothing is
copied to a disk. Cost: all bytes pass through the driver, 8 MB at a time per reader.
"""

import json
import os
import threading
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tussock.jobs.sources.errors import NeedsHadoopAwsError
from tussock.jobs.sources.object_ticket import SCHEME, Ticket, suffix_of
from tussock.jobs.spark.session import ENCRYPTION, driver_address
from tussock.statestore.errors import TussockError
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import as_s3, open_s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HADOOP_AWS = "org.apache.hadoop:hadoop-aws"
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_ROOT = "/webhdfs/v1/"
_BLOCK_BYTES = 8 << 20


def gateway_of(spark: "SparkSession") -> "ObjectGateway | None":
    """Return this process's gateway; None if Spark has Hadoop's module for S3 and reads the objects itself.

    Raises NeedsHadoopAwsError. Cost: one call of the JVM.
    """
    jvm: Any = spark._jvm
    if jvm.org.apache.spark.util.Utils.classIsLoadable(_S3A):
        return None
    context = spark.sparkContext
    bind, host = driver_address(context)
    conf = context.getConf()
    on = next((name for name in ENCRYPTION if conf.get(name, "false") == "true"), None)
    if on is not None and host != "127.0.0.1":
        hadoop = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        raise NeedsHadoopAwsError(f"{on} is on", f"{_HADOOP_AWS}:{hadoop}")
    return _gateway(os.getpid(), bind, host)


class ObjectGateway:
    """A server of objects in S3 for Spark. It ends with its process. Thread-safe.

    Args:
        bind: the address to listen on.
        host: the name under which executors reach it.
    """

    def __init__(self, bind: str, host: str) -> None:
        self._secret = os.urandom(32)
        self._server = ThreadingHTTPServer((bind, 0), _handler_of(self._secret))
        self._server.daemon_threads = True
        self._address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="object gateway", daemon=True).start()

    def url(self, store: ObjectStore, name: str) -> str:
        """Return the address under which Spark reads an object in S3. It keeps the suffix, which Hadoop interprets."""
        s3 = as_s3(store)
        assert s3 is not None, "only objects in S3 are served"
        at = s3.address
        given = {"endpoint": at.endpoint, "path_style": str(at.path_style).lower(), "region": at.region}
        options = {option: value for option, value in given.items() if value}
        ticket = Ticket(at.bucket, at.prefix, options, name)
        return f"{SCHEME}://{self._address}/{ticket.signed(self._secret)}/data{suffix_of(name)}"


@lru_cache(maxsize=8)
def _gateway(process: int, bind: str, host: str) -> ObjectGateway:
    """Start the gateway of a process. A forked child is another process, and does not use that of its parent."""
    return ObjectGateway(bind, host)


def _handler_of(secret: bytes) -> type[BaseHTTPRequestHandler]:
    """Return the class whose objects answer the requests of a gateway with this secret."""

    class Handler(_Answering):
        key = secret

    return Handler


class _Answering(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    key: ClassVar[bytes]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request. An error after the first byte closes the connection, so the reader sees it."""
        asked = urlsplit(self.path)
        given = {name.lower(): values[-1] for name, values in parse_qs(asked.query).items()}
        try:
            store, name = self._object(asked.path)
            size, modified = _state(store, name)
        except PermissionError:
            self._refuse(403, "AccessControlException", "this address is not one of the driver's")
            return
        except ObjectNotFoundError as err:
            self._refuse(404, "FileNotFoundException", str(err))
            return
        except TussockError as err:
            self._refuse(500, "IOException", str(err))
            return
        match given.get("op", "").upper():
            case "GETFILESTATUS":
                self._say({"FileStatus": _status(size, modified)})
            case "LISTSTATUS":
                self._say({"FileStatuses": {"FileStatus": [_status(size, modified)]}})
            case "GETFILEBLOCKLOCATIONS":
                self._say({"BlockLocations": {"BlockLocation": []}})
            case "OPEN" if "data" not in given:
                host = self.headers.get("Host", "")
                self._begin(307, 0, ("Location", f"http://{host}{self.path}&data=true"))
            case "OPEN":
                self._send(store, name, int(given.get("offset", "0")), size)
            case other:
                self._refuse(400, "UnsupportedOperationException", f"operation {other} is not supported")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def _object(self, path: str) -> tuple[ObjectStore, str]:
        """Return the object of a ticket. Raises PermissionError for an invalid one."""
        if not path.startswith(_ROOT):
            raise PermissionError
        ticket = Ticket.opened(path.removeprefix(_ROOT).partition("/")[0], self.key)
        return open_s3(ticket.bucket, ticket.prefix, ticket.options), ticket.name

    def _send(self, store: ObjectStore, name: str, start: int, size: int) -> None:
        self._begin(200, max(0, size - start))
        try:
            for at in range(start, size, _BLOCK_BYTES):
                self.wfile.write(store.get_ranges(name, [(at, min(_BLOCK_BYTES, size - at))])[0])
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


def _state(store: ObjectStore, name: str) -> tuple[int, int]:
    """Return the size of an object, and the time of its last write in Unix ms."""
    info = store.head(name)
    return info.size, info.modified_ms


def _status(size: int, modified_ms: int) -> dict[str, object]:
    """Return an object's state as WebHDFS describes a file."""
    numbers = {"accessTime": modified_ms, "modificationTime": modified_ms, "blockSize": max(size, 1), "length": size}
    text = {"group": "", "owner": "", "pathSuffix": "", "permission": "444", "type": "FILE"}
    return {**numbers, **text, "childrenNum": 0, "fileId": 0, "replication": 1, "storagePolicy": 0}
