"""Tables of a Postgres database: one table per relation, and all relations of an epoch in one transaction.

    _tussock_tables    a row per table: the store, the epoch and its digest, the columns, the number of rows
    _tussock_epochs    a row per published epoch, with the time of its publish

A publish is one transaction under an advisory lock of the schema, so two publishers take turns. The epoch's row and
those of its tables are part of it: a publish that is killed, or whose answer is lost, is either visible or not.

    changes     COPY into a temporary table, then UPDATE by key, and INSERT of the rows that no UPDATE met. Tables leave
                room in each page, so that a row changes within its page, and the index does not change with it
    all rows    COPY into a table beside the other one. At the end of the transaction it replaces a table with other
                columns; if the columns are the same, its rows replace the rows, so that grants and views stay

Rows are converted a whole column at a time (postgres_rows.py).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tussock.jobs.logical.quoting import quote_identifier
from tussock.jobs.logical.relation_names import outside_name
from tussock.jobs.postgres.connection import LOCK_WAIT, SESSION, apply_settings, open_connection
from tussock.jobs.settings.connections import CONNECTION_PARTS, read_connection
from tussock.jobs.settings.publishing import AIRFLOW_CONNECTION, PostgresSettings, PublishSettings
from tussock.jobs.settings.redaction import without_password
from tussock.jobs.sinks.base import (
    Difference,
    ForeignTableError,
    Outline,
    Publisher,
    Sink,
    SinkPlace,
    SinkState,
    WholeRows,
)
from tussock.jobs.sinks.manifest import SinkSize, TableState
from tussock.jobs.sinks.postgres_errors import DependentViewsError, connection_error, translating_errors
from tussock.jobs.sinks.postgres_rows import READ_FORMS, checked_columns, copy_rows, key_columns, read_copy
from tussock.statestore.decoding import decode_json
from tussock.statestore.types import arrow_type

_TABLES, _EPOCHS = "_tussock_tables", "_tussock_epochs"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS {tables} (relation text PRIMARY KEY, store text NOT NULL, epoch bigint NOT NULL,"
    " digest text NOT NULL, version bigint NOT NULL, shape text NOT NULL, rows bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS {epochs} (epoch bigint PRIMARY KEY, digest text NOT NULL,"
    " published_at timestamptz NOT NULL DEFAULT now())",
)
_FILLED_PERCENT = 90  # of a page; the rest is for changed rows, so that the server adds no entry to an index (HOT)
_NULLS_ARE_EQUAL = 150_000  # the first server version whose unique indexes can treat NULL as one value


@contextmanager
def open_place(settings: PublishSettings, publisher: Publisher) -> Iterator[SinkPlace]:
    """See OpenPlace."""
    assert isinstance(settings, PostgresSettings)
    with _connect(settings.to) as connection:
        place = PostgresPlace(connection, settings.schema, publisher)
        try:
            yield place
        finally:
            if not connection.closed:
                connection.rollback()


@contextmanager
def _connect(to: str) -> "Iterator[psycopg.Connection[Any]]":
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(open_connection(_address_of(to)))
        except psycopg.Error as err:
            raise connection_error(without_password(to), err) from err
        yield connection


def _address_of(to: str) -> str:
    """Return the address for libpq. It reads passwords, service files and certificates from its own variables."""
    if not to.startswith(AIRFLOW_CONNECTION):
        return to
    connection = read_connection(to.removeprefix(AIRFLOW_CONNECTION))
    parts = {part: getattr(connection, part) for part in CONNECTION_PARTS}
    return make_conninfo("", **{part: value for part, value in (parts | dict(connection.extra)).items() if value})


class PostgresPlace(SinkPlace):
    """A schema of a database, in one transaction. See SinkPlace."""

    def __init__(self, connection: "psycopg.Connection[Any]", schema: str, publisher: Publisher) -> None:
        self.connection, self.schema, self.publisher = connection, schema, publisher
        info = connection.info
        self.address = f"postgresql://{info.host}:{info.port}/{info.dbname}"
        self.swaps: list[Callable[[], None]] = []
        self._begun = False
        self._failure: Exception | None = None

    def sink_of(self, outline: Outline) -> "PostgresSink":
        return PostgresSink(self, outline)

    def translating(self, place: str, schema: str) -> AbstractContextManager[None]:
        """Translate errors of statements in the block."""
        return translating_errors(place, schema, self.connection.info.user)

    def has_table(self, relation: str, state: TableState) -> bool:
        """See SinkPlace. Also compares the epoch, which a restored database does not have."""
        with self.translating(self.address, self.schema):
            if self._value("SELECT to_regclass({})", sql.Literal(self._quote_table(_TABLES))) is None:
                return False
            epoch = self._value("SELECT epoch FROM {} WHERE relation = {}", self.name(_TABLES), sql.Literal(relation))
            there = self._value("SELECT to_regclass({})", sql.Literal(self._quote_table(relation)))
        return there is not None and str(epoch) == state.written

    def finish_epoch(self, epoch: int, tables: Mapping[str, TableState], *, complete: bool) -> None:
        with self.translating(self.address, self.schema):
            self.begin()
            for swap in self.swaps:
                swap()
            digest = self.publisher.digest_of(epoch)
            self.run(
                "INSERT INTO {} (epoch, digest) VALUES ({}, {})"
                " ON CONFLICT (epoch) DO UPDATE SET digest = excluded.digest",
                self.name(_EPOCHS),
                sql.Literal(epoch),
                sql.Literal(digest),
            )
            self.connection.commit()

    def begin(self) -> None:
        """Wait for the turn of this publisher, and create the schema and the tables of this module."""
        if self._failure is not None:
            raise self._failure  # each further statement of the transaction would only name this
        if self._begun:
            return
        try:
            with self.translating(self.address, self.schema):
                self._begin()
        except Exception as err:
            self._failure = err
            raise
        self._begun = True

    def _begin(self) -> None:
        apply_settings(self.connection, {**SESSION, "lock_timeout": LOCK_WAIT}, is_local=True)
        self.run("SELECT pg_advisory_xact_lock(hashtextextended({}, 0))", sql.Literal(f"tussock {self.schema}"))
        self.create_schema(self.schema)
        for statement in _CREATE:
            self.connection.execute(sql.SQL(statement).format(tables=self.name(_TABLES), epochs=self.name(_EPOCHS)))

    def name(self, relation: str) -> sql.Identifier:
        """Return the table of a relation as SQL."""
        return sql.Identifier(*outside_name(self.schema, relation))

    def create_schema(self, schema: str) -> None:
        """Create a schema if it does not exist."""
        if self._value("SELECT to_regnamespace({})", sql.Literal(quote_identifier(schema))) is None:
            self.run("CREATE SCHEMA {}", sql.Identifier(schema))

    def run(self, text: str, *parts: sql.Composable) -> int:
        """Run a statement. Returns the number of rows that it changed."""
        return self.connection.execute(sql.SQL(text).format(*parts)).rowcount

    def _value(self, text: str, *parts: sql.Composable) -> Any:
        row = self.connection.execute(sql.SQL(text).format(*parts)).fetchone()
        return None if row is None else row[0]

    def _quote_table(self, table: str) -> str:
        return self.name(table).as_string(self.connection)


class _Shape(msgspec.Struct, frozen=True):
    """The form of a table, as recorded with it."""

    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]


class PostgresSink(Sink):
    """A relation's table. See Sink."""

    def __init__(self, place: PostgresPlace, outline: Outline) -> None:
        self._columns = checked_columns(outline)
        self._place, self._outline = place, outline
        self._table = place.name(outline.name)
        self._schema, self._name = outside_name(place.schema, outline.name)
        self.place = f"{place.address}/{self._schema}.{self._name}"
        self.key = key_columns(outline)
        self._shape = _Shape(self._columns, self.key)
        self._known: _Known | None = None

    def read_state(self) -> SinkState | None:
        with self._in_part():
            self._known = self._read_known()
            exists = self._place._value("SELECT to_regclass({})", sql.Literal(self._table.as_string())) is not None
        if self._known is None and exists:
            raise ForeignTableError(self.place, "is a table that Tussock has not written")
        if self._known is None or not exists:
            self._known = None
            return None
        if self._known.store not in self._outline.stores:
            finding = f"is a table of another store (identity {self._known.store}, expected {self._outline.store})"
            raise ForeignTableError(self.place, finding)
        known = self._known
        return SinkState(known.epoch, str(known.version), known.shape == self._shape, known.digest)

    def apply(self, difference: Difference, epoch: int) -> str | None:
        known = self._known
        assert known is not None
        if not (difference.only_new or self.key):
            return None
        with self._in_part():
            if difference.only_new:
                if any(map(any, _null_patterns(difference.written.select(list(self.key))))):
                    self._allow_null()
                more = self._copy_into(self._table, difference.written.to_reader())
            else:
                gone = self._delete_keys(difference.removed)  # first, as a unique index of others may need it
                more = self._write_by_key(difference.written) - gone
            return self._record(epoch, known.rows + more)

    def replace(self, rows: WholeRows, epoch: int) -> str:
        known = self._known
        with self._in_part():
            name = f"_tussock_{hashlib.sha256(self._outline.name.encode()).hexdigest()[:16]}"
            beside = sql.Identifier(self._schema, name)
            self._place.run("DROP TABLE IF EXISTS {}", beside)
            self._create_table(name)
            count = self._copy_into(beside, rows.batches())
            if known is not None and known.shape == self._shape:
                if self._has_null_key(beside):
                    self._allow_null()
                self._place.run("DELETE FROM {}", self._table)
                self._place.run("INSERT INTO {} SELECT * FROM {}", self._table, beside)
                self._place.run("DROP TABLE {}", beside)
            else:
                self._require_no_dependents()
                self._add_key(beside)
                self._swap(beside)
            return self._record(epoch, count)

    def forget(self, has: Callable[[int], bool]) -> None:
        """See Sink. Removes the rows of epochs that the store does not have."""
        with self._in_part():
            epochs = self._place.connection.execute(
                sql.SQL("SELECT epoch FROM {}").format(self._place.name(_EPOCHS))
            ).fetchall()
            lost = [epoch for (epoch,) in epochs if not has(epoch)]
            self._place.run("DELETE FROM {} WHERE epoch = ANY({})", self._place.name(_EPOCHS), sql.Literal(lost))

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """See Sink. Removes the rows of old epochs, and vacuums the table."""
        if self.read_state() is None:
            self._place.connection.rollback()
            return "no table yet"
        with self._place.translating(self.place, self._schema):
            old = self._place.run(
                "DELETE FROM {} WHERE published_at < now() - make_interval(secs => {})",
                self._place.name(_EPOCHS),
                sql.Literal(keep_ms / 1000),
            )
            self._place.connection.commit()
            self._place.connection.autocommit = True
            self._place.run("VACUUM (ANALYZE) {}", self._table)
            self._place.connection.autocommit = False
            self._place._begun = False
        return f"vacuumed, removed {old} rows of epochs"

    def measure(self) -> SinkSize:
        """See Sink. Dead rows are the server's estimate."""
        assert self._known is not None
        with self._in_part():
            dead = self._place._value(
                "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = to_regclass({})",
                sql.Literal(self._table.as_string()),
            )
        return SinkSize(self._known.rows, None, dead)

    def read_rows(self) -> pa.RecordBatchReader:
        """See Sink. Structs, arrays and maps are texts in JSON."""
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in self._outline.columns])
        if self.read_state() is None:
            return schema.empty_table().to_reader()
        names = sql.SQL(", ").join(
            sql.SQL(READ_FORMS.get(kind, "{0}")).format(sql.Identifier(name)) for name, kind in self._columns
        )
        command = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(names, self._table)
        with self._in_part(), self._place.connection.cursor().copy(command) as copy:
            return read_copy(copy, schema)

    @contextmanager
    def _in_part(self) -> Iterator[None]:
        """A part of the transaction, which alone is undone if it fails."""
        with self._place.translating(self.place, self._schema):
            self._place.begin()  # else the part would be a transaction
            with self._place.connection.transaction():
                yield

    def _read_known(self) -> "_Known | None":
        row = self._place.connection.execute(
            sql.SQL("SELECT store, epoch, digest, version, shape, rows FROM {} WHERE relation = {}").format(
                self._place.name(_TABLES), sql.Literal(self._outline.name)
            )
        ).fetchone()
        if row is None:
            return None
        return _Known(row[0], row[1], row[2], row[3], decode_json(row[4], _Shape), row[5])

    def _record(self, epoch: int, rows: int) -> str:
        """Record the state that this transaction leaves."""
        version = 1 if self._known is None else self._known.version + 1
        digest = self._place.publisher.digest_of(epoch)
        self._known = _Known(self._outline.store, epoch, digest, version, self._shape, rows)
        values = (self._outline.name, self._outline.store, epoch, digest, version)
        shape = msgspec.json.encode(self._shape).decode()
        tables, relation = self._place.name(_TABLES), sql.Literal(self._outline.name)
        self._place.run("DELETE FROM {} WHERE relation = {}", tables, relation)
        self._place.run(
            "INSERT INTO {} (relation, store, epoch, digest, version, shape, rows) VALUES ({})",
            tables,
            sql.SQL(", ").join(sql.Literal(value) for value in (*values, shape, rows)),
        )
        return str(version)

    def _create_table(self, name: str) -> None:
        self._place.create_schema(self._schema)
        table = sql.Identifier(self._schema, name)
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in self._columns
        )
        room = sql.SQL(f" WITH (fillfactor = {_FILLED_PERCENT})" if self.key else "")
        self._place.run("CREATE TABLE {} ({}){}", table, columns, room)
        self._place.run("COMMENT ON TABLE {} IS {}", table, sql.Literal(self._outline.comment or None))
        for (column, _), comment in zip(self._columns, self._outline.comments, strict=False):
            if comment:
                place = sql.Identifier(self._schema, name, column)
                self._place.run("COMMENT ON COLUMN {} IS {}", place, sql.Literal(comment))

    def _add_key(self, table: sql.Identifier) -> None:
        """Add the primary key, or a unique index if a key column contains NULL."""
        if not self.key:
            return
        names = sql.SQL(", ").join(map(sql.Identifier, self.key))
        if self._has_null_key(table):
            self._add_index(table, names)
        else:
            self._place.run("ALTER TABLE {} ADD PRIMARY KEY ({})", table, names)

    def _has_null_key(self, table: sql.Identifier) -> bool:
        if not self.key:
            return False
        has_null = sql.SQL(" OR ").join(sql.SQL("{} IS NULL").format(sql.Identifier(name)) for name in self.key)
        return self._place._value("SELECT 1 FROM {} WHERE {} LIMIT 1", table, has_null) is not None

    def _add_index(self, table: sql.Identifier, names: sql.Composable) -> None:
        equal = self._place.connection.info.server_version >= _NULLS_ARE_EQUAL
        self._place.run(
            "CREATE UNIQUE INDEX ON {} ({}) {}", table, names, sql.SQL("NULLS NOT DISTINCT" if equal else "")
        )

    def _allow_null(self) -> None:
        """Replace the primary key by a unique index, because a key with NULL arrives."""
        constraint = self._place._value(
            "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass({}) AND contype = 'p'",
            sql.Literal(self._table.as_string()),
        )
        if constraint is None:
            return
        self._place.run("ALTER TABLE {} DROP CONSTRAINT {}", self._table, sql.Identifier(constraint))
        for name in self.key:
            self._place.run("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL", self._table, sql.Identifier(name))
        self._add_index(self._table, sql.SQL(", ").join(map(sql.Identifier, self.key)))

    def _require_no_dependents(self) -> None:
        """Require that no view reads the table that is replaced. Raises DependentViewsError."""
        names = self._place.connection.execute(
            sql.SQL(
                "SELECT DISTINCT r.ev_class::regclass::text FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid"
                " WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = to_regclass({0})"
                " AND r.ev_class <> to_regclass({0}) ORDER BY 1"
            ).format(sql.Literal(self._table.as_string()))
        ).fetchall()
        if names:
            raise DependentViewsError(self.place, ", ".join(name for (name,) in names))

    def _swap(self, beside: sql.Identifier) -> None:
        """Let the new table replace the old one at the end of the transaction, since readers wait from then on."""
        grants = self._place.connection.execute(
            sql.SQL(
                "SELECT privilege_type, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END"
                " FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass({}) AND grantee <> relowner"
            ).format(sql.Literal(self._table.as_string()))
        ).fetchall()

        def replace_table() -> None:
            with self._place.translating(self.place, self._schema):
                self._place.run("DROP TABLE IF EXISTS {}", self._table)
                self._place.run("ALTER TABLE {} RENAME TO {}", beside, sql.Identifier(self._name))
                for privilege, grantee in grants:
                    self._place.run("GRANT {} ON {} TO {}", sql.SQL(privilege), self._table, sql.SQL(grantee))

        self._place.swaps.append(replace_table)

    def _delete_keys(self, keys: pa.Table) -> int:
        """Delete the rows with these keys; returns their number. Each pattern of NULLs is one DELETE by index."""
        delete = "DELETE FROM {table} t USING {stage} s WHERE {same}"
        return sum(self._for_patterns("_tussock_keys", keys, delete)) if keys.num_rows else 0

    def _write_by_key(self, rows: pa.Table) -> int:
        """Replace the rows with the keys of these, and insert the others. Returns the number of inserted rows."""
        if rows.num_rows == 0:
            return 0
        columns = sql.SQL(", ").join(sql.Identifier(name) for name, _ in self._columns)
        values = sql.SQL(", ").join(sql.SQL("s.{}").format(sql.Identifier(name)) for name, _ in self._columns)
        update = (
            "WITH updated AS (UPDATE {table} t SET ({columns}) = ROW({values}) FROM {stage} s WHERE {same}"
            " RETURNING s.ctid AS place) DELETE FROM {stage} WHERE ctid IN (SELECT place FROM updated)"
        )
        updated = sum(self._for_patterns("_tussock_rows", rows, update, columns=columns, values=values))
        inserted: int = rows.num_rows - updated
        if inserted:
            stage = sql.Identifier("pg_temp", "_tussock_rows")
            self._place.run("INSERT INTO {} ({}) SELECT {} FROM {}", self._table, columns, columns, stage)
        return inserted

    def _for_patterns(self, name: str, rows: pa.Table, text: str, **parts: sql.Composable) -> Iterator[int]:
        """Copy rows into a temporary table, and run a statement for each pattern of NULLs in their keys.

        Args:
            name: of the temporary table.
            rows: (rows, some columns of this table with its key).
            text: with `{table}`, `{stage}`, `{same}` (the condition that a row has the key of a copied one), and the
                names of `parts`.

        Yields the number of rows that a statement changed.
        """
        stage, kinds = sql.Identifier("pg_temp", name), dict(self._columns)
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kinds[column])) for column in rows.column_names
        )
        self._place.run("DROP TABLE IF EXISTS {}", stage)
        self._place.run("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP", sql.Identifier(name), columns)
        self._copy_into(stage, rows.to_reader())
        self._place.run("ANALYZE {}", stage)
        patterns = _null_patterns(rows.select(list(self.key)))
        if any(any(pattern) for pattern in patterns):
            self._allow_null()
        for pattern in patterns:
            same = sql.SQL(" AND ").join(
                sql.SQL("t.{0} IS NULL AND s.{0} IS NULL" if is_null else "t.{0} = s.{0}").format(
                    sql.Identifier(column)
                )
                for column, is_null in zip(self.key, pattern, strict=True)
            )
            statement = sql.SQL(text).format(table=self._table, stage=stage, same=same, **parts)
            yield self._place.connection.execute(statement).rowcount

    def _copy_into(self, table: sql.Identifier, rows: pa.RecordBatchReader) -> int:
        names = sql.SQL(", ").join(map(sql.Identifier, rows.schema.names))
        command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER)").format(table, names)
        with self._place.connection.cursor() as cursor:
            with cursor.copy(command) as copy:
                copy_rows(rows, copy.write)
            return cursor.rowcount


class _Known(msgspec.Struct, frozen=True):
    """The row of a table in `_tussock_tables`."""

    store: str
    epoch: int
    digest: str
    version: int
    shape: _Shape
    rows: int


def _null_patterns(keys: pa.Table) -> list[tuple[bool, ...]]:
    """Return which columns are NULL, for each combination that occurs."""
    if not keys.num_columns:
        return []
    nulls = pa.table([pc.is_null(column) for column in keys.columns], names=[f"c{i}" for i in range(keys.num_columns)])
    patterns = nulls.group_by(nulls.column_names, use_threads=False).aggregate([])
    return list(zip(*(patterns[name].to_pylist() for name in nulls.column_names), strict=True))
