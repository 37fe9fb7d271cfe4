"""Delta tables whose logs the tests write, with columns and features that the deltalake package does not write."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tussock.statestore.types import arrow_type

Action = dict[str, Any]
_NAMES = {"bigint": "long", "int": "integer"}


def commit(place: Path, version: int, *actions: "Action | tuple[Action, ...]") -> None:
    """Write a version of a table."""
    (place / "_delta_log").mkdir(parents=True, exist_ok=True)
    flat = [one for some in actions for one in (some if isinstance(some, tuple) else (some,))]
    (place / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, flat)))


def table_of(
    columns: "list[tuple[str, str]] | dict[str, Any]",
    protocol: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
) -> tuple[Action, ...]:
    """The protocol and the columns of a table. `columns`: (name, Spark's type name), or a schema in the log's form."""
    schema = (
        {"type": "struct", "fields": [_field(n, arrow_type(t)) for n, t in columns]}
        if isinstance(columns, list)
        else columns
    )
    metadata = {
        **{"id": "a-table", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)},
        **{"partitionColumns": [], "configuration": dict(settings or {}), "createdTime": 0},
    }
    return {"protocol": dict(protocol or {"minReaderVersion": 1, "minWriterVersion": 2})}, {"metaData": metadata}


def features(*names: str) -> dict[str, Any]:
    """A protocol with some features."""
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(names), "writerFeatures": list(names)}


def add(place: Path, files: Mapping[str, pa.Table]) -> tuple[Action, ...]:
    """Write files of rows, and return the actions that add them."""
    place.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        pq.write_table(rows, place / name)
    return tuple(added(place, name) for name in files)


def added(place: Path, name: str) -> Action:
    """The action that adds an existing file."""
    size = (place / name).stat().st_size
    return {"add": {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}}


def _field(name: str, kind: pa.DataType) -> Action:
    return {"name": name, "type": _type_of(kind), "nullable": True, "metadata": {}}


def _type_of(kind: pa.DataType) -> Any:
    from tussock.statestore.types import type_name

    if pa.types.is_struct(kind) and type_name(kind) != "variant":
        return {"type": "struct", "fields": [_field(f.name, f.type) for f in kind]}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type_of(kind.key_type),
            "valueType": _type_of(kind.item_type),
            "valueContainsNull": True,
        }
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type_of(kind.value_type), "containsNull": True}
    return _NAMES.get(type_name(kind), type_name(kind))
