"""Errors of meta, by the action that they require."""

from tussock.statestore.errors import DamagedError, InputError, MustStopError


class LostRaceError(MustStopError):
    """Another writer was first. The change of this writer is not visible and never will be."""

    lost: str
    winner: str

    def __str__(self) -> str:
        return (
            f"{self.lost} lost: {self.winner}. Nothing of this run is visible. "
            "Stop, and start again from the latest version."
        )


class DamagedDocumentError(DamagedError):
    """A required meta object is missing, or its bytes differ from the bytes that were written."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"object {self.name!r} is not readable: {self.reason}. Restore it from a copy of the bucket; "
            "the objects after it cannot be read without it."
        )


class BadDeltaError(DamagedError):
    """A version delta does not fit the version before it."""

    delta_id: int
    reason: str

    def __str__(self) -> str:
        return (
            f"version delta {self.delta_id} cannot be applied: {self.reason}. "
            "A writer bypassed the commit protocol. Stop all writers and keep a copy of the bucket."
        )


class SettingError(InputError):
    """A setting of the store, or an argument of a meta operation, is invalid."""

    setting: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"{self.setting} is {self.value}, expected {self.expected}"


class NotInitialisedError(InputError, hides_row_values=True):
    """No store exists at this address."""

    uri: str

    def __str__(self) -> str:
        return f"{self.uri} contains no store. Check the address, or create a store with `tussock init`."


class AlreadyInitialisedError(InputError, hides_row_values=True):
    """`init` found an existing store."""

    uri: str
    settings: str

    def __str__(self) -> str:
        return (
            f"{self.uri} already contains a store ({self.settings}). Nothing was changed. "
            "Use this store, or choose an empty place."
        )


class ConditionalPutIgnoredError(InputError):
    """The server replaced an object although the request only permits creation: two writers could both win a commit."""

    uri: str

    def __str__(self) -> str:
        return (
            f"the server of {self.uri} ignores `If-None-Match: *`: it replaced an existing object. "
            "Commits are not safe there. Use a server with conditional writes (AWS S3, MinIO, versitygw, …)."
        )


class EpochNotCommittedError(InputError):
    """The epoch is not committed, or not yet."""

    epoch: int
    committed: int

    def __str__(self) -> str:
        if self.epoch < self.committed:
            there = f"the last committed one is {self.committed}, and `tussock inspect epochs` lists those before it"
            return f"epoch {self.epoch} does not exist; {there}."
        return (
            f"epoch {self.epoch} is not committed; the last committed epoch is {self.committed}. "
            "Wait for it, or read the committed one."
        )


class EpochExpiredError(InputError):
    """The epoch is below the floor: compaction may have dropped rows that a reader would see."""

    epoch: int
    floor: int

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is no longer kept; the oldest readable epoch is {self.floor}. "
            "Read a newer epoch, or increase the retention."
        )


class PinLapsedError(MustStopError):
    """A reader's lease had expired when another process raised the floor."""

    epoch: int
    holder: str

    def __str__(self) -> str:
        return (
            f"the pin of {self.holder!r} on epoch {self.epoch} was removed: its lease had expired when retention ran. "
            "Rows read so far are correct; objects that remain to be read may be deleted. "
            "Pin an epoch again, with a longer lease or earlier renewals, and start over."
        )


class BranchExistsError(InputError):
    """A branch of this name is open."""

    name: str
    epoch: int

    def __str__(self) -> str:
        return (
            f"branch {self.name!r} exists; it began at epoch {self.epoch}. Use it with --branch {self.name}, choose "
            f"another name, or end it with `tussock branch end {self.name}`."
        )


class BranchGoneError(InputError, hides_row_values=True):
    """The parent has no open branch of this name."""

    name: str
    others: tuple[str, ...] | None = None  # the open ones; None: unknown

    def __str__(self) -> str:
        there = f": the open branches are {', '.join(self.others)}" if self.others else ": the store has no open branch"
        return (
            f"branch {self.name!r} does not exist, or has ended{'' if self.others is None else there}. Its rows are "
            f"gone with it. Create it with `tussock branch create {self.name}`."
        )


class BranchedBranchError(InputError):
    """A branch of a branch was requested."""

    name: str

    def __str__(self) -> str:
        return (
            f"this store is the branch {self.name!r}, and a branch has no branches. Omit --branch. If the environment "
            "is the branch, name the environment of its parent with --env."
        )


class EpochMergedError(InputError):
    """Compaction has merged the rows of an epoch with later ones, so no branch can begin there."""

    epoch: int
    newest: int

    def __str__(self) -> str:
        return (
            f"no branch can begin at epoch {self.epoch}: compaction has since merged its SSTs with those of later "
            f"epochs. Omit --at, and the branch begins at the newest epoch, {self.newest}."
        )


class NoSuchVersionError(InputError):
    """The log has not reached this version id."""

    version_id: int
    newest: int

    def __str__(self) -> str:
        return f"version {self.version_id} does not exist; versions range from 0 to {self.newest}"
