"""Rows and helpers of test_nested_fields.py, which is in several lanes."""

import msgspec
import pyarrow as pa

from tests.support.zone_rules import ruled_by_python
from tussock.jobs.delta.delta_log import DeltaPlace
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import Division, TimeZones
from tussock.jobs.sources.delta import DeltaTables
from tussock.jobs.sources.delta_files import DeltaEngine, PinnedVersions
from tussock.jobs.sources.listing import split_bucket

NULL = {"missing": "null"}


def pinned_table(source: CreateSource) -> tuple[CreateSource, msgspec.Raw]:
    reader = DeltaTables()
    (item,) = reader.waiting(source, None)
    snapshot = DeltaPlace(*split_bucket(source.options["path"]), {}).read_snapshot()
    assert snapshot is not None

    return source, msgspec.Raw(
        msgspec.json.encode(PinnedVersions(snapshot.place.root, snapshot.id, snapshot.version, item.nbytes))
    )


def delta_rows(source: CreateSource) -> pa.Table:
    """All rows of a table, as the epoch reads them."""
    engine, (_, pinned_) = DeltaEngine(), pinned_table(source)
    zones = TimeZones(ruled_by_python("UTC"), ruled_by_python)
    divided = engine.divide(source, pinned_, Division(1, zones))
    parts = [engine.read(source, part, range(len(source.fields))) for part in divided.parts]
    rows = pa.concat_tables([part.rows.select(range(len(source.fields))) for part in parts])
    return rows.rename_columns([field.name for field in source.fields])
