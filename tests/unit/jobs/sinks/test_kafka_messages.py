"""Messages of changes: upserts with tombstones, and Debezium's envelopes with the row before and after."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tussock.jobs.reading.reader import CHANGE
from tussock.jobs.settings.publishing import MessageFormat
from tussock.jobs.sinks.base import Outline
from tussock.jobs.sinks.difference import difference_of
from tussock.jobs.sinks.kafka_messages import MessageForm, Messages, TopicRows
from tussock.statestore.meta.catalog import ColumnSpec

EPOCH = 117_660_020_348_616_704
OUTLINE = Outline("store", frozenset({"store"}), "t", (ColumnSpec("k", "double"), ColumnSpec("x", "string")), ("k",))
CHANGES = pa.table(
    {
        "k": [1.0, 1.0, 2.0, -0.0],
        "x": ["old", "new", "gone", 'a "quote"'],
        CHANGE: ["delete", "insert", "delete", "insert"],
    }
)


def shown(messages: Messages) -> list[tuple[Any, Any]]:
    return [(key and json.loads(key), value and json.loads(value)) for key, value in messages]


def form(kind: MessageFormat, key: tuple[str, ...] = ("k",)) -> MessageForm:
    return MessageForm(kind, OUTLINE, key)


def test_an_upsert_has_the_row_of_each_key_and_a_tombstone_for_a_removed_one() -> None:
    messages = form(MessageFormat.UPSERT).of_change(difference_of(CHANGES, ("k",)), EPOCH)
    assert shown(messages) == [
        ({"k": 2.0}, None),
        ({"k": 1.0}, {"k": 1.0, "x": "new"}),
        ({"k": 0.0}, {"k": 0.0, "x": 'a "quote"'}),
    ]
    assert messages[2][0] == b'{"k":0.0}', "-0.0 and 0.0 are one key"


def test_an_envelope_has_the_row_before_and_after_each_change() -> None:
    messages = form(MessageFormat.DEBEZIUM).of_change(difference_of(CHANGES, ("k",)), EPOCH)
    found = [(key, value and (value["op"], value["before"], value["after"])) for key, value in shown(messages)]
    assert found == [
        ({"k": 2.0}, ("d", {"k": 2.0, "x": "gone"}, None)),
        ({"k": 2.0}, None),
        ({"k": 1.0}, ("u", {"k": 1.0, "x": "old"}, {"k": 1.0, "x": "new"})),
        ({"k": 0.0}, ("c", None, {"k": 0.0, "x": 'a "quote"'})),
    ]
    source = json.loads(messages[0][1] or b"")["source"]
    assert (source["table"], source["epoch"], source["snapshot"]) == ("t", str(EPOCH), "false")


def test_without_a_key_each_removed_and_each_new_row_is_an_envelope() -> None:
    messages = form(MessageFormat.DEBEZIUM, ()).of_change(difference_of(CHANGES, ()), EPOCH)
    assert [(key, value["op"]) for key, value in shown(messages)] == [
        (None, "d"),
        (None, "d"),
        (None, "c"),
        (None, "c"),
    ]


@pytest.mark.parametrize("kind", MessageFormat)
@pytest.mark.parametrize("then", MessageFormat)
def test_a_row_that_only_the_topic_has_is_removed_by_its_last_message(kind: MessageFormat, then: MessageFormat) -> None:
    rows, left = pa.table({"k": [3.0, 4.0], "x": ["a", "b"]}), TopicRows(kind)
    loaded = form(kind).of_rows(rows, TopicRows(kind), EPOCH)
    for message in loaded:
        left.add_message(*message)
    assert len(form(then).of_rows(rows.slice(0, 1), left, EPOCH)) == 1
    lost = form(then).of_lost(left, EPOCH)
    assert lost[-1] == (loaded[1][0], None)
    assert [(key, value["before"]) for key, value in shown(lost[:-1])] == (
        [({"k": 4.0}, {"k": 4.0, "x": "b"})] if then is MessageFormat.DEBEZIUM else []
    )
    for message in lost:
        left.add_message(*message)
    assert form(then).of_lost(left, EPOCH) == []


@pytest.mark.parametrize("kind", MessageFormat)
def test_a_message_that_is_no_row_is_removed_without_the_row_before(kind: MessageFormat) -> None:
    left = TopicRows(kind)
    left.add_message(b"mine", b"\xff not JSON")
    ((_, value), (key, tombstone)) = form(MessageFormat.DEBEZIUM).of_lost(left, EPOCH)
    assert json.loads(value or b"")["before"] is None
    assert (key, tombstone) == (b"mine", None)
