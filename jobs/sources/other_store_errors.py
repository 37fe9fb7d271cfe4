"""Errors of a relation of another store that is read as a source."""

from tussock.jobs.sources.errors import only_anew
from tussock.statestore.errors import InputError, did_you_mean


class NoOtherStoreError(InputError, hides_row_values=True):
    """The option `store` of a source is the address of no store."""

    source: str
    store: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.store} contains no store. If the store has moved, run ALTER SOURCE "
            f"{self.source} SET OPTIONS (store '…') with its present address. Otherwise correct the option."
        )


class OwnStoreError(InputError, hides_row_values=True):
    """A source would read the store that contains it."""

    source: str
    store: str
    relation: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: {self.store} is the store that contains the source. A view of the same store "
            f"needs no source: read {self.relation} by its name."
        )


class NoPublishedRelationError(InputError, hides_row_values=True):
    """The other store has published no rows of this relation."""

    source: str
    store: str
    relation: str
    existing: tuple[str, ...]

    def __str__(self) -> str:
        there = ", ".join(self.existing) or "none yet"
        return (
            f"source {self.source!r}: {self.store} has no published view or table {self.relation!r}; those with rows: "
            f"{there}.{did_you_mean(self.relation, self.existing)} Publish it there, or correct the option relation."
        )


class OtherStoreReplacedError(InputError, hides_row_values=True):
    """The store at the address does not continue the epochs that the source has read."""

    source: str
    store: str
    recorded: str
    current: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: the store at {self.store} is another one: the source has read {self.recorded}, "
            f"and found {self.current}. If the store has moved, run ALTER SOURCE {self.source} SET OPTIONS "
            f"(store '…') with its present address. {only_anew(self.source)}"
        )


class OtherEpochExpiredError(InputError):
    """The other store no longer keeps the epoch up to which the source has read."""

    source: str
    store: str
    epoch: int
    floor: int
    pin_for: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: it has read {self.store} up to epoch {self.epoch}, which that store no longer "
            f"keeps; its oldest readable epoch is {self.floor}. The source's pin there ended after {self.pin_for} "
            f"without a run. {only_anew(self.source)} To prevent this, run the pipeline more often, or set the "
            "option pin_for to a longer time."
        )


class CannotPinError(InputError):
    """The reading pipeline may not write pins into the other store."""

    source: str
    store: str
    reason: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: it cannot pin the epoch that it reads in {self.store}: {self.reason.rstrip('.')}."
            " Grant the pipeline the rights to read that store, and to put and delete objects below meta/pin/ there."
        )
