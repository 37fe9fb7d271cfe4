"""Check whether a table's epoch belongs to this store's history, before publishing updates the table."""

from tussock.jobs.settings.home import Home
from tussock.jobs.sinks.base import ForeignTableError
from tussock.jobs.sinks.records import Record, read_records, write_record
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStore


class StoreHistory:
    """The history of a store, compared with the records in the folder that it publishes to. Not thread-safe.

    Cost: one LIST of the records; one GET for each epoch that is looked up.
    """

    def __init__(self, meta: MetaStore, home: Home | None, tables: ObjectStore) -> None:
        """
        Args:
            home: the store's identity; None if it has none yet.
            tables: the folder that it publishes to.
        """
        self._meta, self._home, self._tables = meta, home, tables
        self._digests: dict[int, str] = {}
        self._claimed: set[int] = set()
        self._known = set(meta.read_latest().epochs)  # epochs that the store has
        self.records = read_records(tables)

    def require_owned(self) -> None:
        """Raise ForeignTableError if another store publishes to the folder."""
        assert self._home is not None
        if others := sorted({record.store for record in self.records} - self._home.ids):
            finding = f"contains tables of another store (identity {others[0]}, expected {self._home.id})"
            raise ForeignTableError(self._tables.uri, finding)

    def digest_of(self, epoch: int) -> str:
        """Return the digest of a readable epoch; empty if the store never had it or no longer keeps it."""
        if not self._digests.get(epoch):
            self._digests[epoch] = self._meta.epoch_digest(epoch) or ""
        return self._digests[epoch]

    def has_epoch(self, epoch: int) -> bool:
        """Return whether the store has committed an epoch, readable or not."""
        if epoch not in self._known and self._meta.has_epoch(epoch):
            self._known.add(epoch)
        return epoch in self._known

    def objection_to(self, epoch: int, *, confirmed: bool, digest: str) -> str | None:
        """Return why a table at `epoch` cannot be updated; None if its rows belong to this store's epoch.

        Args:
            confirmed: a manifest of this store's history lists the table with that epoch, which may have expired since.
            digest: of the table's epoch, if the table contains it; else the records have it.
        """
        if not (digests := {digest} if digest else self._digests_in_records(epoch)):
            return f"no record tells which store wrote it (epoch {epoch})"
        mine = self.digest_of(epoch)
        if len(digests) > 1:
            return f"two histories contain its epoch {epoch}: a store was restored from a copy"
        if mine in digests or (not mine and confirmed):
            return None
        if not mine and self.has_epoch(epoch):
            return f"it contains epoch {epoch}, which is no longer kept"
        return f"it contains epoch {epoch}, which this store lacks: the store was restored from a copy or created again"

    def strangers(self) -> frozenset[Record]:
        """Return the records of epochs that this store does not have."""
        return frozenset(
            r for r in self.records if not self.has_epoch(r.epoch) or self.digest_of(r.epoch) not in ("", r.digest)
        )

    def claim(self, epoch: int) -> None:
        """Record that tables may contain this store's `epoch` from now on. One PUT, the first time."""
        assert self._home is not None
        record = Record(epoch, self.digest_of(epoch), self._home.id)
        if epoch not in self._claimed and record not in self.records:
            write_record(self._tables, record)
        self._claimed.add(epoch)

    def settled_records(self, epoch: int, kept: frozenset[int]) -> frozenset[Record]:
        """Return the records to remove once every table is at `epoch`.

        Records that were written after the last read stay, because another publisher is active.

        Args:
            kept: epochs in which the rows of some table last changed.
        """
        strangers = self.strangers()
        return frozenset(r for r in self.records if r in strangers or (r.epoch < epoch and r.epoch not in kept))

    def _digests_in_records(self, epoch: int) -> set[str]:
        if epoch not in {record.epoch for record in self.records}:
            self.records = read_records(self._tables)  # another publisher may have written the record since
        return {record.digest for record in self.records if record.epoch == epoch}
