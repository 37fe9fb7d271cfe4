"""Every remedy works as printed: each error is raised in a small pipeline, whose folders have blanks in their names.

The commands of the printed message then run through the entry of the command line, each in a new pipeline, and the
next epoch must succeed. `NOT_RUN` lists the classes whose remedy is no command that runs here, with the reason. No
Spark.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts import errors_page
from tests.support.jobs.driver.embedded import append, insert
from tests.support.jobs.plan.catalogs import scan, table, view
from tests.support.printed_commands import commands_in
from tests.unit.jobs.driver.test_builds import replacing
from tests.unit.jobs.driver.test_pauses import BAD, GOOD, LARGEST, sums
from tests.unit.jobs.driver.test_pauses import write as write_rows
from tussock.jobs import cli
from tussock.jobs.barriers.barrier import inject_barrier
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.catalog.statement_log import WaitingLog, WaitingStatementsError
from tussock.jobs.logical.nodes import (
    AggCall,
    AggFunction,
    Aggregate,
    Call,
    Column,
    Comparison,
    Field,
    Literal,
    Plan,
    Scan,
    TemporalFilter,
)
from tussock.jobs.logical.statements import CreateSource, CreateTable, Insert, KeyedBy, Update
from tussock.jobs.settings.home import CopiedStoreError, home_of
from tussock.jobs.settings.printed_commands import address_commands
from tussock.jobs.settings.row_values import without_values
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

TOML = 'name = "shop"\nstore = "the store"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n'
FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))
_ids = count()


@dataclass
class Shop:
    """A pipeline `shop` in a folder of its own, used through the command line."""

    home: Path
    capsys: pytest.CaptureFixture[str]
    raised: list[BaseException | None]

    @property
    def files(self) -> Path:
        return self.home / "new files"

    @property
    def store(self) -> Path:
        return self.home / "the store"

    @property
    def meta(self) -> MetaStore:
        return MetaStore(open_object_store(str(self.store)), f"writer-{next(_ids)}", lambda: 1_700_000_000_000)

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code of a command, and everything that it printed."""
        self.raised.clear()
        self.capsys.readouterr()
        code = cli.main(arguments)
        said = self.capsys.readouterr()
        return code, said.out + said.err

    def epoch(self) -> None:
        code, said = self.run("epoch", "--pipeline", "shop")
        assert code == 0, said

    def fails(self, *arguments: str) -> str:
        """The message of a command that fails."""
        code, said = self.run(*(arguments or ("epoch", "--pipeline", "shop")))
        assert code == 1, said
        return said

    def source(self, *views: object, fields: tuple[Field, ...] = FIELDS, **options: str) -> None:
        """Source `s` with one taken file."""
        append(self.meta, CreateSource("s", "parquet", fields, {"path": str(self.files), "retain": "files", **options}))
        for one in views:
            append(self.meta, one)  # type: ignore[arg-type]


def copy_of(plan_fields: tuple[Field, ...], name: str = "v", over: str = "s") -> object:
    """SELECT all columns of a relation."""
    return view(name, Scan(over, tuple(range(len(plan_fields))), plan_fields))


def sum_of_a(over: str = "t") -> Plan:
    """SELECT sum(b) over a bigint column, which overflows."""
    wide = Scan(over, (0, 1), (Field("k", "int"), Field("b", "bigint")))
    total = AggCall(AggFunction.SUM, "bigint", (Column(1, "bigint"),), "ANSI")
    return Aggregate(wide, (), (total,), (Field("s", "bigint"),))


def nothing(shop: Shop, command: Sequence[str]) -> None:
    """The remedy needs nothing but the command."""


def goes_on(shop: Shop) -> None:
    """The next epoch succeeds, and no source is held."""
    shop.epoch()
    assert not [hold for r in shop.meta.read_latest().catalog.live_relations() for hold in r.holds]


@dataclass(frozen=True)
class Situation:
    """An error of a pipeline.

    Args:
        kinds: the error classes that the message belongs to.
        make: makes the error in a new pipeline and returns the printed message.
        commands: the beginnings of the commands that the message must contain, in order.
        before: the part of a user before a command, such as correcting a file.
        after: checks that the pipeline goes on.
    """

    kinds: tuple[str, ...]
    make: Callable[[Shop], str]
    commands: tuple[str, ...]
    before: Callable[[Shop, Sequence[str]], None] = nothing
    after: Callable[[Shop], None] = goes_on


# --- files ----------------------------------------------------------------------------------------------------------


def a_taken_file(shop: Shop, *views: object, fields: tuple[Field, ...] = FIELDS, **options: str) -> None:
    write_rows(shop.files / "1.parquet", *GOOD)
    shop.source(*views, fields=fields, **options)
    shop.epoch()


def damaged_file(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    (shop.files / "it's 2.parquet").write_bytes((shop.files / "1.parquet").read_bytes()[:40])
    return shop.fails()


def other_columns(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    pq.write_table(pa.table({"k": ["x"]}), shop.files / "it's 2.parquet")
    return shop.fails()


def repaired(shop: Shop, command: Sequence[str]) -> None:
    if "--repin-file" in command:
        write_rows(shop.files / "it's 2.parquet", (4, 2, 4))


TEXT = (Field("k", "int"), Field("s", "string"))
TIME = (Field("k", "int"), Field("at", "timestamp"))


def a_file_of(shop: Shop, fields: tuple[Field, ...], values: pa.Array) -> str:
    shop.files.mkdir(parents=True)
    shop.source(copy_of(fields), fields=fields)
    pq.write_table(pa.table({"k": pa.array([1], pa.int32()), fields[1].name: values}), shop.files / "it's 2.parquet")
    return shop.fails()


def text_not_utf8(shop: Shop) -> str:
    raw = pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"], pa.binary()).buffers())
    return a_file_of(shop, TEXT, raw)


def null_in_a_key(shop: Shop) -> str:
    write_rows(shop.files / "1.parquet", *GOOD)
    given = {"path": str(shop.files), "retain": "files", "changes": "upsert"}
    append(shop.meta, CreateSource("s", "parquet", FIELDS, given, keyed=KeyedBy((0,))))
    shop.epoch()
    columns = {f.name: pa.array([None if f.name == "k" else 1], pa.int32()) for f in FIELDS}
    pq.write_table(pa.table(columns), shop.files / "it's 2.parquet")
    return shop.fails()


def no_envelope(shop: Shop) -> str:
    shop.files.mkdir(parents=True)
    given = {"path": str(shop.files), "retain": "files", "changes": "debezium"}
    append(shop.meta, CreateSource("s", "json", FIELDS, given, keyed=KeyedBy((0,))))
    shop.epoch()
    (shop.files / "it's 2.json").write_text('{"k": 1}\n')
    return shop.fails()


def written_as_an_envelope(shop: Shop, command: Sequence[str]) -> None:
    if "--repin-file" in command:
        (shop.files / "it's 2.json").write_text('{"op": "c", "before": null, "after": {"k": 1}}\n')


def unknown_operation(shop: Shop) -> str:
    fields = (*FIELDS, Field("op", "string"))
    rows = {f.name: pa.array([1], pa.int32()) for f in FIELDS}
    shop.files.mkdir(parents=True)
    given = {"path": str(shop.files), "retain": "files", "changes": "operations", "op_column": "op"}
    append(shop.meta, CreateSource("s", "parquet", fields, given, keyed=KeyedBy((0,))))
    shop.epoch()
    pq.write_table(pa.table({**rows, "op": ["X"]}), shop.files / "it's 2.parquet")
    return shop.fails()


def written_with_an_operation(shop: Shop, command: Sequence[str]) -> None:
    if "--repin-file" in command:
        rows = {f.name: pa.array([1], pa.int32()) for f in FIELDS}
        pq.write_table(pa.table({**rows, "op": ["I"]}), shop.files / "it's 2.parquet")


def nanoseconds(shop: Shop) -> str:
    return a_file_of(shop, TIME, pa.array([1], pa.timestamp("ns")))


def one_large_row(shop: Shop) -> str:
    toml = shop.home / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text() + "max_bytes = 1_000\n")
    return a_file_of(shop, TEXT, pa.array(["x" * 40_000_000]))


def rewritten(shop: Shop, command: Sequence[str]) -> None:
    if "--repin-file" in command:
        (shop.files / "it's 2.parquet").unlink()
        whole = {"k": pa.array([1], pa.int32()), "s": ["x"], "at": pa.array([1], pa.timestamp("us"))}
        pq.write_table(pa.table(whole), shop.files / "it's 2.parquet")


def changed_after_it_was_taken(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    write_rows(shop.files / "1.parquet", (7, 7, 7))
    return shop.fails()


def changed_before_it_was_read(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS), retain="none")
    write_rows(shop.files / "it's 2.parquet", (4, 2, 4))
    inject_barrier(shop.meta)
    (shop.files / "it's 2.parquet").unlink()
    return shop.fails()


def restated_too_early(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    write_rows(shop.files / "2.parquet", (4, 2, 4))
    inject_barrier(shop.meta)
    return shop.fails("restate", "s", "--file", str(shop.files / "1.parquet"), "--pipeline", "shop")


def an_interval_left_out(shop: Shop) -> str:
    """A view over the rows until now(), and a run of the day after the next one."""
    rows = Scan("s", (0, 2), (FIELDS[0], FIELDS[2]))
    time = Call("SecondsToTimestamp", "timestamp", (Column(1, "int"),))
    a_taken_file(shop, view("v", TemporalFilter(rows, time, Comparison.LESS_OR_EQUAL, Column(0, "timestamp"), True)))
    assert shop.run("epoch", "--pipeline", "shop", "--interval", "2030-01-01", "2030-01-02")[0] == 0
    return shop.fails("epoch", "--pipeline", "shop", "--interval", "2030-01-03", "2030-01-04")


# --- rows of views ----------------------------------------------------------------------------------------------------


def a_row_of_a_file(shop: Shop) -> str:
    a_taken_file(shop, sums("s"))
    write_rows(shop.files / "it's 2.parquet", (4, 2, 4), BAD)
    return shop.fails()


def a_row_of_a_taken_file_in_a_new_view(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    write_rows(shop.files / "it's 2.parquet", BAD)
    shop.epoch()
    append(shop.meta, sums("s"))
    return shop.fails()


def restatable(shop: Shop, command: Sequence[str]) -> None:
    if command[0] == "restate":
        assert shop.run("barrier", "abandon", "--drop", "sums", "--pipeline", "shop")[0] == 0
        shop.epoch()
        write_rows(shop.files / "it's 2.parquet", (4, 2, 4))


def a_row_of_a_table(shop: Shop) -> str:
    append(shop.meta, table("t"), sums("t"))
    shop.epoch()
    insert(shop.meta, "t", BAD)
    return shop.fails()


def corrected_row(shop: Shop, command: Sequence[str]) -> None:
    if "--take-log" in command:
        insert(shop.meta, "t", (BAD[0], 1, 1))


def a_row_in_a_replacing_view(shop: Shop) -> str:
    append(shop.meta, table("t"), msgspec.structs.replace(view("sums", scan("t")), sql="SELECT k, g, a FROM t"))
    insert(shop.meta, "t", BAD)
    shop.epoch()
    append(shop.meta, replacing(sums("t")))
    return shop.fails()


def corrected_or_kept(shop: Shop, command: Sequence[str]) -> None:
    corrected_row(shop, command)


WIDE = (Field("k", "int"), Field("b", "bigint"))


def put(shop: Shop, *rows: tuple[int, int]) -> None:
    columns = {"k": pa.array([r[0] for r in rows], pa.int32()), "b": pa.array([r[1] for r in rows], pa.int64())}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    append(shop.meta, Insert("t", len(rows), shop.meta.put_payload(sink.getvalue().to_pybytes())))


def a_sum_that_overflows(shop: Shop) -> str:
    append(shop.meta, CreateTable("t", WIDE, (0,)), view("total", sum_of_a()))
    put(shop, (1, 5))
    shop.epoch()
    put(shop, (2, 2**63 - 1))
    return shop.fails()


def smaller(shop: Shop, command: Sequence[str]) -> None:
    if "--take-log" in command:
        put(shop, (2, 1))


def a_statement_that_raises(shop: Shop) -> str:
    append(shop.meta, table("t"))
    insert(shop.meta, "t", (1, 1, LARGEST))
    shop.epoch()
    more = Call("Add", "int", (Column(2, "int"), Literal(1, "int")), "ANSI")
    append(shop.meta, Update("t", ((2, more),), None))
    return shop.fails()


def statements_wait(shop: Shop) -> str:
    append(shop.meta, table("t"))
    shop.epoch()
    append(shop.meta, sums("t"))
    version = shop.meta.read_latest()
    waiting = WaitingLog(version, apply_statement(version.catalog, sums("t"), version.epoch + 1), 2, version.epoch + 1)
    with pytest.raises(WaitingStatementsError) as raised:
        waiting.require_readable(["sums"])
    shop.raised.append(raised.value)
    return address_commands(str(raised.value), pipeline="shop")


def a_view_that_waits(shop: Shop) -> str:
    append(shop.meta, table("t"))
    insert(shop.meta, "t", *GOOD)
    return shop.fails("read", "t", "--pipeline", "shop")


def a_view_that_is_not_published(shop: Shop) -> str:
    append(shop.meta, table("t"))
    assert shop.run("epoch", "--hold", "--pipeline", "shop")[0] == 0
    return shop.fails("read", "t", "--pipeline", "shop")


def is_read(shop: Shop) -> None:
    code, said = shop.run("read", "t", "--pipeline", "shop")
    assert code == 0, said


def without_its_suites(shop: Shop) -> str:
    toml = shop.home / "pipelines" / "shop" / "pipeline.toml"
    toml.write_text(f"{toml.read_text()}[quality]\n")
    append(shop.meta, table("t"))
    return shop.fails()


def with_suites(shop: Shop, command: Sequence[str]) -> None:
    (shop.home / "pipelines" / "shop" / "quality").mkdir()


# --- stores and pipelines ---------------------------------------------------------------------------------------------


def no_store(shop: Shop) -> str:
    shutil.rmtree(shop.store)
    return shop.fails("epoch", "--store", str(shop.store))


def never_applied(shop: Shop) -> str:
    shutil.rmtree(shop.store)
    return shop.fails("epoch", "--pipeline", "shop")


def has_store(shop: Shop) -> None:
    shop.epoch()


def no_pipeline(shop: Shop) -> str:
    shutil.rmtree(shop.home / "pipelines" / "shop")
    return shop.fails("plan", "sales")


def has_pipeline(shop: Shop) -> None:
    assert (shop.home / "pipelines" / "sales" / "pipeline.toml").is_file()


def unknown_pin(shop: Shop) -> str:
    shop.epoch()
    return shop.fails("pin", "remove", "nightly", "--pipeline", "shop")


def no_plan(shop: Shop) -> str:
    return shop.fails("apply", "shop", "--approved", "nonsense")


def another_plan(shop: Shop) -> str:
    code, _ = shop.run("plan", "shop", "--save", str(shop.home / "saved plan"))
    assert code == 0
    toml = shop.home / "pipelines" / "shop" / "pipeline.toml"
    toml.write_text(f'data = "elsewhere"\n{toml.read_text()}')
    return shop.fails("apply", "shop", "--approved", str(shop.home / "saved plan"))


def other_moves(shop: Shop) -> str:
    return shop.fails("rebalance", "--pipeline", "shop", "--units", "4", "--approved", "0" * 64)


def a_damaged_store(shop: Shop) -> str:
    append(shop.meta, table("t"))
    insert(shop.meta, "t", *GOOD)
    shop.epoch()
    (sst,) = [s for level in shop.meta.read_latest().levels for s in level]
    (found,) = [p for p in shop.store.rglob("*") if p.name in sst.name and p.is_file()]
    found.rename(shop.home / "moved away")
    (shop.home / "its place").write_text(str(found))
    return shop.fails("scrub", "--pipeline", "shop")


def restored(shop: Shop, command: Sequence[str]) -> None:
    (shop.home / "moved away").rename((shop.home / "its place").read_text())


def a_copied_store(shop: Shop) -> str:
    append(shop.meta, table("t"))
    home_of(shop.meta.objects)
    shutil.copytree(shop.store, shop.home / "the copy")
    with pytest.raises(CopiedStoreError) as raised:
        home_of(open_object_store(str(shop.home / "the copy")))
    shop.raised.append(raised.value)
    return address_commands(str(raised.value), pipeline="shop")


def has_home(shop: Shop) -> None:
    home_of(open_object_store(str(shop.home / "the copy")))
    shop.epoch()


def an_unpublished_epoch(shop: Shop) -> str:
    toml = shop.home / "pipelines" / "shop" / "pipeline.toml"
    toml.write_text(f'{toml.read_text()}[publish]\nto = "copies"\nkind = "parquet"\nrelations = ["t"]\n')
    append(shop.meta, table("t"))
    shop.epoch()
    insert(shop.meta, "t", *GOOD)
    assert shop.run("epoch", "--hold", "--pipeline", "shop")[0] == 0
    return shop.fails("publish", "shop", "--epoch", str(shop.meta.read_latest().epoch))


def is_copied(shop: Shop) -> None:
    code, said = shop.run("publish", "shop", "--epoch", str(shop.meta.read_latest().epoch))
    assert code == 0, said


def nothing_is_published(shop: Shop) -> str:
    append(shop.meta, table("t"))
    return shop.fails("verify", "--pipeline", "shop")


def a_branch_twice(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    assert shop.run("branch", "create", "shop", "pr-1")[0] == 0
    return shop.fails("branch", "create", "shop", "pr-1")


def an_ended_branch(shop: Shop) -> str:
    a_branch_twice(shop)
    assert shop.run("branch", "end", "shop", "pr-1")[0] == 0
    return shop.fails("epoch", "--pipeline", "shop", "--branch", "pr-1")


def a_view_that_both_changed(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    assert shop.run("branch", "create", "shop", "pr-1")[0] == 0
    for meta, width in ((shop.meta.branch("pr-1"), 2), (shop.meta, 1)):
        changed = Scan("s", tuple(range(width)), FIELDS[:width])
        append(meta, replacing(msgspec.structs.replace(view("v", changed), sql=f"of {width}")))
    assert shop.run("epoch", "--pipeline", "shop", "--branch", "pr-1")[0] == 0
    shop.epoch()
    return shop.fails("epoch", "--pipeline", "shop", "--branch", "pr-1")


def a_branch_that_is_behind(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    assert shop.run("branch", "create", "shop", "pr-1")[0] == 0
    write_rows(shop.files / "2.parquet", (4, 2, 4))
    shop.epoch()
    return shop.fails("branch", "merge", "shop", "pr-1", "--plan")


def another_merge_approved(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    assert shop.run("branch", "create", "shop", "pr-1")[0] == 0
    return shop.fails("branch", "merge", "--store", str(shop.store), "pr-1", "--approved", "x")


def a_branch_that_publishes(shop: Shop) -> str:
    a_taken_file(shop, copy_of(FIELDS))
    folder = shop.home / "pipelines" / "shop"
    (folder / "views.sql").write_text("")
    (folder / "pipeline.toml").write_text(f'{TOML}[publish]\nto = "{shop.home}/tables"\n')
    assert shop.run("branch", "create", "shop", "pr-1")[0] == 0
    return shop.fails("publish", "shop", "--branch", "pr-1")


def goes_on_with_its_branch(shop: Shop) -> None:
    goes_on(shop)
    code, said = shop.run("epoch", "--pipeline", "shop", "--branch", "pr-1")
    assert code == 0, said


SITUATIONS = (
    Situation(("BranchExistsError",), a_branch_twice, ("branch end",)),
    Situation(("BranchConflictError",), a_view_that_both_changed, ("branch end",)),
    Situation(("CannotMergeError",), a_branch_that_is_behind, ("epoch --branch",)),
    Situation(("NotApprovedError",), another_merge_approved, ("branch merge",)),
    Situation(("BranchWritesOutsideError",), a_branch_that_publishes, ("branch merge",)),
    Situation(("BranchGoneError",), an_ended_branch, ("branch create",), after=goes_on_with_its_branch),
    Situation(
        ("UnreadableFileError", "HeldSourcesError"),
        damaged_file,
        ("barrier abandon --skip-file", "barrier abandon --repin-file"),
        repaired,
    ),
    Situation(
        ("SchemaMismatchError",),
        other_columns,
        ("barrier abandon --skip-file", "barrier abandon --repin-file"),
        repaired,
    ),
    Situation(
        ("BadTextError",), text_not_utf8, ("barrier abandon --skip-file", "barrier abandon --repin-file"), rewritten
    ),
    Situation(
        ("BadChangeError",), null_in_a_key, ("barrier abandon --skip-file", "barrier abandon --repin-file"), repaired
    ),
    Situation(
        ("BadChangeError",),
        no_envelope,
        ("barrier abandon --skip-file", "barrier abandon --repin-file"),
        written_as_an_envelope,
    ),
    Situation(
        ("BadChangeError",),
        unknown_operation,
        ("barrier abandon --skip-file", "barrier abandon --repin-file"),
        written_with_an_operation,
    ),
    Situation(
        ("TooFineTimeError",), nanoseconds, ("barrier abandon --skip-file", "barrier abandon --repin-file"), rewritten
    ),
    Situation(("FileTooLargeError",), one_large_row, ("barrier abandon --skip-file",)),
    Situation(("ChangedFileError",), changed_after_it_was_taken, ("restate s --file", "barrier abandon --skip-file")),
    Situation(("IntervalsNotRunError",), an_interval_left_out, ("epoch --interval",)),
    Situation(("EpochUnderWayError",), restated_too_early, ("epoch",)),
    Situation(
        ("ViewRowError",),
        a_row_of_a_file,
        (
            "barrier abandon --skip-file",
            "barrier abandon --pause sums",
            "barrier abandon --drop sums",
        ),
    ),
    Situation(
        ("ViewRowError",),
        a_row_of_a_taken_file_in_a_new_view,
        ("barrier abandon --drop sums", "restate s --file"),
        restatable,
    ),
    Situation(
        ("ViewRowError",),
        a_row_of_a_table,
        (
            "barrier abandon --take-log",
            "barrier abandon --skip-entry",
            "barrier abandon --pause sums",
            "barrier abandon --drop sums",
        ),
        corrected_row,
    ),
    Situation(
        ("ViewRowError",),
        a_row_in_a_replacing_view,
        ("barrier abandon --take-log", "barrier abandon --skip-entry"),
        corrected_or_kept,
    ),
    Situation(
        ("ViewFailedError",),
        a_sum_that_overflows,
        (
            "barrier abandon --take-log",
            "barrier abandon --skip-entry",
            "barrier abandon --pause total",
            "barrier abandon --drop total",
        ),
        smaller,
    ),
    Situation(("StatementRowError",), a_statement_that_raises, ("barrier abandon --skip-entry",)),
    Situation(("WaitingStatementsError",), statements_wait, ("epoch",)),
    Situation(("NotThereYetError",), a_view_that_waits, ("epoch",)),
    Situation(("NotThereYetError",), a_view_that_is_not_published, ("epoch",), after=is_read),
    Situation(("PipelineError",), without_its_suites, ("epoch",), with_suites, is_read),
    Situation(("NotInitialisedError",), no_store, ("init",), after=has_store),
    Situation(("NeverAppliedError",), never_applied, ("apply shop",), after=has_store),
    Situation(("UnknownPipelineError",), no_pipeline, ("new sales",), after=has_pipeline),
    Situation(("NoSuchPinError",), unknown_pin, ("pin list",)),
    Situation(("NoApprovalError",), no_plan, ("plan shop", "plan shop --save")),
    Situation(("PlanOutdatedError",), another_plan, ("plan shop",)),
    Situation(("OtherMovesError",), other_moves, ("rebalance --plan",)),
    Situation(("CopiedStoreError",), a_copied_store, ("store moved --store", "store clone --store"), after=has_home),
    Situation(("NotPublishedError",), an_unpublished_epoch, ("epoch",), after=is_copied),
    Situation(("NothingToVerifyError",), nothing_is_published, ("epoch",)),
    Situation(("StoreDamagedError",), a_damaged_store, ("scrub",), restored),
)


@pytest.fixture
def new_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], Shop]:
    """Makes pipelines with empty stores, each in a new folder, and uses the newest one."""
    raised: list[BaseException | None] = []
    real = cli.to_run

    def noted(chosen: object, message: str) -> str:
        raised.append(sys.exception())
        return real(chosen, message)  # type: ignore[arg-type]

    monkeypatch.setattr(cli, "to_run", noted)
    monkeypatch.delenv("TUSSOCK_STORE", raising=False)

    def made() -> Shop:
        home = tmp_path / f"a shop {next(_ids)}"
        (home / "pipelines" / "shop").mkdir(parents=True)
        (home / "pipelines" / "shop" / "pipeline.toml").write_text(TOML)
        (home / "pipelines" / "shop" / "views.sql").write_text("")
        monkeypatch.setenv("TUSSOCK_PIPELINES", str(home / "pipelines"))
        monkeypatch.chdir(home)
        MetaStore.init(open_object_store(str(home / "the store")), units=1)
        return Shop(home, capsys, raised)

    return made


def kinds_of(shop: Shop) -> set[str]:
    """The classes of the raised error, and of the causes that its message contains."""
    kinds = {type(err).__name__ for err in shop.raised if err is not None}
    if kinds & {"NotInitialisedError", "NeverAppliedError", "UnknownPipelineError"}:
        return kinds
    return kinds | {hold.kind for r in shop.meta.read_latest().catalog.live_relations() for hold in r.holds}


def repeated_part(text: str, least: int = 40) -> str | None:
    """The first part of a text that occurs again, outside of commands. A command needs its path also after another."""
    plain = re.sub(r"`[^`]*`", "``", text)
    first: dict[str, int] = {}
    for at in range(len(plain) - least + 1):
        if at - first.setdefault(plain[at : at + least], at) >= least:
            return plain[at : at + least]
    return None


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.make.__name__)
def test_each_command_of_a_message_works_as_printed(situation: Situation, new_shop: Callable[[], Shop]) -> None:
    shop = new_shop()
    message = situation.make(shop)
    assert repeated_part(message.replace(str(shop.home), "HOME")) is None, message
    first = [*commands_in(message)]
    assert set(situation.kinds) <= kinds_of(shop)
    in_airflow = [command for command in commands_in(without_values(message)) if command[0] != "query"]
    assert in_airflow == [*dict.fromkeys(command for command in first if command[0] != "query")], "rows are hidden"
    shown = [" ".join(command) for command in first]
    assert len(shown) == len(situation.commands), shown
    for number, begins in enumerate(situation.commands):
        assert shown[number].startswith(begins)
        if number:
            shop = new_shop()
            command = [*commands_in(situation.make(shop))][number]
        else:
            command = first[0]
        situation.before(shop, command)
        code, said = shop.run(*command)
        assert code in (0, 2), f"{shlex.join(command)}: {said}"
        situation.after(shop)


ELSEWHERE = {
    **dict.fromkeys(
        ("BrokersDeniedError", "BrokersRefusedError", "BrokersUnavailableError"),
        ("needs a Kafka broker", "tests/deep/jobs/sinks/test_kafka_sink.py"),
    ),
    "LongTransactionError": ("needs a first load of minutes", "tests/unit/jobs/sinks/test_kafka_topics.py"),
    **dict.fromkeys(
        ("RegistryRefusedError", "RegistrySettingsError", "RegistryUnavailableError"),
        ("needs a schema registry", "tests/unit/jobs/sinks/test_kafka_avro.py"),
    ),
    **dict.fromkeys(
        ("LoggedValueError", "LostSlotError", "OmittedValueError", "OtherColumnsError", "UnloggedChangesError"),
        ("needs a Postgres server", "tests/unit/jobs/sources/test_postgres.py"),
    ),
    **dict.fromkeys(
        (
            "DependentViewsError",
            "PostgresBusyError",
            "PostgresDeniedError",
            "PostgresMissingError",
            "PostgresUnavailableError",
        ),
        ("needs a Postgres server", "tests/unit/jobs/sinks/test_postgres.py"),
    ),
    "CannotUndoError": ("needs two epochs", "tests/unit/jobs/driver/test_undo.py"),
    "UndoInputError": ("needs two epochs", "tests/unit/jobs/shell/test_undo_command.py"),
    "WhichSideError": ("needs two epochs", "tests/unit/jobs/shell/test_diff_command.py"),
    "FilesDifferError": ("`tussock apply` binds with Spark", "tests/spark/end_to_end/test_branch.py"),
    "AlreadyInitialisedError": ("the message asks for another place", "tests/unit/end_to_end/test_cli.py"),
    "BadRowError": (
        "Spark reads the format; the commands are UnreadableFileError's",
        "tests/spark/end_to_end/test_bad_input.py",
    ),
    "BeingBuiltError": ("only a large view is built over several epochs", "tests/unit/jobs/driver/test_builds.py"),
    "BuildFailedError": ("`tussock apply` binds with Spark", "tests/unit/jobs/driver/test_builds.py"),
    "CannotFollowError": ("`tussock apply` binds with Spark", "tests/spark/end_to_end/test_apply.py"),
    "PinnedReadError": ("needs a damaged table or store", "tests/unit/jobs/sources/test_delta.py"),
    "HeldViewsError": ("needs a rule on the arrival of files", "tests/unit/jobs/quality/test_arrival.py"),
    "DatabaseReadError": ("needs a database", "tests/spark/jobs/sources/test_jdbc.py"),
    "InheritedError": ("needs a process that forks", "tests/unit/jobs/forks/test_programs.py"),
    "KafkaNeedsSparkError": ("needs a Kafka broker and Spark", "tests/support/jobs/sources/kafka_alone.py"),
    "LegacyZoneError": (
        "Spark reads the file; the commands are those of UnreadableFileError",
        "tests/spark/jobs/sources/test_legacy_calendar.py",
    ),
    "LostOffsetsError": ("needs a Kafka broker and Spark", "tests/support/jobs/sources/kafka_alone.py"),
    "NeedsSparkError": ("the remedy starts Spark", "tests/spark/jobs/driver/test_runner.py"),
    "NoEpochYetError": (
        "needs a suite; the command is NothingToVerifyError's",
        "tests/spark/jobs/quality/test_suite_runs.py",
    ),
    "NoViewTestsError": ("`tussock test --make` binds with Spark", "tests/unit/jobs/viewtests/test_document.py"),
    "DuckZoneError": ("needs a release of DuckDB with other rules", "tests/unit/jobs/reading/test_duck_zones.py"),
    "OtherMappingError": ("needs two rebalances at once", "tests/unit/jobs/upkeep/test_rebalance.py"),
    "OverLimitError": ("`tussock plan` and `apply` bind with Spark", "tests/spark/end_to_end/test_bill.py"),
    "PausedViewError": ("`tussock apply --resume` binds with Spark", "tests/spark/exactly_once/test_pause.py"),
    "PausedViewsError": ("`tussock apply --resume` binds with Spark", "tests/spark/exactly_once/test_pause.py"),
    "QualityCheckError": ("needs a rule on the arrival of files", "tests/unit/jobs/quality/test_arrival.py"),
    "CreatedAgainError": (
        "needs a view that raises, and a second barrier",
        "tests/unit/jobs/trouble/test_created_again.py",
    ),
    "ReadEntryError": (
        "only statements that Spark evaluates read others",
        "tests/unit/end_to_end/test_transactions.py",
    ),
    "SkippedInputError": (
        "only statements that Spark evaluates read others",
        "tests/unit/end_to_end/test_transactions.py",
    ),
    "SourceTroubleError": (
        "an unforeseen error of a library; the commands are UnreadableFileError's",
        "tests/unit/jobs/sources/test_boundary.py",
    ),
    "WaitingStatementFailsError": ("needs Spark to read waiting rows", "tests/unit/end_to_end/test_transactions.py"),
    "ZoneRulesDifferError": (
        "`tussock apply` starts a Java with other rules",
        "tests/spark/end_to_end/test_zone_moves.py",
    ),
}
"""Classes whose message contains a command that does not run here: the reason, and the test of the situation."""

NOT_RUN = {
    "The remedy is another statement, or a value in it. The message shows the place": """
        AppendOnlyTableError BadTableKeyError BadInsertTextError BadKafkaColumnError BadOptionError
        NewColumnsError NoOtherStoreError NoPublishedRelationError OwnStoreError
        BadPathError IcebergRolledBackError MissingBranchError MissingIcebergTableError NoCatalogError
        CannotAlterError CannotAlterSourceError CannotPauseError CannotReplaceError CompactedTopicError
        CredentialInOptionError OutsideFileError
        DuckQueryError FedTableError FunctionChangedError FunctionInQueryError MissingDeltaTableError
        EmptyRangeError MissingOffsetsError MissingOptionError MissingTopicError NoFilesError NoRelationError
        NoStoredRowsError
        NullKeyError PartitionFoldersError RelationExistsError RelationInUseError ReservedNameError
        DefaultSchemaError SchemaExistsError SchemaNotEmptyError UnknownSchemaError
        SparkFailedError SqlError TextColumnsError TextTooLongError TooManyRowsError TransactionError
        UnpublishableValueError
        TwoRowsOfOneKeyError TwoSourceRowsError UndeclaredColumnsError UndrawnQueryError UnfitRowsError
        UnknownColumnError UnknownRelationError UnpublishableColumnError UnpublishableNameError
        UnreadableSchemaError UnsettledError
        UnsupportedExpressionError UnsupportedFileTypeError UnsupportedFormatError UnsupportedQueryError
        UnsupportedTypeError""",
    "The remedy is another argument of the command or call. The message lists the valid ones": """
        BranchedBranchError EpochMergedError FollowingBranchError OutsidePreviewsError
        UnknownRevisionError
        PublishedOptionsError UnknownSinkError UnreadableSinkError
        BackwardsError BadDurationError BadIntervalError BadLogLevelError BadMomentError BadObjectNameError
        BadPipelineNameError BadShareError BadStoreError BadTimeError CannotPreviewError CannotRestateError
        ConnectSessionError ContradictingOptionsError
        EpochExpiredError EpochNotCommittedError FrameOfAnEpochError NoDagFolderError NoFormError NoMomentError
        NoPipelineError BadSourceError ProjectError NoColumnsError NoSampleError
        NoSuchTableError NoSuchVersionError NothingToAbandonError OutdatedFrameError PinLapsedError
        PipelineThereError SettingError SuiteThereError TwoThreadsError UnfilteredChangesError
        UnknownEnvironmentError UnsearchableValueError UserFileError VnodeCountError WhichStoreError""",
    "The remedy is an edit of a file of the pipeline: pipeline.toml, a suite or a function": """
        KeylessTopicError EditedFileError NoSelectError NotTakenError PythonFileError QueryFunctionError
        RefusedDatasetError UnsupportedReadError
        BadTableLayoutError BadExchangeError BrokenPipelinesError FunctionCodeError FunctionResultError
        NeverPassedError NoDeltaReleaseError NoSuiteError OtherTimeZoneError
        ParentGoneError QualitySuiteError UnitsInFileError UnknownArrivalError UnknownMetricError UnknownPublishedError
        ViewTestError ViewTestThereError""",
    "The remedy is a repair of the source's files or tables, or creating the source again with its readers": """
        MissingTableError NoIdentityError TableOutsideError UndeclaredTableError UnreadableTableError
        BadFileNameError CsvHeaderError DeleteLimitError DeltaHistoryGoneError DeltaLogError
        TableColumnsChangedError TableReplacedError DuplicateKeyError MissingFilesError
        MissingPathError SourceContradictedError
        UnsupportedDeltaFeatureError
        IcebergHistoryGoneError IcebergMetadataError
        UnsupportedIcebergFeatureError
        OtherEpochExpiredError OtherStoreReplacedError UnskippableItemError""",
    "The machine, the network or the bucket is at fault": """
        CannotPinError CatalogAccessError CatalogAwayError SinksNotPublishedError
        DatabaseDeniedError DatabaseMissingError DatabaseRefusalError LogLevelError LoginDeniedError
        OpenTransactionsError
        SharedSlotError
        AccessDeniedError ClockSkewError ConditionalPutIgnoredError ExecutorLostError ExpiredCredentialsError
        KafkaDeniedError KafkaUnavailableError LocalDiskError NoExecutorsError ObjectStoreFullError
        ObjectStoreUnavailableError
        SlotsLostError PeerLostError PeerMissingError SourceAwayError SparkGoneError SparkJobError SparkStartError
        WorkerDiskFullError WorkerFailedError WorkerLostError""",
    "Something must be installed or configured": """
        MissingReferenceError UnreadableConnectionError
        KafkaOptionError MissingExtraError MissingSparkModuleError NeedsHadoopAwsError NoPipelinesFolderError
        NotInstalledError
        SparkReleaseError UnknownZoneError""",
    "The remedy is a copy of the damaged object": """
        BadDeltaError BrokenTableError DamagedDocumentError DamagedSstError LostCopyError MissingSstError
        ObjectNotFoundError ShortReadError""",
    "The folder of published tables belongs to another writer": """
        ForeignFileError ForeignTableError ForeignTopicError PostgresError SinkBusyError TablesNotPublishedError""",
    "Another process did the work or is doing it": """
        EpochMovedError LogMovedError LostRaceError TasksOpenError ZoneRecordedError""",
    "The remedy starts Spark, or clears a task of Airflow": """
        MissingRecordError SparkNeededError SparkWantedError""",
    "The run catches it, and supersedes its barrier": """
        OnlySparkReadsError""",
    "The publish catches it, and writes the table and its locator again": """
        LostRowError""",
    "A defect of Tussock, to be reported": """
        ChangeError KernelError KeyRangeError SparkTypeError TableSchemaError UnorderedRowsError
        WrongColumnsError WrongRowsError""",
    "A base class, or a fact that ViewRowError or ViewFailedError presents": """
        ActorError AggregateDivisionError AggregateError AggregateOverflowError BitmapPositionError
        ExpressionError FailedRow NegativeFrequencyError RaisedInSpark RowError SourceFileError
        VectorLengthError""",
}
"""Classes whose message contains no command of `tussock`, by the reason."""


AN_EXAMPLE = {"UnfilteredChangesError"}
"""Classes in NOT_RUN whose message shows the form of another command."""


def test_every_error_class_has_a_remedy_that_ran_or_a_reason() -> None:
    """A new class needs a situation if its message contains a command, else a reason."""
    ran = {kind for situation in SITUATIONS for kind in situation.kinds}
    reasons = [name for names in NOT_RUN.values() for name in names.split()]
    assert len(reasons) == len(set(reasons))
    classes = {error.name: error for error in errors_page.user_errors()}
    found = {"ran": ran, "elsewhere": set(ELSEWHERE), "reason": set(reasons)}
    assert len(ran) + len(ELSEWHERE) + len(reasons) == len(set().union(*found.values())), "a class has one place"
    assert set(classes) - set().union(*found.values()) == set(), "classes with neither"
    assert set().union(*found.values()) - set(classes) == set(), "classes that do not exist"
    printed = {name for name in reasons if any("`tussock " in message for message in classes[name].messages)}
    assert printed - AN_EXAMPLE == set(), "their messages contain a command, so it must run"
    for name, (_, test) in ELSEWHERE.items():
        assert (errors_page.ROOT / test).is_file(), name


def test_commands_of_messages_get_the_pipeline_or_the_store() -> None:
    said = "`tussock barrier abandon --skip-file '/a b`c'`, or `tussock apply PIPELINE --resume v`; `tussock new x`."
    assert address_commands(said) == said
    assert address_commands(said, pipeline="shop --env dev") == (
        "`tussock barrier abandon --skip-file '/a b`c' --pipeline shop --env dev`, "
        "or `tussock apply shop --env dev --resume v`; `tussock new x`."
    )
    assert address_commands(said, store="/my store") == said.replace("b`c'`", "b`c' --store '/my store'`")
    twice = address_commands("`tussock plan` and `tussock plan shop` and `tussock epoch --store /s`", pipeline="shop")
    assert twice == "`tussock plan shop` and `tussock plan shop` and `tussock epoch --store /s`"
    assert address_commands(twice, pipeline="shop") == twice
    named = "`tussock plan shop` and `tussock test shop --make v` and `tussock check v` and `tussock apply shop`"
    in_dev = address_commands(named, pipeline="shop --env dev")
    assert in_dev == named.replace("check v", "check shop v").replace("shop", "shop --env dev")
    assert address_commands(in_dev, pipeline="shop --env dev") == in_dev


def test_a_restatement_succeeds_although_another_source_is_held(new_shop: Callable[[], Shop]) -> None:
    """Its remedy, a corrected file, has worked; the command takes no new files."""
    shop = new_shop()
    a_taken_file(shop, copy_of(FIELDS))
    held = CreateSource("other", "parquet", FIELDS, {"path": str(shop.home / "absent"), "retain": "files"})
    append(shop.meta, held)
    assert "source 'other' is held" in shop.fails()
    write_rows(shop.files / "1.parquet", (7, 7, 7))
    code, said = shop.run("restate", "s", "--file", str(shop.files / "1.parquet"), "--pipeline", "shop")
    assert (code, "restated files of s" in said) == (0, True), said
    assert "source 'other' is held" in shop.fails(), "a run of new input says so"
    _, status = shop.run("status", "shop")
    assert "and left something undone:\n  source 'other' is held" in status, status


def test_the_next_step_of_a_changed_file_is_true_for_runs_of_other_intervals(new_shop: Callable[[], Shop]) -> None:
    shop = new_shop()
    a_taken_file(shop, copy_of(FIELDS))
    write_rows(shop.files / "1.parquet", (7, 7, 7))
    _, status = shop.run("status", "shop")
    text = " ".join(status.split())
    assert "A run of an interval checks only the files of its interval." in text, text
    assert "The next run holds the source" not in text
