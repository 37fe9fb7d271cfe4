"""Requests to object storage, counted where they are made: what a store is billed for, whoever asked.

Counts are of one store object, so of one process: who wants those of a piece of work takes the difference of two looks. A file system has
no requests; a local store counts those that a bucket would have had.

    get       GET and HEAD, also where nothing is found; each range that is read by itself
    put       PUT and COPY; a file that goes up in parts, or is copied in parts, counts as one
    list      one for each 1,000 names
    delete    one for each 1,000 names
"""

import threading
from typing import Protocol, runtime_checkable

import msgspec

NAMES_A_REQUEST = 1000  # that a LIST answers, and a DELETE takes


class Requests(msgspec.Struct, frozen=True):
    """Requests by kind, and bytes of the bodies that came and went."""

    get: int = 0
    put: int = 0
    list: int = 0
    delete: int = 0
    bytes_in: int = 0  # that were read
    bytes_out: int = 0  # that were written

    def __add__(self, other: "Requests") -> "Requests":
        return Requests(*(mine + theirs for mine, theirs in zip(_counts(self), _counts(other), strict=True)))

    def __sub__(self, other: "Requests") -> "Requests":
        return Requests(*(mine - theirs for mine, theirs in zip(_counts(self), _counts(other), strict=True)))


def _counts(requests: Requests) -> tuple[int, ...]:
    return msgspec.structs.astuple(requests)


class RequestCounter:
    """The requests of one store object. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = Requests()

    def got(self, nbytes: int = 0, requests: int = 1) -> None:
        """GETs that were answered with so many bytes, or HEADs."""
        self._add(Requests(get=requests, bytes_in=nbytes))

    def put(self, nbytes: int) -> None:
        """A PUT or a COPY of so many bytes."""
        self._add(Requests(put=1, bytes_out=nbytes))

    def listed(self) -> None:
        """A page of a listing."""
        self._add(Requests(list=1))

    def deleted(self) -> None:
        """A DELETE of up to NAMES_A_REQUEST objects."""
        self._add(Requests(delete=1))

    def so_far(self) -> Requests:
        """All since the store was opened."""
        with self._lock:
            return self._requests

    def _add(self, requests: Requests) -> None:
        with self._lock:
            self._requests += requests


@runtime_checkable
class CountsRequests(Protocol):
    """A store that counts; those of this package do."""

    requests: RequestCounter


def requests_so_far(objects: object) -> Requests:
    """What a store has counted since it was opened; nothing where it does not count."""
    return objects.requests.so_far() if isinstance(objects, CountsRequests) else Requests()
