"""Keyed sources: sources whose records change rows. The current rows are a table of the store, one row per key.

    CREATE SOURCE customers (id bigint, …, PRIMARY KEY (id)) USING … OPTIONS (path …, changes 'upsert')

The reader of the format reads *records* (`records_of`, applied by boundary.py). The leaf turns each record into a
change of a key (row_changes.py), and KeyedChanges (jobs/executors/keyed_changes.py) applies the changes to the table.

* **One relation.** The relation of the source stores the rows, as a table does (`SourceDefinition.output`). Statements
  that name the source (ALTER, restate, holds) and views that read it use one name.
* **Position.** The changes of a key are ordered by bytes: the values of `sequence_by`, the file's name below the
  source's folder, `_row_id`. The order is a function of the input, and does not depend on the epochs that took it. The
  time of arrival would: a corrected file would move after later files.
* **Corrected files.** With `retain 'files'`, every change is stored by key and position. A restated file arrives with
  -1 for its old changes and +1 for the new ones. The old ones leave the history. If one of them decided its key, one
  read by prefix finds the newest remaining change, which may be in any earlier file. With `retain 'none'` and in
  Kafka, nothing is taken back, and there is no history.
* **Truncations** are a second port, sent to every actor and stored once per vnode. The newest one acts as a deletion of
  each key at its position. So only an epoch with a truncation reads all keys, and a late insert of a key that was never
  seen is dropped. A truncation that is taken back reads the history for the keys that return.
* **Rows of an Iceberg table** by a key (no `changes`): its reader makes the changes, with the operation and an order
  (iceberg_files.py). So equality deletes delete keys here, and the files that they concern are not read.
* **Dumps** (`changes 'snapshot'`) come as deliveries (deliveries.py). The barrier decides which one an epoch takes,
  always as a whole (pinned_deliveries.py). KeyedDeliveries (jobs/executors/keyed_deliveries.py) replaces the rows. The
  actors count present and deleted keys, and the driver compares the sums with `delete_limit` before it seals
  (jobs/driver/delete_limits.py). A dump without a key is a restatement of the delivery before: equal rows are matched
  as those of corrected files, and the source is an ordinary one.
* **Tables** (Delta, Iceberg, relations of other stores) have rows without a place, so `sequence_by` is needed, and the
  digest of a record decides between equal sequences. An update or a deletion of a record takes the earlier change back.
  Equal records are counted in the history. With `removed_rows 'ignore'`, as for a table that drops old records, nothing
  is taken back, and there is no history.
* **Deleted keys** are forgotten by the moment of the epoch. A read ignores expired ones, so the result does not depend
  on when they are removed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tussock.jobs.logical.expression_text import expression_text
from tussock.jobs.logical.hidden_columns import OF_FILES, HiddenColumn
from tussock.jobs.logical.nodes import Call, Column, Expr, Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.retention import BadDurationError, duration_ms
from tussock.jobs.sources.deliveries import (
    SNAPSHOT_DONE,
    Deliveries,
    deliveries_of,
    folders_of,
    listed_path,
    name_in_source,
)
from tussock.jobs.sources.envelopes import EnvelopeForm, is_scalar_type
from tussock.jobs.sources.errors import BadOptionError, CannotRestateError, MissingOptionError
from tussock.jobs.sources.file_options import COLUMNS, RETAIN, retains_files
from tussock.jobs.sources.rejects import FAIL, ON_ERROR, QUARANTINE, quarantines_rejects, rejects_name
from tussock.statestore.nested import is_nested
from tussock.statestore.types import arrow_type

CHANGES, SEQUENCE_BY, DELETE_WHEN, TOMBSTONES = "changes", "sequence_by", "delete_when", "tombstones"
OP_COLUMN = "op_column"
OP_INSERT = "op_insert"
OP_UPDATE = "op_update"
OP_DELETE = "op_delete"
OP_TRUNCATE = "op_truncate"
#: The values of an operation column without the options, in lower case: AWS DMS, Fivetran, Datastream and others.
OPERATIONS = {
    OP_INSERT: ("i", "insert", "c", "r", "false"),
    OP_UPDATE: ("u", "update", "upsert", "update-insert"),
    OP_DELETE: ("d", "delete", "update-delete", "true"),
    OP_TRUNCATE: ("t", "truncate"),
}
DELETE_LIMIT, SNAPSHOT_SCOPE = "delete_limit", "snapshot_scope"
_OF_SNAPSHOTS = (DELETE_LIMIT, SNAPSHOT_SCOPE, SNAPSHOT_DONE)
#: Formats of tables, whose rows have no place and may be removed.
ICEBERG = "iceberg"
TABLES = ("delta", ICEBERG, "tussock")
REMOVED_ROWS, TAKE_BACK, IGNORE = "removed_rows", "take_back", "ignore"
_NOT_OF_SNAPSHOTS = (SEQUENCE_BY, DELETE_WHEN, TOMBSTONES)
#: The options that name columns whose times in envelopes are not in microseconds -> nanoseconds of their unit.
EPOCH_UNITS = {"epoch_milliseconds": 1_000_000, "epoch_nanoseconds": 1}
DECIMAL_TEXTS = "decimal_texts"
_OF_ENVELOPES, _NOT_OF_ENVELOPES = (*EPOCH_UNITS, DECIMAL_TEXTS), (SEQUENCE_BY, DELETE_WHEN)
OPTIONS = (CHANGES, *_NOT_OF_SNAPSHOTS, OP_COLUMN, *OPERATIONS, *_OF_SNAPSHOTS, *_OF_ENVELOPES, REMOVED_ROWS)
KAFKA, POSTGRES = "kafka", "postgres"
JDBC, WATERMARK = "jdbc", "watermark_column"  # a format whose dumps have only the rows from the watermark on
#: The columns of a record with an envelope: of a file, and of a topic. PLACE_FIELDS: those that name its place.
LINE_FIELDS = (Field("value", "string"),)
MESSAGE_FIELDS = (Field("key", "binary"), Field("value", "binary"))
PLACE_FIELDS = (Field("topic", "string"), Field("partition", "int"))
#: The last columns of a change in a database's log, or of a row of a table by its key: the operation, and a bit per
#: column whose value it omits.
LOG_FIELDS = (Field("_tussock_op", "string"), Field("_tussock_omitted", "binary"))

#: The operations of LOG_FIELDS.
UPSERT, DELETE, TRUNCATE = "u", "d", "t"

_DEFAULT_TOMBSTONES = "7d"
_PERCENT = re.compile(r"(\d+)%")

#: The last columns of a change, after the columns of the row: it deletes the key, and its position (row_changes.py).
CHANGE_TYPES = ("boolean", "binary")
CHANGE_NAMES = ("_deletes", "_position")
#: Before them, if records omit values that did not change: a bit per column of the row.
OMITTED_TYPE, OMITTED_NAME = "binary", "_omitted"
#: The last column of a truncation: its position.
TRUNCATION_TYPES, TRUNCATION_NAMES = ("binary",), ("_position",)
#: The last column of a row of a delivery: its file's number. It stands for the delivery, whose position is longer.
DELIVERED_TYPES, DELIVERED_NAMES = ("int",), ("_file",)
#: The last columns of a delivery, after the columns of its scope: its position, and the number of one of its files.
DELIVERY_TYPES, DELIVERY_NAMES = (*TRUNCATION_TYPES, *DELIVERED_TYPES), (*TRUNCATION_NAMES, *DELIVERED_NAMES)


class RecordKind(StrEnum):
    """The meaning of a record: the values of the option `changes`."""

    UPSERT = "upsert"  # it is the new row of its key, or deletes the key
    OPERATIONS = "operations"  # a column contains its operation
    SNAPSHOT = "snapshot"  # it is a row of a delivery, which is the whole source
    DEBEZIUM = "debezium"  # it is an envelope with the row before and after the change (envelopes.py)


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of records: the column, and its values in lower case."""

    column: int
    upserts: tuple[str, ...]
    deletes: tuple[str, ...]
    truncates: tuple[str, ...]

    @property
    def every(self) -> tuple[str, ...]:
        """All values."""
        return (*self.upserts, *self.deletes, *self.truncates)


@dataclass(frozen=True, slots=True)
class KeyedPlan:
    """How the records of a keyed source change rows.

    Args:
        key: indices of the key's columns.
        sequence: columns that order the changes of a key, as indices of a scan: hidden columns are negative.
        hidden: the hidden columns that the leaf reads.
        delete_when: the condition over a record that deletes its key; None: no record does.
        operations: of the records; None: each is an upsert.
        deliveries: how files form deliveries of the whole source; None: each record is a change.
        scope: the columns whose values decide the rows that a delivery replaces; empty: it replaces all rows.
        tombstones_us: how long a deleted key remembers its position, in microseconds.
        keeps_history: every change is stored, so that a change can be taken back.
        folders: the folders that names of files are relative to, in positions.
        envelope: where the record's envelope is; None: the columns of a record are those of the row.
        of_topic: records are messages of a topic. Their last columns, topic and partition, name their place.
        omits: records may omit values that did not change (LOG_FIELDS).
        of_table: records are rows of a table, which have no number (TABLES).
        by_value: their values identify them.
    """

    key: tuple[int, ...]
    sequence: tuple[int, ...]
    hidden: tuple[HiddenColumn, ...]
    delete_when: Expr | None
    operations: Operations | None
    deliveries: Deliveries | None
    scope: tuple[int, ...]
    tombstones_us: int
    keeps_history: bool
    folders: tuple[str, ...]
    envelope: EnvelopeForm | None = None
    of_topic: bool = False
    omits: bool = False
    of_table: bool = False
    by_value: bool = False

    @property
    def change_types(self) -> tuple[str, ...]:
        """The types of the columns of a change, after those of the row."""
        if self.deliveries is not None:
            return DELIVERED_TYPES
        return (OMITTED_TYPE, *CHANGE_TYPES) if self.omits else CHANGE_TYPES

    @property
    def change_names(self) -> tuple[str, ...]:
        """The names of these columns."""
        if self.deliveries is not None:
            return DELIVERED_NAMES
        return (OMITTED_NAME, *CHANGE_NAMES) if self.omits else CHANGE_NAMES

    @property
    def truncation_types(self) -> tuple[str, ...]:
        """The types of the columns of a truncation, or of a delivery after its scope."""
        return TRUNCATION_TYPES if self.deliveries is None else DELIVERY_TYPES

    @property
    def truncation_names(self) -> tuple[str, ...]:
        """The names of these columns."""
        return TRUNCATION_NAMES if self.deliveries is None else DELIVERY_NAMES

    @property
    def truncates(self) -> bool:
        """Whether a record may delete every key."""
        return self.operations is not None


def is_keyed(source: CreateSource) -> bool:
    """Return whether the records of a source change rows of a key."""
    return source.keyed is not None


def records_of(source: CreateSource) -> CreateSource:
    """Return the source as the reader of its format sees it, with the columns of a record."""
    if has_operations(source):
        return msgspec.structs.replace(source, fields=(*row_fields(source), *LOG_FIELDS))
    if source.keyed is None and not takes_whole_deliveries(source):
        return source
    options = {name: value for name, value in source.options.items() if name not in OPTIONS}
    if takes_whole_deliveries(source):
        options["path"] = listed_path(source)
    if source.format == KAFKA:
        options.pop(ON_ERROR, None)
    fields, format = source.fields, source.format
    if has_envelopes(source):
        fields, format = (MESSAGE_FIELDS, KAFKA) if format == KAFKA else (LINE_FIELDS, "text")
    if _is_topic(source):
        fields = (*fields, *PLACE_FIELDS)
    return msgspec.structs.replace(source, format=format, fields=fields, options=options, keyed=None)


def is_log(source: CreateSource) -> bool:
    """Return whether the records of a source are changes in the log of a database."""
    return source.format == POSTGRES


def has_rows_by_key(source: CreateSource) -> bool:
    """Return whether the rows of a source are those of a table with this key. The table's reader makes the changes."""
    return source.format == ICEBERG and source.keyed is not None and CHANGES not in source.options


def has_operations(source: CreateSource) -> bool:
    """Return whether the reader of a source gives each record an operation (LOG_FIELDS)."""
    return is_log(source) or has_rows_by_key(source)


def row_fields(source: CreateSource) -> tuple[Field, ...]:
    """Return the columns of the rows of such a source, also as its reader sees it."""
    return source.fields[: -len(LOG_FIELDS)] if source.fields[-len(LOG_FIELDS) :] == LOG_FIELDS else source.fields


def without_operations(source: CreateSource) -> CreateSource:
    """Return a source as its reader sees it, with the columns of its rows alone."""
    return msgspec.structs.replace(source, fields=row_fields(source))


def has_envelopes(source: CreateSource) -> bool:
    """Return whether the records of a source are Debezium's envelopes."""
    return source.options.get(CHANGES) == RecordKind.DEBEZIUM


def _is_topic(source: CreateSource) -> bool:
    return source.format == KAFKA and source.keyed is not None


def _form_of(source: CreateSource) -> EnvelopeForm | None:
    if not has_envelopes(source):
        return None
    units = dict[int, int]()
    for option, nanoseconds in EPOCH_UNITS.items():
        for column in _columns_named(source, option, (), "and only a time has a unit"):
            if column in units:
                reason = f"column {source.fields[column].name!r} has another unit too"
                raise BadOptionError(source.name, option, source.options[option], reason)
            units[column] = nanoseconds
    texts = source.options.get(DECIMAL_TEXTS, "false")
    if texts not in ("true", "false"):
        reason = "expected 'true' (decimal.handling.mode=string) or 'false' (base64, Debezium's default)"
        raise BadOptionError(source.name, DECIMAL_TEXTS, texts, reason)
    is_message = source.format == KAFKA
    return EnvelopeForm(1 if is_message else 0, 0 if is_message else None, units, texts == "true")


def plan_of(source: CreateSource, hidden: Sequence[HiddenColumn]) -> KeyedPlan:
    """Return how the records of a keyed source change rows.

    Args:
        hidden: the hidden columns of its records.

    Raises: BadOptionError for an option that has no meaning. Requires: is_keyed(source).
    """
    assert source.keyed is not None
    sequence = _sequence_of(source, hidden)
    needed = {HiddenColumn(c) for c in sequence if c < 0}
    if hidden:  # names of files order changes, and errors contain them
        needed.add(HiddenColumn.FILE_PATH)
        needed.update(OF_FILES if quarantines_rejects(source) else ())
    return KeyedPlan(
        source.keyed.columns,
        sequence,
        tuple(sorted(needed)),
        _deletion_of(source),
        _operations_of(source),
        deliveries_in(source),
        _scope_of(source),
        parse_period(source, source.options.get(TOMBSTONES, _DEFAULT_TOMBSTONES)),
        _takes_changes_back(source),
        folders_of(source),
        _form_of(source),
        _is_topic(source),
        has_operations(source),
        source.format in TABLES,
        source.format in TABLES and not has_rows_by_key(source),
    )


def _takes_changes_back(source: CreateSource) -> bool:
    if source.format in TABLES:
        return source.options.get(REMOVED_ROWS, TAKE_BACK) == TAKE_BACK and not has_rows_by_key(source)
    return retains_files(source) and not takes_whole_deliveries(source)


def check_keyed(source: CreateSource, hidden: Sequence[HiddenColumn]) -> None:
    """Reject a statement whose options for changes contradict its columns or its format. Raises BadOptionError."""
    changes = source.options.get(CHANGES)
    if has_operations(source):
        stray = next((name for name in (*OPTIONS, "key") if name in source.options and name != TOMBSTONES), None)
        if stray is not None:
            reason = "the log of the database contains the operations and their order"
            if has_rows_by_key(source):
                reason = (
                    "the rows of the table are the rows of the source. If they are records of changes, add the option "
                    f"changes '{RecordKind.UPSERT}' or '{RecordKind.OPERATIONS}'"
                )
            raise BadOptionError(source.name, stray, source.options[stray], reason)
        return
    if source.format == JDBC:
        _check_dumps(source)
    if source.keyed is None and changes != RecordKind.SNAPSHOT:
        if (stray := next((name for name in OPTIONS if name in source.options), None)) is not None:
            reason = "the option needs a key: write PRIMARY KEY (column, …) at the end of the list of columns"
            raise BadOptionError(source.name, stray, source.options[stray], reason)
        return
    if source.format in TABLES:
        _check_table(source)
    elif REMOVED_ROWS in source.options:
        reason = f"the option is about rows of a table, so the source must be USING {' or '.join(TABLES)}"
        raise BadOptionError(source.name, REMOVED_ROWS, source.options[REMOVED_ROWS], reason)
    if COLUMNS in source.options and has_envelopes(source):
        reason = (
            "an envelope without a schema contains no types. Fields that the source does not declare are ignored: add "
            f"them by ALTER SOURCE {source.name} ADD COLUMNS (name type, …)"
        )
        raise BadOptionError(source.name, COLUMNS, source.options[COLUMNS], reason)
    kinds = " or ".join(f"'{kind}'" for kind in RecordKind)
    if changes is None:
        raise MissingOptionError(source.name, CHANGES, f"a source with a PRIMARY KEY needs {kinds}")
    if changes not in tuple(RecordKind):
        raise BadOptionError(source.name, CHANGES, changes, f"expected {kinds}")
    if (changes == RecordKind.OPERATIONS) != (OP_COLUMN in source.options):
        reason = f"the name of the column with the operation, if changes is '{RecordKind.OPERATIONS}', and only then"
        raise MissingOptionError(source.name, OP_COLUMN, reason)
    if takes_whole_deliveries(source):
        _check_snapshots(source, hidden)
    elif stray := next((name for name in _OF_SNAPSHOTS if name in source.options), None):
        reason = f"the option is about deliveries of the whole source, so changes must be '{RecordKind.SNAPSHOT}'"
        raise BadOptionError(source.name, stray, source.options[stray], reason)
    if source.keyed is None:
        return
    _check_records(source)
    plan_of(source, hidden)
    if (condition := source.keyed.delete_when) is not None and condition.type != "boolean":
        reason = f"expected a condition, but {expression_text(condition)} is a {condition.type}"
        raise BadOptionError(source.name, DELETE_WHEN, source.options.get(DELETE_WHEN, ""), reason)


def takes_whole_deliveries(source: CreateSource) -> bool:
    """Return whether the files of a source are deliveries of the whole source. An epoch takes one of them."""
    return source.options.get(CHANGES) == RecordKind.SNAPSHOT


def deliveries_in(source: CreateSource) -> Deliveries | None:
    """Return how the files of a source form deliveries; None if they do not. Raises BadOptionError."""
    if not takes_whole_deliveries(source):
        return None
    return deliveries_of(source, scoped=SNAPSHOT_SCOPE in source.options)


def require_same_place(source: CreateSource, file: str, by: str) -> None:
    """Require that a file that replaces another one has its place in the order of changes or deliveries.

    Raises CannotRestateError.
    """
    deliveries, folders = deliveries_in(source), folders_of(source)
    if deliveries is not None:
        stays, what = deliveries.order_of(by) == deliveries.order_of(file), "deliveries"
    elif source.keyed is None or SEQUENCE_BY in source.options or not folders:
        return
    else:
        stays, what = name_in_source(by, folders) == name_in_source(file, folders), "changes"
    if not stays:
        reason = (
            f"the names of its files order its {what}, and {by!r} has another place than {file!r}. Write the "
            f"correction to {file!r} itself"
        )
        raise CannotRestateError(source.name, reason)


def delete_limit_of(source: CreateSource) -> int | None:
    """Return the most keys that a delivery may delete, in percent of the present keys; None: no limit."""
    text = source.options.get(DELETE_LIMIT)
    if text is None:
        return None
    if (percentage := _PERCENT.fullmatch(text)) is None or int(percentage[1]) > 100:
        raise BadOptionError(source.name, DELETE_LIMIT, text, "expected a percentage such as '20%'")
    return int(percentage[1])


def _check_table(source: CreateSource) -> None:
    """Reject a statement that does not describe the rows of a table as records of changes."""
    changes = source.options.get(CHANGES)
    if changes in (None, RecordKind.SNAPSHOT):
        reason = (
            "each row of the table is a row of the source: omit the PRIMARY KEY and this option, and declare the key "
            f"by the option key 'column, …'. If the rows are records of changes, write '{RecordKind.UPSERT}' or "
            f"'{RecordKind.OPERATIONS}'"
        )
        raise BadOptionError(source.name, CHANGES, changes or "", reason)
    if "key" in source.options:
        reason = "the PRIMARY KEY names the key of the rows, and the records of changes have none"
        raise BadOptionError(source.name, "key", source.options["key"], reason)
    if changes != RecordKind.DEBEZIUM and SEQUENCE_BY not in source.options:
        reason = "the rows of a table have no order, so name the columns that order the changes of a key"
        raise MissingOptionError(source.name, SEQUENCE_BY, reason)
    if (removed := source.options.get(REMOVED_ROWS, IGNORE)) not in (TAKE_BACK, IGNORE):
        reason = (
            f"expected '{TAKE_BACK}' (a record that leaves the table no longer counts) or '{IGNORE}' (it still counts, "
            "as for a table that drops old records)"
        )
        raise BadOptionError(source.name, REMOVED_ROWS, removed, reason)


def _check_dumps(source: CreateSource) -> None:
    """Reject a table of a database whose dumps would mean other rows than the table's."""
    changes = source.options.get(CHANGES)
    if changes is None:
        reason = (
            f"'{RecordKind.SNAPSHOT}' (each dump is the whole table) or '{RecordKind.UPSERT}' (the rows of a dump "
            "replace those of their keys)"
        )
        raise MissingOptionError(source.name, CHANGES, reason)
    if WATERMARK in source.options and changes == RecordKind.SNAPSHOT:
        reason = (
            "a dump then contains only the changed rows, and the others would count as deleted. Write changes "
            f"'{RecordKind.UPSERT}', or omit this option"
        )
        raise BadOptionError(source.name, WATERMARK, source.options[WATERMARK], reason)


def _check_records(source: CreateSource) -> None:
    """Reject options and columns that envelopes or topics do not have."""
    on_error = source.options.get(ON_ERROR, FAIL)
    if source.format == KAFKA and on_error not in (FAIL, QUARANTINE):
        reason = (
            f"expected '{FAIL}' (hold the source at a record that is no change) or '{QUARANTINE}' (store such records "
            f"in {rejects_name(source.name)}, and go on)"
        )
        raise BadOptionError(source.name, ON_ERROR, on_error, reason)
    if not has_envelopes(source):
        if (stray := next((name for name in _OF_ENVELOPES if name in source.options), None)) is not None:
            reason = f"the option is about envelopes, so changes must be '{RecordKind.DEBEZIUM}'"
            raise BadOptionError(source.name, stray, source.options[stray], reason)
        return
    if source.format not in ("json", KAFKA):
        reason = f"envelopes are JSON, so the source must be USING json or USING {KAFKA}, and not {source.format}"
        raise BadOptionError(source.name, CHANGES, RecordKind.DEBEZIUM, reason)
    for option in _NOT_OF_ENVELOPES:
        if option in source.options:
            reason = "an envelope contains its operation, and the order of the records is that of the database"
            raise BadOptionError(source.name, option, source.options[option], reason)
    if (field := next((f for f in source.fields if not is_scalar_type(f.type)), None)) is not None:
        reason = (
            f"column {field.name!r} is a {field.type}, which cannot be read from an envelope. Declare it as a string: "
            "it then contains the value's JSON"
        )
        raise BadOptionError(source.name, CHANGES, RecordKind.DEBEZIUM, reason)


def _check_snapshots(source: CreateSource, hidden: Sequence[HiddenColumn]) -> None:
    delete_limit_of(source)
    if not hidden:
        reason = f"a {source.format} source has no files, and each file is a delivery"
        raise BadOptionError(source.name, CHANGES, RecordKind.SNAPSHOT, reason)
    for option in _NOT_OF_SNAPSHOTS:
        if option in source.options:
            reason = f"with changes '{RecordKind.SNAPSHOT}', the newest delivery alone decides the rows"
            raise BadOptionError(source.name, option, source.options[option], reason)
    deliveries_in(source)
    if source.keyed is not None:
        return
    for option in (SNAPSHOT_SCOPE, DELETE_LIMIT):
        if option in source.options:
            reason = "the option needs rows with a PRIMARY KEY"
            raise BadOptionError(source.name, option, source.options[option], reason)
    if not retains_files(source):
        reason = "without a PRIMARY KEY, the rows of the delivery before are read again: set retain 'files'"
        raise BadOptionError(source.name, RETAIN, source.options.get(RETAIN, "none"), reason)


def parse_period(source: CreateSource, text: str) -> int:
    """Return a period such as `7d` in microseconds. Raises BadOptionError."""
    try:
        period_ms = duration_ms(text)
    except BadDurationError:
        period_ms = 0
    if not period_ms:
        raise BadOptionError(source.name, TOMBSTONES, text, "expected a period such as '12h' or '7d'")
    return period_ms * 1000


def _sequence_of(source: CreateSource, hidden: Sequence[HiddenColumn]) -> tuple[int, ...]:
    return _columns_named(source, SEQUENCE_BY, hidden, "which has no order; name a number, a text or a time")


def _scope_of(source: CreateSource) -> tuple[int, ...]:
    return _columns_named(source, SNAPSHOT_SCOPE, (), "and a scope needs values that can be compared")


def _columns_named(source: CreateSource, option: str, hidden: Sequence[HiddenColumn], unlike: str) -> tuple[int, ...]:
    """The columns that an option names. `unlike`: why they cannot be nested."""
    if (text := source.options.get(option)) is None:
        return ()
    columns = {f.name.lower(): i for i, f in enumerate(source.fields)} | {c.column: int(c) for c in hidden}
    types = {i: f.type for i, f in enumerate(source.fields)}
    named = list[int]()
    for name in (part.strip().strip("`") for part in text.split(",")):
        if (column := columns.get(name.lower())) is None:
            there = ", ".join((*(f.name for f in source.fields), *(c.column for c in hidden)))
            raise BadOptionError(source.name, option, text, f"{name!r} is no column of it; its columns: {there}")
        if column >= 0 and is_nested(arrow_type(types[column])):
            raise BadOptionError(source.name, option, text, f"column {name!r} is a {types[column]}, {unlike}")
        named.append(column)
    return tuple(named)


def _deletion_of(source: CreateSource) -> Expr | None:
    """The condition of the option, or in Kafka a value of NULL, which is a tombstone of the topic."""
    assert source.keyed is not None
    if source.keyed.delete_when is not None or source.format != KAFKA or has_envelopes(source):
        return source.keyed.delete_when
    value = next((i for i, f in enumerate(source.fields) if f.name == "value"), None)
    return None if value is None else Call("IsNull", "boolean", (Column(value, source.fields[value].type),))


def _operations_of(source: CreateSource) -> Operations | None:
    if has_envelopes(source):
        return Operations(len(source.fields), ("c", "r", "u"), ("d",), ("t",))
    if has_operations(source):
        return Operations(len(source.fields), (UPSERT,), (DELETE,), (TRUNCATE,))
    if (name := source.options.get(OP_COLUMN)) is None:
        return None
    column = next((i for i, f in enumerate(source.fields) if f.name.lower() == name.lower()), None)
    if column is None:
        there = ", ".join(f.name for f in source.fields)
        raise BadOptionError(source.name, OP_COLUMN, name, f"it is no column of the source; its columns: {there}")
    if source.fields[column].type not in ("string", "boolean"):
        reason = f"the column is a {source.fields[column].type}, and an operation is a string or a boolean"
        raise BadOptionError(source.name, OP_COLUMN, name, reason)
    values = {option: _values_of(source, option) for option in OPERATIONS}
    all_values = [value for some in values.values() for value in some]
    if repeated := next((value for value in all_values if all_values.count(value) > 1), None):
        option = next(option for option in values if option in source.options and repeated in values[option])
        raise BadOptionError(source.name, option, source.options[option], f"{repeated!r} is another operation too")
    upserts = (*values[OP_INSERT], *values[OP_UPDATE])
    return Operations(column, upserts, values[OP_DELETE], values[OP_TRUNCATE])


def _values_of(source: CreateSource, option: str) -> tuple[str, ...]:
    """The values of an operation, in lower case. Defaults make room for the values of other options."""
    if (text := source.options.get(option)) is not None:
        return tuple(value.strip().lower() for value in text.split(","))
    others = {value for other in OPERATIONS if other in source.options for value in _values_of(source, other)}
    return tuple(value for value in OPERATIONS[option] if value not in others)
