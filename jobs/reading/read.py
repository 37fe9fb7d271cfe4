"""Look up relations for reads in this process, and errors of reads: no SQL, no JVM."""

import warnings

from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.reading.moment import utc_text
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.epoch import epoch_ms
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.version import HummockVersion


class NotThereYetError(InputError):
    """A relation does not exist yet at the epoch that is read.

    Args:
        since: the first epoch that contains it; None if no such epoch is committed.
        published: whether readers see that epoch.
    """

    name: str
    epoch: int
    since: int | None = None
    published: bool = True

    def __str__(self) -> str:
        if self.since is not None:
            where = f"in epoch {self.epoch}" if self.epoch else "before the store's first epoch"
            at = utc_text(epoch_ms(self.since))
            hidden = "" if self.published else ". That epoch is not published yet; `tussock epoch` publishes it"
            return (
                f"{self.name!r} does not exist {where}: it was created in epoch {self.since} ({at}); read that epoch "
                f"or a later one{hidden}"
            )
        where = f"epoch {self.epoch}" if self.epoch else "any epoch"
        return (
            f"{self.name!r} is in the log, but not yet in {where}; run an epoch (`tussock epoch`, Session.flush) and "
            "read again"
        )


class BackwardsError(InputError):
    """Changes were requested from an epoch to an older one."""

    since: int
    until: int

    def __str__(self) -> str:
        return f"changes from epoch {self.since} until epoch {self.until}: the first is later; expected since <= until"


class PausedViewWarning(UserWarning):
    """A paused view is read: its rows are older than the requested epoch."""

    def __init__(self, name: str, epoch: int, reason: str = "") -> None:
        super().__init__(name, epoch, reason)
        self.name, self.epoch, self.reason = name, epoch, reason

    def __str__(self) -> str:
        return (
            f"view {self.name!r} has been paused since epoch {self.epoch}: its rows are those of the previous epoch. "
            f"{self.reason}{self.reason and '. '}"
            f"To resume it, run `tussock apply PIPELINE --resume {self.name}`."
        )


class HeldViewWarning(UserWarning):
    """A held-back view is read: its rows are older than the published epoch."""

    def __init__(self, name: str, epoch: int, published: int) -> None:
        super().__init__(name, epoch, published)
        self.name, self.epoch, self.published = name, epoch, published

    def __str__(self) -> str:
        return (
            f"{self.name!r} is held back: its rows are those of epoch {self.epoch}. Since then its checks, or "
            f"those of a relation that it reads, have failed. To read the withheld rows, read epoch {self.published} "
            "by its number."
        )


class WaitingChangesWarning(UserWarning):
    """A view is read as of the last committed epoch, and waiting statements will change it."""


class NeverPassedError(InputError, hides_row_values=True):
    """A view has no visible rows, because its quality suite has always failed."""

    name: str
    epoch: int

    def __str__(self) -> str:
        return (
            f"{self.name!r} is held back: none of its rows have passed the quality check, because its own suite or "
            f"that of a view it reads fails. To read the failed rows, read epoch {self.epoch} by its number."
        )


class UnknownColumnError(InputError):
    """A relation does not have the requested column."""

    relation: str
    column: str
    existing: tuple[str, ...]

    def __str__(self) -> str:
        near = did_you_mean(self.column, self.existing)
        return (
            f"{self.relation!r} has no column {self.column!r}; its columns are "
            f"{', '.join(self.existing)}{near and '.'}{near}"
        )


def relation_at(version: HummockVersion, sight: Sight, name: str) -> Relation:
    """Return the visible table or view of this name, ignoring case as Spark does.

    Raises UnknownRelationError, NeverPassedError.
    """
    there = sight.visible_relations(version.catalog)
    for relation in there:
        if relation.name == relation_key(name):
            return relation
    refuse_unseen(version, sight, name)
    raise UnknownRelationError(name, "relation", tuple(sorted(r.name for r in there)))


def refuse_unseen(version: HummockVersion, sight: Sight, name: str) -> None:
    """Raise NeverPassedError if a relation exists, but is not yet visible to readers."""
    key = relation_key(name)
    if key in sight.held and any(r.name == key for r in version.catalog.relations_at(sight.epoch)):
        raise NeverPassedError(key, sight.epoch)


def warn_of_age(relation: Relation, sight: Sight) -> None:
    """Warn PausedViewWarning or HeldViewWarning if the visible rows are older than the epoch."""
    epoch = sight.epoch_of(relation.name)
    if epoch < sight.epoch:
        warnings.warn(HeldViewWarning(relation.name, epoch, sight.epoch), stacklevel=3)
    warn_of_pause(relation, epoch)


def warn_of_pause(relation: Relation, epoch: int) -> None:
    """Warn PausedViewWarning if the rows of `epoch` are older than it."""
    if relation.paused is not None and relation.paused_at(epoch):
        warnings.warn(PausedViewWarning(relation.name, relation.paused, relation.paused_for), stacklevel=3)
