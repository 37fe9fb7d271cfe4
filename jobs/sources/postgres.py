"""Tables of a Postgres database as sources, by logical replication without a broker.

    CREATE SOURCE orders (id bigint, …, PRIMARY KEY (id)) USING postgres
        OPTIONS (host 'db', dbname 'shop', table 'public.orders', slot 'tussock')

A barrier pins a position of the server's log. It stores the changes up to there, or the first snapshot, as Parquet
files in the store (postgres_files.py), and pins these files. So no epoch reads the database, and a repeated epoch reads
the same bytes. The position is committed with the rows, and the slot is advanced after the commit (`release_slots`). If
the program dies before, the changes are still in the log, and the position in the store skips them.

**One position.** The sources of a slot are pinned together (`PinRequest.sources_of_format`): each gets the changes of
the same transactions, so an epoch contains a transaction whole. If one of them cannot be read, all are held. A new
source takes a snapshot as of a position, and the others take the log up to it.

The records are a keyed source's (keyed.py): the columns of the row, the operation, and the columns that the log omits.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import (
    ByPosition,
    DividedInput,
    Division,
    EngineReader,
    Identity,
    Item,
    OptionEffect,
    PinRequest,
    Pins,
    ReadPart,
    Revision,
    RowPlace,
)
from tussock.jobs.sources.credentials import REFERENCES_LOGIN
from tussock.jobs.sources.errors import (
    BadOptionError,
    CannotRestateError,
    MissingOptionError,
    require_count,
    require_options,
)
from tussock.jobs.sources.file_documents import document_of
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.keyed import row_fields
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.parquet import ParquetEngine
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.postgres_errors import (
    LostSlotError,
    NoIdentityError,
    OtherColumnsError,
    SharedSlotError,
    TableOutsideError,
    UndeclaredTableError,
    UnloggedChangesError,
)
from tussock.jobs.sources.postgres_files import store_changes, store_snapshot
from tussock.jobs.sources.postgres_log import Log, LoggedRelation
from tussock.jobs.sources.postgres_slot import (
    MAX_CHANGES,
    OPTIONS,
    SLOT,
    TABLE,
    Database,
    ServedTable,
    SlotPlace,
    SlotState,
    lsn_text,
    open_database,
    place_of,
    table_of,
    table_text,
)
from tussock.jobs.sources.postgres_taken import TAKEN_POSITION, Position
from tussock.jobs.sources.postgres_values import NAMES_BY_OID, declared_type, type_objection
from tussock.jobs.sources.row_ids import file_of, position_of
from tussock.jobs.sources.run_ends import end_of
from tussock.jobs.sources.unchanging import UnchangingInput
from tussock.statestore.decoding import decoder_of
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.table.storage_table import StorageTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")
_PLAIN_COLUMN = re.compile(r"[a-z_][a-z0-9_]*")
_DEFAULT_MAX_CHANGES, _MOST_MAX_CHANGES = 1_000_000, 2**31 - 1  # the server's function takes an integer
_NO_COLUMN = "-"
IDLE_BYTES = 16 << 20  # of log without changes of the tables, after which an epoch records the position: one segment


class PinnedLog(msgspec.Struct, frozen=True):
    """The input of one source: files of changes, and the position after them."""

    position: Position
    files: tuple[PinnedFile, ...] = ()


_pinned = decoder_of(PinnedLog)


@dataclass(frozen=True, slots=True)
class _Member:
    """A source of a slot, and its position at the barrier's base; None if it is new."""

    source: CreateSource
    position: Position | None


@dataclass(frozen=True, slots=True)
class SlotLag:
    """The state of a source's slot for users.

    Args:
        lag_bytes: of log after the source's position.
        state: of the slot; None if it does not exist.
    """

    lag_bytes: int
    state: SlotState | None


class _FailedMembers(Exception):
    """Sources of a slot that cannot be pinned, each with its error."""

    def __init__(self, errors: Mapping[str, InputError]) -> None:
        super().__init__(errors)
        self.errors = errors


class LogEngine(EngineReader):
    """Reads stored changes, which are Parquet files."""

    def __init__(self) -> None:
        self._parquet = ParquetEngine()

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        """See EngineReader."""
        files = document_of(_pinned.decode(document).files)
        return self._parquet.divide(_of_files(source), files, Division(division.units, division.zones))

    def item_of(self, part: msgspec.Raw) -> str:
        """See EngineReader."""
        return self._parquet.item_of(part)

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """See EngineReader."""
        return self._parquet.read(_of_files(source), part, columns)


class PostgresTables(UnchangingInput):
    """Tables of Postgres, read from its log."""

    taken_columns = TAKEN_POSITION.columns
    login: ClassVar[str] = REFERENCES_LOGIN
    engine: EngineReader | None = LogEngine()

    def identity(self, source: CreateSource) -> Identity:
        return ByPosition()

    # --- at CREATE SOURCE ---------------------------------------------------------------------------------------------

    def effect_of(self, option: str) -> OptionEffect:
        return OptionEffect.AT_ONCE  # a position contains the table's identity, so another table or slot is found

    def check(self, source: CreateSource) -> None:
        options = source.options
        for option, reason in ((TABLE, "the table, such as 'public.orders'"), (SLOT, "a name for the slot")):
            if not options.get(option):
                raise MissingOptionError(source.name, option, reason)
        require_options(source, OPTIONS)
        table_of(source)
        if _SLOT_NAME.fullmatch(options[SLOT]) is None:
            reason = "expected lower-case letters, digits and _, at most 63"
            raise BadOptionError(source.name, SLOT, options[SLOT], reason)
        require_count(source.name, options, MAX_CHANGES, _MOST_MAX_CHANGES)

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        """Return the declared columns. Compares them with the table; changes nothing in the database."""
        with open_database(source) as database:
            table = database.read_table(source)
            database.require_logical()
        if source.keyed is None:
            raise UndeclaredTableError(source.name, table_text(source), _declaration_of(table))
        _require_columns(source, table, exists=False)
        return source.fields

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner. The first source of a slot pins all of them.

        Raises: errors of postgres_errors.py. Cost: the log since the slot's position; for a new source, its table.
        """
        if request.only_skipped:
            return Pins()
        if request.restated is not None:
            if request.restated.items:
                raise CannotRestateError(source.name, "a table has no files: restate it with --all")
            return _pin_again(source, TAKEN_POSITION.read_newest(taken), keeper)
        place = place_of(source)
        if place not in request.shared:
            members = [
                _Member(other, TAKEN_POSITION.read_newest(table)) for other, table in _members(source, taken, request)
            ]
            try:
                request.shared[place] = _pin_slot(members, keeper)
            except (TussockError, _FailedMembers) as err:  # the others are held too, without another attempt
                request.shared[place] = err
        return _pins_in(request.shared[place], source)

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        """See SourcePinner. The item is the log after the position, of all tables of the server."""
        lag = slot_lag(source, taken)
        return (Item(f"log of slot {source.options[SLOT]}", lag.lag_bytes),) if lag.lag_bytes else ()

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        position = TAKEN_POSITION.read_newest(taken)
        return () if position is None else (_item_of(PinnedLog(position)),)

    def taken_total(self, taken: StorageTable) -> tuple[int, int]:
        return len(self.taken_items(taken)), 0

    def revise(self, source: CreateSource, taken: StorageTable | None, revision: Revision, keeper: Keeper) -> Pins:
        """Return the pins, without their changes if they are skipped. Stored changes are never read anew."""
        if revision.pins.read is None or _item_of(_pinned.decode(revision.pins.read)).name not in revision.skip:
            return revision.pins
        return Pins(None, _encode(PinnedLog(_pinned.decode(revision.pins.read).position)))

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return () if document is None else (_item_of(_pinned.decode(document)),)

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        return document if _item_of(_pinned.decode(document)).name in names else None

    # --- in the epoch -------------------------------------------------------------------------------------------------

    def locate_input(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        pinned = _pinned.decode(document)
        files = (msgspec.structs.replace(file, store=keeper.objects.uri) for file in pinned.files)
        return _encode(msgspec.structs.replace(pinned, files=tuple(files)))

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        raise AssertionError("actors read all changes of a log")

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        raise AssertionError("the stored rows of the source are its input for views")

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> RowPlace:
        pinned = (_pinned.decode(document) for document in documents)
        name = next((_item_of(p).name for p in pinned if any(f.number == file_of(row_id) for f in p.files)), "")
        return RowPlace(f"change {position_of(row_id) + 1} of {name or 'the log'}", name)

    # --- taken input --------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        document = pins.read if pins.read is not None else pins.unread
        if document is None:
            return None
        return TAKEN_POSITION.seal_records(schema, [_pinned.decode(document).position], epoch)

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        return None  # a new view reads the rows of the source


def _of_files(source: CreateSource) -> CreateSource:
    return msgspec.structs.replace(source, options={})


def slot_lag(source: CreateSource, taken: StorageTable | None) -> SlotLag:
    """Return how far a source is behind, and the state of its slot. Raises as `pin`."""
    position = TAKEN_POSITION.read_newest(taken)
    with open_database(source, timeout_s=3) as database:
        state, (end, _) = database.read_slot(), database.log_position()
    begin = position.lsn if position is not None else end if state is None else state.confirmed
    return SlotLag(max(0, end - begin), state)


def release_slots(sources: Sequence[tuple[CreateSource, StorageTable | None]]) -> None:
    """Let the servers remove the log that committed epochs have taken.

    Args:
        sources: the sources of this kind in a store, each with its table of taken input in a committed version.

    Raises: as `pin`. A repetition has no effect. Cost: a connection per slot.
    """
    by_place: dict[SlotPlace, list[_Member]] = {}
    for source, taken in sources:
        by_place.setdefault(place_of(source), []).append(_Member(source, TAKEN_POSITION.read_newest(taken)))
    for members in by_place.values():
        if any(member.position is None for member in members):
            continue  # the first snapshot is still to be taken
        taken_until = min(member.position.lsn for member in members if member.position is not None)
        with open_database(members[0].source) as database:
            state = database.read_slot()
            if state is None or state.status == "lost" or not state.confirmed < taken_until <= state.end:
                continue
            database.take_turn()
            database.advance_slot(taken_until)


def _members(
    source: CreateSource, taken: StorageTable | None, request: PinRequest
) -> list[tuple[CreateSource, StorageTable | None]]:
    """The sources of a source's slot, which are pinned with it."""
    others = [one for one in request.sources_of_format() if place_of(one[0]) == place_of(source)]
    return others or [(source, taken)]


def _pins_in(pinned: object, source: CreateSource) -> Pins:
    """The pins of a source in the answer of its slot. Raises its error, or one that names the source at fault."""
    if isinstance(pinned, _FailedMembers):
        if (own := pinned.errors.get(source.name)) is not None:
            raise own
        raise SharedSlotError(source.name, source.options[SLOT], next(iter(pinned.errors)))
    if isinstance(pinned, TussockError):
        raise pinned
    assert isinstance(pinned, dict)
    pins: Pins = pinned.get(source.name, Pins())
    return pins


def _for_each(members: Sequence[_Member], do: Callable[[_Member], _T]) -> dict[str, _T]:
    """Do something for each source, by name. Raises _FailedMembers with the errors of all that fail."""
    done, errors = dict[str, _T](), dict[str, InputError]()
    for member in members:
        try:
            done[member.source.name] = do(member)
        except InputError as err:
            errors[member.source.name] = err
    if errors:
        raise _FailedMembers(errors)
    return done


def _pin_slot(members: Sequence[_Member], keeper: Keeper) -> dict[str, Pins]:
    """The pins of all sources of a slot, by name: the changes of the same transactions."""
    old = [member for member in members if member.position is not None]
    new = [member for member in members if member.position is None]
    with open_database(members[0].source) as database:
        database.take_turn()
        state = database.read_slot()
        tables = _for_each(old, lambda member: _require_continued(member, database, state))
        if not new:
            assert state is not None
            return _pin_log(database, old, tables, keeper)
        database.require_logical()
        _for_each(new, lambda member: _require_columns(member.source, database.read_table(member.source), exists=False))
        if state is None or state.status == "lost":
            database.create_slot(instead=state is not None)
        pins, until = _pin_snapshots(database, new, keeper)
        log = database.peek_log(until, None) if old else Log.empty()
        return {**pins, **_pin_changes(database, old, tables, log, until, keeper)}


def _pin_log(
    database: Database, members: Sequence[_Member], tables: Mapping[str, ServedTable], keeper: Keeper
) -> dict[str, Pins]:
    """The pins of sources that have been read before."""
    end, is_on_disk = end_of(database.place, database.log_position)
    most = min(int(m.source.options.get(MAX_CHANGES, _DEFAULT_MAX_CHANGES)) for m in members)
    taken_until = min(m.position.lsn for m in members if m.position is not None)
    while True:
        log = database.peek_log(end, most)
        ends = log.commit_ends
        new, is_cut = ends[(ends > taken_until) & (ends <= end)], len(log) >= most
        if len(new) or not is_cut:
            break
        most *= 2  # the slot has not moved since earlier epochs of this run
    if is_cut:
        tables = {}  # later changes of partitions may belong to the rest of the log
    if len(new):
        return _pin_changes(database, members, tables, log, int(new[-1]), keeper)
    _for_each(members, lambda member: _require_partitions(member, tables.get(member.source.name), log, end))
    if is_on_disk and end - taken_until > IDLE_BYTES:
        return _pin_changes(database, members, tables, Log.empty(), end, keeper)
    return {}


def _pin_again(source: CreateSource, position: Position | None, keeper: Keeper) -> Pins:
    """The pins of a source whose table is loaded again: they delete each row that is not there any more."""
    with open_database(source) as database:
        database.take_turn()
        state = database.read_slot()
        _require_columns(source, database.read_table(source), exists=True)
        database.require_logical()
        if state is None or state.status == "lost":
            database.create_slot(instead=state is not None)
        return _pin_snapshots(database, [_Member(source, position)], keeper)[0][source.name]


def _pin_snapshots(database: Database, members: Sequence[_Member], keeper: Keeper) -> tuple[dict[str, Pins], int]:
    """The pins of sources whose tables are loaded, by name, and their position in the log.

    Tables and publication are read before the snapshot. So a later change of them is found by the next run.
    """
    tables = {member.source.name: database.read_table(member.source) for member in members}
    marks = _for_each(members, lambda m: database.require_published(m.source, tables[m.source.name], may_add=True))

    def pin_member(member: _Member) -> Pins:
        source, before = member.source, member.position
        first = 0 if before is None else before.number + 1
        with closing(database.copy_rows(source)) as rows:  # a COPY that stays open blocks the connection for ever
            files = store_snapshot(source, rows, until, first, keeper, empties=before is not None)
        number, table = first + len(files) - 1 if files else first, tables[source.name]
        parts, columns = _text_of_partitions(table), _text_of_columns(source, table)
        position = Position(table_text(source), table.oid, until, number, marks[source.name], parts, columns)
        pinned = _encode(PinnedLog(position, files))
        return Pins(pinned) if files else Pins(None, pinned)

    with database.exported_snapshot() as until:
        return _for_each(members, pin_member), until


def _pin_changes(
    database: Database,
    members: Sequence[_Member],
    tables: Mapping[str, ServedTable],
    log: Log,
    until: int,
    keeper: Keeper,
) -> dict[str, Pins]:
    """The pins of each source: its changes up to a position. All get the position, also those without changes.

    `tables`: as they are at the end of the log; empty if it was not read to its end.
    """
    unknown = {column.type_oid for relation in log.relations for column in relation.columns} - NAMES_BY_OID.keys()
    types = {**NAMES_BY_OID, **(database.base_types(unknown) if unknown else {})}

    def pin_member(member: _Member) -> Pins:
        before, source = member.position, member.source
        assert before is not None
        table = tables.get(source.name)
        _require_partitions(member, table, log, until)
        for relation in log.relations_in(before.relation, before.lsn, until):
            _require_logged_columns(source, before, relation, types)
        file = store_changes(source, before.relation, log, before.lsn, until, before.number + 1, keeper)
        position = msgspec.structs.replace(
            before,
            table=table_text(source),
            lsn=max(until, before.lsn),
            number=before.number if file is None else file.number,
            partitions=before.partitions if table is None else _text_of_partitions(table),
            columns=before.columns if table is None else _text_of_columns(source, table),
        )
        document = _encode(PinnedLog(position, () if file is None else (file,)))
        return Pins(None, document) if file is None else Pins(document)

    return _for_each(members, pin_member)


def _require_continued(member: _Member, database: Database, state: SlotState | None) -> ServedTable:
    """Require that the server still has all changes after a source's position. Drops the slot of an older server.

    Raises: LostSlotError; UnloggedChangesError; NoIdentityError.
    """
    source, position = member.source, member.position
    assert position is not None
    slot = source.options[SLOT]
    if state is None:
        raise LostSlotError(source.name, slot, f"slot {slot} does not exist any more")
    if state.status == "lost":
        raise LostSlotError(source.name, slot, f"the server has removed the log of slot {slot} (wal_status lost)")
    if state.confirmed > position.lsn:
        at = lsn_text(position.lsn)
        finding = f"slot {slot} was advanced to {lsn_text(state.confirmed)}, but the source has read only up to {at}"
        raise LostSlotError(source.name, slot, finding)
    if state.end < position.lsn:  # later, the log is longer and shows nothing: without the slot, the hold stays
        database.drop_slot()
        at, end = lsn_text(position.lsn), lsn_text(state.end)
        finding = f"the server's log ends at {end}, but the source has read up to {at}: an older copy was restored"
        raise LostSlotError(source.name, slot, finding)
    table = database.read_table(source)
    if table.oid != position.relation:
        finding = f"table {table_text(source)} was dropped and created again, or is another table than before"
        raise UnloggedChangesError(source.name, finding)
    try:
        mark = database.require_published(source, table, may_add=False)
    except TableOutsideError as err:
        raise UnloggedChangesError(source.name, err.finding) from err
    if mark != position.publication:
        publication = database.place.publication
        finding = f"publication {publication} was changed, and may have omitted changes of {table_text(source)}"
        raise UnloggedChangesError(source.name, finding)
    _require_same_columns(source, position, table)
    if table.partitions:
        _require_identity(source, table)  # of each partition; the log describes only the whole table
    return table


def _require_partitions(member: _Member, table: ServedTable | None, log: Log, until: int) -> None:
    """Require that the log contains each change of rows by a change of partitions. Raises UnloggedChangesError.

    Args:
        table: None if later messages are in the log, which has not been read to its end.

    The log contains no rows of partitions that are attached, detached, dropped or truncated on their own.
    """
    source, position = member.source, member.position
    if table is None or position is None:
        return
    before = dict(part.split(":") for part in position.partitions.split())
    now = {str(partition.oid): str(partition.file) for partition in table.partitions}
    came = any(str(p.oid) not in before and not p.is_original for p in table.partitions)
    emptied = any(now[oid] != before[oid] for oid in before.keys() & now.keys())
    is_known = before.keys() <= now.keys() and not came
    if is_known and (not emptied or log.truncates(position.relation, position.lsn, until)):
        return
    finding = f"a partition of {table_text(source)} was attached, detached, dropped, truncated or written anew"
    raise UnloggedChangesError(source.name, finding)


def _require_same_columns(source: CreateSource, position: Position, table: ServedTable) -> None:
    """Require that no ALTER TABLE has changed the values of declared columns. Raises UnloggedChangesError.

    The log does not contain the values that ALTER COLUMN TYPE … USING or the default of a new column gives old rows.
    VACUUM FULL and TRUNCATE give the table another file, but leave its columns alone.
    """
    (file, *before), (file_now, *now) = position.columns.split(), _text_of_columns(source, table).split()
    for field, column, column_now in zip(row_fields(source), before, now, strict=True):
        is_other = column.partition(":")[0] != column_now.partition(":")[0]
        if column_now != _NO_COLUMN and (is_other or (file != file_now and column != column_now)):
            finding = f"column {field.name!r} of {table_text(source)} is another column than before, or was converted"
            raise UnloggedChangesError(source.name, finding)


def _text_of_columns(source: CreateSource, table: ServedTable) -> str:
    columns = {column.name: f"{column.number}:{column.change}" for column in table.columns}
    return " ".join((str(table.file), *(columns.get(field.name, _NO_COLUMN) for field in row_fields(source))))


def _text_of_partitions(table: ServedTable) -> str:
    return " ".join(f"{partition.oid}:{partition.file}" for partition in table.partitions)


def _require_columns(source: CreateSource, table: ServedTable, *, exists: bool) -> None:
    """Require that a table has the declared columns and key. Raises OtherColumnsError, NoIdentityError."""
    columns = {column.name: column for column in table.columns}
    shown = ", ".join(column.name for column in table.columns if not column.is_generated)
    for field in row_fields(source):
        if (column := columns.get(field.name)) is None:
            finding = f"it has no column {field.name!r}; its columns: {shown}"
        elif column.is_generated:
            finding = f"column {field.name!r} is generated, and the log does not contain it; its columns: {shown}"
        elif (objection := type_objection(column.kind, field.type)) is not None:
            finding = f"column {field.name!r}: {objection}"
        else:
            continue
        raise OtherColumnsError(source.name, table_text(source), finding, exists)
    _require_identity(source, table)


def _require_identity(source: CreateSource, table: ServedTable) -> None:
    """Require that the log names rows by the source's key. Raises NoIdentityError."""
    key = _key_names(source)
    for text, identity in table.identities.items():
        if identity is None or (identity and set(identity) != set(key)):
            named = f"its replica identity is ({', '.join(identity)})" if identity else "it has no primary key"
            raise NoIdentityError(source.name, text, f"{text}: {named}", key)


def _require_logged_columns(
    source: CreateSource, position: Position, relation: LoggedRelation, types: Mapping[int, str]
) -> None:
    """Require that the log describes a table with the declared columns and key.

    `types`: the names of types by their identities. Raises OtherColumnsError, NoIdentityError.
    """
    columns = {column.name: column for column in relation.columns}
    for field in row_fields(source):
        if (column := columns.get(field.name)) is None:
            finding = f"its changes have no column {field.name!r}; their columns: {', '.join(columns)}"
        elif objection := type_objection(types.get(column.type_oid, "another type"), field.type):
            finding = f"column {field.name!r}: {objection}"
        else:
            continue
        raise OtherColumnsError(source.name, table_text(source), finding, exists=True)
    key, identity = set(_key_names(source)), {column.name for column in relation.columns if column.is_key}
    if identity not in (key, set(columns)) and not position.partitions:
        text = table_text(source)
        named = ", ".join(c.name for c in relation.columns if c.is_key) or "nothing"
        raise NoIdentityError(source.name, text, f"{text}: changes name {named}", tuple(key), exists=True)


def _key_names(source: CreateSource) -> tuple[str, ...]:
    fields = row_fields(source)
    return () if source.keyed is None else tuple(fields[k].name for k in source.keyed.columns)


def _declaration_of(table: ServedTable) -> str:
    """The columns and the key of a table, as CREATE SOURCE declares them."""
    shown = [column for column in table.columns if not column.is_generated]
    columns = [f"{_column_text(column.name)} {declared_type(column.kind, column.modifier)}" for column in shown]
    key = table.key or next((identity for identity in table.identities.values() if identity), ())
    return ", ".join((*columns, *([f"PRIMARY KEY ({', '.join(map(_column_text, key))})"] if key else [])))


def _column_text(name: str) -> str:
    return name if _PLAIN_COLUMN.fullmatch(name) else quote_name(name)


def _item_of(pinned: PinnedLog) -> Item:
    size = sum(file.size for file in pinned.files)
    return Item(f"{pinned.position.table} up to {lsn_text(pinned.position.lsn)}", size)


def _encode(pinned: PinnedLog) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(pinned))
