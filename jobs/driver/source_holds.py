"""Holds: a source in trouble waits with its new files, and everything else goes on.

    at the barrier   the reader's error while it lists or pins: the barrier takes in nothing of that source (tussock.jobs.driver.barrier)
    in an actor      a file that cannot be read: its barrier is superseded by one without the source's new files (jobs/driver/supersede.py)

Either way the hold stands in the catalog from that epoch on, hence in SHOW SOURCES, until a barrier finds the cause gone. Views are over
what their sources have taken, so each goes on to equal its SELECT. What failed is the run that wanted the files: it ends with
HeldSourcesError once everything else is committed.
"""

import re
import warnings
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from tussock.jobs.flow.failure import SourceAwayError
from tussock.jobs.plan.definition import source_of
from tussock.jobs.sources.boundary import SourceTroubleError
from tussock.jobs.sources.kafka_errors import KafkaNeedsSparkError
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Hold, Relation


class HoldKind(StrEnum):
    """Kinds of holds that the engine tells apart. The values are stored, and stay as they are when a class gets another name; any other
    hold is stored by the name of its error's class."""

    NEEDS_SPARK = "KafkaNeedsSparkError"  # a process without Spark could not ask what a source has
    UNFORESEEN = "SourceTroubleError"  # such errors share one class


def _kind_of(error: InputError | SourceAwayError) -> str:
    match error:
        case KafkaNeedsSparkError():
            return HoldKind.NEEDS_SPARK
        case SourceTroubleError():
            return HoldKind.UNFORESEEN
        case _:
            return type(error).__name__


class HeldSourcesError(InputError):
    """Sources whose new files a run wanted, and which are in trouble. Everything else was taken in. `reasons` by source."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(dict(reasons))
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        held = "\n  ".join(f"source {source!r} is held: {reason}" for source, reason in self.reasons.items())
        return (
            f"{held}\n  New files of {', '.join(self.reasons)} wait, and are taken in by the next run after the cause is gone; rows taken "
            "before stay. Everything else was taken in and committed."
        )


class HeldSourceWarning(UserWarning):
    """A flush went on without the new files of a source in trouble."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source, self.reason = source, reason

    def __str__(self) -> str:
        return f"source {self.source!r} is held, and its new files wait: {self.reason}"


def held_sources(catalog: Catalog, interval: Interval | None = None) -> dict[str, str]:
    """The sources whose new files a run of this interval did not get, by name, each with its reasons."""
    found: dict[str, str] = {}
    for relation in catalog.live():
        if reasons := [hold.reason for hold in wanted_holds(relation, interval)]:
            found[relation.name] = "\n  ".join(dict.fromkeys(reasons))
    return found


def require_not_held(catalog: Catalog, interval: Interval | None = None) -> None:
    """Raises HeldSourcesError where a run of this interval did not get all that it wanted."""
    if found := held_sources(catalog, interval):
        raise HeldSourcesError(found)


def warn_of_held(catalog: Catalog, interval: Interval | None = None) -> None:
    """Warns: HeldSourceWarning for each source whose new files were wanted."""
    for source, reason in held_sources(catalog, interval).items():
        warnings.warn(HeldSourceWarning(source, reason), stacklevel=3)


def holds_text(before: Catalog, after: Catalog) -> tuple[str, ...]:
    """What a barrier that brings `after` says of holds: those that begin, and sources that go on."""
    known = {r.id: r.holds for r in before.live()}
    begun = [
        f"holds {r.name}" for r in after.live() if set(r.holds) - set(known.get(r.id, ()))
    ]  # the summary gives the reasons
    return (*begun, *(f"{r.name} goes on" for r in after.live() if known.get(r.id) and not r.holds))


def wanted_holds(source: Relation, interval: Interval | None) -> tuple[Hold, ...]:
    """The holds that keep something from a run of this interval. One that names no file keeps everything from every run."""
    statement = source_of(source)
    if statement is None:
        return ()
    return tuple(h for h in source.holds if not h.file or reader_of(statement).wants(statement, interval, h.file))


def hold_of(error: InputError | SourceAwayError, before: tuple[Hold, ...] = ()) -> Hold:
    """The hold that an error of the reader makes; the one of `before` if it is about the same, so that trouble that stays makes no epochs.
    Its epoch is 0 until a barrier has one."""
    reason = str(error).encode("utf-8", "backslashreplace").decode()  # a file's name may hold bytes that are not UTF-8
    found = Hold(reason, 0, str(_kind_of(error)), getattr(error, "path", ""))
    return next((h for h in before if _about(h) == _about(found)), found)


def _about(hold: Hold) -> tuple[str, str, str]:
    """What two holds are compared by. Of unforeseen errors the text counts, without its numbers."""
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", hold.reason) if hold.kind == HoldKind.UNFORESEEN else ""
    return hold.kind, hold.file, text


def with_holds(catalog: Catalog, holds: Mapping[int, tuple[Hold, ...]], epoch: int) -> Catalog:
    """The catalog in which these sources have these holds; new ones are dated to `epoch`. The same one where nothing changes."""

    def held(relation: Relation) -> Relation:
        dated = tuple(
            h if h.since else msgspec.structs.replace(h, since=epoch) for h in holds.get(relation.id, relation.holds)
        )
        return relation if dated == relation.holds else msgspec.structs.replace(relation, holds=dated)

    return msgspec.structs.replace(catalog, relations=tuple(held(r) for r in catalog.relations))
