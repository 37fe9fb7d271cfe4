"""Rows that fit the sources of an imported project.

Keys join: a column such as `customer_id` has the values of the `id` of `raw_customers`. A text has the values to which
the project's SQL compares its column. All other values are random.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

_DIMENSION_SHARE = 50  # a table without foreign keys has one row per so many rows of the others
_FIRST_DAY, _DAYS = np.datetime64("2025-01-01"), 400


@dataclass
class Tables:
    """The tables of a project. `literals`: texts and numbers to which its SQL compares a column, by column."""

    schemas: Mapping[str, pa.Schema]
    literals: Mapping[str, Sequence[str]]
    rows: int
    keys: dict[str, str] = field(default_factory=dict)  # the column that identifies a row, by table

    def __post_init__(self) -> None:
        for table, schema in self.schemas.items():
            own = [name for name in schema.names if _is_key(name) and _names_alike(_entity_of(name), table)]
            key = "id" if "id" in schema.names else next(iter(own), "")
            if key:
                self.keys[table] = key

    def size_of(self, table: str) -> int:
        """The number of rows of a table: all, unless it is a dimension of another one."""
        is_dimension = table in self.keys and not self._has_foreign_keys(table)
        if is_dimension and any(map(self._has_foreign_keys, self.schemas)):
            return max(1, self.rows // _DIMENSION_SHARE)
        return self.rows

    def _has_foreign_keys(self, table: str) -> bool:
        return any(_is_key(name) and name != self.keys.get(table) for name in self.schemas[table].names)

    def domain_of(self, table: str, column: str) -> int | None:
        """The number of values of a key column; None for other columns."""
        if column == self.keys.get(table):
            return self.size_of(table)
        if not _is_key(column):
            return None
        entity = _entity_of(column)
        others = [t for t in self.keys if self.keys[t] == column or _names_alike(entity, t)]
        return min((self.size_of(t) for t in others), default=max(1, self.rows // _DIMENSION_SHARE))


def column_of(tables: Tables, table: str, column: pa.Field, chance: np.random.Generator) -> pa.Array:
    count, domain, kind = tables.size_of(table), tables.domain_of(table, column.name), column.type
    literals = tables.literals.get(column.name.lower(), ())
    if column.name == tables.keys.get(table):
        numbers = np.arange(count)
    elif domain is not None:
        numbers = chance.integers(0, domain, count)
    elif pa.types.is_string(kind) and literals:
        return pa.array(np.asarray([*literals, "other"], dtype=object)[chance.integers(0, len(literals) + 1, count)])
    elif pa.types.is_timestamp(kind):
        seconds = chance.integers(0, _DAYS * 86_400, count).astype("timedelta64[s]")
        return pa.array((_FIRST_DAY + seconds).astype("datetime64[us]")).cast(kind)
    elif pa.types.is_date(kind):
        return pa.array(_FIRST_DAY + chance.integers(0, _DAYS, count).astype("timedelta64[D]")).cast(kind)
    elif pa.types.is_boolean(kind):
        return pa.array(chance.integers(0, 2, count).astype(bool))
    elif pa.types.is_floating(kind):
        return pa.array(chance.integers(0, 100_000, count) / 100).cast(kind)
    else:
        numbers = chance.integers(0, 100, count)
    if pa.types.is_decimal(kind):  # Arrow casts whole numbers only to decimals for every number of 64 bits
        wide = pa.array(numbers % 10 ** min(kind.precision - kind.scale, 18)).cast(pa.decimal128(38, kind.scale))
        return wide.cast(kind)
    if pa.types.is_string(kind) or pa.types.is_integer(kind):
        return pa.array(numbers).cast(kind)
    return pa.nulls(count, kind)


def _is_key(column: str) -> bool:
    return re.fullmatch(r"(.*_)?(id|key|code|sku|number|nr)", column.lower()) is not None or column.lower().endswith(
        "id"
    )


def _entity_of(column: str) -> str:
    return re.sub(r"_?(id|key|code)$", "", column.lower())


def _names_alike(entity: str, table: str) -> bool:
    return len(entity) > 2 and entity.rstrip("s") in table.lower()
