"""Record the rules of time zones in the catalog, and find the views that convert by them."""

import re
from collections.abc import Collection

import msgspec

from tussock.jobs.catalog.definition import source_of, with_readers
from tussock.jobs.logical.statements import CreateSource, RecordZone
from tussock.jobs.sources.registry import READERS
from tussock.jobs.sources.spark_files import TIME_ZONE, SparkTexts
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.zones import RuledZone, digest_of, name_of

_INSTANT = re.compile(r"\btimestamp\b")  # the type of instants, also within a nested type


class ZoneRecordedError(InputError):
    """Another process has recorded other rules of a time zone meanwhile."""

    zone: str

    def __str__(self) -> str:
        return (
            f"another process has recorded other rules of the time zone {self.zone} meanwhile, so this statement had "
            "no effect. Run it again."
        )


def recorded_zone(catalog: Catalog, statement: RecordZone) -> Catalog:
    """The catalog with the rules of a zone. Raises ZoneRecordedError."""
    rules = statement.rules
    before = digest_of(catalog.resolve_zone(rules.name))
    if before == rules.digest:
        return catalog
    if before != statement.before:
        raise ZoneRecordedError(rules.name)
    others = [other for other in catalog.zones if other.name != rules.name]
    return msgspec.structs.replace(catalog, zones=tuple(sorted((*others, rules), key=lambda zone: zone.name)))


def views_that_convert(catalog: Catalog, zones: Collection[RuledZone], time_zone: str) -> tuple[Relation, ...]:
    """The views, in catalog order, whose rows may change if zones get other rules.

    They convert by one of them, or read a source of texts in one of them, or read such a view.

    Args:
        zones: with the rules by which the views are computed now.
        time_zone: the name of the store's.
    """
    names = {name_of(zone) for zone in zones}
    affected_relations = [
        relation
        for relation in catalog.live_relations()
        if _uses_zone(relation, zones) or _reads_in_zone(relation, names, time_zone)
    ]
    ids = with_readers(catalog, *affected_relations)
    views = (RelationKind.VIEW, RelationKind.PLAIN_VIEW)
    return tuple(relation for relation in catalog.live_relations() if relation.id in ids and relation.kind in views)


def _uses_zone(relation: Relation, zones: Collection[RuledZone]) -> bool:
    """Whether a part of a view's definition converts by one of the zones: a ruled zone occurs nowhere else."""
    return relation.kind is RelationKind.VIEW and any(zone.encode() in bytes(relation.definition) for zone in zones)


def _reads_in_zone(relation: Relation, names: Collection[str], time_zone: str) -> bool:
    """Whether a source reads local times in one of the zones."""
    source = source_of(relation) if relation.kind is RelationKind.SOURCE else None
    if source is None or not isinstance(READERS.get(source.format), SparkTexts):
        return False
    return _zone_of_texts(source, time_zone) in names and any(_INSTANT.search(f.type) for f in source.fields)


def _zone_of_texts(source: CreateSource, time_zone: str) -> str:
    named = (value for name, value in source.options.items() if name.lower() == TIME_ZONE.lower())
    return next(named, time_zone)
