"""The server's side of a Postgres source: its tables, publication, slot, snapshot and log.

    publication   the tables whose changes the log passes on; created, and extended, if the user may
    slot          the position up to which the server may remove its log; created before the first snapshot
    snapshot      of a second, temporary slot: the rows of tables as of a position of the log

The log is only peeked at, so it can be read again until `advance_slot`. Programs take turns by an advisory lock of the
slot, since the server lets one session read it at a time.
"""

from collections.abc import Collection, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.logical.quoting import quote_identifier
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.postgres import names
from tussock.jobs.postgres.copied_rows import read_copied
from tussock.jobs.sources.credentials import resolve_references
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.keyed import row_fields
from tussock.jobs.sources.postgres_errors import (
    DatabaseDeniedError,
    LogLevelError,
    MissingTableError,
    OpenTransactionsError,
    TableOutsideError,
    UnreadableTableError,
    connection_error,
    translating_errors,
)
from tussock.jobs.sources.postgres_log import Log

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

TABLE, SLOT, PUBLICATION, MAX_CHANGES = "table", "slot", "publication", "max_changes"
#: Options that libpq gets.
CONNECTION = ("host", "port", "dbname", "user", "password", "service", "sslmode", "sslrootcert", "sslcert", "sslkey")
OPTIONS = (*CONNECTION, TABLE, SLOT, PUBLICATION, MAX_CHANGES)
_SLOT_WAIT = "60s"  # for transactions that are open when a slot is created
_ROW_FILTERS = 150_000  # the first server version whose publications can omit rows and columns, or contain schemas
_WITHOUT_LOG = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Args:
        kind: its type in pg_type, or the type below a domain.
        modifier: of the type (precision, scale); -1 without one.
        is_generated: the server computes it, and its log does not contain it.
        number: in the table; a column that is dropped and added again has another.
        change: the transaction that changed the column itself last, as by ALTER COLUMN TYPE.
    """

    name: str
    kind: str
    modifier: int
    is_generated: bool
    number: int
    change: str


@dataclass(frozen=True, slots=True)
class TablePartition:
    """A partition of a table, also a divided one.

    Args:
        oid: its identity.
        file: the number of its file, which a truncation changes; 0 if it is divided.
        is_original: it was created as a partition and has its first file, so the log contains all its rows.
    """

    oid: int
    file: int
    is_original: bool


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A table of the server.

    Args:
        oid: its identity; a table that is dropped and created again has another.
        file: the number of its file, which changes when all rows are written anew; 0 if it is divided.
        identities: the columns by which deletions name rows, by the text of the table, or of each partition; empty:
            all columns (REPLICA IDENTITY FULL); None: none.
        key: the primary key; empty without one.
        partitions: empty for a table without partitions.
    """

    oid: int
    file: int
    columns: tuple[TableColumn, ...]
    identities: dict[str, tuple[str, ...] | None]
    key: tuple[str, ...]
    partitions: tuple[TablePartition, ...]


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot.

    Args:
        end: of the server's log.
        confirmed: changes before this position are gone.
        status: how the server holds its log: reserved, extended, unreserved or lost.
        held_bytes: of the log that the server keeps for it.
        safe_bytes: that the log may grow until changes are lost; None: without a limit.
    """

    end: int
    confirmed: int
    status: str
    held_bytes: int
    safe_bytes: int | None


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """The database and the slot of a source. Sources with equal places share one position."""

    address: str
    slot: str
    publication: str

    @property
    def shown(self) -> str:
        """For messages. The address contains no password."""
        return f"Postgres ({self.address})" if self.address else "Postgres (the address of libpq's variables)"


def place_of(source: CreateSource) -> SlotPlace:
    """Return the place of a source."""
    connection = (
        f"{name}={source.options[name]}" for name in CONNECTION if name in source.options and name != "password"
    )
    slot = source.options[SLOT]
    return SlotPlace(" ".join(connection), slot, source.options.get(PUBLICATION, slot))


def table_of(source: CreateSource) -> tuple[str, str]:
    """Return the schema and the name of a source's table. Raises BadOptionError."""
    text = source.options[TABLE]
    if (table := names.parse_table(text)) is None:
        reason = """expected 'schema.name', in which a name with a dot or a quote is quoted: 'public."a.b"'"""
        raise BadOptionError(source.name, TABLE, text, reason)
    return table


def table_text(source: CreateSource) -> str:
    """Return the table as SQL, for messages."""
    return names.table_text(*table_of(source))


class Database:
    """A connection of a source."""

    def __init__(self, source: CreateSource, connection: "psycopg.Connection[Any]", address: str) -> None:
        self.source, self.place, self._connection, self._address = source, place_of(source), connection, address

    @property
    def _translating(self) -> Any:
        return translating_errors(
            self.source.name, self.place.shown, self._connection.info.user, table_text(self.source)
        )

    def read_rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query with placeholders `%s`."""
        with self._translating:
            return self._connection.execute(query, values).fetchall()

    def read_row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        """Return the first row of a query."""
        return next(iter(self.read_rows(query, *values)), None)

    def run(self, statement: "sql.SQL | sql.Composed") -> None:
        """Run a statement."""
        with self._translating:
            self._connection.execute(statement)

    # --- tables -------------------------------------------------------------------------------------------------------

    def require_logical(self) -> None:
        """Raises LogLevelError, DatabaseDeniedError if the user may not replicate."""
        (level, may) = self.read_rows(
            "SELECT current_setting('wal_level'), rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
        )[0]
        if level != "logical":
            raise LogLevelError(self.source.name, self.place.shown, level)
        user = self._connection.info.user
        if not may:
            reason = f"role {user} lacks the attribute REPLICATION"
            raise DatabaseDeniedError(self.source.name, self.place.shown, reason, user, table_text(self.source))

    def read_table(self, source: CreateSource) -> ServedTable:
        """Return the table of a source. Raises MissingTableError; UnreadableTableError for one without a whole log."""
        table_row = self.read_row(
            "SELECT c.oid::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint, c.relkind::text"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')",
            *table_of(source),
        )
        if table_row is None:
            near = self.read_rows(
                "SELECT schemaname || '.' || tablename FROM pg_tables"
                " WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1 LIMIT 10"
            )
            raise MissingTableError(source.name, table_text(source), self.place.shown, tuple(t for (t,) in near))
        oid, file, kind = table_row
        if (what := _WITHOUT_LOG.get(kind)) is not None:
            remedy = "Name the tables that it reads, or read it through JDBC"
            raise UnreadableTableError(source.name, table_text(source), f"is {what}", remedy)
        columns = self.read_rows(_COLUMNS, oid, oid)
        partitions, identities = self._read_members(source, oid)
        served = tuple(TableColumn(*column) for column in columns)
        return ServedTable(oid, file, served, identities, self._read_key(oid), partitions)

    def _read_key(self, oid: int) -> tuple[str, ...]:
        row = self.read_row(f"SELECT {_INDEXED.format('i.indisprimary')} FROM pg_class c WHERE c.oid = %s", oid)
        return () if row is None or row[0] is None else tuple(row[0])

    def _read_members(
        self, source: CreateSource, oid: int
    ) -> tuple[tuple[TablePartition, ...], dict[str, tuple[str, ...] | None]]:
        """Return the partitions of a table, and the identities of the tables that contain its rows."""
        partitions, identities = list[TablePartition](), dict[str, tuple[str, ...] | None]()
        for member, kind, persistence, schema, name, file, as_partition, whole, identity, child in self.read_rows(
            _MEMBERS, oid
        ):
            text = names.table_text(schema, name)
            own = table_text(source)
            if kind in _WITHOUT_LOG:
                finding = f"has a partition that is {_WITHOUT_LOG[kind]}: {text}"
                raise UnreadableTableError(source.name, own, finding, "Read it through JDBC")
            if persistence != "p":
                what = "is unlogged" if member == oid else f"has an unlogged partition: {text}"
                raise UnreadableTableError(source.name, own, what, f"Run `ALTER TABLE {text} SET LOGGED`")
            if child is not None:
                finding = f"has child tables by INHERITS, such as {child}, whose changes have other names in the log"
                raise UnreadableTableError(source.name, own, finding, "Partition it, or read it through JDBC")
            if member != oid:
                is_original = as_partition and file in (0, member)  # a table's first file has its identity as number
                partitions.append(TablePartition(member, file, is_original))
            if kind == "r":
                identities[text] = () if whole else None if identity is None else tuple(identity)
        return tuple(partitions), identities

    def base_types(self, oids: Collection[int]) -> dict[int, str]:
        """Return the names of types as `declared_type` takes them; for a domain, of the type below it.

        Unknown types are left out.
        """
        return dict(self.read_rows(_BASE_TYPES, list(oids)))

    # --- the publication ----------------------------------------------------------------------------------------------

    def require_published(self, source: CreateSource, table: ServedTable, *, may_add: bool) -> str:
        """Require that the publication passes on all changes of a table. Raises TableOutsideError.

        Args:
            may_add: first add the table, if the user may.

        Returns a mark of the publication, which changes if it, or its entry for the table, is changed.
        """
        name = self.place.publication
        kinds = self.read_row(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication"
            " WHERE pubname = %s",
            name,
        )
        shown = quote_identifier(name)
        if kinds is not None and table.partitions and not kinds[1]:
            remedy = f"`ALTER PUBLICATION {shown} SET (publish_via_partition_root = true)`"
            what = f"publication {name} passes on changes of {table_text(source)} under the names of its partitions"
            raise TableOutsideError(source.name, name, what, remedy)
        if kinds is None or not self._is_published(source):
            statement = self._publication_statement(source, exists=kinds is not None)
            self._add_table(source, statement, may_add=may_add)
        elif not kinds[0]:
            remedy = f"`ALTER PUBLICATION {shown} SET (publish = 'insert, update, delete, truncate')`"
            raise TableOutsideError(source.name, name, f"publication {name} omits kinds of changes", remedy)
        elif (omitted := self._omitted_part(source, table)) is not None:
            remedy = f"`ALTER PUBLICATION {shown} DROP TABLE {table_text(source)}`"
            remedy += f", and then `ALTER PUBLICATION {shown} ADD TABLE {table_text(source)}`"
            raise TableOutsideError(source.name, name, f"publication {name} omits {omitted}", remedy)
        return self._read_mark(table)

    def _read_mark(self, table: ServedTable) -> str:
        entries = "SELECT oid::text || ':' || xmin::text FROM pg_publication_rel WHERE prpubid = p.oid AND prrelid = %s"
        values: list[object] = [table.oid]
        if self._connection.info.server_version >= _ROW_FILTERS:
            entries += (
                " UNION ALL SELECT oid::text || ':' || xmin::text FROM pg_publication_namespace WHERE pnpubid = p.oid"
                " AND pnnspid = (SELECT relnamespace FROM pg_class WHERE oid = %s)"
            )
            values.append(table.oid)
        row = self.read_row(
            f"SELECT p.oid::text || ':' || p.xmin::text || ' ' || array_to_string(array({entries}), ' ')"
            " FROM pg_publication p WHERE pubname = %s",
            *values,
            self.place.publication,
        )
        return "" if row is None else str(row[0])

    def _add_table(self, source: CreateSource, statement: "sql.Composed", *, may_add: bool) -> None:
        name, remedy = self.place.publication, "`" + statement.as_string(self._connection) + "`"
        what = f"publication {name} does not contain {table_text(source)}"
        if not may_add:
            raise TableOutsideError(source.name, name, what, remedy)
        try:
            self.run(statement)
        except DatabaseDeniedError as err:
            raise TableOutsideError(source.name, name, f"{what}, and {err.reason}", remedy) from err

    def _publication_statement(self, source: CreateSource, *, exists: bool) -> "sql.Composed":
        from psycopg import sql

        table, name = sql.Identifier(*table_of(source)), sql.Identifier(self.place.publication)
        if exists:
            return sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, table)
        text = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
        return sql.SQL(text).format(name, table)

    def _is_published(self, source: CreateSource) -> bool:
        query = "SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s"
        return self.read_row(query, self.place.publication, *table_of(source)) is not None

    def _omitted_part(self, source: CreateSource, table: ServedTable) -> str | None:
        """Return the rows or the column of a table that the publication omits; None if it omits nothing."""
        if self._connection.info.server_version < _ROW_FILTERS:
            return None
        row = self.read_row(
            "SELECT rowfilter, attnames::text[] FROM pg_publication_tables"
            " WHERE pubname = %s AND schemaname = %s AND tablename = %s",
            self.place.publication,
            *table_of(source),
        )
        if row is None:
            return None
        if row[0] is not None:
            return f"rows of {table_text(source)} (WHERE {row[0]})"
        there = {column.name for column in table.columns} - set(row[1])
        missing = [field.name for field in row_fields(source) if field.name in there]
        return f"column {missing[0]!r} of {table_text(source)}" if missing else None

    # --- the slot -----------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Wait until no other program of this project reads the slot. Raises SourceAwayError after LOCK_WAIT."""
        self.read_row("SELECT pg_advisory_lock(hashtextextended(%s, 0))", f"tussock slot {self.place.slot}")

    def read_slot(self) -> SlotState | None:
        """Return the state of the slot; None if it does not exist."""
        state = self.read_row(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint,"
            " (coalesce(confirmed_flush_lsn, '0/0') - '0/0')::bigint, coalesce(wal_status, 'lost'),"
            " (pg_current_wal_insert_lsn() - coalesce(restart_lsn, pg_current_wal_insert_lsn()))::bigint, safe_wal_size"
            " FROM pg_replication_slots"
            " WHERE slot_name = %s AND slot_type = 'logical' AND database = current_database()",
            self.place.slot,
        )
        return None if state is None else SlotState(*state)

    def create_slot(self, *, instead: bool) -> None:
        """Create the slot. `instead`: of one whose changes are lost. Raises OpenTransactionsError."""
        if instead:
            self.drop_slot()
        with self._waiting_for_transactions():
            self.read_row("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", self.place.slot)

    def drop_slot(self) -> None:
        """Remove the slot, whose changes cannot be continued."""
        self.read_row("SELECT pg_drop_replication_slot(%s)", self.place.slot)

    @contextmanager
    def _waiting_for_transactions(self) -> Iterator[None]:
        import psycopg

        self.read_row("SELECT set_config('statement_timeout', %s, false)", _SLOT_WAIT)
        try:
            yield
        except SourceAwayError as err:
            if isinstance(err.__cause__, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable):
                raise OpenTransactionsError(self.source.name, self.place.slot) from err
            raise
        finally:
            self.read_row("SELECT set_config('statement_timeout', '0', false)")

    def log_position(self) -> tuple[int, bool]:
        """Return the end of the log, and whether all of it is on disk."""
        position = self.read_row(
            "WITH at AS MATERIALIZED (SELECT pg_current_wal_insert_lsn() AS end)"
            " SELECT (at.end - '0/0')::bigint, pg_current_wal_flush_lsn() >= at.end FROM at"
        )
        assert position is not None
        return int(position[0]), bool(position[1])

    def peek_log(self, until: int, most: int | None) -> Log:
        """Return the messages of the transactions that committed up to a position. They stay in the log.

        Args:
            most: stop after the transaction with this message; None: no bound.

        Cost: the log since the slot's position. psycopg's C code makes one object per message; a concatenation on the
            server took twice as long (1 M messages: 6.3 s and 13.9 s).
        """
        from psycopg import sql

        query = sql.SQL(
            "SELECT data FROM pg_logical_slot_peek_binary_changes({}, {}::pg_lsn, {},"
            " 'proto_version', '1', 'publication_names', {})"
        ).format(self.place.slot, lsn_text(until), most, quote_identifier(self.place.publication))
        with self._translating, self._connection.cursor(binary=True) as cursor:
            messages = [data for (data,) in cursor.execute(query)]
        return Log(b"".join(messages), np.fromiter(map(len, messages), np.int64, len(messages)))

    def advance_slot(self, position: int) -> None:
        """Let the server remove its log before a position."""
        self.read_row("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", self.place.slot, lsn_text(position))

    # --- the snapshot -------------------------------------------------------------------------------------------------

    @contextmanager
    def exported_snapshot(self) -> Iterator[int]:
        """Within the block, this connection reads the rows as of one position of the log, which it yields.

        It contains each transaction that committed before. A temporary slot exports it, and ends with the block.
        """
        import psycopg
        from psycopg import sql

        from tussock.jobs.postgres.connection import open_connection

        with ExitStack() as stack:
            with self._translating:
                exporter = stack.enter_context(
                    open_connection(self._address, autocommit=True, replication="database", options=_TIMEOUT)
                )
                command = sql.SQL("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT")
                name = f"{self.place.slot[:40]}_{self._connection.info.backend_pid}"
                try:
                    row = exporter.execute(command.format(sql.Identifier(name))).fetchone()
                except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable) as err:
                    raise OpenTransactionsError(self.source.name, self.place.slot) from err
            assert row is not None
            with self._connection.transaction():
                self.run(sql.SQL("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
                self.run(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(row[2]))
                yield number_of_lsn(row[1])

    def copy_rows(self, source: CreateSource) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of a source's table, its declared columns as texts. Requires: the caller closes it."""
        from psycopg import sql

        names = [field.name for field in row_fields(source)]
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        command = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(
            columns, sql.Identifier(*table_of(source))
        )
        with self._translating, self._connection.cursor().copy(command) as copy:
            yield from read_copied(copy, dict.fromkeys(names, pa.string()))


_TIMEOUT = f"-c statement_timeout={_SLOT_WAIT} -c lock_timeout={_SLOT_WAIT}"


#: The columns of an index of pg_class `c`, in order; NULL without one. Included columns are no part of a key.
_INDEXED = (
    "(SELECT array_agg(a.attname::text ORDER BY k.place) FROM pg_index i,"
    " LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place), pg_attribute a"
    " WHERE i.indrelid = c.oid AND {} AND k.place <= i.indnkeyatts AND a.attrelid = c.oid AND a.attnum = k.number)"
)
_IS_IDENTITY = "CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END"
#: A row for a table and one per partition of it. `as_partition`: no transaction changed its place after its creation.
_MEMBERS = (
    "SELECT c.oid::bigint, c.relkind::text, c.relpersistence::text, n.nspname::text, c.relname::text,"
    " CASE c.relkind WHEN 'r' THEN pg_relation_filenode(c.oid)::bigint ELSE 0 END,"
    " coalesce((SELECT h.xmin = y.xmin FROM pg_inherits h, pg_type y"
    "   WHERE h.inhrelid = c.oid AND y.oid = c.reltype), false),"
    " c.relreplident = 'f',"
    f" {_INDEXED.format(_IS_IDENTITY)},"
    " (SELECT min(h.inhrelid::regclass::text) FROM pg_inherits h WHERE h.inhparent = c.oid AND c.relkind = 'r')"
    " FROM (SELECT %s::oid AS root) r, LATERAL (SELECT root AS relid UNION SELECT relid FROM pg_partition_tree(root)) t"
    " JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1"
)
_TYPE_NAME = "coalesce(e.typname || '[]', t.typname::text)"
_WITH_ELEMENT = " LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid"
_COLUMNS = (
    "WITH RECURSIVE below AS (SELECT attnum, atttypid AS type, atttypmod AS modifier FROM pg_attribute"
    "   WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
    " UNION ALL SELECT b.attnum, t.typbasetype, CASE WHEN b.modifier < 0 THEN t.typtypmod ELSE b.modifier END"
    "   FROM below b JOIN pg_type t ON t.oid = b.type AND t.typtype = 'd')"
    f" SELECT a.attname::text, {_TYPE_NAME}, b.modifier, a.attgenerated <> '', a.attnum, a.xmin::text FROM below b"
    f" JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'{_WITH_ELEMENT}"
    " JOIN pg_attribute a ON a.attrelid = %s AND a.attnum = b.attnum ORDER BY a.attnum"
)
_BASE_TYPES = (
    "WITH RECURSIVE below AS (SELECT oid AS asked, oid AS type FROM pg_type WHERE oid = ANY(%s::oid[])"
    " UNION ALL SELECT b.asked, t.typbasetype FROM below b JOIN pg_type t ON t.oid = b.type AND t.typtype = 'd')"
    f" SELECT b.asked::bigint, {_TYPE_NAME} FROM below b"
    f" JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'{_WITH_ELEMENT}"
)


@contextmanager
def open_database(source: CreateSource, timeout_s: int | None = None) -> Iterator[Database]:
    """Connect to the database of a source.

    Args:
        timeout_s: to connect; None: the default of all connections.

    Raises: errors of postgres_errors.py; SourceAwayError; MissingReferenceError.
    """
    import psycopg
    from psycopg.conninfo import make_conninfo

    from tussock.jobs.postgres.connection import SESSION, apply_settings, open_connection

    parameters = {name: value for name, value in resolve_references(source, CONNECTION).items() if value}
    if timeout_s is not None:
        parameters["connect_timeout"] = str(timeout_s)
    address = make_conninfo("", **parameters)
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(open_connection(address, autocommit=True))
            apply_settings(connection, {**SESSION, **_SETTINGS}, is_local=False)
        except psycopg.Error as err:
            shown, user = place_of(source).shown, parameters.get("user", "USER")
            raise connection_error(source.name, shown, user, table_text(source), err) from err
        yield Database(source, connection, address)


#: A snapshot fails if a policy would hide rows of it, since the log contains all rows.
_SETTINGS = {"lock_timeout": "60s", "row_security": "off"}


def number_of_lsn(text: str) -> int:
    """Return a position of the log as a number: 16/B374D848 has the high and the low 32 bits."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(position: int) -> str:
    """Return a position of the log as Postgres writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
