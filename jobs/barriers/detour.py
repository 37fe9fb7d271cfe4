"""Detours: changes to a barrier that avoid an input that blocks its epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.logical.statements import Drop
from tussock.statestore.meta.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Detour:
    """The changes that a user requests for a barrier whose input blocks the epoch.

    Args:
        skip_files: paths to mark as taken without reading them.
        repin_files: paths to take with their current content.
        skip_entries: positions of log entries not to replay.
        drop: relations to drop, with all relations that read them.
        pause: views to pause, with the views that read them; they keep their rows.
        take_log: also take newer log entries, so that a correction is in the same epoch as the row that it corrects.
    """

    skip_files: tuple[str, ...] = ()
    repin_files: tuple[str, ...] = ()
    skip_entries: tuple[int, ...] = ()
    drop: tuple[str, ...] = ()
    pause: tuple[str, ...] = ()
    take_log: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.skip_files or self.repin_files or self.skip_entries or self.drop or self.pause or self.take_log
        )

    def describe_changes(self) -> tuple[str, ...]:
        """Describe the changes as text for the user."""
        parts = {
            "skipped file": self.skip_files,
            "re-pinned file": self.repin_files,
            "dropped": self.drop,
            "paused": self.pause,
        }
        named = tuple(f"{what} {name}" for what, names in parts.items() for name in names)
        log = ("took the newer log entries",) if self.take_log else ()
        return (*named, *(f"skipped log entry {position}" for position in self.skip_entries), *log)


def drop_relations(catalog: Catalog, names: Sequence[str], epoch: int) -> Catalog:
    """Return the catalog without some relations and their readers. Raises UnknownRelationError."""
    for name in dict.fromkeys(names):
        catalog = apply_statement(catalog, Drop(find_relation(catalog, name).kind, name, cascade=True), epoch)
    return catalog
