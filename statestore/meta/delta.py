"""Version deltas: version n+1 is version n plus delta n+1. Pure data and one pure function.

A new kind of change (a compaction task opened, closed, committed) is one more struct in `Change` and one more case in `apply`.
"""

import msgspec

from statestore.meta.catalog import Catalog
from statestore.meta.errors import BadDeltaError
from statestore.meta.version import HummockVersion, SstInfo, VnodeMapping


class EpochCommitted(msgspec.Struct, frozen=True, tag="epoch", omit_defaults=True):
    """An epoch became durable: its SSTs are the newest L0 runs. Applies only where its barrier's prev epoch is the committed one."""

    prev_epoch: int
    epoch: int
    attempt: int
    ssts: tuple[SstInfo, ...]
    log_end: int
    catalog: Catalog | None = None


class Published(msgspec.Struct, frozen=True, tag="publish"):
    """Readers that name no epoch see this one from now on."""

    epoch: int


class FloorRaised(msgspec.Struct, frozen=True, tag="floor"):
    """No reader may start below this epoch any more."""

    epoch: int


class RelationsForgotten(msgspec.Struct, frozen=True, tag="forget"):
    """Dropped relations that no readable epoch sees leave the catalog."""

    relations: tuple[int, ...]


class MappingChanged(msgspec.Struct, frozen=True, tag="mapping"):
    """Barriers from now on run on this mapping; no row moves in storage."""

    mapping: VnodeMapping


Change = EpochCommitted | Published | FloorRaised | RelationsForgotten | MappingChanged


class VersionDelta(msgspec.Struct, frozen=True):
    """The step from version `id` - 1 to version `id`."""

    id: int
    writer: str
    change: Change


def apply(version: HummockVersion, delta: VersionDelta) -> HummockVersion:
    """The next version. Raises BadDeltaError where the delta does not stand on this version."""
    _require(delta, delta.id == version.id + 1, f"it stands on version {delta.id - 1}, this is version {version.id}")
    change = delta.change
    match change:
        case EpochCommitted():
            return _apply_epoch(version, delta, change)
        case Published(epoch):
            _require(delta, epoch > version.published, f"it publishes epoch {epoch}, {version.published} is published already")
            _require(delta, epoch in version.epochs, f"it publishes epoch {epoch}, which is not committed or no longer kept")
            return msgspec.structs.replace(version, id=delta.id, published=epoch)
        case FloorRaised(epoch):
            _require(delta, epoch > version.min_readable_epoch, f"it puts the floor to {epoch}, below {version.min_readable_epoch}")
            _require(delta, epoch <= version.published, f"it puts the floor to {epoch}, above the published epoch {version.published}")
            kept = tuple(e for e in version.epochs if e >= epoch)
            return msgspec.structs.replace(version, id=delta.id, min_readable_epoch=epoch, epochs=kept)
        case RelationsForgotten(relations):
            floor, gone = version.min_readable_epoch, set(relations)
            seen = [r.id for r in version.catalog.relations if r.id in gone and (r.dropped is None or r.dropped > floor)]
            _require(delta, not seen, f"it forgets relations {seen}, which readers at the floor {floor} or later see")
            left = tuple(r for r in version.catalog.relations if r.id not in gone)
            return msgspec.structs.replace(version, id=delta.id, catalog=msgspec.structs.replace(version.catalog, relations=left))
        case MappingChanged(mapping):
            _require(delta, mapping.id > version.mapping.id, f"it brings mapping {mapping.id}, mapping {version.mapping.id} is in force")
            wanted, found = len(version.mapping.units), len(mapping.units)
            _require(delta, wanted == found, f"its mapping has {found} vnodes, the store has {wanted}")
            return msgspec.structs.replace(version, id=delta.id, mapping=mapping)


def _apply_epoch(version: HummockVersion, delta: VersionDelta, change: EpochCommitted) -> HummockVersion:
    _require(
        delta,
        change.prev_epoch == version.epoch and change.epoch > version.epoch,
        f"it commits epoch {change.epoch} onto {change.prev_epoch}, the committed epoch is {version.epoch}",
    )
    _require(delta, change.log_end >= version.log_end, f"it ends the log at {change.log_end}, entries up to {version.log_end} are taken")
    catalog = version.catalog if change.catalog is None else change.catalog
    _require(
        delta,
        catalog.next_relation_id >= version.catalog.next_relation_id and catalog.next_table_id >= version.catalog.next_table_id,
        "its catalog would allot ids again that are in use",
    )
    return msgspec.structs.replace(
        version,
        id=delta.id,
        epoch=change.epoch,
        epochs=(*version.epochs, change.epoch),
        log_end=change.log_end,
        levels=((*change.ssts, *version.levels[0]), *version.levels[1:]),
        catalog=catalog,
    )


def _require(delta: VersionDelta, holds: bool, reason: str) -> None:
    if not holds:
        raise BadDeltaError(delta.id, reason)
