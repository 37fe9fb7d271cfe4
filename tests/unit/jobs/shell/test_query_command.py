"""`tussock query` and `tussock read` without a JVM: plain SELECTs, DuckDB's SQL, limits, conditions and forms."""

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, open_store
from tests.support.jobs.shell import query_command as shared
from tests.support.jobs.shell.query_command import lines
from tussock.jobs import cli
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.operations import tables
from tussock.jobs.reading import duck_query, stored_rows
from tussock.jobs.reading.plain_select import PlainSelect, plain_select
from tussock.jobs.session import Session
from tussock.jobs.shell import query_commands
from tussock.jobs.shell.prompt import Prompt, find_completions, typed_lines
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

store = shared.store
_UNPIVOTED = ["1 a 7", "1 b 8", "2 a 7", "2 b 8"]


@pytest.fixture
def run(store: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> "Run":
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])  # `read` hides pandas
    return Run(store, capfdbinary)


class Run:
    """Runs a command in this process."""

    def __init__(self, store: str, output: pytest.CaptureFixture[bytes]) -> None:
        self.store, self.output = store, output

    def __call__(self, command: str, *more: str, code: int = 0) -> str:
        """The lines on standard output, or the message of an error."""
        found = cli.main([command, "--store", self.store, *more])
        printed = self.output.readouterr()
        assert found == code, printed.err.decode()
        return (printed.out if code == 0 else printed.err).decode()

    def error(self) -> str:
        """What was printed to standard error since the last call."""
        return self.output.readouterr().err.decode()


def test_a_plain_select_and_one_of_duckdb_start_no_spark(run: Run) -> None:
    assert lines(run("query", "SELECT ID, shop FROM Orders;")) == ["1 7", "2 7", "3 NULL", "ID shop"]
    assert lines(run("query", "select count(*) from orders")) == ["3", "count(1)"]
    assert len(lines(run("query", "SELECT * FROM orders LIMIT 2"))) == 3
    assert len(lines(run("query", "SELECT * FROM orders", "--limit", "1"))) == 2
    joined = "FROM orders o JOIN Orders p ON o.shop = p.shop SELECT o.shop, sum(p.price) AS total GROUP BY ALL"
    assert lines(run("query", "--duckdb", joined)) == ["7 2.98", "Shop total"]


def test_an_unknown_column_of_a_published_copy_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": [1]})
    monkeypatch.setattr(tables, "read_published", lambda *_: nullcontext(rows.to_reader()))
    assert run("read", "orders", "--published", "lake", "--columns", "a").splitlines() == ["a", "1"]
    found = run("read", "orders", "--published", "lake", "--columns", "a,b", code=1)
    assert "'orders' has no column 'b'; its columns are a" in found


@pytest.mark.parametrize("number", ["0", "-3"])
def test_a_vacuum_keeps_at_least_one_epoch(run: Run, number: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["vacuum", "--store", run.store, "--dry-run", f"--keep-epochs={number}"])
    assert stopped.value.code == 2
    assert f"'{number}' is not a number of epochs: expected 1 or more" in run.error()


def test_options_that_exclude_each_other_are_refused(run: Run) -> None:
    found = run("query", "--duckdb", "--pending", "SELECT 1", code=1)
    assert "--duckdb and --pending exclude each other. Omit --duckdb" in found
    for option in (["--json"], ["--repair"], ["--epoch", "1"], ["--sample", "5"]):
        assert f"--published and {option[0]} exclude each other" in run("verify", "--published", *option, code=1)
    assert "--published and the name of a view exclude" in run("verify", "--published", "orders", code=1)
    for command in (["undo", "shop", "--to", "1"], ["status", "shop"], ["branch", "list", "shop"]):
        assert cli.main([*command, "--store", run.store]) == 1
        assert f"shop and --store {run.store} exclude each other. Name the store only once." in run.error()
        assert cli.main([*command, "--pipeline", "other"]) == 1
        assert "shop and --pipeline other exclude each other" in run.error()
    assert cli.main(["branch", "create", "shop", "b", "--store", run.store]) == 1
    assert "exclude each other" in run.error()


def test_instants_are_shown_in_the_time_zone_of_the_store(run: Run) -> None:
    expected = ["1970-01-01 01:00:00+01:00", "at"]
    assert lines(run("query", "--duckdb", 'SELECT "at" FROM orders WHERE id = 1')) == expected
    assert lines(run("query", "--duckdb", 'SELECT "at" FROM orders WHERE hour("at") = 1')) == expected


def test_the_forms_of_an_answer(run: Run, tmp_path: Path) -> None:
    ordered = "SELECT id, price FROM orders ORDER BY id DESC"
    assert run("query", "--duckdb", "--csv", ordered) == '"id","price"\n3,\n2,-0.01\n1,1.50\n'
    found = run("query", "--duckdb", "--json", "--limit", "1", ordered)
    assert [json.loads(line) for line in found.splitlines()] == [{"id": 3, "price": None}]
    file = tmp_path / "rows.parquet"
    assert run("query", "--duckdb", "--parquet", str(file), ordered) == f"3 rows in {file}\n"
    assert pq.read_table(file)["id"].to_pylist() == [3, 2, 1]


def test_a_parquet_file_replaces_neither_a_pipe_nor_a_link_nor_a_folder(run: Run, tmp_path: Path) -> None:
    """If root runs the command, /dev/null must stay a device."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        assert run("read", "orders", "--parquet", str(pipe)) == "", "standard output may be the pipe"
        assert pq.read_table(pa.BufferReader(reader.read())).num_rows == 3
    assert pipe.is_fifo()
    file.touch()
    link.symlink_to(file)
    assert run("read", "orders", "--parquet", str(link)) == f"3 rows in {link}\n"
    assert (link.is_symlink(), pq.read_table(file).num_rows) == (True, 3)
    (loop := tmp_path / "loop").symlink_to(loop)
    for other in (str(tmp_path), ".", "..", str(loop)):
        assert f"error: {other} cannot be written: " in run("read", "orders", "--parquet", other, code=1)
    assert sorted(tmp_path.iterdir()) == [file, link, loop, pipe]


def test_rows_are_read_by_a_condition_and_up_to_a_limit(run: Run) -> None:
    assert (
        run("read", "orders", "--duckdb", "--where", "price > 0 -- positive", "--columns", "id", "--csv") == '"id"\n1\n'
    )
    assert len(run("read", "orders", "--limit", "2", "--json").splitlines()) == 2
    assert lines(run("read", "ORDERS", "--duckdb", "--where", "id > 1 OR false", "--limit", "1", "--columns", "shop"))[
        1:
    ] == ["Shop"]
    message = run("read", "orders", "--where", "id = 1", "--since", "0", code=1)
    assert "--where reads rows, not changes" in message


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT o.shop, count(*) AS n FROM orders o JOIN Orders p USING (shop) GROUP BY ALL", ["7 4", "Shop n"]),
        ("SELECT count(*) AS n FROM main.orders NATURAL JOIN orders AS p", ["2", "n"]),
        ("SELECT id FROM orders WHERE (id, shop) IN (SELECT id, shop FROM orders)", ["1", "2", "id"]),
        ("SELECT o.id, p.id AS q FROM orders o ASOF JOIN orders p ON o.id > p.id ORDER BY ALL", ["2 1", "3 2", "id q"]),
        ("SELECT COLUMNS('^i') FROM orders WHERE id = 2", ["2", "id"]),
        ("UNPIVOT (SELECT id, shop AS a, shop + 1 AS b FROM orders) ON a, b", [*_UNPIVOTED, "id name value"]),
        ("WITH late AS (SELECT 1 AS id) SELECT shop FROM orders JOIN late USING (id)", ["7", "Shop"]),
        ("WITH orders AS (SELECT id FROM orders JOIN orders p USING (id)) FROM orders WHERE id < 2", ["1", "id"]),
        (
            "WITH a AS (FROM orders NATURAL JOIN orders p), orders AS (FROM a) SELECT id FROM ORDERS WHERE id < 2",
            ["1", "id"],
        ),
        ("WITH named AS (FROM o), o AS (SELECT id FROM orders JOIN orders p USING (id)) FROM o", ["1", "2", "3", "id"]),
        (
            "WITH RECURSIVE orders AS (SELECT id FROM orders JOIN orders p USING (id)"
            " UNION ALL SELECT id + 9 FROM orders WHERE id < 9) SELECT count(*) AS n FROM orders",
            ["6", "n"],
        ),
    ],
)
def test_duckdb_binds_names_to_the_columns_of_relations(sql: str, rows: list[str], run: Run) -> None:
    assert lines(run("query", "--duckdb", sql)) == rows


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT * FROM orders JOIN odrers USING (id)", "there is no relation 'odrers'.* Did you mean 'orders'"),
        ("SELECT nothing FROM orders", '"nothing" not found'),
        ("DELETE FROM orders", "found another statement"),
        ("SELECT 1; SELECT 2", "found another statement, or several"),
        ("SELECT * FROM '/etc/passwd'", "disabled|there is no relation"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
        ("WITH o AS (SELECT 1) SELECT * FROM o, odrers", "there is no relation 'odrers'.* Did you mean 'orders'"),
        ("SELECT * FROM late", "'late' is in the log, but not yet in epoch .*tussock epoch"),
        ("SELECT * FROM named", "names a query and has no stored rows"),
        ("SELECT 1 FROM orders WHERE 1 / 0 > id AND error('x')", "x"),
    ],
)
def test_what_duckdb_refuses_is_named(sql: str, says: str, run: Run) -> None:
    message = run("query", "--duckdb", sql, code=1)
    assert re.search(says, message), message
    assert "Traceback" not in message


def test_an_error_after_the_first_rows_is_that_of_the_scan_or_of_duckdb(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt survives it."""
    found = typed(store, "SELECT if(i = 3000000, error('late'), i) FROM range(4000000) t(i);\nSELECT 1 AS one;\n")
    assert "one" in found
    assert any(re.match("error: DuckDB cannot run this query: .*late", line) for line in found)

    def breaking(*_: object) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from [pa.record_batch({"id": np.arange(100_000)})] * 20
            raise MissingSstError("the store", "7.sst")

        return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())

    monkeypatch.setattr(duck_query, "rows_at", breaking)
    for query in ("SELECT id FROM orders", "SELECT sum(id) AS n FROM orders"):
        assert any(line.startswith("error: SST '7.sst' is not in") for line in typed(store, f"{query};\n")), query


def test_statements_of_standard_input_fail_with_an_exit_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, code, says in (
        ("SELECT 1;\n", 0, "1"),
        ("SELECT absent FROM orders;\nSELECT 1;\n", 1, ""),
        ("\\wrong\n", 1, ""),
        ("BEGIN;\nCOMMIT;\n", 0, "nothing to commit"),
        ("BEGIN;\n", 1, "its 0 statements were rolled back. Nothing was changed. Add COMMIT after them"),
        ("BEGIN;\n\\q\n", 1, "the statements end within a transaction"),
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert says in run("shell", "--duckdb", code=code), text


def test_a_person_who_leaves_within_a_transaction_is_told_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for last in ("\\q", None):
        answers = iter(["BEGIN;", last])

        def typing(_: str, answers: Iterator[str | None] = answers) -> str:
            if (line := next(answers)) is None:
                raise EOFError
            return line

        monkeypatch.setattr("builtins.input", typing)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        assert "the statements end within a transaction" in run("shell", code=1)


def test_a_limit_stops_the_scan(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def counted(rows: pa.Table) -> pa.Table:
        batches.append(rows.num_rows)
        return rows

    monkeypatch.setattr(stored_rows, "given_rows", counted)
    run("query", "--duckdb", "SELECT id FROM orders LIMIT 1")
    assert len(batches) <= 1


def typed(store: str, text: str) -> list[str]:
    """The lines that the prompt prints if DuckDB answers SELECT."""
    out, meta = io.StringIO(), open_store(Path(store))
    Prompt(meta, lambda: Session(store, create=False), out, duckdb=True).run(iter(text.splitlines(keepends=True)))
    return lines(out.getvalue())


def test_the_prompt_runs_statements_that_end_with_a_semicolon(store: str) -> None:
    assert typed(store, "SELECT id -- ;\nFROM orders\n WHERE shop = 7 AND 'a;' <> 'b';\n") == ["1", "2", "id"]
    assert typed(store, "VALUES (1); -- done\n(SELECT 2);\nFROM orders SELECT count(*) AS n") == [
        "1",
        "2",
        "2",
        "3",
        "col0",
        "n",
    ]
    assert typed(store, "\n;\n-- nothing\n") == []


def test_the_prompt_goes_on_after_an_error_and_ends_at_q(store: str) -> None:
    found = typed(store, "SELECT absent FROM orders;\n\\wrong\nSELECT 1 AS one;\n\\q\nSELECT 2 AS two;\n")
    assert [line for line in found if line.startswith("error: ")] == [
        'error: DuckDB cannot run this query: Binder Error: Referenced column "absent" not found in FROM clause!',
        "error: there is no command \\wrong",
    ]
    assert "one" in found
    assert "two" not in found


def test_the_prompt_lists_relations_and_columns_and_prints_times(store: str) -> None:
    assert any(line.startswith("orders table id bigint, Shop int") for line in typed(store, "\\d\n"))
    assert "price decimal(6,2)" in " ".join(typed(store, "\\d orders;\n"))
    timed = typed(store, "\\timing\nSELECT 1 AS one;\n")
    assert any(re.fullmatch(r"[\d,]+ ms", line) for line in timed)


def test_other_statements_run_in_one_session_of_spark_sql(store: str) -> None:
    found = typed(store, "BEGIN;\nCOMMIT;\nROLLBACK;\n")
    assert found == [
        "error: no transaction is open. Nothing was changed. Start one with BEGIN.",
        "nothing to commit",
        "transaction begun; COMMIT logs its statements as one entry",
    ]


def test_the_prompt_changes_who_answers_a_select(store: str) -> None:
    def spark() -> Session:
        raise InputError("Spark was started")

    out = io.StringIO()
    prompt = Prompt(open_store(Path(store)), spark, out)
    assert "Spark runs the statements" in prompt.banner
    prompt.run(iter(["SELECT 1 AS one;\n", "\\duckdb\n", "SELECT 2 AS two;\n", "\\duckdb\n", "SELECT 3 AS three;\n"]))
    answers = {"one", "two", "three", "error: Spark was started"}
    printed = [line for line in lines(out.getvalue()) if line in answers]
    assert printed == ["error: Spark was started", "error: Spark was started", "two"]


def test_typed_lines_are_kept_and_names_are_completed(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readline = pytest.importorskip("readline")
    answers = iter(["SELECT 1;"])

    def typing(_: str) -> str:
        if (line := next(answers, None)) is None:
            raise EOFError
        readline.add_history(line)
        return line

    monkeypatch.setattr("builtins.input", typing)
    prompt = Prompt(open_store(Path(store)), lambda: Session(store, create=False), io.StringIO())
    history = tmp_path / "state" / "history"
    typing_now = typed_lines(prompt.names, history)
    assert next(typing_now) == "SELECT 1;\n"
    complete = readline.get_completer()
    assert [complete("or", 0), complete("or", 1)] == ["orders", None]
    assert complete("SEL", 0) == "SELECT"
    assert list(typing_now) == []
    assert "SELECT 1;" in history.read_text()


def test_hidden_columns_of_a_source_are_listed_and_completed(tmp_path: Path) -> None:
    MetaStore.init(open_object_store(str(tmp_path)), units=1)
    meta = open_store(tmp_path, "maker")
    options = {"path": str(tmp_path / "in"), "may_be_missing": "true", "on_error": "quarantine"}
    append(meta, CreateSource("clicks", "parquet", (Field("id", "int"), Field("_Ingested_At", "int")), options))
    assert typed(str(tmp_path), "\\d clicks\n") == [
        "_Ingested_At int",
        "_metadata struct<file_path:string,file_name:string,file_size:bigint,file_block_start:bigint,"
        "file_block_length:bigint,file_modification_time:timestamp,row_index:bigint> hidden: SELECT * omits it",
        "column type note",
        "id int",
    ], "a declared column hides the hidden one of its name"
    assert not [line for line in typed(str(tmp_path), "SHOW COLUMNS FROM clicks;\n") if "_metadata" in line]
    names = Prompt(meta, lambda: Session(str(tmp_path), create=False), io.StringIO()).names()
    assert {"clicks", "clicks__rejects", "_metadata", "_metadata.row_index", "_ingested_at", "raw"} <= {*names}
    assert find_completions("_metadata.file_n", names) == ["_metadata.file_name"]
    assert find_completions("c._INGEST", names) == ["c._Ingested_At", "c._ingested_at"]
    assert find_completions("c._metadata.file_s", names) == ["c._metadata.file_size"]
    assert find_completions("sel", names) == ["SELECT"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id, shop FROM orders LIMIT 3", PlainSelect("orders", ("id", "shop"), False, 3)),
        ("SELECT * FROM ORDERS", PlainSelect("orders", None, False, None)),
        ("SELECT count(*) FROM orders LIMIT 1", PlainSelect("orders", None, True, None)),
        ("SELECT id, id FROM orders", None),
        ("SELECT id AS k FROM orders", None),
        ("SELECT id + 1 FROM orders", None),
        ("SELECT DISTINCT id FROM orders", None),
        ("SELECT 'id' FROM orders", None),
        ("SELECT absent FROM orders", None),
        ("SELECT * FROM orders WHERE id = 1", None),
        ("SELECT * FROM orders o", None),
        ("SELECT * FROM named", None),
        ("SELECT * FROM orders LIMIT 1 + 1", None),
        ("SELECT 1", None),
        ("SELECT true FROM words", None),
        ("SELECT id, NULL FROM words", None),
        ("SELECT * FROM orders; SELECT 1", None),
    ],
)
def test_only_selects_of_columns_are_plain(sql: str, expected: PlainSelect | None, store: str) -> None:
    assert plain_select(open_store(Path(store)).read_latest().catalog, sql) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [("paid", "((paid\n))"), ("(paid)", "((paid)\n)"), ("paid -- in full", "((paid -- in full\n))")],
)
def test_a_condition_of_one_column_is_no_name_of_the_relation(
    monkeypatch: pytest.MonkeyPatch, where: str, expected: str
) -> None:
    """Spark reads `FROM v WHERE (c)` as v by the name `WHERE`, and then chooses all rows."""
    asked: list[str] = []

    class Asked:
        def query(self, sql: str, *_: object, **__: object) -> None:
            asked.append(sql)

    monkeypatch.setattr(query_commands, "_open_session", lambda *_, **__: nullcontext(Asked()))
    monkeypatch.setattr(query_commands, "_keeps_little", lambda _: True)
    monkeypatch.setattr(query_commands, "_write_answer", lambda *_: None)
    chosen = argparse.Namespace(duckdb=False, relation="orders", where=where, at=None, epoch=None)
    query_commands._read_where(chosen, cast("Any", None), ["id"])
    assert asked == [f"SELECT `id` FROM `orders` WHERE {expected}"]
