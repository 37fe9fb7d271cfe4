"""The other epochs that a statement can refer to: `tussock.jobs.sql.time_travel.Epochs` over one version."""

from dataclasses import dataclass
from datetime import datetime

from tussock.jobs.reading.reader import stored_table
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.statestore.meta.catalog import Relation, RelationKind
from tussock.statestore.meta.sight import Sight
from tussock.statestore.meta.version import HummockVersion


@dataclass(frozen=True, slots=True)
class EpochsOf:
    """The epochs of one version, for a statement that reads the relations in `sight`."""

    stored: StoredRows
    version: HummockVersion
    sight: Sight

    def at(self, moment: datetime) -> Sight:
        """Return the readers' sight at that moment. Raises BadMomentError."""
        return self.stored.seen_at(moment)

    def relation(self, name: str, seen: Sight) -> Relation:
        """Return the relation in a sight. Warns PausedViewWarning, HeldViewWarning.

        Raises: EpochNotCommittedError, EpochExpiredError; UnknownRelationError, NotThereYetError; NoStoredRowsError for
        a source.
        """
        relation = self.stored.find_visible(self.stored.version_of(self.version, seen.epoch), seen, name)
        if relation.kind is not RelationKind.PLAIN_VIEW:
            stored_table(relation)
        return relation

    def changes_of(self, name: str, since: int, until: Sight | None) -> tuple[Relation, int]:
        """Return the relation and the last epoch of its changes. Raises as `StoredRows.changes`."""
        return self.stored.changes_of(self.version, name, since, self.sight if until is None else until)
