"""Detours: what a barrier goes around where an input can't be taken."""

from collections.abc import Sequence
from dataclasses import dataclass

from tussock.jobs.logical.statements import Drop
from tussock.jobs.plan.apply import apply_statement
from tussock.jobs.plan.definition import find
from tussock.statestore.meta.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Detour:
    """What a barrier goes around, at a person's wish, where an input can't be taken.

    Args:
        skip_files: paths not to read; they count as taken.
        repin_files: paths to take as they are now.
        skip_entries: positions of log entries not to replay.
        drop: relations to drop, with everything that reads them.
        pause: views that take no part from here on, with the views that read them; their rows stay as they are.
        take_log: also take what the log has grown by since: a correction lands in the same epoch as the row it corrects.
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

    def notes(self) -> tuple[str, ...]:
        """What was left out or done differently, as text for a person."""
        parts = {
            "skipped file": self.skip_files,
            "re-pinned file": self.repin_files,
            "dropped": self.drop,
            "paused": self.pause,
        }
        named = tuple(f"{what} {name}" for what, names in parts.items() for name in names)
        log = ("took the log as it is now",) if self.take_log else ()
        return (*named, *(f"skipped log entry {position}" for position in self.skip_entries), *log)


def dropped(catalog: Catalog, names: Sequence[str], epoch: int) -> Catalog:
    """The catalog without some relations and all that reads them. Raises UnknownRelationError."""
    for name in dict.fromkeys(names):
        catalog = apply_statement(catalog, Drop(find(catalog, name).kind, name, cascade=True), epoch)
    return catalog
