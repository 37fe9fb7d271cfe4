"""What the state store needs of object storage, and nothing more."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from statestore.errors import InputError, RetryableError


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing or a HEAD shows it."""

    name: str
    size: int
    etag: str  # changes when the bytes change; S3's ETag, or size and modification time (ns) of a local file


class ObjectNotFoundError(InputError):
    """No object of this name."""

    def __init__(self, uri: str, name: str) -> None:
        super().__init__(uri, name)
        self.uri, self.name = uri, name

    def __str__(self) -> str:
        return f"no object {self.name!r} in {self.uri}"


class ObjectStoreUnavailableError(RetryableError):
    """The server or disk refused, timed out or broke off, also after the retries."""

    def __init__(self, uri: str, operation: str, reason: str) -> None:
        super().__init__(uri, operation, reason)
        self.uri, self.operation, self.reason = uri, operation, reason

    def __str__(self) -> str:
        return f"{self.operation} failed at {self.uri}: {self.reason}. Nothing was committed; check the endpoint, the disk and the credentials, then run again."


class ObjectStore(Protocol):
    """Named immutable-by-convention byte strings. Names are relative, `/`-separated and never start with `/` or hold `..`."""

    uri: str  # enough to open it again in another process, without credentials

    def get(self, name: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        ...

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes at each (offset, length), in the order asked; fetched in parallel, neighbours coalesced. A negative offset
        counts from the end. Raises ObjectNotFoundError, and ShortReadError when fewer bytes exist than asked."""
        ...

    def head(self, name: str) -> ObjectInfo:
        """Size and ETag. Raises ObjectNotFoundError."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write the whole object, atomically and durably; an existing one is replaced."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object; True: these bytes are it (won), False: another's are (lost). Never "maybe": on an answer that was
        lost it reads back and compares. Requires: `data` holds something unique to this writer (its writer id)."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose name starts with `prefix`, in name order, after `start_after`."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; names that do not exist are ignored."""
        ...
