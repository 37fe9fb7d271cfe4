"""What can go wrong in meta, by what its reader has to do."""

from tussock.statestore.errors import DamagedError, InputError, MustStopError


class LostRaceError(MustStopError):
    """Another writer was first; what this one wanted is not and will never be visible."""

    def __init__(self, lost: str, winner: str) -> None:
        super().__init__(lost, winner)
        self.lost, self.winner = lost, winner

    def __str__(self) -> str:
        return f"{self.lost} lost: {self.winner}. Nothing of this run is visible; stop, and start again from the latest version."


class DamagedDocumentError(DamagedError):
    """A meta object that is missing though it must exist, or whose bytes are not what was written."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"object {self.name!r} is not readable: {self.reason}. Restore it from a copy of the bucket; nothing can be read past it."


class BadDeltaError(DamagedError):
    """A version delta that cannot follow the version before it."""

    def __init__(self, delta_id: int, reason: str) -> None:
        super().__init__(delta_id, reason)
        self.delta_id, self.reason = delta_id, reason

    def __str__(self) -> str:
        return (
            f"version delta {self.delta_id} cannot be applied: {self.reason}. "
            "It was written past the commit protocol; stop all writers and keep a copy of the bucket."
        )


class SettingError(InputError):
    """A setting of the store, or an argument of a meta operation, that cannot be taken."""

    def __init__(self, setting: str, found: str, expected: str) -> None:
        super().__init__(setting, found, expected)
        self.setting, self.found, self.expected = setting, found, expected

    def __str__(self) -> str:
        return f"{self.setting} is {self.found}, expected {self.expected}"


class NotInitialisedError(InputError):
    """There is no store here yet."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.uri = uri

    def __str__(self) -> str:
        return f"{self.uri} holds no store. Check the address, or create one with `tussock init`."


class AlreadyInitialisedError(InputError):
    """`init` where a store exists already."""

    def __init__(self, uri: str, found: str) -> None:
        super().__init__(uri, found)
        self.uri, self.found = uri, found

    def __str__(self) -> str:
        return (
            f"{self.uri} already holds a store ({self.found}). Nothing was changed; use it, or choose an empty place."
        )


class ConditionalPutIgnoredError(InputError):
    """The server overwrites where it was asked to create only: two writers could both win a commit."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.uri = uri

    def __str__(self) -> str:
        return (
            f"the server of {self.uri} ignores `If-None-Match: *`: it replaced an object that it was asked only to create. "
            "Commits would not be safe there; use a server with conditional writes (AWS S3, MinIO, versitygw, …)."
        )


class EpochNotCommittedError(InputError):
    """An epoch that is not, or not yet, committed."""

    def __init__(self, epoch: int, committed: int) -> None:
        super().__init__(epoch, committed)
        self.epoch, self.committed = epoch, committed

    def __str__(self) -> str:
        if self.epoch < self.committed:
            there = f"the last committed one is {self.committed}, and `tussock inspect epochs` lists those before it"
            return f"there is no epoch {self.epoch}; {there}."
        return f"epoch {self.epoch} is not committed; the last committed one is {self.committed}. Wait for it, or read that one."


class EpochExpiredError(InputError):
    """An epoch below the floor: compaction may have dropped what a reader there would see."""

    def __init__(self, epoch: int, floor: int) -> None:
        super().__init__(epoch, floor)
        self.epoch, self.floor = epoch, floor

    def __str__(self) -> str:
        return f"epoch {self.epoch} is no longer kept; the oldest readable one is {self.floor}. Read a newer one, or keep more (retention)."


class PinLapsedError(MustStopError):
    """A reader's lease was over when somebody raised the floor."""

    def __init__(self, epoch: int, holder: str) -> None:
        super().__init__(epoch, holder)
        self.epoch, self.holder = epoch, holder

    def __str__(self) -> str:
        return (
            f"the pin of {self.holder!r} on epoch {self.epoch} is gone: its lease was over when retention moved on. What was read so far is"
            " right; objects it would read next may be removed. Pin an epoch again, with a longer lease or renewed sooner, and start over."
        )


class NoSuchVersionError(InputError):
    """A version id that the log has not reached."""

    def __init__(self, version_id: int, newest: int) -> None:
        super().__init__(version_id, newest)
        self.version_id, self.newest = version_id, newest

    def __str__(self) -> str:
        return f"there is no version {self.version_id}; versions go from 0 to {self.newest}"
