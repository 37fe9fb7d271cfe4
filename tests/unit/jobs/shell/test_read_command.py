"""`tussock read`: a view's rows as text, CSV, JSON and Parquet, written without a JVM and read by other libraries."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.support.jobs.driver.embedded import append, epoch, open_store
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateTable
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import open_object_store

FIELDS = (
    Field("id", "bigint"),
    Field("name", "string"),
    Field("price", "decimal(6,2)"),
    Field("at", "timestamp"),
    Field("tags", "array<int>"),
)
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "name": ['a "b", c', None, "ä\n"],
        "price": pa.array(["1.50", "-0.01", None]).cast(pa.decimal128(6, 2)),
        "at": pa.array([0, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
        "tags": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    }
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tussock.jobs.session import Session

    folder = tmp_path_factory.mktemp("read") / "store"
    MetaStore.init(open_object_store(str(folder)), units=2)
    meta = open_store(folder, "maker")
    append(meta, CreateTable("orders", FIELDS, (0,)))
    meta.publish(epoch(meta).epoch)
    with Session(str(folder), create=False) as session:
        session.insert("orders", ROWS)
        session.flush()
    return str(folder)


def read(store: str, *more: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "tussock.jobs.cli", "read", "--store", store, *more], capture_output=True, timeout=60
    )
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done


def test_text_and_csv_are_read_back_as_the_rows_they_were(store: str) -> None:
    text = read(store, "orders", "--columns", "ID, price").stdout.decode().splitlines()
    assert text[0].split() == ["id", "price"]
    assert sorted(line.split() for line in text[1:]) == [["1", "1.50"], ["2", "-0.01"], ["3", "NULL"]]
    flat = ROWS.select(["id", "name", "price"])
    types = pyarrow.csv.ConvertOptions(
        column_types=flat.schema, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    answer = read(store, "orders", "--columns", "id,name,price", "--csv").stdout
    found = pyarrow.csv.read_csv(pa.BufferReader(answer), parse_options=parse, convert_options=types)
    assert found.sort_by("id").to_pylist() == flat.to_pylist()


def test_json_is_an_object_a_line(store: str) -> None:
    found = [json.loads(line) for line in read(store, "orders", "--json").stdout.decode().splitlines()]
    assert sorted(found, key=lambda row: int(row["id"])) == [
        {"id": 1, "name": 'a "b", c', "price": 1.5, "at": "1970-01-01 00:00:00+00", "tags": [1, None]},
        {"id": 2, "name": None, "price": -0.01, "at": "2023-11-14 22:13:20.123456+00", "tags": []},
        {"id": 3, "name": "ä\n", "price": None, "at": None, "tags": None},
    ]


def test_a_parquet_file_has_the_same_rows_and_is_written_atomically(store: str, tmp_path: Path) -> None:
    assert "3 rows in" in read(store, "orders", "--parquet", str(tmp_path / "orders.parquet")).stdout.decode()
    assert pq.read_table(tmp_path / "orders.parquet").sort_by("id").to_pylist() == ROWS.to_pylist()
    assert [path.name for path in tmp_path.iterdir()] == ["orders.parquet"]
    said = read(store, "orders", "--parquet", str(tmp_path / "nowhere" / "orders.parquet"), code=1).stderr.decode()
    assert "No such file or directory" in said


def test_arrays_are_json_in_csv_and_a_missing_view_is_an_error(store: str) -> None:
    found = read(store, "orders", "--columns", "id,tags", "--csv").stdout.decode().splitlines()
    assert [found[0], *sorted(found[1:])] == ['"id","tags"', '1,"[1,null]"', '2,"[]"', "3,"]
    assert "no relation 'order'; those that exist: orders" in read(store, "order", code=1).stderr.decode()


@pytest.mark.parametrize("command", ["read orders", "status"])
def test_a_process_that_answers_imports_neither_spark_nor_pandas(store: str, command: str) -> None:
    script = "import sys; from tussock.jobs import cli; cli.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, *command.split(), "--store", store], capture_output=True, text=True, timeout=60
    )
    rooms = {name.split(".")[0] for name in done.stderr.split()}
    assert rooms.isdisjoint({"pyspark", "py4j", "boto3"})
    assert not any(name.startswith("pandas.") for name in done.stderr.split())


def test_help_imports_nothing_that_takes_long() -> None:
    script = "import sys; from tussock.jobs import cli; cli.main(['--help'])"
    seen = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
    done = subprocess.run([sys.executable, "-c", seen + script], capture_output=True, text=True, timeout=60)
    assert "tussock" in done.stdout
    assert {name.split(".")[0] for name in done.stderr.split()}.isdisjoint(
        {"pyspark", "pyarrow", "numpy", "duckdb", "boto3", "pandas"}
    )
