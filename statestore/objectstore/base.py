"""What the state store needs of object storage, and nothing more."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tussock.statestore.errors import DamagedError, InputError, RetryableError

MAX_NAME_PART_BYTES = 255  # what file systems take; S3 takes more


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing or a HEAD shows it."""

    name: str
    size: int
    etag: str  # of an S3 object its ETag; of a local file `size-mtime-ctime`, times in ns: a write after a file system's tick changes it
    modified_ms: int = field(
        default=0, compare=False
    )  # Unix ms of the last write, by the server's clock; 0: it does not say


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
        return (
            f"{self.operation} failed at {self.uri}: {self.reason}. Check the endpoint, the disk and the network, then run again: a commit "
            "whose answer was lost is recognised, and nothing is done twice."
        )


class ObjectStoreFullError(RetryableError):
    """The disk or quota under the store has no room left."""

    def __init__(self, uri: str, operation: str, size: int) -> None:
        super().__init__(uri, operation, size)
        self.uri, self.operation, self.size = uri, operation, size

    def __str__(self) -> str:
        return (
            f"{self.operation} of {self.size} bytes failed at {self.uri}: no space left. "
            "Nothing of it was committed; free space there, then run again."
        )


class AccessDeniedError(InputError):
    """The store is there and refuses us: missing or wrong credentials, or no permission."""

    def __init__(self, uri: str, operation: str, reason: str) -> None:
        super().__init__(uri, operation, reason)
        self.uri, self.operation, self.reason = uri, operation, reason

    def __str__(self) -> str:
        return (
            f"{self.operation} is not allowed at {self.uri}: {self.reason}. Give the process permission; for S3, credentials come from "
            "boto3's standard chain (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the machine's role)."
        )


class BadStoreError(InputError):
    """A store that cannot be used as it is named or set up: a URI that is not understood, a bucket that does not exist."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(uri, reason)
        self.uri, self.reason = uri, reason

    def __str__(self) -> str:
        return f"object store {self.uri}: {self.reason}"


class BadObjectNameError(InputError):
    """A name that could leave the store or that not every store can hold."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name!r} cannot name an object: {self.reason}. Names are relative and `/`-separated, without empty, `.` or `..` parts."


class ShortReadError(DamagedError):
    """The object ends before the bytes that were asked for: it was truncated, or the caller's index of it is wrong."""

    def __init__(self, uri: str, name: str, offset: int, length: int, found: int) -> None:
        super().__init__(uri, name, offset, length, found)
        self.uri, self.name, self.offset, self.length, self.found = uri, name, offset, length, found

    def __str__(self) -> str:
        return (
            f"object {self.name!r} in {self.uri}: {self.length} bytes were asked for at offset {self.offset}, {self.found} are there. "
            "It is truncated or not the object its index describes; restore it from a copy of the bucket."
        )


def checked_name(name: str) -> str:
    """`name` itself if it can name an object. Raises BadObjectNameError."""
    if not name:
        raise BadObjectNameError(name, "it is empty")
    if "\0" in name:
        raise BadObjectNameError(name, "it holds a NUL")
    for part in name.split("/"):
        if part in ("", ".", ".."):
            raise BadObjectNameError(name, f"it has the part {part!r}")
        if len(part.encode("utf-8", "surrogatepass")) > MAX_NAME_PART_BYTES:
            raise BadObjectNameError(name, f"a part is longer than {MAX_NAME_PART_BYTES} bytes")
    return name


class ObjectStore(Protocol):
    """Named immutable-by-convention byte strings. Names are relative, `/`-separated and never start with `/` or hold `..`."""

    uri: str  # enough to open it again in another process, without credentials

    def get(self, name: str) -> bytes:
        """The whole object. Raises ObjectNotFoundError."""
        ...

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes at each (offset, length), in the order asked; fetched in parallel, neighbours coalesced. A negative offset
        counts from the end, so (-8, 8) is the last 8 bytes. Raises ObjectNotFoundError, and ShortReadError when fewer bytes exist
        than asked."""
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
        """Objects whose name starts with `prefix`, in name order (of UTF-8 bytes), after `start_after`. Names that end in `/`, which
        some tools write as folders, are left out. What is written or deleted meanwhile may or may not be seen."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; names that do not exist are ignored."""
        ...
