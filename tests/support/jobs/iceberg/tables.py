"""Iceberg tables of tests: a catalog in a folder, and commits that pyiceberg itself does not write.

`commit_deletes` adds position deletes and equality deletes, as Flink and Spark write them. `Writer` makes random
changes.
"""

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT, Record

from tussock.jobs.iceberg.row_delta import FileChanges, RewrittenFiles, RowDelta
from tussock.statestore.nested import relabel_column

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("p", pa.string())])
_DELETE_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)
NAME = "db.t"


def catalog_in(folder: Path) -> SqlCatalog:
    """Return the catalog of a folder, which has the namespace `db`."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace_if_not_exists("db")
    return catalog


def options_of(folder: Path, **more: str) -> dict[str, str]:
    """Return the options of a source over the table of a folder's catalog."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    place = {"catalog": "lake", "table": NAME, "catalog.uri": uri, "catalog.warehouse": warehouse}
    return {**place, "catalog.type": "sql", **more}


def rows_of(*rows: tuple[int, float | None, str | None]) -> pa.Table:
    return pa.table([[r[i] for r in rows] for i in range(3)], schema=SCHEMA)


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _RowDelta(_FastAppendFiles):
    deletes: Sequence[DataFile] = ()

    def _manifests(self) -> list[Any]:
        spec = self._transaction.table_metadata.spec()
        writer = _DeleteManifest(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression)
        with writer:
            for file in self.deletes:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
                writer.add(entry)
        return [writer.to_manifest_file(), *super()._manifests()]


def commit_deletes(
    table: Table,
    positions: Mapping[str, Sequence[int]] = EMPTY_DICT,
    equal: pa.Table | None = None,
    new: pa.Table | None = None,
    bounds: bool = True,
    ids: list[int] | None = None,
) -> None:
    """Commit one snapshot with delete files and new rows. Requires: the table has no partitions, or only void ones.

    Args:
        positions: deleted positions by data file.
        equal: rows with the columns to compare; rows that equal one of them are deleted.
        new: rows that are added; the equality deletes do not apply to them.
        bounds: write the bounds of file names.
        ids: the field ids that the entry of `equal` has; None: those of its columns.
    """
    folder, number = table.location().removeprefix("file://"), len(table.snapshots())
    Path(folder, "data").mkdir(parents=True, exist_ok=True)
    deletes = []
    if positions:
        path = f"{folder}/data/{number}-positions.parquet"
        places = [(name, at) for name, rows in sorted(positions.items()) for at in sorted(rows)]
        names = pa.array([name for name, _ in places])
        pq.write_table(pa.table([names, pa.array([at for _, at in places], pa.int64())], schema=_DELETE_SCHEMA), path)
        low, high = (({2147483546: edge(positions).encode()} if bounds else {}) for edge in (min, max))
        deletes.append(_delete_file(table, DataFileContent.POSITION_DELETES, path, len(places), low, high, None))
    if equal is not None:
        path = f"{folder}/data/{number}-equal.parquet"
        whole = schema_to_pyarrow(table.schema(), include_field_ids=True)
        schema = pa.schema([whole.field(name) for name in equal.column_names])
        pq.write_table(equal.cast(schema), path)
        ids = ids or [table.schema().find_field(name).field_id for name in equal.column_names]
        deletes.append(_delete_file(table, DataFileContent.EQUALITY_DELETES, path, len(equal), {}, {}, ids))
    with table.transaction() as transaction:
        update = _RowDelta(Operation.OVERWRITE, transaction, table.io)
        update.deletes = deletes
        if new is not None:
            path = f"{folder}/data/{number}-new.parquet"
            pq.write_table(new.cast(schema_to_pyarrow(table.schema(), include_field_ids=True)), path)
            update.append_data_file(parquet_file_to_data_file(table.io, table.metadata, f"file://{path}"))
        update.commit()


def replace_files(table: Table, root: str = "file://", rows: pa.Table | None = None) -> None:
    """Write all rows of a table into one new file, as Java's compaction does: a snapshot with the operation `replace`.

    Names in the file are Java's: it writes "a_x20b" for "a b".

    Args:
        root: the beginning of the file's name. Java writes `file:`.
        rows: of the table; None: as pyiceberg reads them, which cannot read equality deletes.
    """
    folder, number = table.location().removeprefix("file://"), len(table.snapshots())
    path = f"{folder}/data/{number}-compacted.parquet"
    rows = table.scan().to_arrow() if rows is None else rows
    rows = rows.cast(schema_to_pyarrow(table.schema(), include_field_ids=True))
    fields = list(map(_named_by_java, rows.schema))
    columns = [relabel_column(column, field.type) for column, field in zip(rows.columns, fields, strict=True)]
    pq.write_table(pa.table(columns, pa.schema(fields)), path)
    _commit_file(table, f"{root}{path}", len(rows), replaces=True)


def _named_by_java(field: pa.Field) -> pa.Field:
    name, kind = re.sub(r"\W", lambda part: f"_x{ord(part[0]):X}", field.name, flags=re.ASCII), field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_named_by_java(kind.field(place)) for place in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_named_by_java(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _named_by_java(kind.item_field))
    return pa.field(name, kind, field.nullable, field.metadata)


def commit_file(table: Table, path: str) -> None:
    """Add a data file to a table of format 3, which pyiceberg cannot."""
    _commit_file(table, path, pq.read_metadata(path.removeprefix("file://")).num_rows, replaces=False)


def _commit_file(table: Table, path: str, rows: int, *, replaces: bool) -> None:
    size = Path(path.removeprefix("file:")).stat().st_size
    number = table.spec().spec_id
    entry = {"content": DataFileContent.DATA, "file_path": path, "file_format": FileFormat.PARQUET}
    counts = {"partition": Record(), "record_count": rows, "file_size_in_bytes": size, "spec_id": number}
    file = DataFile.from_args(table.format_version, **entry, **counts)
    file.spec_id = number
    with table.transaction() as transaction:
        if replaces:
            RewrittenFiles(transaction, FileChanges([file], {}, lambda _: False, moves_only=True)).commit()
        else:
            RowDelta(transaction, FileChanges([file], {})).commit()


def _delete_file(
    table: Table,
    content: DataFileContent,
    path: str,
    rows: int,
    low: dict[int, bytes],
    high: dict[int, bytes],
    ids: list[int] | None,
) -> DataFile:
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*[None] * len(table.spec().fields)),
        record_count=rows,
        file_size_in_bytes=Path(path).stat().st_size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds=low,
        upper_bounds=high,
        equality_ids=ids,
        spec_id=table.spec().spec_id,
    )
    file.spec_id = table.spec().spec_id
    return file


class Writer:
    """Makes random changes of a table, and remembers the rows of each snapshot by a list of Python rows."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.catalog, self.random = catalog_in(folder), random.Random(seed)
        table = self.catalog.create_table(NAME, SCHEMA)
        self.rows = list[tuple[Any, ...]]()
        table.append(self._draw_rows())

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(NAME)

    def _draw_rows(self) -> pa.Table:
        draw = self.random
        made = [
            (draw.randrange(12), draw.choice((0.0, -0.0, 1.5, float("nan"), None)), draw.choice(("a", "b %/c", None)))
            for _ in range(6)
        ]
        self.rows += made
        return rows_of(*made)

    def change(self) -> str:
        """Make one change, and return its kind."""
        kind = self.random.choice(("append", "overwrite", "delete", "positions", "equal", "equal"))
        table, at = self.table, self.random.randrange(12)
        if kind == "append":
            table.append(self._draw_rows())
        elif kind == "overwrite":  # copy-on-write
            self.rows = []
            table.overwrite(self._draw_rows())
        elif kind == "delete" and not self._has_equality_deletes(table):
            self.rows = [row for row in self.rows if row[0] != at]
            table.delete(f"id = {at}")
        elif kind == "positions":
            self._delete_positions(table)
        elif kind == "equal":
            by = self.random.choice((["id"], ["p"], ["id", "p"]))
            values = [(self.random.randrange(12), self.random.choice(("a", None))) for _ in range(2)]
            equal = pa.table({"id": [v[0] for v in values], "p": pa.array([v[1] for v in values], pa.string())})
            gone = {tuple(row[name] for name in by) for row in equal.to_pylist()}
            wanted = [("id", "v", "p").index(name) for name in by]
            self.rows = [row for row in self.rows if tuple(row[i] for i in wanted) not in gone]
            commit_deletes(table, equal=equal.select(by), new=self._draw_rows())
        return kind

    @staticmethod
    def _has_equality_deletes(table: Table) -> bool:
        return any(file["content"] == 2 for file in table.inspect.delete_files().to_pylist())

    def _delete_positions(self, table: Table) -> None:
        files = [file["file_path"] for file in table.inspect.data_files().to_pylist()]
        if not files or self._has_equality_deletes(table):
            return
        positions, gone = {}, list[tuple[Any, ...]]()
        dead = self._dead_positions(table)
        for path in self.random.sample(files, min(2, len(files))):
            rows = pq.read_table(path.removeprefix("file://")).select(["id", "v", "p"])
            every = list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
            at = sorted({self.random.randrange(len(every)) for _ in range(2)})
            gone += [every[i] for i in at if (path, i) not in dead]
            positions[path] = at
        texts = [repr(row) for row in self.rows]
        for row in gone:
            place = texts.index(repr(row))
            del texts[place], self.rows[place]
        commit_deletes(table, positions, bounds=self.random.random() < 0.5)

    @staticmethod
    def _dead_positions(table: Table) -> set[tuple[str, int]]:
        deletes = [f["file_path"] for f in table.inspect.delete_files().to_pylist() if f["content"] == 1]
        read = [pq.read_table(path.removeprefix("file://")) for path in deletes]
        return {(r["file_path"], r["pos"]) for part in read for r in part.to_pylist()}


class KeyedWriter:
    """Makes random changes of a table with at most one row per id, as writers of upserts do."""

    def __init__(self, folder: Path, seed: int, **properties: str) -> None:
        self.catalog, self.random = catalog_in(folder), random.Random(seed)
        self.catalog.create_table(NAME, SCHEMA, properties=properties)
        self.rows = dict[int, tuple[Any, ...]]()
        self._places = dict[int, tuple[str, int]]()
        self._states = dict[int, tuple[dict[int, tuple[Any, ...]], dict[int, tuple[str, int]]]]()
        self._write(self._draw_rows(9), lambda rows: self.table.append(rows))

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(NAME)

    def _draw_rows(self, count: int) -> list[tuple[Any, ...]]:
        draw = self.random
        return [
            (i, draw.choice((0.0, -0.0, 1.5, float("nan"), None)), draw.choice(("a", "b %/c", None)))
            for i in draw.sample(range(14), count)
        ]

    def _write(self, new: list[tuple[Any, ...]], commit: Callable[[pa.Table], None]) -> None:
        """Commit a data file with these rows."""
        before = {file["file_path"] for file in self.table.inspect.data_files().to_pylist()}
        commit(rows_of(*new))
        added = {file["file_path"] for file in self.table.inspect.data_files().to_pylist()} - before
        if new:
            (path,) = added
            self.rows |= {row[0]: row for row in new}
            self._places |= {row[0]: (path, at) for at, row in enumerate(new)}

    def _remove(self, ids: Collection[int]) -> None:
        for i in ids:
            self.rows.pop(i, None)
            self._places.pop(i, None)

    def change(self) -> str:
        """Make one change, and return its kind."""
        kinds = ("upsert", "upsert", "delete", "merge", "equal", "overwrite", "compact", "rollback")
        kind = self.random.choice(kinds)
        self._states[self._snapshot] = dict(self.rows), dict(self._places)
        new, gone = self._draw_rows(3), self.random.sample(range(14), 2)
        if kind == "upsert":  # of Flink
            self._remove([row[0] for row in new])
            equal = pa.table({"id": [row[0] for row in new]})
            self._write(new, lambda rows: commit_deletes(self.table, equal=equal, new=rows))
        elif kind == "delete":
            self._remove(gone)
            commit_deletes(self.table, equal=pa.table({"id": gone}))
        elif kind == "merge":  # of Spark, merge-on-read
            positions = dict[str, list[int]]()
            for path, at in (self._places[row[0]] for row in new if row[0] in self._places):
                positions.setdefault(path, []).append(at)
            self._remove([row[0] for row in new])
            self._write(
                new,
                lambda rows: commit_deletes(self.table, positions, new=rows) if positions else self.table.append(rows),
            )
        elif kind == "equal":  # not of the key
            self._remove([i for i, row in self.rows.items() if row[2] == "a"])
            commit_deletes(self.table, equal=pa.table({"p": ["a"]}))
        elif kind == "overwrite":  # copy-on-write
            whole = [*{**self.rows, **{row[0]: row for row in new}}.values()]
            self._write(whole, lambda rows: self.table.overwrite(rows))
        elif kind == "rollback":
            snapshot = self.random.choice(list(self._states))
            self.rows, self._places = map(dict, self._states[snapshot])
            self.table.manage_snapshots().set_current_snapshot(snapshot).commit()
        elif self.rows:
            self._write([*self.rows.values()], lambda rows: replace_files(self.table, rows=rows))
        return kind

    @property
    def _snapshot(self) -> int:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id
