"""The time zone in which a text source reads times without an offset: the store's, except in files of earlier releases.

Earlier releases read such times in UTC in every store. To take back the rows of a file, its bytes are read again, so
a file must always be read in the same way. Files are numbered in the order in which they are taken. A source
therefore records the number of its first file in the store's zone (`CreateSource.zoned_from`), which a barrier sets.
`tussock restate --time-zone` reads the bytes of earlier files again, under new numbers.
"""

from collections.abc import Callable

import msgspec

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.plan.definition import SourceDefinition, definition_of, encoded
from tussock.jobs.sources.registry import READERS
from tussock.jobs.sources.spark_files import TIME_ZONE, SparkTexts
from tussock.jobs.sources.taken import taken_files
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.table.storage_table import StorageTable


def zoned(catalog: Catalog, time_zone: str, next_number: Callable[[Relation], int]) -> Catalog:
    """The catalog with `zoned_from` set in each text source. It stays unset in UTC stores and with the option timeZone.

    Args:
        time_zone: the store's.
        next_number: the number of the first file that a source has not taken by the previous epoch.
    """
    if time_zone == "UTC":
        return catalog
    for relation in catalog.live():
        definition = definition_of(relation) if relation.kind is RelationKind.SOURCE else None
        if not isinstance(definition, SourceDefinition) or not isinstance(
            definition.statement.zoned_from, msgspec.UnsetType
        ):
            continue
        statement = definition.statement
        if _follows_the_stores_zone(statement):
            marked = msgspec.structs.replace(statement, zoned_from=next_number(relation))
            changed = msgspec.structs.replace(
                relation, definition=encoded(msgspec.structs.replace(definition, statement=marked))
            )
            catalog = msgspec.structs.replace(
                catalog, relations=tuple(changed if r.id == relation.id else r for r in catalog.relations)
            )
    return catalog


def holds_files_in_utc(source: CreateSource, time_zone: str, taken: StorageTable) -> bool:
    """Whether a source has rows of files that an earlier release read in UTC although the store has another time zone.

    Cost: a scan of the list of taken files.
    """
    if time_zone == "UTC" or not _follows_the_stores_zone(source):
        return False
    return any(file.rows and source.zone_of(file.number, time_zone) != time_zone for file in taken_files(taken))


def _follows_the_stores_zone(source: CreateSource) -> bool:
    return isinstance(READERS.get(source.format), SparkTexts) and TIME_ZONE.lower() not in {
        option.lower() for option in source.options
    }
