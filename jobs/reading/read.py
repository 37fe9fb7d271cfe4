"""A relation's rows as Arrow, read in this process: no SQL, no JVM."""

import warnings

from tussock.jobs.plan.definition import UnknownRelationError
from tussock.jobs.reading.moment import utc
from tussock.statestore.errors import InputError, did_you_mean
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.epoch import epoch_ms
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.version import HummockVersion


class NotThereYetError(InputError):
    """A relation was read at an epoch that does not hold it yet. `since` is the epoch that does, None while none is committed."""

    def __init__(self, name: str, epoch: int, since: int | None = None) -> None:
        super().__init__(name, epoch, since)
        self.name, self.epoch, self.since = name, epoch, since

    def __str__(self) -> str:
        if self.since is not None:
            where = f"epoch {self.epoch}" if self.epoch else "the store before its first epoch"
            at = utc(epoch_ms(self.since))
            return f"{self.name!r} is not in {where} yet: it came with epoch {self.since} ({at}); read that one or a later one"
        where = f"epoch {self.epoch}" if self.epoch else "any epoch"
        return f"{self.name!r} is in the log, not yet in {where}; run an epoch (`tussock epoch`, Session.flush) and ask again"


class BackwardsError(InputError):
    """Changes were asked for from an epoch to an older one."""

    def __init__(self, since: int, until: int) -> None:
        super().__init__(since, until)
        self.since, self.until = since, until

    def __str__(self) -> str:
        return f"changes from epoch {self.since} until epoch {self.until}: the first is the later one; expected since <= until"


class PausedViewWarning(UserWarning):
    """A view is read that is paused: its rows are older than the epoch that is read."""

    def __init__(self, name: str, epoch: int, reason: str = "") -> None:
        super().__init__(name, epoch, reason)
        self.name, self.epoch, self.reason = name, epoch, reason

    def __str__(self) -> str:
        return (
            f"view {self.name!r} is paused since epoch {self.epoch}: its rows are those of the epoch before. "
            f"{self.reason}{self.reason and '. '}"
            f"`tussock apply PIPELINE --resume {self.name}` has it go on."
        )


class HeldViewWarning(UserWarning):
    """A view is read that is held back: its rows are older than those of the published epoch."""

    def __init__(self, name: str, epoch: int, published: int) -> None:
        super().__init__(name, epoch, published)
        self.name, self.epoch, self.published = name, epoch, published

    def __str__(self) -> str:
        return (
            f"{self.name!r} is held back: its rows are those of epoch {self.epoch}. Since then its quality suite, or that of a view it "
            f"reads, has not passed. Reading epoch {self.published} by its number gives the rows that wait."
        )


class NeverPassedError(InputError):
    """A view that readers do not see yet: its quality suite has failed ever since there is one."""

    def __init__(self, name: str, epoch: int) -> None:
        super().__init__(name, epoch)
        self.name, self.epoch = name, epoch

    def __str__(self) -> str:
        return (
            f"{self.name!r} is held back: no rows of it have passed the quality gate yet, for its own suite or that of a view it reads "
            f"fails. Reading epoch {self.epoch} by its number gives the rows that failed."
        )


class UnknownColumnError(InputError):
    """A column that a relation does not have."""

    def __init__(self, relation: str, column: str, existing: tuple[str, ...]) -> None:
        super().__init__(relation, column, existing)
        self.relation, self.column, self.existing = relation, column, existing

    def __str__(self) -> str:
        near = did_you_mean(self.column, self.existing)
        return f"{self.relation!r} has no column {self.column!r}; those that exist: {', '.join(self.existing)}{near and '.'}{near}"


def relation_at(version: HummockVersion, sight: Sight, name: str) -> Relation:
    """The table or view of this name that is seen, as Spark would find it: whatever its letters' case. Raises UnknownRelationError,
    NeverPassedError."""
    there = sight.relations(version.catalog)
    for relation in there:
        if relation.name == name.lower():
            return relation
    refuse_unseen(version, sight, name)
    raise UnknownRelationError(name, "relation", tuple(sorted(r.name for r in there)))


def refuse_unseen(version: HummockVersion, sight: Sight, name: str) -> None:
    """Raises NeverPassedError for a relation that is there and that nobody is to see yet."""
    if name.lower() in sight.held and any(r.name == name.lower() for r in version.catalog.at(sight.epoch)):
        raise NeverPassedError(name.lower(), sight.epoch)


def warn_of_age(relation: Relation, sight: Sight) -> None:
    """Warns PausedViewWarning, HeldViewWarning where the rows that are seen are older than the epoch."""
    epoch = sight.epoch_of(relation.name)
    if epoch < sight.epoch:
        warnings.warn(HeldViewWarning(relation.name, epoch, sight.epoch), stacklevel=3)
    warn_of_pause(relation, epoch)


def warn_of_pause(relation: Relation, epoch: int) -> None:
    """Warns PausedViewWarning where the rows of `epoch` are older than it."""
    if relation.paused is not None and relation.paused_at(epoch):
        warnings.warn(PausedViewWarning(relation.name, relation.paused, relation.paused_for), stacklevel=3)
