"""The common part of stores on a server: an address, names below a prefix, lost answers, retries and errors.

ServerAddress        scheme, place, prefix and options, as a URI
ServerObjectStore    the operations of base.py. A subclass sends the requests of one protocol
send_repeatedly      the loop around a request that may be repeated
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Generic, Self, TypeVar
from urllib.parse import quote, urlencode

from tussock.statestore.objectstore.base import ObjectInfo, ObjectNotFoundError, checked_name
from tussock.statestore.objectstore.ranges import ByteRange, fetch_ranges
from tussock.statestore.objectstore.requests import RequestCounter
from tussock.statestore.objectstore.settled import ATTEMPTS, BACKOFF_S, WriteFailure, create_once

T = TypeVar("T")
log = logging.getLogger(__name__)


class ServerAddress(ABC):
    """The location of a store, without credentials."""

    __slots__ = ()

    prefix: str
    """Without leading or trailing slash."""

    @property
    @abstractmethod
    def root(self) -> str:
        """Scheme and bucket, or scheme and server."""

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """The options that `open_bucket` needs to reach the server."""

    @property
    def folder(self) -> str:
        """The literal beginning of the addresses of its objects, without a slash at the end."""
        return f"{self.root}/{self.prefix}" if self.prefix else self.root

    @property
    def uri(self) -> str:
        """The canonical URI of this address; `open_object_store` accepts it."""
        query = f"?{urlencode(self.options, safe=':/')}" if self.options else ""
        return self.root + (f"/{quote(self.prefix)}" if self.prefix else "") + query


A = TypeVar("A", bound=ServerAddress)


class ServerObjectStore(ABC, Generic[A]):
    """Objects below a prefix on a server. Thread-safe. See ObjectStore."""

    client_errors: ClassVar[tuple[type[Exception], ...]]
    """The errors of the protocol's client, which `_error_of` translates."""

    def __init__(self, address: A, prefix: str) -> None:
        """`prefix`: of full names, with a slash at its end, or empty."""
        self.uri, self._prefix, self._address = address.uri, prefix, address
        self.requests = RequestCounter()

    def __reduce__(self) -> tuple[type[Self], tuple[A]]:
        return type(self), (self._address,)

    @property
    def address(self) -> A:
        """The location of the store."""
        return self._address

    def get(self, name: str) -> bytes:
        full = self._full_name(name)
        with self._translate_errors("get", name):
            return self._fetch_object(full)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        full = self._full_name(name)
        with self._translate_errors("get_ranges", name):
            return fetch_ranges(self.uri, name, ranges, lambda read: self._fetch_range(full, read))

    def head(self, name: str) -> ObjectInfo:
        full = self._full_name(name)
        with self._translate_errors("head", name):
            return self._fetch_info(name, full)

    def put(self, name: str, data: bytes) -> None:
        full = self._full_name(name)
        with self._translate_errors("put", name, len(data)):
            self._replace_object(full, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        full = self._full_name(name)
        with self._translate_errors("put_if_absent", name, len(data)):
            return create_once(
                self.uri,
                name,
                lambda: self._create_object(full, data),
                lambda: self._object_equals(full, name, data),
                self._judge_failed_write,
            )

    @abstractmethod
    def _fetch_object(self, full: str) -> bytes:
        """Read an object."""

    @abstractmethod
    def _fetch_range(self, full: str, read: ByteRange) -> bytes:
        """Read the bytes of one range: fewer than requested, or none, if the object ends early."""

    @abstractmethod
    def _fetch_info(self, name: str, full: str) -> ObjectInfo:
        """Read the facts of an object."""

    @abstractmethod
    def _replace_object(self, full: str, data: bytes) -> None:
        """Write an object, atomically and durably."""

    @abstractmethod
    def _create_object(self, full: str, data: bytes) -> None:
        """Write an object unless its name exists."""

    @abstractmethod
    def _judge_failed_write(self, err: Exception) -> WriteFailure:
        """Classify an error of `_create_object`."""

    @abstractmethod
    def _error_of(self, err: Exception, operation: str, name: str, size: int) -> Exception:
        """Return the error of base.py for an error of the client. Its text has codes only: a server's text may repeat
        headers of the request.
        """

    def _full_name(self, name: str) -> str:
        return self._prefix + checked_name(name)

    def _object_equals(self, full: str, name: str, data: bytes) -> bool | None:
        """Return whether the object equals `data`; None if it does not exist."""
        try:
            return self._fetch_object(full) == data
        except self.client_errors as err:
            if isinstance(self._error_of(err, "get", name, 0), ObjectNotFoundError):
                return None
            raise

    @contextmanager
    def _translate_errors(self, operation: str, name: str, size: int = 0) -> Iterator[None]:
        """Translate errors of the client into the errors of base.py."""
        try:
            yield
        except self.client_errors as err:
            raise self._error_of(err, operation, name, size) from err


def checked_folder(prefix: str) -> str:
    """Return the folder of a prefix, with a slash at its end, or an empty text. Raises BadObjectNameError."""
    folder = prefix.rpartition("/")[0]
    return f"{checked_name(folder)}/" if folder else ""


def send_repeatedly(
    what: str, send: Callable[[], T], may_pass: Callable[[Exception], bool], backoff_s: float = BACKOFF_S
) -> T:
    """Send a request that may be repeated, up to ATTEMPTS times.

    Args:
        may_pass: returns whether another attempt may succeed after an error.
        backoff_s: the first pause; it doubles after each attempt.
    """
    for attempt in range(ATTEMPTS):
        try:
            return send()
        except Exception as err:
            if attempt == ATTEMPTS - 1 or not may_pass(err):
                raise
            log.warning("%s: attempt %d failed (%s); retrying", what, attempt + 1, err)
            time.sleep(backoff_s * 2**attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")
