"""The operations that the state store needs from object storage."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from tussock.statestore.errors import DamagedError, InputError, RetryableError

MAX_NAME_PART_BYTES = 255  # limit of file systems; S3 permits more
_CREDENTIALS = {
    "s3": (
        "S3 come from boto3's standard chain (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the "
        "machine's role)"
    ),
    "gs": (
        "Google's storage come from GOOGLE_APPLICATION_CREDENTIALS, GOOGLE_SERVICE_ACCOUNT_KEY, or the machine's "
        "service account"
    ),
    "az": (
        "Azure's storage come from AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, from AZURE_CLIENT_ID "
        "with AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or from the machine's identity"
    ),
    "hdfs": "HDFS are the name in HADOOP_USER_NAME, or the name of this process's user",
}  # where the credentials come from, by the scheme of a store's URI
_READS = ("list", "get", "get_ranges")  # operations that change nothing


class ObjectInfo(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Metadata of one object, from a listing or a HEAD request.

    A listing makes 100,000 of them, so this is a Struct without garbage collection: a quarter of a dataclass's cost.
    """

    name: str
    size: int
    etag: str  # S3: the ETag. Local file: `size-mtime-ctime`, times in ns; a write in a later clock tick changes it
    modified_ms: int = 0  # Unix ms of the last write, by the server's clock; 0: unknown. Not compared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectInfo) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, int, str]:
        return self.name, self.size, self.etag


class ObjectNotFoundError(InputError):
    """No object has this name."""

    uri: str
    name: str

    def __str__(self) -> str:
        return f"no object {self.name!r} exists in {self.uri}"


class ObjectStoreUnavailableError(RetryableError):
    """The server or disk refused, timed out or broke off, and the retries failed too."""

    uri: str
    operation: str
    reason: str

    def __str__(self) -> str:
        if self.operation.partition(" ")[0] in _READS:
            return (
                f"{self.operation} failed at {self.uri}: {self.reason}. Check the endpoint, the disk and the network, "
                "then run again."
            )
        return (
            f"{self.operation} failed at {self.uri}: {self.reason}. Check the endpoint, the disk and the network, "
            "then run again. A commit whose answer was lost is recognised, and no work is done twice."
        )


class ObjectStoreFullError(RetryableError):
    """The disk or the quota of the store is full."""

    uri: str
    operation: str
    size: int

    def __str__(self) -> str:
        return (
            f"{self.operation} of {self.size} bytes failed at {self.uri}: no space left. "
            "This write changed nothing. Free space there, then run again."
        )


class AccessDeniedError(InputError):
    """The store exists and denies access: credentials are missing or wrong, or lack the permission."""

    uri: str
    operation: str
    reason: str

    def __str__(self) -> str:
        denied = (
            f"{self.operation} is not allowed at {self.uri}: {self.reason}. "
            "Give the process valid credentials with this permission."
        )
        chain = _CREDENTIALS.get(self.uri.partition(":")[0])
        return denied if chain is None else f"{denied} Credentials for {chain}."


class ExpiredCredentialsError(AccessDeniedError):
    """The session token of the process has expired."""

    def __str__(self) -> str:
        return (
            f"{self.operation} failed at {self.uri}: the credentials of this process have expired ({self.reason}). "
            "Renew them (`aws sso login`, or new values of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
            "AWS_SESSION_TOKEN), and run again. No work is done twice."
        )


class ClockSkewError(AccessDeniedError):
    """The clock of this machine differs too much from the server's."""

    def __str__(self) -> str:
        return (
            f"{self.operation} failed at {self.uri}: the clock of this machine differs from the server's by more than "
            f"the server accepts, about 15 minutes ({self.reason}). Set the clock (NTP), and run again. No work "
            "is done twice."
        )


class BadStoreError(InputError):
    """The store is unusable as named or configured: an invalid URI, or a bucket that does not exist."""

    uri: str
    reason: str

    def __str__(self) -> str:
        return f"object store {self.uri}: {self.reason}"


class BadObjectNameError(InputError):
    """The name could point outside the store, or is invalid in some stores."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.name!r} cannot name an object: {self.reason}. Names are relative and separated by `/`; "
            "no part may be empty, `.` or `..`."
        )


class ShortReadError(DamagedError, hides_row_values=True):
    """The object ends before the requested bytes: it was truncated, or the caller's index is wrong."""

    uri: str
    name: str
    offset: int
    length: int
    available: int

    def __str__(self) -> str:
        return (
            f"object {self.name!r} in {self.uri}: requested {self.length} bytes at offset {self.offset}, found "
            f"{self.available}. The object is truncated, or its index describes another object. "
            "Restore it from a copy of the bucket."
        )


def checked_name(name: str) -> str:
    """Return `name` if it is a valid object name. Raises BadObjectNameError."""
    if not name:
        raise BadObjectNameError(name, "it is empty")
    if "\0" in name:
        raise BadObjectNameError(name, "it contains a NUL character")
    for part in name.split("/"):
        if part in ("", ".", ".."):
            raise BadObjectNameError(name, f"it has the part {part!r}")
        if len(part.encode("utf-8", "surrogatepass")) > MAX_NAME_PART_BYTES:
            raise BadObjectNameError(name, f"a part is longer than {MAX_NAME_PART_BYTES} bytes")
    return name


class ObjectStore(Protocol):
    """A set of named byte strings that the engine writes once and never changes.

    Names are relative and separated by `/`. They never start with `/` and contain no `..`.
    """

    uri: str  # sufficient to open the store in another process; contains no credentials

    def get(self, name: str) -> bytes:
        """Read the whole object. Raises ObjectNotFoundError."""
        ...

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read the bytes at each (offset, length), in the order of `ranges`.

        Neighbouring ranges share a request, and requests run in parallel. A negative offset counts from the end:
        (-8, 8) is the last 8 bytes.

        Raises: ObjectNotFoundError; ShortReadError if the object ends before a range does.
        """
        ...

    def head(self, name: str) -> ObjectInfo:
        """Return size, ETag and time of the last write. Raises ObjectNotFoundError."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write the whole object, atomically and durably. Replaces an existing object."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object unless its name exists. Returns True if the stored object is `data`, else False.

        The result is never uncertain: if the answer to the write is lost, the object is read back and compared.

        Requires: `data` contains bytes unique to this writer (its writer id).
        """
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """List objects whose names start with `prefix`, in name order (UTF-8 bytes), after `start_after`.

        Omits names that end in `/`, which some tools write as folders. Concurrent writes and deletes may or may not
        show.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete the objects. Ignores names that do not exist."""
        ...


def object_exists(objects: ObjectStore, name: str) -> bool:
    """Return whether an object exists. Cost: one HEAD request."""
    try:
        objects.head(name)
    except ObjectNotFoundError:
        return False
    return True
