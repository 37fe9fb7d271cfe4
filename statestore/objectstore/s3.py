"""An S3 bucket, or a prefix of one, as an object store. Works with any S3 server that supports conditional PUTs.

Commits depend on `If-None-Match: *`. The answer to such a PUT can be lost; the client then repeats it and finds its own
object. The store therefore reads the object back after every answer except success and clear refusals.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from xxhash import xxh3_128

from tussock.statestore.forks import new_lock, renew_in_child
from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadStoreError,
    ClockSkewError,
    ExpiredCredentialsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStoreFullError,
    ObjectStoreUnavailableError,
)
from tussock.statestore.objectstore.ranges import PARALLEL_REQUESTS, ByteRange
from tussock.statestore.objectstore.requests import NAMES_A_REQUEST
from tussock.statestore.objectstore.server import ServerAddress, ServerObjectStore, checked_folder, send_repeatedly
from tussock.statestore.objectstore.settled import ATTEMPTS, WriteFailure

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef

CONNECT_TIMEOUT_S = 2  # a silent endpoint fails after ATTEMPTS timeouts and the backoff, about 10 s
READ_TIMEOUT_S = 30  # between two packets, not for the whole answer

DIGEST = "bytes-"
"""The beginning of a digest in place of an ETag that the server does not give."""
_BLOCK = 1 << 20
_SETTLED = timedelta(seconds=2)  # a later write of the same object then has another time, which has whole seconds

_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    ProfileNotFound,
)
_ABSENT_CODES = ("NoSuchKey", "404", "NotFound")
_OTHER_NOW_CODES = ("NoSuchVersion", "PreconditionFailed", "412")  # the source of a copy has changed
_DENIED_CODES = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "401",
    "403",
)
_EXPIRED_CODES = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
_CLOCK_CODES = ("RequestTimeTooSkewed", "RequestInTheFuture")
_BARE_CODES = ("400", "403")  # of a HEAD, whose answer has no body with the reason
_MOVED_CODES = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301")
_FULL_CODES = ("XMinioStorageFull", "QuotaExceeded", "507", "InsufficientStorage")


@dataclass(frozen=True, slots=True)
class S3Address(ServerAddress):
    """The location of a store, without credentials."""

    bucket: str
    prefix: str = ""  # without leading or trailing slash
    endpoint: str | None = None  # None: AWS
    path_style: bool = False
    region: str | None = None  # None: from boto3's chain

    @property
    def root(self) -> str:
        """Scheme and bucket."""
        return f"s3://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        """The options that `open_bucket` needs to reach the server."""
        is_plain = self.endpoint is None and not self.path_style  # the style is the default
        style = None if is_plain else str(self.path_style).lower()
        own_options = {"endpoint": self.endpoint, "path_style": style, "region": self.region}
        return {option: value for option, value in own_options.items() if value}


class S3ObjectStore(ServerObjectStore[S3Address]):
    """Objects below `prefix` in a bucket. Thread-safe; other processes open the store by `uri` or unpickle it.

    Cost: one request per operation. `get_ranges` sends one per group of neighbours, in parallel; `list` and `delete`
        send one per 1,000 objects.
    """

    client_errors = (ClientError, BotoCoreError)

    def __init__(self, address: S3Address) -> None:
        super().__init__(address, address.prefix + "/" if address.prefix else "")

    def put_file(self, name: str, file: Path) -> None:
        """Upload a file, in parts if it is large. The object appears complete or not at all."""
        key = self._full_name(name)
        with self._translate_errors("put_file", name, size := file.stat().st_size), file.open("rb") as content:
            self.requests.count_put(size)
            self._client.upload_fileobj(content, self._address.bucket, key)

    def version_of(self, name: str) -> tuple[ObjectInfo, str]:
        """Return size, ETag and version id; the id is empty in an unversioned bucket. Raises ObjectNotFoundError."""
        key = self._full_name(name)
        with self._translate_errors("head", name):
            info, version = self._fetch_version(name, key)
            return info, "" if version == "null" else version

    def is_beside(self, other: "S3ObjectStore") -> bool:
        """Whether one server holds both stores and can copy between them."""
        here, there = self._address, other.address
        return (here.endpoint, here.region) == (there.endpoint, there.region)

    def copy_from(self, source: "S3ObjectStore", of: str, name: str, etag: str, version: str = "") -> None:
        """Copy an object within the server, in parts if it is large.

        Copies `version` if given; otherwise the source must still have `etag`. Raises ObjectNotFoundError if the source
        is deleted or its ETag differs.
        """
        there: CopySourceTypeDef = {"Bucket": source.address.bucket, "Key": source._full_name(of)}
        if version:
            there["VersionId"] = version
        # The server does not have the ETag of a digest. The caller compares the object with it afterwards.
        condition = {} if version or etag.startswith(DIGEST) else {"CopySourceIfMatch": f'"{etag}"'}
        key = self._full_name(name)
        with source._translate_errors("copy", of):
            self.requests.count_gets()  # boto3 requests the size first.
            self.requests.count_put(0)  # No bytes pass through this process.
            try:
                self._client.copy(there, self._address.bucket, key, ExtraArgs=condition)
            except KeyError:  # boto3 needs the size, which the server omits; one request copies up to 5 GB without it
                self._copy_at_once(there, key, condition.get("CopySourceIfMatch"))

    def _copy_at_once(self, there: "CopySourceTypeDef", key: str, etag: str | None) -> None:
        bucket = self._address.bucket
        if etag is None:
            self._client.copy_object(CopySource=there, Bucket=bucket, Key=key)
        else:
            self._client.copy_object(CopySource=there, Bucket=bucket, Key=key, CopySourceIfMatch=etag)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        checked_folder(prefix)
        with self._translate_errors("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._address.bucket,
                Prefix=self._prefix + prefix,
                StartAfter=self._prefix + start_after if start_after else "",
            )
            for page in pages:
                self.requests.count_listing()
                for entry in page.get("Contents", ()):
                    name = entry["Key"][len(self._prefix) :]
                    if not name.endswith("/"):
                        with suppress(ObjectNotFoundError):  # deleted since the answer
                            yield self._object_info(name, entry, entry.get("Size"), _date_of(page))

    def delete(self, names: Iterable[str]) -> None:
        keys = (self._full_name(name) for name in names)
        while batch := list(islice(keys, NAMES_A_REQUEST)):
            with self._translate_errors("delete", batch[0]):
                self.requests.count_delete()
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

    def _object_info(self, name: str, answer: Mapping[str, Any], size: int | None, date: datetime | None) -> ObjectInfo:
        """Return what an answer says about an object, completed by a read if it does not pin the bytes.

        Some servers omit the ETag, for example of files that other programs write into the folder of a gateway, or send
        a weak one (`W/…`), which other bytes may have too. A digest of the bytes takes its place. Without a size, the
        bytes are counted.

        Args:
            date: when the server answered, by its clock.

        Cost: nothing for a complete answer. Otherwise a read of the object, once per process if the object did not
        change just before the answer.
        """
        etag, modified = answer.get("ETag", "").strip('"'), answer.get("LastModified")
        modified_ms = 0 if modified is None else _unix_ms(modified)
        if size is None or not etag or etag.startswith("W/"):
            key = self._full_name(name)
            with self._translate_errors("get", name):
                if modified is None or date is None or date - modified < _SETTLED:
                    size, etag = self.digest_object(key)
                else:
                    size, etag = _settled_digest_of(self._address, key, size, modified_ms // 1000)
        return ObjectInfo(name, size, etag, modified_ms)

    def digest_object(self, key: str) -> tuple[int, str]:
        """Return the size of an object, and a digest of its bytes in place of an ETag."""

        def fetch() -> tuple[int, str]:
            self.requests.count_gets()
            digest, size = xxh3_128(), 0
            for block in self._client.get_object(Bucket=self._address.bucket, Key=key)["Body"].iter_chunks(_BLOCK):
                digest.update(block)
                size += len(block)
            self.requests.count_gets(size, requests=0)
            return size, f"{DIGEST}{digest.hexdigest()}"

        return send_repeatedly(f"get {key}", fetch, _broke_off)

    @property
    def _client(self) -> "S3Client":
        return _client_of(self._address.endpoint, self._address.region, self._address.path_style)

    def _fetch_object(self, full: str) -> bytes:
        return self._fetch_answer(full)[1]

    def _fetch_range(self, full: str, read: ByteRange) -> bytes:
        header = f"bytes={read.offset}-{read.offset + read.length - 1}" if read.offset >= 0 else f"bytes={read.offset}"
        try:
            status, data = self._fetch_answer(full, header)
        except ClientError as err:
            if _error_code(err) in ("InvalidRange", "416"):
                return b""
            raise
        if status == 206:
            return data
        # A server without range support returned the whole object.
        return data[read.offset :] if read.offset < 0 else data[read.offset : read.offset + read.length]

    def _fetch_answer(self, full: str, byte_range: str = "") -> tuple[int, bytes]:
        """Status and body of a GET. botocore retries failures before the body; this retries broken bodies."""
        span: Any = {"Range": byte_range} if byte_range else {}

        def fetch() -> tuple[int, bytes]:
            self.requests.count_gets()
            answer = self._client.get_object(Bucket=self._address.bucket, Key=full, **span)
            data = answer["Body"].read()
            self.requests.count_gets(len(data), requests=0)
            return answer["ResponseMetadata"]["HTTPStatusCode"], data

        return send_repeatedly(f"get {full}", fetch, _broke_off)

    def _fetch_info(self, name: str, full: str) -> ObjectInfo:
        return self._fetch_version(name, full)[0]

    def _fetch_version(self, name: str, full: str) -> tuple[ObjectInfo, str]:
        self.requests.count_gets()
        answer = self._client.head_object(Bucket=self._address.bucket, Key=full)
        info = self._object_info(name, answer, answer.get("ContentLength"), _date_of(answer))
        return info, answer.get("VersionId", "null")

    def _replace_object(self, full: str, data: bytes) -> None:
        self.requests.count_put(len(data))
        self._client.put_object(Bucket=self._address.bucket, Key=full, Body=data)

    def _create_object(self, full: str, data: bytes) -> None:
        self.requests.count_put(len(data))
        self._client.put_object(Bucket=self._address.bucket, Key=full, Body=data, IfNoneMatch="*")

    def _judge_failed_write(self, err: Exception) -> WriteFailure:
        """See ServerObjectStore. After a 5xx answer or a timeout, the effect is unknown."""
        if isinstance(err, (*_NO_CREDENTIALS, ParamValidationError)):
            return WriteFailure.REFUSED
        if not isinstance(err, ClientError):
            # Another error is a defect, and nothing was sent.
            return WriteFailure.UNKNOWN if isinstance(err, BotoCoreError) else WriteFailure.REFUSED
        code = _error_code(err)
        if code in ("PreconditionFailed", "412", "ConditionalRequestConflict", "409"):
            return WriteFailure.OTHER
        is_refusal = 400 <= err.response["ResponseMetadata"]["HTTPStatusCode"] < 500
        is_settled = is_refusal and code not in ("RequestTimeout", "SlowDown", "429")
        return WriteFailure.REFUSED if is_settled else WriteFailure.UNKNOWN

    def _code_of_get(self, name: str) -> str:
        """The code of a GET of one byte after a HEAD failed; empty if the GET succeeds or fails otherwise."""
        try:
            answer = self._client.get_object(Bucket=self._address.bucket, Key=self._full_name(name), Range="bytes=0-0")
            answer["Body"].close()  # a server without range support would send the whole object
        except ClientError as err:
            return _error_code(err)
        except BotoCoreError:
            return ""
        return ""

    def _error_of(self, err: Exception, operation: str, name: str, size: int) -> Exception:
        what = f"{operation} {name!r}"
        if isinstance(err, _NO_CREDENTIALS):
            return AccessDeniedError(self.uri, what, f"no credentials were found ({type(err).__name__})")
        if isinstance(err, ParamValidationError):
            return BadStoreError(self.uri, f"{what} is not a valid S3 request; check the bucket name")
        if not isinstance(err, ClientError):
            return ObjectStoreUnavailableError(self.uri, what, _reason_of(err))
        code = _error_code(err)
        if code in _BARE_CODES:
            code = self._code_of_get(name) or code
        absent = (*_ABSENT_CODES, *_OTHER_NOW_CODES) if operation == "copy" else _ABSENT_CODES
        if code in absent and operation in ("get", "get_ranges", "head", "copy"):
            return ObjectNotFoundError(self.uri, name)
        if code in ("NoSuchBucket", "InvalidBucketName", *_ABSENT_CODES):
            return BadStoreError(
                self.uri, f"{what} returned {code}: the bucket does not exist; create it or correct its name"
            )
        if code in _MOVED_CODES:
            return BadStoreError(
                self.uri, f"{what} returned {code}: the bucket is in another region; add ?region=… to the URI"
            )
        if code in _EXPIRED_CODES:
            return ExpiredCredentialsError(self.uri, what, code)
        if code in _CLOCK_CODES:
            return ClockSkewError(self.uri, what, code)
        if code in _DENIED_CODES:
            return AccessDeniedError(self.uri, what, code)
        if code in _FULL_CODES:
            return ObjectStoreFullError(self.uri, what, size)
        return ObjectStoreUnavailableError(self.uri, what, f"the server returned {code}")


@lru_cache(maxsize=8)
def _client_of(endpoint: str | None, region: str | None, path_style: bool) -> "S3Client":
    """One client per endpoint. Creating one takes 0.1 s, and it holds the connections."""
    with _client_lock:  # Creating clients in boto3's default session is not thread-safe.
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
                # Our objects contain checksums, and some servers do not support the newer trailing checksums.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        return client


_client_lock = new_lock()
# A forked child must not use its parent's connections.
renew_in_child(_client_of.cache_clear)


@lru_cache(maxsize=4096)
def _settled_digest_of(address: S3Address, key: str, size: int | None, modified_s: int) -> tuple[int, str]:
    """Cache `digest_object` per process. Size and time are only part of the key."""
    del size, modified_s
    return S3ObjectStore(address).digest_object(key)


def _date_of(answer: Mapping[str, Any]) -> datetime | None:
    """Return when the server answered, by its clock; None if the answer lacks it."""
    text = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


def _unix_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _error_code(err: ClientError) -> str:
    return str(err.response["Error"].get("Code") or err.response["ResponseMetadata"]["HTTPStatusCode"])


def _reason_of(err: Exception) -> str:
    """The reason for a missing answer: words for the common causes, else the error's name."""
    if isinstance(err, ConnectTimeoutError):
        return f"the endpoint did not answer within {CONNECT_TIMEOUT_S} s"
    if isinstance(err, EndpointConnectionError):
        return "the endpoint refuses connections, or its host name is unknown"
    return type(err).__name__.removesuffix("Error")


def _broke_off(err: Exception) -> bool:
    """Return whether the body of an answer ended early."""
    return isinstance(err, (IncompleteReadError, ResponseStreamingError, ReadTimeoutError))
