"""An S3 bucket, or a prefix of one, as an object store; any server that speaks S3 with conditional PUTs will do.

Commits rest on `If-None-Match: *`. The answer to such a PUT may be lost, and the client may then repeat it by itself and meet its own
object; so every answer but a plain yes is settled by reading the object back.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    ResponseStreamingError,
    TokenRetrievalError,
)

from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadStoreError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStoreFullError,
    ObjectStoreUnavailableError,
    ShortReadError,
    checked_name,
)
from tussock.statestore.objectstore.ranges import Read, plan_reads, slice_of
from tussock.statestore.objectstore.requests import NAMES_A_REQUEST, RequestCounter

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef

PARALLEL_REQUESTS = 16  # of one process; the connection pool has as many, so that none is opened and thrown away
CONNECT_TIMEOUT_S = (
    2  # an endpoint that does not answer at all is reported after ATTEMPTS of these and the backoff, some 10 s
)
READ_TIMEOUT_S = 30  # between two packets, not for the whole answer
ATTEMPTS = 4  # of each request, with botocore's exponential backoff between them
SETTLE_BACKOFF_S = 0.05  # doubles; between the attempts to find out what became of a conditional PUT

_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    ProfileNotFound,
)
_ABSENT_CODES = ("NoSuchKey", "404", "NotFound")
_OTHER_NOW_CODES = ("NoSuchVersion", "PreconditionFailed", "412")  # what was to be copied
_DENIED_CODES = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "401",
    "403",
)
_MOVED_CODES = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301")
_FULL_CODES = ("XMinioStorageFull", "QuotaExceeded", "507", "InsufficientStorage")


@dataclass(frozen=True, slots=True)
class S3Address:
    """Where a store is, without credentials."""

    bucket: str
    prefix: str = ""  # without slashes at its ends
    endpoint: str | None = None  # None: AWS
    path_style: bool = False
    region: str | None = None  # None: as boto3's chain says

    @property
    def uri(self) -> str:
        """The one spelling of this address that `open_object_store` takes back."""
        plain_aws = self.endpoint is None and not self.path_style  # the style goes without saying
        options = {
            "endpoint": self.endpoint,
            "path_style": None if plain_aws else str(self.path_style).lower(),
            "region": self.region,
        }
        query = urlencode({k: v for k, v in options.items() if v is not None}, safe=":/")
        return (
            f"s3://{self.bucket}" + (f"/{quote(self.prefix)}" if self.prefix else "") + (f"?{query}" if query else "")
        )


class S3ObjectStore:
    """Objects under `prefix` of a bucket. Safe for many threads; other processes open it again by its `uri` (as pickle does).

    Cost: one request an operation; `get_ranges` one per group of neighbours, in parallel; `list` and `delete` one per 1,000 objects.
    """

    def __init__(self, address: S3Address) -> None:
        self._address = address
        self._prefix = address.prefix + "/" if address.prefix else ""
        self.uri = address.uri
        self.requests = RequestCounter()

    def __reduce__(self) -> tuple[type["S3ObjectStore"], tuple[S3Address]]:
        return S3ObjectStore, (self._address,)

    @property
    def address(self) -> S3Address:
        """Where it is."""
        return self._address

    def get(self, name: str) -> bytes:
        key = self._key(name)
        with self._translated("get", name):
            return self._fetch(key)[1]

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        key = self._key(name)
        reads = plan_reads(ranges)
        with self._translated("get_ranges", name):
            if len(reads) > 1:
                bodies = list(_threads_of(os.getpid()).map(lambda read: self._read(key, read), reads))
            else:
                bodies = [self._read(key, read) for read in reads]
        found = [b""] * len(ranges)
        for read, data in zip(reads, bodies, strict=True):
            for i in read.parts:
                offset, length = ranges[i]
                found[i] = slice_of(read, data, offset, length)
                if len(found[i]) < length:
                    raise ShortReadError(self.uri, name, offset, length, len(found[i]))
        return found

    def head(self, name: str) -> ObjectInfo:
        key = self._key(name)
        with self._translated("head", name):
            self.requests.got()
            answer = self._client.head_object(Bucket=self._address.bucket, Key=key)
            return ObjectInfo(
                name, answer["ContentLength"], answer["ETag"].strip('"'), _unix_ms(answer["LastModified"])
            )

    def put(self, name: str, data: bytes) -> None:
        key = self._key(name)
        with self._translated("put", name, len(data)):
            self.requests.put(len(data))
            self._client.put_object(Bucket=self._address.bucket, Key=key, Body=data)

    def put_file(self, name: str, file: Path) -> None:
        """Write a whole object of a file's bytes, in parts where it is large; it appears when all of them are there, or not at all."""
        key = self._key(name)
        with self._translated("put_file", name, size := file.stat().st_size), file.open("rb") as content:
            self.requests.put(size)
            self._client.upload_fileobj(content, self._address.bucket, key)

    def version_of(self, name: str) -> tuple[ObjectInfo, str]:
        """Size and ETag, and the version id where the bucket keeps versions; else empty. Raises ObjectNotFoundError."""
        key = self._key(name)
        with self._translated("head", name):
            self.requests.got()
            answer = self._client.head_object(Bucket=self._address.bucket, Key=key)
            version = answer.get("VersionId", "null")
            return ObjectInfo(
                name, answer["ContentLength"], answer["ETag"].strip('"')
            ), "" if version == "null" else version

    def is_beside(self, other: "S3ObjectStore") -> bool:
        """Whether one server has both, so that it can copy from one to the other."""
        here, there = self._address, other.address
        return (here.endpoint, here.region) == (there.endpoint, there.region)

    def copy_from(self, source: "S3ObjectStore", of: str, name: str, etag: str, version: str = "") -> None:
        """Write an object of another one's bytes, of the version given, else as long as it has this ETag: the server copies, in parts
        where it is large. Raises ObjectNotFoundError where it is gone or has another ETag."""
        there: CopySourceTypeDef = {"Bucket": source.address.bucket, "Key": source._key(of)}
        if version:
            there["VersionId"] = version
        condition = {} if version else {"CopySourceIfMatch": f'"{etag}"'}
        key = self._key(name)
        with source._translated("copy", of):
            self.requests.got()  # it asks for the size first
            self.requests.put(0)  # no byte comes here
            self._client.copy(there, self._address.bucket, key, ExtraArgs=condition)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        key = self._key(name)
        with self._translated("put_if_absent", name, len(data)):
            for attempt in range(ATTEMPTS):
                self.requests.put(len(data))
                try:
                    self._client.put_object(Bucket=self._address.bucket, Key=key, Body=data, IfNoneMatch="*")
                    return True
                except (ClientError, BotoCoreError) as err:
                    if _is_refused(err) or (attempt == ATTEMPTS - 1 and not _is_settled_by_reading(err)):
                        raise
                    if (won := self._holds(key, data)) is not None:
                        return won
                    # Not there: the PUT did not happen, or a competitor's is under way (409). The next one is the same bytes on the same
                    # condition, so it cannot undo anything, even if the lost one arrives after it.
                    log.warning(
                        "put_if_absent %s: attempt %d did not create the object (%s), trying again",
                        name,
                        attempt + 1,
                        err,
                    )
                    time.sleep(SETTLE_BACKOFF_S * 2**attempt)
        raise ObjectStoreUnavailableError(
            self.uri, f"put_if_absent {name!r}", f"{ATTEMPTS} attempts did not create the object nor find it"
        )

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        if folder:
            checked_name(folder)
        with self._translated("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._address.bucket,
                Prefix=self._prefix + prefix,
                StartAfter=self._prefix + start_after if start_after else "",
            )
            for page in pages:
                self.requests.listed()
                for found in page.get("Contents", ()):
                    name = found["Key"][len(self._prefix) :]
                    if not name.endswith("/"):
                        yield ObjectInfo(name, found["Size"], found["ETag"].strip('"'), _unix_ms(found["LastModified"]))

    def delete(self, names: Iterable[str]) -> None:
        keys = (self._key(name) for name in names)
        while batch := list(islice(keys, NAMES_A_REQUEST)):
            with self._translated("delete", batch[0]):
                self.requests.deleted()
                answer = self._client.delete_objects(
                    Bucket=self._address.bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            if failed := [e for e in answer.get("Errors", ()) if e.get("Code") not in _ABSENT_CODES]:
                first = failed[0]
                code = first.get("Code", "no code")
                operation = f"delete {first.get('Key', '')!r} (and {len(failed) - 1} more)"
                raise (AccessDeniedError if code in _DENIED_CODES else ObjectStoreUnavailableError)(
                    self.uri, operation, code
                )

    @property
    def _client(self) -> "S3Client":
        return _client_of(self._address.endpoint, self._address.region, self._address.path_style, os.getpid())

    def _key(self, name: str) -> str:
        return self._prefix + checked_name(name)

    def _read(self, key: str, read: Read) -> bytes:
        """What one range request returns: less than asked, or nothing, where the object ends before."""
        header = f"bytes={read.offset}-{read.offset + read.length - 1}" if read.offset >= 0 else f"bytes={read.offset}"
        try:
            status, data = self._fetch(key, header)
        except ClientError as err:
            if _code(err) in ("InvalidRange", "416"):
                return b""
            raise
        if status == 206:
            return data
        # A server that does not know ranges sent everything.
        return data[read.offset :] if read.offset < 0 else data[read.offset : read.offset + read.length]

    def _fetch(self, key: str, byte_range: str = "") -> tuple[int, bytes]:
        """Status and body of a GET. botocore repeats what fails before the body; a connection that breaks inside it is repeated here."""
        for attempt in range(ATTEMPTS):
            self.requests.got()
            if byte_range:
                answer = self._client.get_object(Bucket=self._address.bucket, Key=key, Range=byte_range)
            else:
                answer = self._client.get_object(Bucket=self._address.bucket, Key=key)
            try:
                data = answer["Body"].read()
                self.requests.got(len(data), requests=0)
                return answer["ResponseMetadata"]["HTTPStatusCode"], data
            except (IncompleteReadError, ResponseStreamingError, ReadTimeoutError) as err:
                if attempt == ATTEMPTS - 1:
                    raise
                log.warning("get %s: attempt %d broke off (%s), trying again", key, attempt + 1, err)
        raise AssertionError("the last attempt returns or raises")

    def _holds(self, key: str, data: bytes) -> bool | None:
        """Whether the object is `data`; None: there is no object."""
        try:
            return self._fetch(key)[1] == data
        except ClientError as err:
            if _code(err) in _ABSENT_CODES:
                return None
            raise

    @contextmanager
    def _translated(self, operation: str, name: str, size: int = 0) -> Iterator[None]:
        """Turns what boto3 raises into the errors of base.py. Only codes are shown: a server's text may repeat the request's headers."""
        try:
            yield
        except ClientError as err:
            raise self._error_of(err, operation, name, size) from err
        except _NO_CREDENTIALS as err:
            raise AccessDeniedError(
                self.uri, f"{operation} {name!r}", f"no credentials were found ({type(err).__name__})"
            ) from err
        except ParamValidationError as err:
            raise BadStoreError(
                self.uri, f"{operation} {name!r} is no request that S3 takes; is this a bucket's name?"
            ) from err
        except BotoCoreError as err:
            raise ObjectStoreUnavailableError(self.uri, f"{operation} {name!r}", _reason_of(err)) from err

    def _error_of(self, err: ClientError, operation: str, name: str, size: int) -> Exception:
        code, what = _code(err), f"{operation} {name!r}"
        absent = (*_ABSENT_CODES, *_OTHER_NOW_CODES) if operation == "copy" else _ABSENT_CODES
        if code in absent and operation in ("get", "get_ranges", "head", "copy"):
            return ObjectNotFoundError(self.uri, name)
        if code in ("NoSuchBucket", "InvalidBucketName", *_ABSENT_CODES):
            return BadStoreError(
                self.uri, f"{what} was answered {code}: there is no such bucket; create it, or correct its name"
            )
        if code in _MOVED_CODES:
            return BadStoreError(
                self.uri, f"{what} was answered {code}: the bucket is in another region; add ?region=… to the URI"
            )
        if code in _DENIED_CODES:
            return AccessDeniedError(self.uri, what, code)
        if code in _FULL_CODES:
            return ObjectStoreFullError(self.uri, what, size)
        return ObjectStoreUnavailableError(self.uri, what, f"the server answered {code}")


# Clients and threads are kept by process: a forked child has its parent's memory, but must not use its connections and lacks its threads.


@lru_cache(maxsize=1)
def _threads_of(process: int) -> ThreadPoolExecutor:
    """The threads that fetch ranges, for all stores of this process."""
    del process  # only the key
    return ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="s3-get")


@lru_cache(maxsize=8)
def _client_of(endpoint: str | None, region: str | None, path_style: bool, process: int) -> "S3Client":
    """One client for all stores of an endpoint in this process: making one takes 0.1 s, and it holds the connections."""
    del process  # only a part of the key
    with _client_lock:  # boto3's default session is not safe for threads while it makes clients
        client: S3Client = boto3.session.Session().client(
            "s3",
            endpoint_url=endpoint,
            region_name=region or ("us-east-1" if endpoint else None),
            config=Config(
                s3={"addressing_style": "path" if path_style else "auto"},
                max_pool_connections=PARALLEL_REQUESTS,
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                tcp_keepalive=True,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                # Our objects carry checksums of their own, and not every server knows the newer trailing ones.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        return client


_client_lock = threading.Lock()


def _unix_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _code(err: ClientError) -> str:
    return str(err.response["Error"].get("Code") or err.response["ResponseMetadata"]["HTTPStatusCode"])


def _reason_of(err: BotoCoreError) -> str:
    """Why no answer came, in words where it is the usual reason."""
    if isinstance(err, ConnectTimeoutError):
        return f"the endpoint did not answer within {CONNECT_TIMEOUT_S} s"
    if isinstance(err, EndpointConnectionError):
        return "the endpoint refuses connections, or its name is not known"
    return type(err).__name__.removesuffix("Error")


def _is_settled_by_reading(err: Exception) -> bool:
    """Whether the server said that somebody's object is there (412) or on its way (409)."""
    return isinstance(err, ClientError) and _code(err) in (
        "PreconditionFailed",
        "412",
        "ConditionalRequestConflict",
        "409",
    )


def _is_refused(err: Exception) -> bool:
    """Whether the answer is a plain no, which says that nothing was written. Server errors (5xx) and timeouts say nothing of the kind."""
    if isinstance(err, (*_NO_CREDENTIALS, ParamValidationError)):
        return True
    if not isinstance(err, ClientError) or _is_settled_by_reading(err):
        return False
    return 400 <= err.response["ResponseMetadata"]["HTTPStatusCode"] < 500 and _code(err) not in (
        "RequestTimeout",
        "SlowDown",
        "429",
    )
