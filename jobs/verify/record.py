"""The outcome of a verification: one verdict per view.

The store keeps the newest one, as JSON, in `verify/last.json`.
"""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from tussock.jobs.settings.row_values import without_values
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import InputError
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

LAST = "verify/last.json"


class NothingToVerifyError(InputError, hides_row_values=True):
    """No epoch is published yet, and none was named."""

    committed: int
    """The newest epoch; 0: none."""

    def __str__(self) -> str:
        if not self.committed:
            return "No epoch is published yet, so no view has rows. Run `tussock epoch` first."
        return (
            f"No epoch is published yet. The newest one, {self.committed}, waits for that. To compare its rows, run "
            f"`tussock verify --epoch {self.committed}`."
        )


def choose_epoch(version: HummockVersion, named: int | None) -> int:
    """Return the epoch to verify: the named one, or the published one. Raises NothingToVerifyError."""
    if not (epoch := version.published if named is None else named):
        raise NothingToVerifyError(version.epoch)
    return epoch


class Verdict(StrEnum):
    """The result for one view. The values are stored."""

    EQUAL = "equal"  # to Spark's answer
    DIFFERENT = "different"
    UNVERIFIABLE = "not verifiable"  # Spark could not compute the answer from the same input
    PAUSED = "paused"  # its rows are older than the epoch; a rebuild resumes it
    BUILDING = "being built"  # no reader sees it yet


class Example(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row that differs. Values are texts as Spark casts them; None is NULL.

    `ours` is empty if the row is missing from the view. `spark` is empty if only the view has the row.
    """

    key: dict[str, str | None]  # columns that identify the row
    ours: dict[str, str | None] = {}
    spark: dict[str, str | None] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in which the view differs from Spark. Empty for a row that only one side has."""
        if not self.ours or not self.spark:
            return ()
        return tuple(name for name, value in self.ours.items() if self.spark[name] != value)

    def __str__(self) -> str:
        if not self.spark:
            return f"extra: {_row_text(self.ours)}"
        if not self.ours:
            return f"missing: {_row_text(self.spark)}"
        apart = "; ".join(
            f"{c}: {_value_text(self.ours[c])}, Spark has {_value_text(self.spark[c])}" for c in self.columns
        )
        return f"{_row_text(self.key)}: {apart or 'floats differ, although their texts are equal'}"


def _row_text(values: dict[str, str | None]) -> str:
    return ", ".join(f"{name}={_value_text(value)}" for name, value in values.items())


def _value_text(value: str | None) -> str:
    return "NULL" if value is None else value


class ViewCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result for one view.

    Args:
        epoch: the epoch whose rows were compared.
        finished_ms: Unix milliseconds.
        percent: the share of the keys that was compared.
        reason: why the verdict is neither equal nor different, or how the view's columns differ.
        rows: the number of compared rows of the view.
        spark_rows: the number of compared rows of Spark's answer.
        missing: rows of Spark's answer that the view lacks.
        extra: rows of the view that Spark's answer lacks.
        examples: a few missing or extra rows.
        rounded: rows that are equal apart from the rounding of floats.
        open_columns: columns that were not compared, because Spark's own answer varies with the order of its input.
        order_dependent: functions and clauses of the SELECT that have several right answers for rows that are equal in
            their order. Empty if the rows are equal, or if open_columns names the columns.
        below: views that it reads, directly or not, that differ or could not be verified.
        seconds: the time to read the stored rows.
        spark_seconds: the time to compute Spark's answer.
    """

    view: str
    verdict: Verdict
    reason: str = ""
    epoch: int = 0
    finished_ms: int = 0
    percent: int = 100
    rows: int = 0
    spark_rows: int = 0
    missing: int = 0
    extra: int = 0
    examples: tuple[Example, ...] = ()
    rounded: int = 0
    open_columns: tuple[str, ...] = ()
    order_dependent: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    seconds: float = 0.0
    spark_seconds: float = 0.0

    def without_values(self) -> "ViewCheck":
        """Return the result without values of rows."""
        return msgspec.structs.replace(self, examples=(), reason=without_values(self.reason))


class Repair(msgspec.Struct, frozen=True):
    """The views that the statement at this position of the log rebuilds, in the epoch that takes it."""

    views: tuple[str, ...]
    position: int


class Verification(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results for some or all views of a store, in catalog order.

    `repair` comes from the last run that found damage.
    """

    views: tuple[ViewCheck, ...]
    repair: Repair | None = None

    def with_verdict(self, verdict: Verdict) -> tuple[ViewCheck, ...]:
        """The views with this verdict."""
        return tuple(v for v in self.views if v.verdict is verdict)

    @property
    def different(self) -> tuple[str, ...]:
        """Names of the views that differ."""
        return tuple(v.view for v in self.with_verdict(Verdict.DIFFERENT))

    @property
    def proven(self) -> bool:
        """Whether all views, and all views that they read, were compared and are equal."""
        return all(v.verdict is Verdict.EQUAL and not v.below for v in self.views)


def write_last(objects: ObjectStore, verification: Verification, live: Collection[str]) -> None:
    """Store the newest result of each view.

    Args:
        live: names of the views that exist; results of others are dropped.
    """
    new = {v.view for v in verification.views}
    before = read_last(objects)
    other_views = () if before is None else tuple(v for v in before.views if v.view not in new and v.view in live)
    repair = (
        verification.repair
        if verification.repair is not None or before is None or verification.different
        else before.repair
    )
    objects.put(LAST, msgspec.json.encode(Verification((*other_views, *verification.views), repair)))


def read_last(objects: ObjectStore) -> Verification | None:
    """The newest result of each view. None if the store was never verified. Cost: one GET."""
    try:
        return decode_json(objects.get(LAST), Verification)
    except ObjectNotFoundError:
        return None
