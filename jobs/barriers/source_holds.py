"""Holds: the new files of a failing source wait, and everything else continues.

    at the barrier   the reader fails to list or pin: the barrier takes nothing of that source (barriers/barrier.py)
    in an actor      a file cannot be read: its barrier is superseded by one without the source's new files
                     (jobs/trouble/supersede.py)

The catalog contains the hold from that epoch on, and SHOW SOURCES lists it, until a barrier finds that the cause is
gone. Views read the files that their sources have taken, so each view still equals its SELECT. The run that wanted the
files fails with HeldSourcesError after everything else is committed.
"""

import re
import warnings
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.settings.row_values import printed_reason
from tussock.jobs.settings.shared_reasons import shared_reasons
from tussock.jobs.sources.boundary import SourceTroubleError
from tussock.jobs.sources.kafka_errors import KafkaNeedsSparkError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Hold, Relation


class HoldKind(StrEnum):
    """Kinds of holds that the engine distinguishes. Other holds are stored under the name of their error's class.

    The values are stored and must not change, even if a class gets another name.
    """

    NEEDS_SPARK = "KafkaNeedsSparkError"  # a process without Spark could not list the source
    UNFORESEEN = "SourceTroubleError"  # one class for all unforeseen errors


def _kind_of(error: InputError | SourceAwayError) -> str:
    match error:
        case KafkaNeedsSparkError():
            return HoldKind.NEEDS_SPARK
        case SourceTroubleError():
            return HoldKind.UNFORESEEN
        case _:
            return type(error).__name__


class HeldSourcesError(InputError, hides_row_values=True):
    """New input of failing sources was not taken. Everything else was. `reasons` is by source."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        reasons = shared_reasons({source: printed_reason(reason) for source, reason in self.reasons.items()})
        findings = [
            f"source {sources[0]!r} is held: {reason}"
            if len(sources) == 1
            else f"sources {', '.join(map(repr, sources))} are held: {reason}"
            for sources, reason in reasons.groups
        ]
        lines = "\n  ".join(filter(None, (*findings, reasons.ending)))
        return (
            f"{lines}\n  New input of {', '.join(self.reasons)} waits until the cause is gone; the next run then takes "
            "it. Rows that were taken before stay. Everything else was taken and committed."
        )


class HeldSourceWarning(UserWarning):
    """A flush continued without the new input of a failing source."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source, self.reason = source, reason

    def __str__(self) -> str:
        return f"source {self.source!r} is held, and its new input waits: {printed_reason(self.reason)}"


def held_sources(catalog: Catalog, interval: Interval | None = None) -> dict[str, str]:
    """Return the sources whose new files were kept from a run of this interval, by name, with the reasons."""
    reason_by_source: dict[str, str] = {}
    for relation in catalog.live_relations():
        if reasons := [hold.reason for hold in holds_for_interval(relation, interval)]:
            reason_by_source[relation.name] = "\n  ".join(dict.fromkeys(reasons))
    return reason_by_source


def require_not_held(catalog: Catalog, interval: Interval | None = None) -> None:
    """Raises HeldSourcesError if files were kept from a run of this interval."""
    if reasons := held_sources(catalog, interval):
        raise HeldSourcesError(reasons)


def warn_of_held(catalog: Catalog, interval: Interval | None) -> None:
    """Warns with HeldSourceWarning for each source whose new files were kept from a run of this interval."""
    for source, reason in held_sources(catalog, interval).items():
        warnings.warn(HeldSourceWarning(source, reason), stacklevel=3)


def holds_text(before: Catalog, after: Catalog) -> tuple[str, ...]:
    """Describe the changes of holds between two catalogs: new holds, and released sources."""
    known = {r.id: _without_marks(r.holds) for r in before.live_relations()}
    begun = [
        f"holds {r.name}" for r in after.live_relations() if _without_marks(r.holds) - known.get(r.id, frozenset())
    ]  # the summary contains the reasons
    return (*begun, *(f"{r.name} continues" for r in after.live_relations() if known.get(r.id) and not r.holds))


def _without_marks(holds: tuple[Hold, ...]) -> frozenset[Hold]:
    """The holds without their marks, which only decide when a file is tried again."""
    return frozenset(msgspec.structs.replace(hold, mark="") for hold in holds)


def holds_for_interval(source: Relation, interval: Interval | None) -> tuple[Hold, ...]:
    """Return the holds that affect a run of this interval. A hold without a file affects every run."""
    statement = source_of(source)
    if statement is None:
        return ()
    return tuple(h for h in source.holds if not h.file or reader_of(statement).wants(statement, interval, h.file))


def hold_of(error: InputError | SourceAwayError, before: tuple[Hold, ...] = ()) -> Hold:
    """Return the hold for a reader's error, with epoch 0 until a barrier has one.

    If `before` contains a hold with the same cause, that one is returned, so that a persistent error causes no epochs.
    """
    reason = str(error).encode("utf-8", "backslashreplace").decode()  # a file name may contain bytes that are not UTF-8
    hold = Hold(_without_source(reason), 0, str(_kind_of(error)), getattr(error, "path", ""))
    return next((h for h in before if _comparison_key(h) == _comparison_key(hold)), hold)


def _without_source(reason: str) -> str:
    """Return a reason without the source's name, which each place that shows a hold adds."""
    return re.sub(r"^source '\w+'(?:: | (?=cannot ))", lambda match: "" if ":" in match[0] else "it ", reason)


def _comparison_key(hold: Hold) -> tuple[str, str, str]:
    """Return the key that compares holds. For unforeseen errors it contains the text, without numbers."""
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", hold.reason) if hold.kind == HoldKind.UNFORESEEN else ""
    return hold.kind, hold.file, text


def with_holds(catalog: Catalog, holds: Mapping[int, tuple[Hold, ...]], epoch: int) -> Catalog:
    """Return the catalog with these holds, new ones dated `epoch`. Returns the same object if nothing changes."""

    def add_holds(relation: Relation) -> Relation:
        dated = tuple(
            h if h.since else msgspec.structs.replace(h, since=epoch) for h in holds.get(relation.id, relation.holds)
        )
        return relation if dated == relation.holds else msgspec.structs.replace(relation, holds=dated)

    return msgspec.structs.replace(catalog, relations=tuple(add_holds(r) for r in catalog.relations))
