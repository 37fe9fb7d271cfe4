"""Kafka topics as sources: Spark's Kafka reader reads ranges of offsets that a barrier pins.

The columns are Spark's: key, value, topic, partition, offset, timestamp, timestampType, and headers
with `includeHeaders`. A record is identified by its partition and offset, which form its `_row_id`. Neither ever
changes, so a range that is read again after a restart yields the same rows. A source only adds rows.

A source must read every record of its ranges. Compacted topics are rejected at CREATE SOURCE, and hold an existing
source. An offset without a record also holds the source (option missing_offsets): offsets increase by one, except for
transaction markers and aborted records. A source with `kafka.isolation.level 'read_committed'` passes over both.

Nothing is committed to Kafka. The store alone contains the source's position (kafka_taken.py), in the same commit as
the rows.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.chunks.chunk import encode_table, to_inserts
from tussock.jobs.chunks.failure import encode_failure
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import (
    ByPosition,
    EngineReader,
    Identity,
    Item,
    OptionEffect,
    PinRequest,
    Pins,
    Revision,
    RowPlace,
)
from tussock.jobs.sources.errors import BadOptionError, CannotRestateError, require_count, require_options
from tussock.jobs.sources.file_chunks import CHUNK_ROWS, OUTPUT, OUTPUT_DDL, as_declared
from tussock.jobs.sources.kafka_cluster import (
    CLIENT,
    SERVERS,
    PartitionNow,
    away_error,
    client_settings,
    partitions_now,
    starting_offsets,
    unknown_provider,
)
from tussock.jobs.sources.kafka_errors import (
    BadKafkaColumnError,
    CompactedTopicError,
    EmptyRangeError,
    LostOffsetsError,
    MissingOffsetsError,
)
from tussock.jobs.sources.kafka_taken import TAKEN_OFFSETS, Offsets
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.row_ids import ROW_ID_NAME, file_of, pack_row_ids, position_of
from tussock.jobs.sources.spark_files import handed_over, require_module, spark_errors
from tussock.jobs.sources.unchanging import UnchangingInput
from tussock.statestore.decoding import decode_json, decoder_of
from tussock.statestore.errors import TussockError
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, TableSchema
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
COLUMNS = (
    Field("key", "binary"),
    Field("value", "binary"),
    Field("topic", "string"),
    Field("partition", "int"),
    Field("offset", "bigint"),
    Field("timestamp", "timestamp"),
    Field("timestampType", "int"),
)
HEADERS = Field("headers", "array<struct<key:string,value:binary>>")
SUBSCRIPTION_OPTIONS = ("subscribe", "subscribePattern", "assign")
_MAX_OFFSETS, _RECORD_BYTES = "max_offsets", "record_bytes"
_MISSING_OFFSETS, _ERROR, _IGNORE = "missing_offsets", "error", "ignore"  # the reaction to an offset without a record
OWN_OPTIONS = (_MAX_OFFSETS, _RECORD_BYTES, _MISSING_OFFSETS)
_READER_OPTIONS = ("minPartitions", "maxRecordsPerPartition", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries")
_PASSED = ("includeHeaders", *_READER_OPTIONS)
_AT_ONCE = (*_READER_OPTIONS, *OWN_OPTIONS)
OPTIONS = (SERVERS, *SUBSCRIPTION_OPTIONS, "startingOffsets", *_PASSED, *OWN_OPTIONS)
_LOST = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "offset range", "COULD_NOT_READ_OFFSET_RANGE")
_SHOWN_RANGES = 5  # in a message
_NOMINAL_BYTES = 1024  # assumed size of a record, for bounds in bytes: Kafka reports no sizes
DELETED_TOPIC = ""  # the topic id of a deleted partition that the user chose to skip


class PinnedOffsets(msgspec.Struct, frozen=True):
    """The offsets of one partition that an epoch reads."""

    offsets: Offsets
    origin: int  # the first offset of this partition that the source ever read
    nbytes: int


_pinned = decoder_of(tuple[PinnedOffsets, ...])


class KafkaTopics(UnchangingInput):
    """Kafka topics, read by Spark."""

    taken_columns = TAKEN_OFFSETS.columns
    login: ClassVar[str] = (
        "Write ${env:NAME} for a variable of the environment, ${file:/path/to.properties:key} for a key of a "
        "properties file, or ${directory:/path:file} for a file. The driver and the executors need it"
    )
    engine: EngineReader | None = None

    def append_only(self, source: CreateSource) -> bool:
        return True

    def identity(self, source: CreateSource) -> Identity:
        return ByPosition()

    # --- at CREATE SOURCE ---------------------------------------------------------------------------------------------

    def default_options(self, options: Mapping[str, str]) -> dict[str, str]:
        has_markers = options.get("kafka.isolation.level", "").lower() == "read_committed"
        return {} if _MISSING_OFFSETS in options else {_MISSING_OFFSETS: _IGNORE if has_markers else _ERROR}

    def effect_of(self, option: str) -> OptionEffect:
        at_once = (option.startswith("kafka.") and option != "kafka.isolation.level") or option in _AT_ONCE
        return OptionEffect.AT_ONCE if at_once else OptionEffect.POSITION

    def check(self, source: CreateSource) -> None:
        options = source.options
        if SERVERS not in options:
            raise BadOptionError(
                source.name, SERVERS, "", "a kafka source needs the addresses of its brokers, host:port,…"
            )
        if sum(name in options for name in SUBSCRIPTION_OPTIONS) != 1:
            raise BadOptionError(
                source.name, "subscribe", "", f"a kafka source needs one of {', '.join(SUBSCRIPTION_OPTIONS)}"
            )
        loses_nothing = options.get("failOnDataLoss", "").lower() == "true"
        require_options(source, (*OPTIONS, "failOnDataLoss") if loses_nothing else OPTIONS, "kafka.", " and kafka.…")
        if options.get(_MISSING_OFFSETS, _IGNORE) not in (_ERROR, _IGNORE):
            reason = "expected 'error' (hold the source if an offset has no record) or 'ignore' (records may be lost)"
            raise BadOptionError(source.name, _MISSING_OFFSETS, options[_MISSING_OFFSETS], reason)
        for option in (_MAX_OFFSETS, _RECORD_BYTES):
            require_count(source.name, options, option)
        if (unknown := unknown_provider(source)) is not None:
            reason = f"Kafka's client cannot resolve ${{{unknown[1]}:…}}. {self.login}"
            raise BadOptionError(source.name, unknown[0], options[unknown[0]], reason)
        for option in ("assign", "startingOffsets"):
            _require_json(source, option)
        known = {f.name: f.type for f in _columns_of(source)}
        for field in source.fields:
            if known.get(field.name) != field.type:
                raise BadKafkaColumnError(
                    source.name, field.name, field.type, ", ".join(f"{n} {t}" for n, t in known.items())
                )

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        require_module(source, spark(), _PACKAGE)
        now = partitions_now(source)
        _require_every_record(source, now, exists=False)
        _waiting_ranges(source, (), now)  # refuses offsets to start from that no partition has
        return source.fields or _columns_of(source)

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner.

        Raises the errors of kafka_errors.py, CannotRestateError. Cost: that of `partitions_now`.
        """
        if request.restated is not None:
            raise CannotRestateError(
                source.name, "a topic's records never change: produce the correction as new records"
            )
        if request.only_skipped and not request.skip:
            return Pins()
        before, now = TAKEN_OFFSETS.read_all(taken), partitions_now(source, again=bool(request.skip))
        _require_every_record(source, now)
        unread = [p for name in request.skip if (p := _skip_partition(before, now, name)) is not None]
        if request.only_skipped:
            return _pins_of([], unread)
        ranges = _waiting_ranges(source, before, now, skip=tuple(p.offsets.name for p in unread))
        return _pins_of(_bound_ranges(source, ranges, request.bytes_left), unread)

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        now = partitions_now(source)
        _require_every_record(source, now)
        return tuple(_item_of(p) for p in _waiting_ranges(source, TAKEN_OFFSETS.read_all(taken), now) if p.nbytes)

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        return tuple(
            Item(f"{o.name} offsets {o.first} to {o.next - 1}", 0)
            for o in TAKEN_OFFSETS.read_all(taken)
            if o.next > o.first
        )

    def revise(self, source: CreateSource, taken: StorageTable | None, revision: Revision, keeper: Keeper) -> Pins:
        """Return the pins without the skipped partitions. A range never changes, so re-pinning has no effect."""
        read, unread = _decode_document(revision.pins.read), _decode_document(revision.pins.unread)
        skipped = [p for p in read if p.offsets.name in revision.skip]
        return _pins_of([p for p in read if p not in skipped], [*unread, *skipped])

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return tuple(_item_of(p) for p in _decode_document(document))

    def part_of(self, document: msgspec.Raw, names: Collection[str]) -> msgspec.Raw | None:
        return _encode_document([p for p in _decode_document(document) if p.offsets.name in names])

    # --- in the epoch -------------------------------------------------------------------------------------------------

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SourceReader. Raises LostOffsetsError if records are missing. Cost: as `pin`; reading is lazy."""
        require_module(source, spark, _PACKAGE)
        ranges = [p.offsets for p in _decode_document(document)]
        now = partitions_now(source, again=True)
        for offsets in ranges:
            _require_there(offsets, now)
        if not any(o.next > o.first for o in ranges):
            return spark.createDataFrame([], OUTPUT_DDL)
        from tussock.jobs.spark.session import sql_session

        session = sql_session(spark, "UTC")
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(CHUNK_ROWS))
        wanted = [source.fields[c].name for c in columns]
        places = ("topic", "partition", "offset")
        rows = (
            session.read.format("kafka")
            .options(**_reader_options(source, [o for o in ranges if o.next > o.first]))
            .load()
        )
        narrow = rows.select(*wanted, *(rows[name].alias(f"_{name}") for name in places))
        return handed_over(narrow.mapInArrow(_make_packer(source, ranges, columns), OUTPUT_DDL), spark)

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        """See InputReader. Raises LostOffsetsError if records have expired."""
        require_module(source, session, _PACKAGE)
        ranges = [p.offsets for p in _decode_document(document) if p.offsets.next > p.offsets.first]
        now = partitions_now(source, again=True)
        for offsets in ranges:
            _require_there(offsets, now)
        rows = session.read.format("kafka").options(**_reader_options(source, ranges)).load()
        return rows.select(*(f.name for f in source.fields))

    def translate(self, error: Exception, source: CreateSource, document: msgspec.Raw) -> TussockError | None:
        """Return LostOffsetsError if a partition lost records during the read, SourceAwayError if brokers deny access.

        None for other errors.
        """
        if not isinstance(error, spark_errors()):
            return None
        text = str(error)
        if not any(said in text for said in _LOST):
            return away_error(source, text)
        now = partitions_now(source, again=True)
        try:
            for pinned in _decode_document(document):
                _require_there(pinned.offsets, now)
        except LostOffsetsError as lost:
            return lost
        return away_error(source, text)

    def place_of(self, row_id: int, documents: Sequence[msgspec.Raw]) -> RowPlace:
        number, offset = file_of(row_id), position_of(row_id)
        names = (
            p.offsets.name for document in documents for p in _decode_document(document) if p.offsets.number == number
        )
        name = next(names, "")
        return RowPlace(f"offset {offset} of partition {name or f'number {number}'}", name)

    # --- taken input --------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        """See SourceHistory. If a partition is both read and skipped in one epoch, the later end counts."""
        offsets_by_number: dict[int, Offsets] = {}
        for pinned in sorted(
            (*_decode_document(pins.read), *_decode_document(pins.unread)), key=lambda p: p.offsets.next
        ):
            offsets_by_number[pinned.offsets.number] = msgspec.structs.replace(pinned.offsets, first=pinned.origin)
        ordered = [offsets_by_number[number] for number in sorted(offsets_by_number)]
        return TAKEN_OFFSETS.seal_records(schema, ordered, epoch) if ordered else None

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        ranges = [PinnedOffsets(o, o.first, 0) for o in TAKEN_OFFSETS.read_all(taken) if o.next > o.first]
        return _encode_document(ranges) if ranges else None


def _columns_of(source: CreateSource) -> tuple[Field, ...]:
    return (*COLUMNS, HEADERS) if source.options.get("includeHeaders", "false").lower() == "true" else COLUMNS


def _require_json(source: CreateSource, option: str) -> None:
    text = source.options.get(option)
    if text is None or (option == "startingOffsets" and text in ("earliest", "latest")):
        return
    wanted = dict[str, dict[str, int]] if option == "startingOffsets" else dict[str, list[int]]
    try:
        decode_json(text, wanted)
    except msgspec.MsgspecError as err:
        shown = (
            """earliest, latest or {"topic": {"0": 23}}""" if option == "startingOffsets" else """{"topic": [0, 1]}"""
        )
        raise BadOptionError(source.name, option, text, f"expected {shown}") from err


def _waiting_ranges(
    source: CreateSource, before: Sequence[Offsets], now: dict[tuple[str, int], PartitionNow], skip: Sequence[str] = ()
) -> list[PinnedOffsets]:
    """Return the waiting offsets of each partition. A new partition is pinned even if empty, which fixes its number.

    Raises LostOffsetsError, BadOptionError.
    """
    known = {(o.topic, o.partition): o for o in before}
    number = 1 + max((o.number for o in before), default=-1)
    ranges = []
    for place, taken in known.items():
        if place not in now and taken.topic_id != DELETED_TOPIC and taken.name not in skip:
            _require_there(taken, now)
    for place, there in now.items():
        if f"{there.topic}-{there.partition}" in skip:
            continue
        if (so_far := known.get(place)) is None:
            first = _first_offset(source, there, is_new=not before)
            ranges.append(
                _pinned_range(source, Offsets(number, *place, there.topic_id, first, max(first, there.end)), first)
            )
            number += 1
        else:
            _require_there(msgspec.structs.replace(so_far, first=so_far.next), now)
            if there.end > so_far.next:
                ranges.append(
                    _pinned_range(
                        source, msgspec.structs.replace(so_far, first=so_far.next, next=there.end), so_far.first
                    )
                )
    return ranges


def _pinned_range(source: CreateSource, offsets: Offsets, origin: int) -> PinnedOffsets:
    size = int(source.options.get(_RECORD_BYTES, _NOMINAL_BYTES))
    return PinnedOffsets(offsets, origin, size * (offsets.next - offsets.first))


def _first_offset(source: CreateSource, there: PartitionNow, *, is_new: bool) -> int:
    """Return the first offset to read. If the source has read before, a new partition is read from its first record.

    Raises BadOptionError for an offset after the end, as Spark does: its record would be missing in the next epoch.
    """
    starting = starting_offsets(source)
    if not is_new:
        return there.first
    if isinstance(starting, str):
        return there.end if starting == "latest" else there.first
    offset = starting.get(there.topic, {}).get(str(there.partition), -2)
    if offset > there.end:
        reason = (
            f"partition {there.topic}-{there.partition} ends before offset {there.end}, and {offset} is given; "
            f"expected -2 (earliest), -1 (latest), or an offset up to {there.end}. The option belongs to CREATE "
            "SOURCE, so a source that exists must be dropped and created again"
        )
        raise BadOptionError(source.name, "startingOffsets", source.options["startingOffsets"], reason)
    return {-2: there.first, -1: there.end}.get(offset, offset)


def _require_there(offsets: Offsets, now: dict[tuple[str, int], PartitionNow]) -> None:
    """Raise LostOffsetsError if records from `first` on are missing."""
    there = now.get((offsets.topic, offsets.partition))
    if there is None:
        raise LostOffsetsError(offsets.name, "the partition no longer exists")
    if there.topic_id != offsets.topic_id:
        raise LostOffsetsError(
            offsets.name, f"the topic was dropped and created again after offset {offsets.next - 1} was read"
        )
    if "compact" in there.policy:
        reason = (
            f"its topic is now compacted (cleanup.policy={there.policy}), so records that were not read may be gone"
        )
        raise LostOffsetsError(offsets.name, reason)
    if there.first > offsets.first:
        raise LostOffsetsError(
            offsets.name, f"expected offset {offsets.first} next, but the first existing offset is {there.first}"
        )
    if there.end < offsets.next:
        raise LostOffsetsError(
            offsets.name, f"expected offsets up to {offsets.next - 1}, but the last existing offset is {there.end - 1}"
        )


def _require_every_record(
    source: CreateSource, now: dict[tuple[str, int], PartitionNow], *, exists: bool = True
) -> None:
    """Raise CompactedTopicError for a topic whose records the broker removes by key."""
    for there in now.values():
        if "compact" in there.policy:
            raise CompactedTopicError(source.name, there.topic, there.policy, exists)


def _skip_partition(
    before: Sequence[Offsets], now: dict[tuple[str, int], PartitionNow], name: str
) -> PinnedOffsets | None:
    """Return the offsets that skipping a partition omits: only lost records. None if the partition has lost none."""
    known = {(o.topic, o.partition): o for o in before}
    for place, taken in known.items():
        there = now.get(place)
        if taken.name != name:
            continue
        if there is None:
            gone = msgspec.structs.replace(taken, first=taken.next, topic_id=DELETED_TOPIC)
            return None if taken.topic_id == DELETED_TOPIC else PinnedOffsets(gone, taken.first, 0)
        if there.topic_id != taken.topic_id:  # another topic with other records, which get a new number
            number = 1 + max(o.number for o in before)
            return PinnedOffsets(Offsets(number, *place, there.topic_id, there.first, there.first), there.first, 0)
        if there.first > taken.next:
            return PinnedOffsets(msgspec.structs.replace(taken, first=taken.next, next=there.first), taken.first, 0)
    return None


def _bound_ranges(source: CreateSource, ranges: Sequence[PinnedOffsets], max_bytes: int | None) -> list[PinnedOffsets]:
    """Cut the ranges in proportion to the epoch's bounds; at least one record remains.

    A partition whose first range is cut to nothing stays: its start is thereby known to later epochs.
    """
    bounds = [int(source.options[_MAX_OFFSETS])] if _MAX_OFFSETS in source.options else []
    if max_bytes is not None:
        bounds.append(max_bytes // int(source.options.get(_RECORD_BYTES, _NOMINAL_BYTES)))
    waiting = sum(p.offsets.next - p.offsets.first for p in ranges)
    if not bounds or waiting <= min(bounds):
        return list(ranges)
    limit, bounded_ranges = max(1, min(bounds)), []
    left = limit
    for pinned in sorted(ranges, key=lambda p: p.offsets.first - p.offsets.next):
        lag = pinned.offsets.next - pinned.offsets.first
        count = min(left, lag, -(-lag * limit // waiting))
        left -= count
        if count or pinned.origin == pinned.offsets.first:
            bounded_ranges.append(
                _pinned_range(
                    source, msgspec.structs.replace(pinned.offsets, next=pinned.offsets.first + count), pinned.origin
                )
            )
    return sorted(bounded_ranges, key=lambda p: p.offsets.number)


def _reader_options(source: CreateSource, ranges: Sequence[Offsets]) -> dict[str, str]:
    """Return the options with which Spark's reader reads exactly these ranges."""
    options = {k: v for k, v in source.options.items() if k in _PASSED}
    options |= {f"{CLIENT}{name}": value for name, value in client_settings(source).items()}
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for o in ranges:
        partitions.setdefault(o.topic, []).append(o.partition)
        starts.setdefault(o.topic, {})[str(o.partition)] = o.first
        ends.setdefault(o.topic, {})[str(o.partition)] = o.next
    offsets = {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    return {**options, **offsets, "failOnDataLoss": "true"}


def _make_packer(
    source: CreateSource, ranges: Sequence[Offsets], columns: Sequence[int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that packs a task's records into rows of OUTPUT_DDL.

    The last three columns contain their place.
    """
    numbers = {o.name: o.number for o in ranges}
    read = [o for o in ranges if o.next > o.first]  # no task reads the others
    fields = [source.fields[c] for c in columns]
    # Several tasks may read one partition.
    is_cut = "minPartitions" in source.options or "maxRecordsPerPartition" in source.options
    complete = source.options.get(_MISSING_OFFSETS) == _ERROR

    def pack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts: dict[str, OffsetCount] = {}
        for batch in batches:
            topics, partitions, _ = batch.columns[len(fields) :]
            names = pc.binary_join_element_wise(topics, partitions.cast(pa.string()), "-")
            for name in (distinct_names := pc.unique(names).to_pylist()):
                mine = batch if len(distinct_names) == 1 else batch.filter(pc.equal(names, name))
                number, offsets = numbers[name], mine.column(len(fields) + 2).to_numpy()
                typed = [as_declared(mine.column(i), arrow_type(f.type)) for i, f in enumerate(fields)]
                counts.setdefault(
                    name, OffsetCount(None if is_cut else next(o for o in ranges if o.name == name))
                ).add_offsets(offsets)
                table = pa.table(
                    [*typed, pack_row_ids(number, offsets)], names=[*(f"c{i}" for i in range(len(fields))), ROW_ID_NAME]
                )
                for chunk in encode_table(to_inserts(table)):
                    yield pa.record_batch([[number], [memoryview(chunk)], [None]], schema=OUTPUT)
        for name, count in counts.items():
            if complete and (gap := count.first_gap()) is not None:
                yield failure_row(numbers[name], MissingOffsetsError(source.name, name, *gap))
        if complete and not counts:  # each task reads some offsets; without a record, it cannot tell which
            yield failure_row(read[0].number, EmptyRangeError(source.name, _text_of_ranges(read)))

    def failure_row(number: int, error: TussockError) -> pa.RecordBatch:
        return pa.record_batch([[number], [None], [encode_failure(error, source.name, 0)]], schema=OUTPUT)

    return pack_batches


def _text_of_ranges(ranges: Sequence[Offsets]) -> str:
    shown = [f"partition {o.name} offsets {o.first} to {o.next - 1}" for o in ranges[:_SHOWN_RANGES]]
    more = [f"one of {len(ranges) - _SHOWN_RANGES} other partitions"] if len(ranges) > _SHOWN_RANGES else []
    return ", or ".join([*shown, *more])


class OffsetCount:
    """Detect gaps in the offsets of a partition that one task reads in order.

    Args:
        whole: the range, if the task reads all of it; None: check only between the first and the last record.
    """

    def __init__(self, whole: Offsets | None) -> None:
        self._next = None if whole is None else whole.first
        self._end = None if whole is None else whole.next
        self._gap: tuple[int, int] | None = None

    def add_offsets(self, offsets: npt.NDArray[np.int64]) -> None:
        """Add the next records' offsets."""
        before = np.concatenate([[offsets[0] if self._next is None else self._next], offsets[:-1] + 1])
        self._note_gap(before, offsets)
        self._next = int(offsets[-1]) + 1

    def first_gap(self) -> tuple[int, int] | None:
        """Return the first and the last offset of the first gap; None if there is no gap."""
        if self._end is not None and self._next is not None:
            self._note_gap(np.array([self._next]), np.array([self._end]))
        return self._gap

    def _note_gap(self, expected: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        if self._gap is None and (later := offsets > expected).any():
            first = int(later.argmax())
            self._gap = int(expected[first]), int(offsets[first]) - 1


def _decode_document(document: msgspec.Raw | None) -> tuple[PinnedOffsets, ...]:
    return () if document is None else _pinned.decode(document)


def _encode_document(pinned: Sequence[PinnedOffsets]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(pinned))


def _pins_of(read: Sequence[PinnedOffsets], unread: Sequence[PinnedOffsets]) -> Pins:
    return Pins(_encode_document(read) if read else None, _encode_document(unread) if unread else None)


def _item_of(pinned: PinnedOffsets) -> Item:
    return Item(pinned.offsets.name, pinned.nbytes)
