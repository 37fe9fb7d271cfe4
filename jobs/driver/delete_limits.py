"""Hold a source whose delivery would delete more keys than its option `delete_limit` allows.

Half a dump looks like the deletion of the other half. The actors count the keys, and the driver compares the sums
before it seals the epoch.
"""

from collections import Counter
from collections.abc import Iterable

from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.schedule.schedule import Schedule
from tussock.jobs.sources.keyed import delete_limit_of
from tussock.jobs.wire.epoch_task import FragmentReport


class DeleteLimitError(SourceFileError, hides_row_values=True):
    """A delivery lacks more of the present keys than `delete_limit` allows."""

    source: str
    limit: int  # percent
    present: int
    deleted: int

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: a delivery lacks {self.deleted:,} of the {self.present:,} present keys, more "
            f"than {self.limit}% (delete_limit). The rows of the delivery before stay. If the file is incomplete, "
            "write it again, and the next run reads it. If it is right, run "
            f"ALTER SOURCE {self.source} SET OPTIONS (delete_limit '100%'), then an epoch, and set the limit again."
        )


def require_within_limits(reports: Iterable[FragmentReport], schedule: Schedule) -> None:
    """Raise DeleteLimitError for the first source whose delivery deletes too many keys."""
    counted: dict[int, Counter[str]] = {}
    for report in reports:
        if report.counters:
            counted.setdefault(report.relation_id, Counter()).update(report.counters)
    for scheduled in schedule.all_fragments() if counted else ():
        if scheduled.source is None or (counts := counted.get(scheduled.relation_id)) is None:
            continue
        source = scheduled.source.statement
        limit = delete_limit_of(source)
        if limit is not None and counts["deleted"] * 100 > limit * counts["present"]:
            raise DeleteLimitError(source.name, limit, counts["present"], counts["deleted"])
