"""A bucket of Google Cloud Storage or a container of Azure Blob Storage, or a prefix of one, through obstore.

    gs://bucket/prefix              credentials by Google's standard chain (GOOGLE_APPLICATION_CREDENTIALS, the machine)
    az://container/prefix?account=name    by Azure's (AZURE_STORAGE_ACCOUNT_KEY, a client secret, a managed identity)

`endpoint=` names another server, such as an emulator. obstore retries failed requests; a write whose answer is lost is
read back and compared (settled.py).

obstore's runtime has threads that do not survive a fork. So a forked child of a process that used one of these stores
gets an error before its first request.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore

from tussock.statestore.forks import FirstUse, renew_in_child
from tussock.statestore.objectstore.base import (
    AccessDeniedError,
    BadStoreError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
)
from tussock.statestore.objectstore.ranges import PARALLEL_REQUESTS, ByteRange
from tussock.statestore.objectstore.requests import NAMES_A_REQUEST
from tussock.statestore.objectstore.server import ServerAddress, ServerObjectStore, checked_folder
from tussock.statestore.objectstore.settled import ATTEMPTS, WriteFailure

if TYPE_CHECKING:
    from obstore import ObjectMeta

CONNECT_TIMEOUT = timedelta(seconds=2)
REQUEST_TIMEOUT = timedelta(seconds=60)  # of a whole request
_RETRY_TIMEOUT = timedelta(seconds=30)
_LISTED = 1000  # names per chunk of a listing

_STATUS = re.compile(r"status code: (\d{3})")
_INVALID_NAME = re.compile(r'[Pp]ath "([^"]+)"')
_CODE = re.compile(r"<Code>(\w+)</Code>")
#: Parts of obstore's errors before the first request, and what they mean. Its text may repeat a part of a key.
_CREDENTIALS = (
    ("OpenCredentials", "the file in GOOGLE_APPLICATION_CREDENTIALS does not exist or cannot be opened"),
    ("DecodeCredentials", "the file in GOOGLE_APPLICATION_CREDENTIALS is not the key of a service account"),
    ("InvalidAccessKey", "AZURE_STORAGE_ACCOUNT_KEY is not a key, which is a text in base64"),
    ("token request", "no valid credentials were found"),
    ("redential", "no valid credentials were found"),
)
_NO_ANSWER = "the endpoint refuses connections, or its host name is unknown"
_NO_BUCKET_CODES = ("ContainerNotFound", "NoSuchBucket", "InvalidBucketName", "InvalidResourceName")


@dataclass(frozen=True, slots=True)
class CloudAddress(ServerAddress):
    """The location of a store, without credentials."""

    scheme: Literal["gs", "az"]
    bucket: str  # Azure: the container
    prefix: str = ""  # without leading or trailing slash
    account: str | None = None  # Azure's storage account; None: from the environment
    endpoint: str | None = None  # None: the cloud's own

    @property
    def root(self) -> str:
        """Scheme and bucket."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        """The options that `open_bucket` needs to reach the server."""
        own_options = {"account": self.account, "endpoint": self.endpoint}
        return {option: value for option, value in own_options.items() if value}


_use = FirstUse()


class CloudObjectStore(ServerObjectStore[CloudAddress]):
    """Objects below `prefix` in a bucket. Thread-safe; other processes open the store by `uri` or unpickle it.

    Cost: one request per operation, but two for the tail of an object in Azure, which has no such ranges. `get_ranges`
        sends one per group of neighbours, in parallel; `list` one per page. A listing begins at its prefix in Google's
        storage; Azure lists the whole folder of the prefix. Google's storage deletes each object by its own request.
    """

    client_errors = (BaseError, FileNotFoundError)

    def __init__(self, address: CloudAddress) -> None:
        super().__init__(address, address.prefix + "/" if address.prefix else "")

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        folder = checked_folder(prefix).rstrip("/")
        first = self._prefix + max(prefix, start_after)
        with self._translate_errors("list", prefix):
            # obstore's prefixes are whole folders, and its offset excludes the name itself.
            chunks = obstore.list(
                self._client, self._prefix + folder or None, offset=_name_before(first), chunk_size=_LISTED
            )
            for entry in _in_order(self._address.scheme, self._count_chunks(chunks)):
                info = self._object_info(entry)
                if info.name.startswith(prefix):
                    if info.name > start_after and not self._is_folder_mark(entry):
                        yield info
                elif info.name.encode() > prefix.encode():
                    return

    def delete(self, names: Iterable[str]) -> None:
        keys = (self._full_name(name) for name in names)
        while batch := list(islice(keys, NAMES_A_REQUEST)):
            with self._translate_errors("delete", batch[0]):
                self.requests.count_delete()
                try:
                    obstore.delete(self._client, batch)
                except FileNotFoundError:  # the rest of the batch may not be deleted
                    with ThreadPoolExecutor(PARALLEL_REQUESTS) as threads:
                        list(threads.map(self._delete_object, batch))

    @property
    def _client(self) -> GCSStore | AzureStore:
        _use.require_here(
            "The parent process used a store in a cloud", "Open it only in the children, or start them by spawn"
        )
        at = self._address
        return _client_of(at.scheme, at.bucket, at.account, at.endpoint)

    def _fetch_object(self, full: str) -> bytes:
        self.requests.count_gets()
        data = obstore.get(self._client, full).bytes().to_bytes()
        self.requests.count_gets(len(data), requests=0)
        return data

    def _fetch_info(self, name: str, full: str) -> ObjectInfo:
        return self._object_info(self._fetch_facts(full))

    def _fetch_facts(self, key: str) -> "ObjectMeta":
        self.requests.count_gets()
        return obstore.head(self._client, key)

    def _fetch_range(self, full: str, read: ByteRange) -> bytes:
        start = read.offset
        if start < 0 and self._address.scheme == "az":
            start = max(0, self._fetch_facts(full)["size"] + start)
        wanted: Any = {"suffix": -start} if start < 0 else (start, start + read.length)
        self.requests.count_gets()
        try:
            data = obstore.get(self._client, full, options={"range": wanted}).bytes().to_bytes()
        except (GenericError, NotSupportedError):  # also the errors of a server that has failed for a while
            if max(start, 0) < self._fetch_facts(full)["size"]:
                raise
            return b""  # the object ends before the range, or is empty
        self.requests.count_gets(len(data), requests=0)
        return data

    def _replace_object(self, full: str, data: bytes) -> None:
        self._send_object(full, data, "overwrite")

    def _create_object(self, full: str, data: bytes) -> None:
        self._send_object(full, data, "create")

    def _send_object(self, key: str, data: bytes, mode: Literal["create", "overwrite"]) -> None:
        self.requests.count_put(len(data))
        # In one request: the parts of a multipart upload have no condition.
        obstore.put(self._client, key, data, mode=mode, use_multipart=False)

    def _delete_object(self, key: str) -> None:
        self.requests.count_delete()
        with suppress(FileNotFoundError):
            obstore.delete(self._client, key)

    def _count_chunks(self, chunks: Iterable[Sequence["ObjectMeta"]]) -> Iterator["ObjectMeta"]:
        for chunk in chunks:
            self.requests.count_listing()
            yield from chunk

    def _is_folder_mark(self, entry: "ObjectMeta") -> bool:
        """Return whether a listed object marks a folder, as consoles create it: its name ends with a slash.

        obstore lists it without the slash, as if it were an empty object. Cost: a HEAD of an empty object, unless
        sources ignore its name.
        """
        if entry["size"] or entry["path"].rpartition("/")[2].startswith(("_", ".")):
            return False
        try:
            self._fetch_facts(entry["path"])
        except FileNotFoundError:
            return True
        return False

    def _object_info(self, facts: "ObjectMeta") -> ObjectInfo:
        modified_ms = int(facts["last_modified"].timestamp() * 1000)
        etag = (facts["e_tag"] or "").strip('"')
        return ObjectInfo(facts["path"][len(self._prefix) :], facts["size"], etag, modified_ms)

    def _judge_failed_write(self, err: Exception) -> WriteFailure:
        if isinstance(err, (AlreadyExistsError, PreconditionError)):
            return WriteFailure.OTHER
        status = _STATUS.search(str(err))
        if status is not None and status[1] in ("409", "412"):
            return WriteFailure.OTHER
        is_refused = isinstance(err, (PermissionDeniedError, UnauthenticatedError, FileNotFoundError)) or (
            status is not None and status[1].startswith("4") and status[1] not in ("408", "429")
        )
        return WriteFailure.REFUSED if is_refused else WriteFailure.UNKNOWN

    def _error_of(self, err: Exception, operation: str, name: str, size: int) -> Exception:
        what, reason = f"{operation} {name!r}", _reason_of(err)
        if isinstance(err, InvalidPathError):
            listed = _INVALID_NAME.search(str(err))
            subject = "an object" if listed is None else f"the object {listed[1]!r}"
            objection = "has an empty part, a part of dots or a control character in its name, so nothing can be listed"
            return BadStoreError(self.uri, f"{what}: {subject} {objection}. Rename it, or remove it")
        if any(code in str(err) for code in _NO_BUCKET_CODES) or (
            isinstance(err, FileNotFoundError) and operation not in ("get", "get_ranges", "head")
        ):
            word = "container" if self._address.scheme == "az" else "bucket"
            missing = f"{what} returned {reason}: the {word} does not exist; create it or correct its name"
            return BadStoreError(self.uri, missing)
        if isinstance(err, FileNotFoundError):
            return ObjectNotFoundError(self.uri, name)
        if isinstance(err, (PermissionDeniedError, UnauthenticatedError)):
            return AccessDeniedError(self.uri, what, reason)
        if "MissingAccount" in str(err):
            missing = "the address has no storage account: add ?account=NAME to it, or set AZURE_STORAGE_ACCOUNT_NAME"
            return BadStoreError(self.uri, missing)
        if (finding := next((text for sign, text in _CREDENTIALS if sign in str(err)), None)) is not None:
            return AccessDeniedError(self.uri, what, finding)
        account = " (it contains the account)" if self._address.scheme == "az" and reason == _NO_ANSWER else ""
        return ObjectStoreUnavailableError(self.uri, what, reason + account)


@lru_cache(maxsize=8)
def _client_of(scheme: str, bucket: str, account: str | None, endpoint: str | None) -> GCSStore | AzureStore:
    """One client per bucket, which holds the connections."""
    is_plain = endpoint is not None and endpoint.startswith("http:")
    shared: Mapping[str, Any] = {
        "client_options": {"allow_http": is_plain, "connect_timeout": CONNECT_TIMEOUT, "timeout": REQUEST_TIMEOUT},
        "retry_config": {"max_retries": ATTEMPTS - 1, "retry_timeout": _RETRY_TIMEOUT},
    }
    if scheme == "gs":
        return GCSStore(bucket, config={"base_url": endpoint} if endpoint else {}, **shared)
    at: dict[str, Any] = {"account_name": account, "endpoint": endpoint}
    return AzureStore(bucket, config={k: v for k, v in at.items() if v is not None}, **shared)  # type: ignore[arg-type]


renew_in_child(_client_of.cache_clear)


def _name_before(name: str) -> str | None:
    """Return a name before `name`, with few others between them; None if every name may follow."""
    if not name:
        return None
    last = ord(name[-1])
    return name[:-1] + (chr(last - 1) + "\U0010ffff" if last > 0x20 and last - 1 not in range(0xD800, 0xE000) else "")


def _in_order(scheme: str, entries: Iterator["ObjectMeta"]) -> Iterator["ObjectMeta"]:
    """Return listed objects in the order of their names. Azure's hierarchical namespaces list folder by folder."""
    return iter(sorted(entries, key=lambda entry: entry["path"].encode())) if scheme == "az" else entries


def _reason_of(err: Exception) -> str:
    """The server's code, its status, or the kind of the error."""
    text = str(err)
    if (code := _CODE.search(text)) is not None:
        return code[1]
    if (status := _STATUS.search(text)) is not None:
        return f"status {status[1]}"
    if "connect" in text.lower() or "error sending request" in text:
        return _NO_ANSWER
    return type(err).__name__.removesuffix("Error")
