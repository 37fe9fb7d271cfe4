"""BEGIN … COMMIT, and reads of waiting rows, in a process without a JVM: all or nothing, exactly once."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
import pytest

from tests.support.jobs.driver.embedded import append, epoch, open_store
from tussock.jobs import cli
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.barriers.detour import Detour
from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.catalog.statement_log import WaitingLog
from tussock.jobs.logical.nodes import AggCall, Aggregate, Call, Column, Field, Literal, Scan
from tussock.jobs.logical.script import split_script
from tussock.jobs.logical.statements import CreateTable, CreateView, Delete, Insert, Statement, Transaction, Update
from tussock.jobs.logical.transaction_words import TransactionWord, transaction_word
from tussock.jobs.reading.moment import BadMomentError
from tussock.jobs.reading.pending_rows import WaitingStatementFailsError
from tussock.jobs.reading.read import WaitingChangesWarning
from tussock.jobs.reading.stored_rows import rows_at
from tussock.jobs.session import Session
from tussock.jobs.statements.deployment import Deployment, DeploymentBuilder, DeployOptions
from tussock.jobs.statements.open_transaction import TransactionError
from tussock.jobs.statements.statement_writer import Answer, SkippedInputError
from tussock.jobs.statements.transaction import DraftTransaction
from tussock.jobs.trouble.detour_errors import ReadEntryError
from tussock.jobs.trouble.supersede import abandon_barrier
from tussock.statestore.meta.barrier import Barrier
from tussock.statestore.meta.statement_log import LogMovedError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.base import ObjectStoreUnavailableError
from tussock.statestore.objectstore.open import open_object_store

_FIELDS = (Field("id", "bigint"), Field("n", "bigint"))
_ID, _N = Column(0, "bigint"), Column(1, "bigint")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """A keyed table, a table without a key, and a view over the first; one epoch old."""
    MetaStore.init(open_object_store(str(tmp_path / "store")), units=2)
    meta = open_store(tmp_path / "store", "maker")
    count = Aggregate(Scan("k", (), ()), (), (AggCall("Count", "bigint", ()),), (Field("rows", "bigint"),))
    append(meta, CreateTable("k", _FIELDS, (0,)), CreateTable("e", _FIELDS, ()))
    append(meta, CreateView("counted", "SELECT count(*) AS rows FROM k", count))
    meta.publish(epoch(meta).epoch)
    return Session(str(tmp_path / "store"), create=False, runner="local", workers=1)


def log(session: Session, *statements: Statement) -> None:
    """Append bound statements as another process would."""
    append(open_store(Path(session.meta.objects.uri), "another"), *statements)


def put(session: Session, table: str, *rows: tuple[int, int]) -> None:
    session.insert(table, pa.table({"id": [row[0] for row in rows], "n": [row[1] for row in rows]}))


def rows(session: Session, table: str, *, pending: bool = False) -> list[tuple[int, int]]:
    return sorted(tuple(row.values()) for row in session.read(table, pending=pending).to_pylist())


def is_(column: Column, value: int) -> Call:
    return Call("EqualTo", "boolean", (column, Literal(value, "bigint")))


def test_waiting_statements_are_replayed_like_an_epoch_does(session: Session) -> None:
    """Random statements without SQL, read after each one, with epochs and open barriers in between."""
    chance = random.Random(5)
    k: dict[int, int] = {}
    e: list[tuple[int, int]] = []
    for _ in range(30):
        x, y = chance.randrange(6), chance.randrange(6)
        match chance.randrange(6):
            case 0 | 1:
                put(session, "k", (x, y), (y, x))
                k |= {x: y} | {y: x}
            case 2:
                put(session, "e", (x, y), (x, y))
                e += [(x, y)] * 2
            case 3:
                times = Call("Multiply", "bigint", (_N, Literal(2, "bigint")), "ANSI")
                log(session, Update("e", ((1, times),), is_(_ID, x)))
                e = [(i, n * 2 if i == x else n) for i, n in e]
            case 4:
                log(session, Delete("k", is_(_ID, x)))
                k.pop(x, None)
            case 5:
                log(session, Delete("e", is_(_N, y)))
                e = [(i, n) for i, n in e if n != y]
        if chance.random() < 0.1:
            inject_barrier(session.meta)
        if chance.random() < 0.1:
            session.flush()
        assert rows(session, "k", pending=True) == sorted(k.items())
        assert rows(session, "e", pending=True) == sorted(e)
    session.flush()
    session.flush()
    assert rows(session, "k") == sorted(k.items())
    assert rows(session, "e") == sorted(e)
    assert not session._statements._tables._replayed, "the committed rows are released"


def test_a_transaction_is_one_entry_of_the_log_and_readers_see_it_as_a_whole(session: Session) -> None:
    before = session.meta.log_end()
    put(session, "e", (0, 0))
    with session.transaction():
        put(session, "e", (1, 1))
        put(session, "k", (1, 10), (2, 20))
        put(session, "e", (1, 1))
        assert session.meta.log_end() == before + 1
        assert rows(session, "e", pending=True) == [(0, 0), (1, 1), (1, 1)], "it reads what it wrote"
    assert session.meta.log_end() == before + 2
    (entry,) = session.meta.read_log(before + 1, before + 2)
    assert len(msgspec.json.decode(entry.statement, type=Transaction).statements) == 3
    session.flush()
    assert rows(session, "e") == [(0, 0), (1, 1), (1, 1)]
    assert rows(session, "counted") == [(2,)]


@pytest.mark.parametrize("end", ["rollback", "error", "crash"])
def test_a_transaction_that_is_not_committed_leaves_no_trace(end: str, session: Session) -> None:
    before = session.meta.log_end()
    session.execute("BEGIN")
    put(session, "k", (1, 1))
    match end:
        case "rollback":
            assert session.execute("ROLLBACK WORK")[0].message == "transaction rolled back; nothing was logged"
        case "error":
            with pytest.raises(UnknownRelationError):
                put(session, "absent", (1, 1))
            with pytest.raises(TransactionError, match="Give ROLLBACK"):
                put(session, "k", (1, 1))
            with pytest.raises(TransactionError, match="Give ROLLBACK"):
                session.execute("COMMIT")
        case "crash":
            session = Session(session.meta.objects.uri, create=False, runner="local", workers=1)
    assert session.meta.log_end() == before
    put(session, "k", (2, 2))
    session.flush()
    assert rows(session, "k") == [(2, 2)]


def test_an_error_in_a_script_ends_only_a_transaction_that_the_script_began(session: Session) -> None:
    with pytest.raises(TransactionError, match="open already"):
        session.execute("BEGIN; START TRANSACTION")
    put(session, "k", (1, 1))  # not part of a transaction
    session.execute("BEGIN TRANSACTION")
    with pytest.raises(TransactionError, match="open already"):
        session.execute("BEGIN")
    put(session, "k", (2, 2))
    for call in (session.flush, lambda: session.apply([])):
        with pytest.raises(TransactionError, match="COMMIT or ROLLBACK it first"):
            call()
    session.execute("COMMIT")
    with pytest.raises(TransactionError, match="Start one with BEGIN"):
        session.execute("COMMIT")
    with pytest.raises(UnknownRelationError):
        _put_both(session)
    session.flush()
    assert rows(session, "k") == [(1, 1), (2, 2)]


def _put_both(session: Session) -> None:
    with session.transaction():
        put(session, "k", (3, 3))
        put(session, "absent", (3, 3))


def test_entries_of_other_sessions_come_before_a_transaction_that_commits_later(session: Session) -> None:
    """Its statements are computed again, so row ids and reads belong to the position that it gets."""
    other = Session(session.meta.objects.uri, create=False, runner="local", workers=1)
    with session.transaction():
        put(session, "k", (1, 1))
        put(session, "e", (5, 5))
        put(other, "k", (1, 2), (2, 2))
        assert rows(session, "k", pending=True) == [(1, 1), (2, 2)]
        other.flush()
        put(other, "e", (6, 6))
    session.flush()
    assert rows(session, "k") == [(1, 1), (2, 2)]
    assert rows(session, "e") == [(5, 5), (6, 6)]


def test_what_a_transaction_has_read_is_computed_again_if_another_session_changes_it(session: Session) -> None:
    other = Session(session.meta.objects.uri, create=False, runner="local", workers=1)
    counts = list[int]()

    def insert_count(draft: DraftTransaction, before: WaitingLog) -> Answer:
        """INSERT INTO e SELECT 0, count(*) FROM k."""
        with session._statements.read_pending_rows(draft.waiting_log(before), ["k"]) as seen:
            k = next(r for r in seen.version.catalog.live_relations() if r.name == "k")
            found = rows_at(session.meta.objects, seen.version, k, seen.sight.epoch, None, seen.rows).read_all()
        counts.append(found.num_rows)
        draft.add_statement(session._writer.store_insert("e", pa.table({"id": [0], "n": [found.num_rows]})))
        return Answer("", "")

    put(session, "k", (1, 1))
    session.execute("BEGIN")
    put(session, "k", (2, 2))
    assert session._statement_runner.transaction is not None
    session._statement_runner.transaction.add_statement(insert_count)
    put(other, "k", (3, 3))
    session.execute("COMMIT")
    assert counts == [2, 3]
    session.flush()
    assert rows(session, "e") == [(0, 3)]


def test_a_transaction_gives_up_if_others_always_come_first(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, expected: int, **__: object) -> None:
        raise LogMovedError(expected, expected + 1)

    session.execute("BEGIN")
    put(session, "k", (1, 1))
    monkeypatch.setattr(session._writer, "log_and_answer", never)
    with pytest.raises(LogMovedError, match="Nothing was appended"):
        session.execute("COMMIT")


def test_a_commit_whose_answer_was_lost_is_not_repeated(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is found again by the id of its client."""
    before, put_if_absent, lost = session.meta.log_end(), type(session.meta.objects).put_if_absent, []

    def loses_the_answer(store: object, name: str, data: bytes) -> bool:
        won = put_if_absent(store, name, data)
        if "/log/" in name and not lost:
            lost.append(name)
            return put_if_absent(store, name, data)  # as after a timeout: it meets its own object
        return won

    monkeypatch.setattr(type(session.meta.objects), "put_if_absent", loses_the_answer)
    with session.transaction():
        put(session, "e", (1, 1))
        put(session, "e", (1, 1))
    assert lost
    assert session.meta.log_end() == before + 1
    session.flush()
    assert rows(session, "e") == [(1, 1), (1, 1)]


def test_a_failed_read_of_the_open_barriers_entries_is_repeated(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(session, "k", (1, 1))
    inject_barrier(session.meta)
    with monkeypatch.context() as broken:
        broken.setattr(session.meta, "read_log", _unavailable)
        with pytest.raises(ObjectStoreUnavailableError):
            session.read("k", pending=True)
    assert rows(session, "k", pending=True) == [(1, 1)]


def _unavailable(*_: object, **__: object) -> NoReturn:
    raise ObjectStoreUnavailableError("GET", "log", "connection reset")


def test_a_skipped_entry_takes_those_along_that_were_computed_from_it(session: Session) -> None:
    put(session, "k", (1, 1))
    first = session.meta.log_end() - 1
    (entry,) = session.meta.read_log(first, first + 1)
    payload = msgspec.json.decode(entry.statement, type=Insert)
    log(session, msgspec.structs.replace(payload, table="e", after=(first,)))
    log(session, Transaction((msgspec.structs.replace(payload, table="e", after=(first + 1,)),)))
    inject_barrier(session.meta)
    with pytest.raises(ReadEntryError) as caught:
        abandon_barrier(session.meta, Detour(skip_entries=(first,)))
    every = " ".join(f"--skip-entry {position}" for position in (first, first + 1, first + 2))
    assert f"`tussock barrier abandon {every}`" in str(caught.value)
    abandon_barrier(session.meta, Detour(skip_entries=(first + 1, first + 2)))
    abandon_barrier(session.meta, Detour(skip_entries=(first,)))
    session.flush()
    assert rows(session, "e") == rows(session, "k") == []


def reading_from(session: Session, read: int) -> Insert:
    """An INSERT INTO e of the rows that the entry `read` has put."""
    (entry,) = session.meta.read_log(read, read + 1)
    return msgspec.structs.replace(msgspec.json.decode(entry.statement, type=Insert), table="e", after=(read,))


def run_command(session: Session, error: Exception) -> None:
    """Run the command that a message contains."""
    found = re.search(r"`tussock (barrier abandon [^`]*)`", str(error))
    assert found is not None, str(error)
    assert cli.main([*found[1].split(), "--store", session.meta.objects.uri]) == 0


def test_the_command_that_skips_readers_takes_those_after_the_barrier_too(session: Session) -> None:
    put(session, "k", (1, 1))
    first = session.meta.log_end() - 1
    inject_barrier(session.meta)
    log(session, reading_from(session, first))
    with pytest.raises(ReadEntryError) as caught:
        abandon_barrier(session.meta, Detour(skip_entries=(first,)))
    run_command(session, caught.value)
    session.flush()
    assert rows(session, "e") == rows(session, "k") == []


def test_a_statement_that_is_logged_while_its_input_is_skipped_is_reported(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either by the barrier, which sees the statement afterwards, or by the statement, which sees the barrier."""
    put(session, "k", (1, 1))
    first = session.meta.log_end() - 1
    barrier = inject_barrier(session.meta)
    assert barrier is not None
    other = open_store(Path(session.meta.objects.uri), "other")
    supersede = other.supersede_barrier

    def after_an_append(*of: Any) -> Barrier:
        log(session, reading_from(session, first))
        return supersede(*of)

    monkeypatch.setattr(other, "supersede_barrier", after_an_append)
    with pytest.raises(ReadEntryError, match=rf"{first} are skipped now.*{first + 1} \(insert e, 1 rows\)") as caught:
        abandon_barrier(other, Detour(skip_entries=(first,)))
    run_command(session, caught.value)

    put(session, "k", (2, 2))
    second = session.meta.log_end() - 1
    session._pending.read_catalog(session.meta.read_latest())
    waiting, append_log = session._pending.waiting_log(), session.meta.append_log

    def after_a_barrier(*of: Any, **how: Any) -> int:
        abandon_barrier(open_store(Path(session.meta.objects.uri)), Detour(skip_entries=(second,), take_log=True))
        return append_log(*of, **how)

    monkeypatch.setattr(session.meta, "append_log", after_a_barrier)
    reader = reading_from(session, second)
    with pytest.raises(SkippedInputError, match=f"log entry {second + 1} was computed from .* {second}, ") as late:
        session._writer.log_statement(reader, waiting.end, waiting)
    monkeypatch.undo()
    run_command(session, late.value)
    with pytest.raises(LogMovedError):
        session._writer.append_read(waiting.catalog, "", reader, waiting, ["k"])
    session.flush()
    assert rows(session, "e") == rows(session, "k") == []


def test_an_apply_is_computed_again_if_a_barrier_skips_what_it_has_read(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(session, "k", (1, 1))
    first = session.meta.log_end() - 1
    reader, read = reading_from(session, first), list[list[int]]()

    def deployment(*_: object, **__: object) -> Deployment:
        version = session.meta.read_latest()
        catalog, pending = session._pending.read_catalog(version), session._pending
        deploying = DeploymentBuilder(
            session.meta, session._statements, version, catalog, pending.log_end, True, pending.waiting_log
        )
        read.append([position for position, _ in deploying._after_draft().statements])
        if len(read) == 1:
            inject_barrier(session.meta)
            abandon_barrier(session.meta, Detour(skip_entries=(first,)))
        return replace(
            deploying.make_deployment([], DeployOptions()),
            statement=msgspec.structs.replace(reader, after=tuple(read[-1])),
            pending=True,
        )

    monkeypatch.setattr(session, "_deployment", deployment)
    assert session.apply([]).position == first + 1
    assert read == [[first], []]


def test_a_read_of_waiting_rows_names_a_statement_that_raises_and_views_that_will_change(session: Session) -> None:
    put(session, "k", (0, 1))
    with pytest.warns(WaitingChangesWarning, match=r"view counted is read as of epoch \d+.*insert k, 1 rows"):
        assert rows(session, "counted", pending=True) == [(0,)]
    with pytest.raises(BadMomentError, match="belong to no epoch yet"):
        session.read("k", epoch=session.meta.read_latest().epoch, pending=True)
    divided = Call("IntegralDivide", "bigint", (_N, _ID), "ANSI")
    log(session, Update("k", ((1, divided),), None))
    with pytest.raises(WaitingStatementFailsError, match=r"UPDATE at log entry \d+.* key \(0\): n .*id.* raised"):
        session.read("k", pending=True)
    put(session, "k", (0, 1))
    entry = session.meta.log_end() - 2
    abandon_barrier(session.meta, Detour(skip_entries=(entry,)))
    log(session, Update("k", ((1, divided),), None))
    with pytest.raises(WaitingStatementFailsError, match=f"UPDATE at log entry {entry + 2}") as newer:
        session.read("k", pending=True)
    run_command(session, newer.value)
    assert rows(session, "k", pending=True) == [(0, 1)]


def test_a_cancelled_statement_is_not_part_of_the_transaction(session: Session) -> None:
    def cancelled(draft: DraftTransaction, _: WaitingLog) -> Answer:
        draft.add_statement(session._writer.store_insert("k", pa.table({"id": [2], "n": [2]})))
        raise KeyboardInterrupt

    session.execute("BEGIN")
    put(session, "k", (1, 1))
    assert session._statement_runner.transaction is not None
    with pytest.raises(KeyboardInterrupt):
        session._statement_runner.transaction.add_statement(cancelled)
    put(session, "k", (3, 3))
    session.execute("COMMIT")
    session.flush()
    assert rows(session, "k") == [(1, 1), (3, 3)]


def test_statements_that_only_read_are_not_repeated(session: Session) -> None:
    read = list[int]()

    def select(_: DraftTransaction, before: WaitingLog) -> Answer:
        read.append(before.end)
        return Answer("", "", pa.table({"n": [1]}))

    session.execute("BEGIN")
    put(session, "k", (1, 1))
    assert session._statement_runner.transaction is not None
    session._statement_runner.transaction.add_statement(select)
    log(session, Delete("k", None))
    session.execute("COMMIT")
    assert len(read) == 1
    session.flush()
    assert rows(session, "k") == [(1, 1)]


def test_a_script_ends_no_transaction_that_another_one_has_begun(session: Session) -> None:
    script = session.run("BEGIN; COMMIT; BEGIN")
    next(script)
    next(script)
    session.execute("BEGIN")
    put(session, "k", (1, 1))
    with pytest.raises(TransactionError, match="open already"):
        next(script)
    session.execute("COMMIT")
    session.flush()
    assert rows(session, "k") == [(1, 1)]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_that_broke_off_can_be_given_again(
    arrives: bool, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = session.meta.log_end()
    session.execute("BEGIN")
    put(session, "e", (1, 1))
    with monkeypatch.context() as broken:
        _break_log(broken, session, arrives)
        with pytest.raises(ObjectStoreUnavailableError) as caught:
            session.execute("COMMIT")
    assert "COMMIT can be given again" in caught.value.__notes__[0]
    with pytest.raises(TransactionError, match="may be in the log already"):
        put(session, "e", (2, 2))
    put(Session(session.meta.objects.uri, create=False), "k", (7, 7))
    (answer,) = session.execute("COMMIT")
    assert "insert e, 1 rows; takes effect" in answer.message
    assert not session.in_transaction
    assert session.meta.log_end() == before + 2
    session.flush()
    assert rows(session, "e") == [(1, 1)]


def test_a_rollback_says_that_the_commit_before_it_was_not_lost(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arrives in (False, True):
        with monkeypatch.context() as broken, pytest.raises(ObjectStoreUnavailableError):
            _put_and_break_log(broken, session, arrives)
        if arrives:
            with pytest.raises(TransactionError, match=f"already, as log entry {session.meta.log_end() - 1}"):
                session.execute("ROLLBACK")
        else:
            session.execute("ROLLBACK")
        assert not session.in_transaction
    session.flush()
    assert rows(session, "e") == [(1, 1)]


def test_a_session_tells_how_many_statements_its_end_rolls_back(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.require_committed()
    session.execute("BEGIN")
    put(session, "e", (1, 1))
    put(session, "k", (2, 2))
    with pytest.raises(TransactionError, match="so its 2 statements were rolled back"):
        session.require_committed()
    session.execute("ROLLBACK")
    for arrives in (False, True):
        with monkeypatch.context() as broken, pytest.raises(ObjectStoreUnavailableError):
            _put_and_break_log(broken, session, arrives)
        if arrives:
            session.require_committed()  # the log has them
        else:
            with pytest.raises(TransactionError, match="so its 1 statement was rolled back"):
                session.require_committed()
            session.execute("ROLLBACK")


def _put_and_break_log(patch: pytest.MonkeyPatch, session: Session, arrives: bool) -> None:
    with session.transaction():
        put(session, "e", (1, 1))
        _break_log(patch, session, arrives)


def _break_log(patch: pytest.MonkeyPatch, session: Session, arrives: bool) -> None:
    """Let appends to the log fail, although the entry `arrives` or not."""
    put_if_absent = type(session.meta.objects).put_if_absent

    def breaks_off(store: object, name: str, data: bytes) -> bool:
        if "/log/" not in name:
            return put_if_absent(store, name, data)
        if arrives:
            put_if_absent(store, name, data)
        _unavailable()

    patch.setattr(type(session.meta.objects), "put_if_absent", breaks_off)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("begin", TransactionWord.BEGIN),
        ("START TRANSACTION", TransactionWord.BEGIN),
        ("/* all */ Commit work", TransactionWord.COMMIT),
        ("ROLLBACK TRANSACTION", TransactionWord.ROLLBACK),
        ("BEGIN INSERT INTO k VALUES (1, 1)", None),
        ("'BEGIN'", None),
    ],
)
def test_the_words_of_transactions(text: str, word: TransactionWord | None) -> None:
    (statement,) = split_script(text)
    assert transaction_word(statement.text) is word
