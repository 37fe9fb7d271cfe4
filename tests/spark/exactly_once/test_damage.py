"""Stored bytes that changed after they were written: the epoch that reads them names the object and commits nothing."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.exactly_once.local_engine import UnkindShuffle
from tests.support.exactly_once.workload import read
from tussock.jobs.session import Session
from tussock.statestore.errors import DamagedError
from tussock.statestore.meta.errors import DamagedDocumentError


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    session = Session(str(tmp_path / "store"), spark, units=2, runner=UnkindShuffle(7))
    session.execute("CREATE TABLE t (k int, v int, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 10)")
    session.flush()
    return session


def waiting_payload(session: Session, before: set[str]) -> str:
    """The payload of the one INSERT that waits."""
    (name,) = {found.name for found in session.meta.objects.list("meta/payload/")} - before
    return name


@pytest.mark.spark
def test_a_flipped_bit_of_an_insert_is_named_and_commits_nothing(session: Session) -> None:
    objects = session.meta.objects
    before, version = {found.name for found in objects.list("meta/payload/")}, session.meta.read_latest()
    session.execute("INSERT INTO t VALUES (2, 16909060)")
    name = waiting_payload(session, before)
    whole = objects.get(name)
    place = whole.index(b"\x04\x03\x02\x01")  # the value: no structure of the stream would show the change
    objects.put(name, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(DamagedError) as raised:
        session.flush()
    assert isinstance(raised.value, DamagedDocumentError)
    assert raised.value.name == name
    assert session.meta.read_latest() == version
    objects.put(name, whole)  # restored from a copy, as the message advises
    session.flush()
    assert sorted(read(session.meta, "t").to_pylist(), key=lambda row: int(row["k"])) == [
        {"k": 1, "v": 10},
        {"k": 2, "v": 16909060},
    ]


@pytest.mark.spark
def test_a_missing_payload_is_damage_and_named(session: Session) -> None:
    objects = session.meta.objects
    before, version = {found.name for found in objects.list("meta/payload/")}, session.meta.read_latest()
    session.execute("INSERT INTO t VALUES (2, 20)")
    name = waiting_payload(session, before)
    objects.delete([name])
    with pytest.raises(DamagedError) as raised:
        session.flush()
    assert isinstance(raised.value, DamagedDocumentError)
    assert (raised.value.name, "missing" in str(raised.value)) == (name, True)
    assert session.meta.read_latest() == version
