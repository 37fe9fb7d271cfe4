"""Open Parquet files with Arrow, including maps with optional keys, which Arrow rejects.

Parquet's specification requires the keys of a map to be required. Some writers declare them optional. Spark reads such
a file as long as no key is NULL, but Arrow rejects the whole file. The footer is therefore read with these maps as
lists of (key, value), and their columns are converted back to maps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tussock.statestore.nested import with_elements

_REFUSED = "Map keys must be annotated as required"
_MAGIC = b"PAR1"
_MAP, _MAP_ENTRY, _LIST = 1, 2, 3  # Parquet's converted types
_LOGICAL_MAP, _LOGICAL_LIST = 2, 3  # fields of Parquet's union of logical types
_LIST_ON_STORAGE = 2 * _LIST  # as a one-byte zigzag number
_BATCH_ROWS = 1 << 16
Leaves = tuple[int, int]  # the range of a file's columns that a node covers, end exclusive


@dataclass(frozen=True)
class OpenedFile:
    """A Parquet file.

    Args:
        maps: the column range of each map that Arrow reads as a list.
    """

    file: pq.ParquetFile
    maps: frozenset[Leaves] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """The columns in Arrow's types. Cost: one pass over them if the file has such maps."""
        found = self.file.schema_arrow
        if not self.maps:
            return found
        fields = zip(found, self._leaves(), strict=True)
        return pa.schema([f.with_type(_mapped_type(f.type, first, self.maps)) for f, first in fields], found.metadata)

    def read(self, groups: Sequence[int], names: Sequence[str], first: int = 0, count: int | None = None) -> pa.Table:
        """Read some columns of some row groups.

        Args:
            first, count: a non-empty range of the groups' rows, if there are columns; None: all from `first` on. Rows
                before it are decoded too.

        Raises pa.ArrowInvalid if a map has a NULL key.
        """
        if (count is None and not first) or not names:
            rows = self.file.read_row_groups(list(groups), columns=list(names), use_threads=False)
        else:
            # Rows before the first one are decoded too: no more of them at once than are wanted.
            most = _BATCH_ROWS if count is None else min(_BATCH_ROWS, count)
            batches = self.file.iter_batches(most, row_groups=list(groups), columns=list(names), use_threads=False)
            rows = pa.Table.from_batches(_some(batches, first, count))
        if not self.maps:
            return rows
        first_of = dict(zip(self.file.schema_arrow.names, self._leaves(), strict=True))
        for place, name in enumerate(rows.column_names):
            column, kind = rows.column(place), _mapped_type(rows.schema.field(place).type, first_of[name], self.maps)
            chunks = [_mapped(chunk, first_of[name], self.maps) for chunk in column.chunks]
            rows = rows.set_column(place, pa.field(name, kind), pa.chunked_array(chunks, kind))
        return rows

    def _leaves(self) -> Iterator[int]:
        first = 0
        for field in self.file.schema_arrow:
            yield first
            first += leaf_count(field.type)


def _some(batches: Iterator[pa.RecordBatch], first: int, count: int | None) -> Iterator[pa.RecordBatch]:
    """A range of rows. Stops reading at its end."""
    for batch in batches:
        part = batch.slice(first, count)
        first = max(0, first - len(batch))
        if len(part):
            yield part
        if count is not None and (count := count - len(part)) == 0:
            return


def opened_file(source: Any, **options: Any) -> OpenedFile:
    """Open a Parquet file.

    Args:
        source, options: see `pyarrow.parquet.ParquetFile`.

    Raises: pa.ArrowException, OSError. Cost: the footer; two reads of it if Arrow rejects a map.
    """
    try:
        return OpenedFile(pq.ParquetFile(source, **options))
    except pa.ArrowInvalid as err:
        if _REFUSED not in str(err):
            raise
    footer, maps = _with_lists_for_maps(_footer_of(source))
    sized = _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC
    return OpenedFile(pq.ParquetFile(source, metadata=pq.read_metadata(BytesIO(sized)), **options), maps)


def leaf_count(kind: pa.DataType) -> int:
    """Return the number of a file's columns that a column of this type occupies."""
    if pa.types.is_dictionary(kind):
        return leaf_count(kind.value_type)
    return sum(leaf_count(kind.field(i).type) for i in range(kind.num_fields)) if pa.types.is_nested(kind) else 1


def _is_map(kind: pa.DataType, first: int, maps: frozenset[Leaves]) -> bool:
    """Return whether a list is a map.

    A map covers exactly its keys' and values' columns; a list around it has more levels.
    """
    entry = kind.value_type if pa.types.is_list(kind) else None
    return (
        entry is not None
        and pa.types.is_struct(entry)
        and entry.num_fields == 2
        and (first, first + leaf_count(kind)) in maps
    )


def _mapped_type(kind: pa.DataType, first: int, maps: frozenset[Leaves]) -> pa.DataType:
    """Restore the maps in a type whose first leaf is the file's column `first`."""
    if not pa.types.is_nested(kind):
        return kind
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        inner, at = [], first
        for i in range(kind.num_fields):
            inner.append(kind.field(i).with_type(_mapped_type(kind.field(i).type, at, maps)))
            at += leaf_count(kind.field(i).type)
        return pa.struct(inner) if pa.types.is_struct(kind) else pa.map_(*(entry.type for entry in inner[0].type))
    element = _mapped_type(kind.value_type, first, maps)
    return pa.map_(element.field(0).type, element.field(1).type) if _is_map(kind, first, maps) else pa.list_(element)


def _mapped(array: pa.Array, first: int, maps: frozenset[Leaves]) -> pa.Array:
    """Convert a column to the type of `_mapped_type`."""
    kind = array.type
    if not pa.types.is_nested(kind):
        return array
    if pa.types.is_struct(kind):
        fields, at = [], first
        for i in range(kind.num_fields):
            fields.append(_mapped(array.field(i), at, maps))
            at += leaf_count(kind.field(i).type)
        return pa.StructArray.from_arrays(
            fields, names=[f.name for f in kind], mask=array.is_null() if array.null_count else None
        )
    wanted = _mapped_type(kind, first, maps)
    if pa.types.is_map(kind):
        parts = array.values  # `keys` and `items` of a slice may be longer than it
        entries = [
            _mapped(parts.field(0), first, maps),
            _mapped(parts.field(1), first + leaf_count(kind.key_type), maps),
        ]
    else:
        if not pa.types.is_list(kind):
            array = array.cast(pa.list_(kind.value_type))
        elements = _mapped(array.values, first, maps)
        if not pa.types.is_map(wanted):
            return with_elements(array, wanted, elements)
        entries = [elements.field(0), elements.field(1)]
        if entries[0].null_count:
            raise pa.ArrowInvalid("a map has a key that is NULL")
    return with_elements(
        array, wanted, pa.StructArray.from_arrays(entries, fields=[wanted.key_field, wanted.item_field])
    )


def _footer_of(source: Any) -> bytes:
    file: BinaryIO = source
    file.seek(0, 2)
    size = file.tell()
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - 8 - length))
    return bytes(file.read(length))


def _with_lists_for_maps(footer: bytes) -> tuple[bytes, frozenset[Leaves]]:
    """Return a footer whose maps with optional keys are lists, and the column range of each."""
    nodes, data = list(_schema_nodes(footer)), bytearray(footer)
    maps = set[Leaves]()

    def walk(at: int, first: int) -> tuple[int, int]:
        """Return the position after the last inner node of the node at `at`, and the column after its last one."""
        node = nodes[at]
        after, last = at + 1, first + (node.children == 0)
        for _ in range(node.children):
            after, last = walk(after, last)
        if node.is_map and node.children == 1 and nodes[at + 1].children == 2 and nodes[at + 2].is_optional:
            maps.add((first, last))
            if node.converted_at is not None:
                data[node.converted_at] = _LIST_ON_STORAGE
            if node.logical_at is not None:
                data[node.logical_at] += _LOGICAL_LIST - _LOGICAL_MAP << 4
        return after, last

    walk(0, 0)
    return bytes(data), frozenset(maps)


@dataclass(frozen=True)
class _Node:
    """A node of a file's schema.

    `…_at`: offset in the footer of the byte that marks it as a map; None if no byte does.
    """

    children: int = 0
    is_optional: bool = False
    is_map: bool = False
    converted_at: int | None = None
    logical_at: int | None = None


class _Compact:
    """Reads the parts of Thrift's compact protocol that a footer's schema uses."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def signed(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield (number, type) of each field of a struct. The caller reads or skips the value."""
        number = 0
        while (head := self.data[self.at]) != 0:
            self.at += 1
            number = number + (head >> 4) if head >> 4 else self.signed()
            yield number, head & 15
        self.at += 1

    def elements(self) -> tuple[int, int]:
        """Return (number, type) of the elements of a list."""
        head = self.data[self.at]
        self.at += 1
        return (self.varint() if head >> 4 == 15 else head >> 4), head & 15

    def skip(self, kind: int, *, in_list: bool = False) -> None:
        if kind in (1, 2):
            self.at += in_list
        elif kind == 3:
            self.at += 1
        elif kind in (4, 5, 6):
            self.varint()
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            length = self.varint()
            self.at += length
        elif kind in (9, 10):
            count, element = self.elements()
            for _ in range(count):
                self.skip(element, in_list=True)
        elif kind == 12:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise pa.ArrowInvalid(f"the footer has a field of the unknown type {kind}")


def _schema_nodes(footer: bytes) -> Iterator[_Node]:
    """Yield the nodes of the schema in the order of the footer, each before its inner nodes."""
    reader = _Compact(footer)
    for number, kind in reader.fields():
        if number != 2:
            reader.skip(kind)
            continue
        count, _ = reader.elements()
        for _ in range(count):
            yield _schema_node(reader)
        return


def _schema_node(reader: _Compact) -> _Node:
    node = _Node()
    for number, kind in reader.fields():
        at = reader.at
        if number == 3:
            node = replace(node, is_optional=reader.signed() == 1)
        elif number == 5:
            node = replace(node, children=reader.signed())
        elif number == 6:
            if reader.signed() in (_MAP, _MAP_ENTRY):
                node = replace(node, is_map=True, converted_at=at)
        elif number == 10:
            if reader.data[at] == _LOGICAL_MAP << 4 | 12:
                node = replace(node, is_map=True, logical_at=at)
            reader.skip(kind)
        else:
            reader.skip(kind)
    return node
