"""What a statement can name of other epochs than its own: `jobs.sql.time_travel.Epochs` over one version."""

from dataclasses import dataclass
from datetime import datetime

from jobs.catalog.reader import stored_table
from jobs.catalog.stored_rows import StoredRows
from statestore.meta.catalog import Relation, RelationKind
from statestore.meta.readable import check_readable
from statestore.meta.version import HummockVersion


@dataclass(frozen=True, slots=True)
class EpochsOf:
    """The epochs of one version, for a statement that reads at `epoch`."""

    stored: StoredRows
    version: HummockVersion
    epoch: int

    def at(self, moment: datetime) -> int:
        """The epoch whose rows readers saw then. Raises BadMomentError."""
        return self.stored.epoch_at(moment)

    def relation(self, name: str, epoch: int) -> Relation:
        """Warns PausedViewWarning.

        Raises: EpochNotCommittedError, EpochExpiredError; UnknownRelationError, NotThereYetError; NoStoredRowsError for a source.
        """
        check_readable(self.version, epoch)
        relation = self.stored.found(self.version, epoch, name)
        if relation.kind is not RelationKind.PLAIN_VIEW:
            stored_table(relation)
        return relation

    def changed(self, name: str, since: int, until: int | None) -> tuple[Relation, int]:
        """Raises as `StoredRows.changes`."""
        last = self.epoch if until is None else until
        return self.stored.changed(self.version, name, since, last), last
