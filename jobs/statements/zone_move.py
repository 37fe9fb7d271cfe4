"""Move a store to the rules of time zones that the present Java has: `tussock apply --zone-rules`.

The store keeps its recorded rules until then. A move records the new ones and rebuilds each view that may convert by
them, in one entry of the log. Tables keep their instants.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tussock.jobs.catalog.zones import views_that_convert
from tussock.jobs.logical.statements import RecordZone
from tussock.jobs.settings.java_zones import java_zones
from tussock.jobs.settings.zone_errors import spans_text
from tussock.jobs.statements.statement_maker import StatementMaker
from tussock.statestore.meta.catalog import Catalog, Relation
from tussock.statestore.zones import RuledZone, ZoneRules

_SHOWN = 5  # views in a note


@dataclass(frozen=True, slots=True)
class ZoneMove:
    """A zone whose rules in this Java differ from the recorded ones. `views`: the views that would be rebuilt."""

    recorded: ZoneRules
    current: ZoneRules
    views: tuple[Relation, ...]

    @property
    def statement(self) -> RecordZone:
        """The statement that records the new rules."""
        return RecordZone(self.current, self.recorded.digest)

    @property
    def difference(self) -> str:
        """The change, for the user."""
        times = spans_text(self.recorded, self.current)
        return f"rules of {self.current.origin} instead of {self.recorded.origin}'s: other times {times}"

    @property
    def note(self) -> str:
        """The consequence, for the user, of a move that was not requested."""
        names = [view.name for view in self.views]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        rebuilt = f"rebuilds {', '.join(names[:_SHOWN])}{more}" if names else "changes no view"
        return f"this Java has other rules ({spans_text(self.recorded, self.current)}); --zone-rules {rebuilt}"


def known_moves(catalog: Catalog, time_zone: str) -> Iterator[ZoneMove]:
    """The zones whose rules in the file of this Java differ from the recorded ones. Starts no JVM.

    `time_zone`: the name of the store's.
    """
    if not catalog.zones or (java := java_zones()) is None:
        return
    for recorded in catalog.zones:
        if (rules := java.rules(recorded.name)) is not None and rules.digest != recorded.digest:
            yield ZoneMove(recorded, rules, views_that_convert(catalog, [recorded.ruled_zone], time_zone))


def moves_of_jvm(catalog: Catalog, time_zone: str, maker: StatementMaker) -> Iterator[ZoneMove]:
    """The zones whose rules in the running JVM differ from the recorded ones. Raises UnknownZoneError."""
    from tussock.jobs.spark.zones import rules_of_jvm

    for recorded in catalog.zones:
        rules = rules_of_jvm(maker.spark(), recorded.name)
        if rules.digest != recorded.digest:
            yield ZoneMove(recorded, rules, views_that_convert(catalog, [recorded.ruled_zone], time_zone))


def moved_views(before: Catalog, moves: Sequence[ZoneMove], time_zone: str) -> tuple[Relation, ...]:
    """The views that moves rebuild, in catalog order."""
    zones: list[RuledZone] = [move.recorded.ruled_zone for move in moves]
    return views_that_convert(before, zones, time_zone) if zones else ()
