"""The pins of a kafka source, for partitions with the given offsets. kafka_alone.py uses a real broker."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.statestore.table.stores import BucketStore
from tussock.jobs.chunks.failure import first_failure
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.base import PinRequest, Pins, RowPlace
from tussock.jobs.sources.describe import describe_source, place_source
from tussock.jobs.sources.errors import BadOptionError
from tussock.jobs.sources.kafka import (
    KafkaTopics,
    OffsetCount,
    PinnedOffsets,
    _bound_ranges,
    _make_packer,
    _skip_partition,
    _waiting_ranges,
)
from tussock.jobs.sources.kafka_cluster import PartitionNow, away_error, error_of, partitions_now
from tussock.jobs.sources.kafka_errors import (
    BadKafkaColumnError,
    CompactedTopicError,
    EmptyRangeError,
    KafkaDeniedError,
    KafkaNeedsSparkError,
    KafkaOptionError,
    KafkaUnavailableError,
    LostOffsetsError,
    MissingTopicError,
)
from tussock.jobs.sources.kafka_taken import TAKEN_OFFSETS, Offsets
from tussock.jobs.sources.run_ends import ends_fixed
from tussock.statestore.errors import InputError
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table.storage_table import StorageTable

READER = KafkaTopics()


def source(fields: tuple[Field, ...] = (), **options: str) -> CreateSource:
    given = {"kafka.bootstrap.servers": "x:9092", "subscribe": "t"} | {
        k.replace("__", "."): v for k, v in options.items()
    }
    return CreateSource("s", "kafka", fields, {k: v for k, v in given.items() if v})


def now(*ranges: tuple[int, int], topic_id: str = "A") -> dict[tuple[str, int], PartitionNow]:
    """Partitions 0, 1, … of topic t with these first and end offsets."""
    return {("t", n): PartitionNow("t", n, topic_id, first, end) for n, (first, end) in enumerate(ranges)}


def pinned(found: list[PinnedOffsets]) -> list[tuple[int, int, int, int]]:
    return [(p.offsets.number, p.offsets.partition, p.offsets.first, p.offsets.next) for p in found]


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("", [(0, 0, 3, 9), (1, 1, 0, 4)]),
        ("earliest", [(0, 0, 3, 9), (1, 1, 0, 4)]),
        ("latest", [(0, 0, 9, 9), (1, 1, 4, 4)]),
        ('{"t": {"0": 5, "1": -1}}', [(0, 0, 5, 9), (1, 1, 4, 4)]),
        ('{"t": {"1": 2}}', [(0, 0, 3, 9), (1, 1, 2, 4)]),
    ],
)
def test_a_new_source_begins_at_its_starting_offsets(starting: str, expected: list[tuple[int, int, int, int]]) -> None:
    assert pinned(_waiting_ranges(source(startingOffsets=starting), [], now((3, 9), (0, 4)))) == expected


def test_starting_offsets_after_the_end_are_refused_and_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reports such a start as a loss of data in the first batch that finds the end."""
    monkeypatch.setattr("tussock.jobs.sources.kafka.partitions_now", lambda source, again=False: now((3, 9), (0, 4)))
    monkeypatch.setattr("tussock.jobs.sources.kafka.require_module", lambda *_: None)
    late, last = (source(startingOffsets=f'{{"t": {{"0": {offset}}}}}') for offset in (10, 9))
    for action in (
        lambda s: READER.describe(s, lambda: None),
        lambda s: READER.pin(s, None, PinRequest(), None),
        lambda s: READER.waiting(s, None),
    ):
        with pytest.raises(BadOptionError, match=r"partition t-0 ends before offset 9, and 10 is given.* up to 9"):
            action(late)
        action(last)


@pytest.mark.parametrize(
    ("pieces", "gap"),
    [
        ([range(3, 9)], None),
        ([range(3, 5), range(5, 9)], None),
        ([range(4, 9)], (3, 3)),
        ([range(3, 8)], (8, 8)),
        ([range(3, 5), range(7, 9)], (5, 6)),
        ([[3, 4, 7, 8]], (5, 6)),
        ([[3], [5], [8]], (4, 4)),
    ],
)
def test_offsets_without_a_record_are_found_in_a_range(
    pieces: list[Sequence[int]], gap: tuple[int, int] | None
) -> None:
    whole, part = OffsetCount(Offsets(0, "t", 0, "A", 3, 9)), OffsetCount(None)
    for piece in pieces:
        whole.add_offsets(np.array(piece, np.int64))
        part.add_offsets(np.array(piece, np.int64))
    assert whole.first_gap() == gap
    assert part.first_gap() == (None if gap in ((3, 3), (8, 8)) else gap)  # a part of a range does not include the ends


@pytest.mark.parametrize("more", [{}, {"minPartitions": "4"}])
@pytest.mark.parametrize("count", [1, 8])
def test_a_task_without_a_record_holds_the_source(count: int, more: dict[str, str]) -> None:
    ranges = [Offsets(0, "t", 0, "A", 5, 5), *(Offsets(n, "t", n, "A", 3, 9) for n in range(1, count + 1))]
    packer = _make_packer(source(missing_offsets="error", **more), ranges, [])
    (failed,) = [row for batch in packer([]) for row in batch.to_pylist()]
    error = first_failure([failed["failure"]])
    assert isinstance(error, EmptyRangeError)
    assert "no record at all (partition t-1 offsets 3 to 8" in str(error)
    assert ("or one of 3 other partitions)" in str(error)) == (count == 8)
    assert not list(_make_packer(source(missing_offsets="ignore", **more), ranges, [])([]))


@pytest.mark.parametrize(
    ("policy", "refused"), [("delete", False), ("", False), ("compact", True), ("compact,delete", True)]
)
def test_a_compacted_topic_is_refused_and_held(policy: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {place: replace(p, policy=policy) for place, p in now((0, 4)).items()}
    monkeypatch.setattr("tussock.jobs.sources.kafka.partitions_now", lambda source, again=False: there)
    monkeypatch.setattr("tussock.jobs.sources.kafka.require_module", lambda *_: None)
    for action, says in (
        (lambda: READER.describe(source(), lambda: None), "Nothing was created"),
        (lambda: READER.pin(source(), None, PinRequest(), None), "the source is held"),
        (lambda: READER.waiting(source(), None), "the source is held"),
    ):
        if refused:
            with pytest.raises(CompactedTopicError, match=rf"topic 't' has cleanup\.policy={policy}.*{says}"):
                action()
        else:
            action()


def test_a_new_source_counts_offsets_unless_it_reads_transactions(tmp_path: Path) -> None:
    assert place_source(source(), tmp_path).options["missing_offsets"] == "error"
    assert (
        place_source(source(kafka__isolation__level="read_committed"), tmp_path).options["missing_offsets"] == "ignore"
    )
    assert place_source(source(missing_offsets="ignore"), tmp_path).options["missing_offsets"] == "ignore"
    with pytest.raises(BadOptionError, match="expected 'error'"):
        READER.check(source(missing_offsets="maybe"))


def test_a_later_partition_is_taken_from_its_first_record_under_a_new_number() -> None:
    before = [Offsets(0, "t", 0, "A", 3, 9)]
    assert pinned(_waiting_ranges(source(startingOffsets="latest"), before, now((3, 12), (0, 4)))) == [
        (0, 0, 9, 12),
        (1, 1, 0, 4),
    ]
    assert pinned(_waiting_ranges(source(), before, now((3, 9)))) == []


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (now((10, 20)), "expected offset 9 next, but the first existing offset is 10"),
        (now((0, 8)), "expected offsets up to 8, but the last existing offset is 7"),
        (now((3, 20), topic_id="B"), "was dropped and created again"),
        (
            {("t", 0): PartitionNow("t", 0, "A", 3, 20, "compact,delete")},
            r"now compacted \(cleanup.policy=compact,delete\)",
        ),
        ({}, "the partition no longer exists"),
    ],
)
def test_lost_objects_are_named(there: dict[tuple[str, int], PartitionNow], says: str) -> None:
    before = [Offsets(0, "t", 0, "A", 3, 9)]
    with pytest.raises(LostOffsetsError, match=f"partition t-0: .*{says}.*--skip-file t-0"):
        _waiting_ranges(source(), before, there | {("t", 1): PartitionNow("t", 1, "A", 0, 0)})


def test_skipping_omits_exactly_the_lost_records() -> None:
    before = [Offsets(0, "t", 0, "A", 3, 9), Offsets(1, "t", 1, "A", 0, 4)]
    skipped = _skip_partition(before, now((15, 20), (0, 6)), "t-0")
    assert skipped is not None
    assert pinned([skipped]) == [(0, 0, 9, 15)]
    assert _skip_partition(before, now((15, 20), (0, 6)), "t-1") is None
    gone = _skip_partition(before, now((9, 9)), "t-1")
    assert gone is not None
    assert gone.offsets.topic_id == ""
    assert _waiting_ranges(source(), [before[0], gone.offsets], now((9, 9))) == []
    with pytest.raises(LostOffsetsError, match="created again"):
        _waiting_ranges(source(), [before[0], gone.offsets], now((9, 9), (0, 1)))
    anew = _skip_partition(before, now((0, 20), (0, 6), topic_id="B"), "t-0")
    assert anew is not None
    assert pinned([anew]) == [(2, 0, 0, 0)]


@pytest.mark.parametrize(
    ("options", "max_bytes"), [({"max_offsets": "10"}, None), ({}, 10 * 1024), ({"record_bytes": "100"}, 1099)]
)
def test_an_epoch_takes_records_of_each_partition_in_proportion_to_the_backlog(
    options: dict[str, str], max_bytes: int | None
) -> None:
    made = source(**options)
    found = _bound_ranges(made, _waiting_ranges(made, [], now((0, 75), (0, 20), (5, 5), (0, 5))), max_bytes)
    taken = {p.offsets.partition: p.offsets.next - p.offsets.first for p in found}
    assert taken == {0: 8, 1: 2, 2: 0, 3: 0}
    assert [p.nbytes for p in _bound_ranges(made, _waiting_ranges(made, [], now((0, 9))), 1)] == [
        int(options.get("record_bytes", 1024)) * 1
    ] or options


def test_bounds_are_met_to_the_end_and_nothing_is_taken_twice() -> None:
    made, before, seen = source(max_offsets="7"), list[Offsets](), list[tuple[int, int]]()
    there = now((0, 23), (4, 9), (0, 1))
    while ranges := _bound_ranges(made, _waiting_ranges(made, before, there), None):
        assert sum(p.offsets.next - p.offsets.first for p in ranges) <= 7
        for p in ranges:
            seen += [(p.offsets.partition, offset) for offset in range(p.offsets.first, p.offsets.next)]
            before = [o for o in before if o.number != p.offsets.number]
            before.append(msgspec.structs.replace(p.offsets, first=p.origin))
    assert sorted(seen) == [*((0, n) for n in range(23)), *((1, n) for n in range(4, 9)), (2, 0)]


def test_a_partition_without_a_share_of_the_first_epoch_still_begins_at_its_starting_offset() -> None:
    made, there = source(max_offsets="2", startingOffsets='{"t": {"0": 10, "1": 10, "2": 10}}'), now(*[(0, 20)] * 3)
    first = _bound_ranges(made, _waiting_ranges(made, [], there), None)
    assert sorted(pinned(first)) == [(0, 0, 10, 11), (1, 1, 10, 11), (2, 2, 10, 10)]
    later = _waiting_ranges(made, [p.offsets for p in first], there)
    assert sorted(pinned(later)) == [(0, 0, 11, 20), (1, 1, 11, 20), (2, 2, 10, 20)]


def test_a_new_view_begins_with_the_taken_version(tmp_path: Path) -> None:
    schema = msgspec.structs.replace(KafkaTopics().taken_schema("s"), table_id=1)
    store = BucketStore(open_object_store(str(tmp_path)))
    first = [Offsets(0, "t", 0, "A", 3, 9), Offsets(1, "t", 1, "A", 0, 0)]
    store.ingest(TAKEN_OFFSETS.seal_records(schema, first, 1), 1)
    read = msgspec.Raw(msgspec.json.encode([PinnedOffsets(Offsets(0, "t", 0, "A", 9, 12), 3, 0)]))
    batch = READER.taken_rows(schema, Pins(read), 2)
    assert batch is not None
    store.ingest(batch, 2)
    table = StorageTable(schema, store.reader, 2, 1)
    assert TAKEN_OFFSETS.read_all(table) == [Offsets(0, "t", 0, "A", 3, 12), first[1]]
    document = READER.taken_document(table)
    assert document is not None
    assert [item.name for item in READER.items(document)] == ["t-0"]
    assert READER.place_of((0 << 40) + 5, [document]) == RowPlace("offset 5 of partition t-0", "t-0")


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (source(kafka__bootstrap__servers=""), BadOptionError, "the addresses of its brokers"),
        (source(assign='{"t": [0]}'), BadOptionError, "needs one of subscribe, subscribePattern, assign"),
        (source(subscribe=""), BadOptionError, "needs one of subscribe"),
        (source(endingOffsets="latest"), BadOptionError, "no such option"),
        (source(failOnDataLoss="false"), BadOptionError, "no such option"),
        (source(path="/x"), BadOptionError, "no such option"),
        (source(startingOffsets="first"), BadOptionError, "expected earliest, latest or"),
        (source(max_offsets="0"), BadOptionError, "a whole number from 1 to"),
        (
            source((Field("value", "string"),)),
            BadKafkaColumnError,
            "'value' string: a kafka source has key binary, value binary",
        ),
        (source((Field("headers", "array<struct<key:string,value:binary>>"),)), BadKafkaColumnError, "'headers'"),
    ],
)
def test_an_invalid_source_is_refused(made: CreateSource, error: type[InputError], says: str) -> None:
    with pytest.raises(error, match=says):
        describe_source(made, lambda: pytest.fail("nothing is asked"))


def test_a_process_without_spark_reports_that_listing_needs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pyspark

    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    with ends_fixed(), pytest.raises(KafkaNeedsSparkError, match="which needs Spark's JVM"):
        partitions_now(source())


@pytest.mark.parametrize(
    ("kind", "reason", "error"),
    [
        ("UnknownTopicOrPartitionException", "This server does not host it.", MissingTopicError),
        ("SaslAuthenticationException", "Authentication failed: Invalid username or password", KafkaDeniedError),
        ("SslAuthenticationException", "SSL handshake failed", KafkaDeniedError),
        ("TopicAuthorizationException", "Topic authorization failed.", KafkaDeniedError),
        ("ConfigException", "Invalid value PLANE for configuration security.protocol", KafkaOptionError),
        (
            "IllegalArgumentException",
            "Could not find a 'KafkaClient' entry in the JAAS configuration",
            KafkaOptionError,
        ),
        ("ConfigException", "No resolvable bootstrap urls given in bootstrap.servers", KafkaUnavailableError),
        ("TimeoutException", "Timed out waiting for a node assignment.", KafkaUnavailableError),
    ],
)
def test_only_brokers_that_do_not_answer_are_tried_again(kind: str, reason: str, error: type[Exception]) -> None:
    translated = error_of(source(), kind, reason)
    assert type(translated) is error
    assert isinstance(translated, InputError) == (error is not KafkaUnavailableError)


JOB = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times: (TID 9):"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]\n\tat …",
            "denies access: TopicAuthorizationException: Not authorized to access topics: [t]. The login",
        ),
        (
            "x\nCaused by: org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired.",
            "did not answer: TimeoutException: Timeout of 60000ms expired. Nothing was read",
        ),
        ("org.apache.kafka.common.errors.RecordTooLargeException: 12 bytes", None),
        ("java.lang.OutOfMemoryError: Java heap space", None),
    ],
)
def test_brokers_that_deny_a_read_or_are_away_let_the_source_wait(text: str, expected: str | None) -> None:
    """Otherwise the message would suggest to pass over records that are still there."""
    error = away_error(source(), f"{JOB} {text}")
    assert (error is None) == (expected is None)
    if error is not None and expected is not None:
        assert expected in str(error)
        assert "skip" not in str(error)
