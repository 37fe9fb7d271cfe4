"""Counts requests to object storage where they are sent. These are the requests that the provider bills.

A counter belongs to one store object in one process. To measure an operation, subtract two readings. A file system has
no requests; the local store counts the requests that a bucket would have received.

    get       GET and HEAD, also for missing objects; one per separate range request
    put       PUT and COPY; a multipart upload or copy counts as one
    list      one per 1,000 names
    delete    one per 1,000 names
"""

from typing import Protocol, runtime_checkable

import msgspec

from tussock.statestore.forks import new_lock

NAMES_A_REQUEST = 1000  # per LIST or DELETE request


class Requests(msgspec.Struct, frozen=True):
    """Requests by kind, and the bytes of their bodies."""

    get: int = 0
    put: int = 0
    list: int = 0
    delete: int = 0
    bytes_in: int = 0  # read
    bytes_out: int = 0  # written

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(*(mine + theirs for mine, theirs in zip(_counts_of(self), _counts_of(other), strict=True)))

    def __sub__(self, other: "Requests") -> "Requests":
        return Requests(*(mine - theirs for mine, theirs in zip(_counts_of(self), _counts_of(other), strict=True)))


def _counts_of(requests: Requests) -> tuple[int, ...]:
    return msgspec.structs.astuple(requests)


class RequestCounter:
    """Counts the requests of one store object. Thread-safe."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._requests = Requests()

    def count_gets(self, nbytes: int = 0, requests: int = 1) -> None:
        """Count GETs that returned `nbytes` in total, or HEADs."""
        self._add_requests(Requests(get=requests, bytes_in=nbytes))

    def count_put(self, nbytes: int) -> None:
        """Count a PUT or COPY of `nbytes`."""
        self._add_requests(Requests(put=1, bytes_out=nbytes))

    def count_listing(self) -> None:
        """Count a page of a listing."""
        self._add_requests(Requests(list=1))

    def count_delete(self) -> None:
        """Count a DELETE of up to NAMES_A_REQUEST objects."""
        self._add_requests(Requests(delete=1))

    def so_far(self) -> Requests:
        """All requests since the store was opened."""
        with self._lock:
            return self._requests

    def _add_requests(self, requests: Requests) -> None:
        with self._lock:
            self._requests += requests


@runtime_checkable
class CountsRequests(Protocol):
    """A store that counts its requests, as all stores of this package do."""

    requests: RequestCounter


def requests_so_far(objects: object) -> Requests:
    """The requests of a store since it was opened; zeros if it does not count."""
    return objects.requests.so_far() if isinstance(objects, CountsRequests) else Requests()
