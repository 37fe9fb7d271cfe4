"""Any error of a reader holds only its source: every format, every method, errors of every library. No Spark."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import py4j.protocol
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError
from pyspark.errors import AnalysisException, PySparkException

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.zone_rules import ruled_by_python
from tussock.jobs.barriers.source_holds import held_sources
from tussock.jobs.chunks.failure import SourceAwayError
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView
from tussock.jobs.settings.cause import cause_of, java_cause
from tussock.jobs.sinks.base import BrokenTableError
from tussock.jobs.sinks.delta_state import translating_errors
from tussock.jobs.sources.base import Division, PinRequest, Pins, Revision, SourceReader, TimeZones
from tussock.jobs.sources.boundary import BoundedReader, SourceTroubleError, errors_of_source
from tussock.jobs.sources.kafka_errors import KafkaUnavailableError
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.registry import READERS
from tussock.statestore.errors import DamagedError, InputError, MustStopError
from tussock.statestore.meta.errors import LostRaceError
from tussock.statestore.objectstore.base import ObjectStoreUnavailableError, ShortReadError
from tussock.statestore.objectstore.local import LocalObjectStore

FIELDS = (Field("id", "int"),)
OF_LIBRARIES: tuple[Exception, ...] = (
    ValueError("no such value"),
    KeyError("x"),
    IndexError("out of range"),
    OSError(5, "Input/output error"),
    UnicodeEncodeError("utf-8", "caf\udce9", 3, 4, "surrogates not allowed"),
    UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "invalid"),
    OverflowError("date value out of range"),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    ZeroDivisionError(),
    AssertionError(),
    NotImplementedError(),
    zlib.error("Error -3 while decompressing"),
    struct.error("unpack requires a buffer of 4 bytes"),
    msgspec.DecodeError("JSON is malformed"),
    msgspec.ValidationError("Expected `int`, got `str`"),
    pa.ArrowInvalid("Parquet magic bytes not found in footer"),
    pa.ArrowNotImplementedError("Support for codec 'lzo' not built"),
    pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"),
    DeltaError("Invalid JSON in log record"),
    DeltaProtocolError("The table has features that are not supported"),
    TableNotFoundError("no log files"),
    ClientError({"Error": {"Code": "500"}}, "GetObject"),
    py4j.protocol.Py4JError("An error occurred while calling o1.x"),
    AnalysisException("[PATH_NOT_FOUND] Path does not exist"),
    PySparkException("no message"),
    ShortReadError("file:///data", "f.parquet", 4, 100, 3),
)
METHODS = (
    "check",
    "describe",
    "pin",
    "waiting",
    "wants",
    "revise",
    "locate_input",
    "frame",
    "by_spark",
    "translate",
)


def source(name: str, format: str, path: object = "/nowhere") -> CreateSource:
    more = {"changes": "snapshot", "retain": "files"} if format == "jdbc" else {}  # it needs them
    return CreateSource(name, format, FIELDS, {"path": str(path)} | more)


def methods_of(reader: SourceReader) -> list[str]:
    return [method for method in METHODS if hasattr(reader, method)]


def raising(reader: SourceReader, error: Exception) -> SourceReader:
    """The reader behind the boundary; each of its methods raises."""

    def fail(*args: object, **named: object) -> None:
        raise error

    failing = {**dict.fromkeys(methods_of(reader), fail), "item_of": lambda self, part: "a file"}
    kind = type(f"Raising{type(reader).__name__}", (type(reader),), failing)
    return BoundedReader(kind())


RAW = msgspec.Raw(b"{}")
KEEPER = Keeper(LocalObjectStore(Path("/nowhere")), 1)


def call(reader: SourceReader, method: str, of: CreateSource) -> object:
    """Call a method of a reader with the source `of`, at its place among the arguments."""
    arguments = {
        "check": (of,),
        "describe": (of, None),
        "pin": (of, None, PinRequest(), KEEPER),
        "waiting": (of, None),
        "wants": (of, None, "x"),
        "revise": (of, None, Revision(Pins()), KEEPER),
        "locate_input": (of, RAW, KEEPER),
        "frame": (None, of, RAW, ()),
        "by_spark": (None, of, RAW),
        "translate": (ValueError(), of, RAW),
    }[method]
    return getattr(reader, method)(*arguments)


@pytest.mark.parametrize("format", READERS)
def test_every_error_of_every_method_becomes_one_of_the_source(format: str) -> None:
    for error in OF_LIBRARIES:
        for method in methods_of(READERS[format]):
            with pytest.raises(SourceTroubleError) as raised:
                call(raising(READERS[format], error), method, source("s", format))
            assert (raised.value.source, raised.value.format) == ("s", format)
            assert raised.value.path == ""
            assert "\n" not in str(raised.value)
            str(raised.value).encode()


@pytest.mark.parametrize("format", [format for format, reader in READERS.items() if reader.engine is not None])
def test_an_error_of_the_engine_becomes_one_of_the_source(format: str) -> None:
    reader = READERS[format]
    for error in OF_LIBRARIES:

        def fail(*args: object, error: Exception = error) -> None:
            raise error

        failing = {"read": fail, "divide": fail, "reasons_for_spark": fail, "item_of": lambda *_: "a file"}
        engine = type("RaisingEngine", (type(reader.engine),), failing)
        with_engine = type("WithEngine", (type(reader),), {})()
        with_engine.engine = engine.__new__(engine)  # without the arguments of some engines
        whole = BoundedReader(with_engine).engine
        assert whole is not None
        zones = TimeZones(ruled_by_python("UTC"), ruled_by_python)
        with pytest.raises(SourceTroubleError) as raised:
            whole.read(source("s", format), RAW, ())
        assert raised.value.path == "a file"
        with pytest.raises(SourceTroubleError):
            whole.divide(source("s", format), RAW, Division(1, zones))
        with pytest.raises(SourceTroubleError):
            whole.reasons_for_spark(source("s", format), RAW, zones)


def test_a_fault_of_a_library_in_rust_becomes_an_error_of_the_source_and_of_the_table(tmp_path: Path) -> None:
    """Such an error does not derive from Exception. The deltalake package raises one if it cannot write to a place."""
    with pytest.raises(BaseException, match="object store url") as panic:
        write_deltalake(str(tmp_path / "[x]"), pa.table({"k": [1]}))
    assert not isinstance(panic.value, Exception)
    with pytest.raises(SourceTroubleError, match="object store url"), errors_of_source(source("s", "delta")):
        raise panic.value
    with pytest.raises(BrokenTableError, match="object store url"), translating_errors("/x", "write"):
        raise panic.value
    with pytest.raises(KeyboardInterrupt), errors_of_source(source("s", "delta")):
        raise KeyboardInterrupt


def test_errors_about_the_source_and_of_newer_drivers_pass_as_they_are() -> None:
    for error in (InputError("x"), DamagedError("x"), MustStopError("x"), LostRaceError("a barrier", "x")):
        for method in methods_of(READERS["parquet"]):
            with pytest.raises(type(error)) as raised:
                call(raising(READERS["parquet"], error), method, source("s", "parquet"))
            assert raised.value is error


def test_a_server_that_is_away_is_named_as_the_sources_own_once_the_source_exists() -> None:
    for error in (
        ObjectStoreUnavailableError("s3://data", "list", "timed out"),
        KafkaUnavailableError("s", "b:9092", "timed out"),
    ):
        for method in methods_of(READERS["parquet"]):
            with pytest.raises(type(error) if method in ("check", "describe") else SourceAwayError, match="timed out"):
                call(raising(READERS["parquet"], error), method, source("s", "parquet"))


@pytest.mark.parametrize("format", READERS)
@pytest.mark.parametrize(
    "error",
    [ValueError("no such value"), ObjectStoreUnavailableError("s3://data", "list", "timed out")],
    ids=["bad", "away"],
)
def test_a_source_whose_listing_raises_is_held_and_the_others_continue(
    format: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = new_store(tmp_path / "store")
    for name in ("fine",):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / name / "1.parquet")
    append(meta, source("bad", format), source("fine", "parquet", tmp_path / "fine"))
    append(meta, CreateView("of_fine", "SELECT …", Scan("fine", (0,), FIELDS)))
    pin, waiting = type(READERS[format]).pin, type(READERS[format]).waiting

    def but_of_bad(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: object, of: CreateSource, *args: object) -> object:
            if of.name == "bad":
                raise error
            return method(self, of, *args)

        return call

    monkeypatch.setattr(type(READERS[format]), "pin", but_of_bad(pin))
    monkeypatch.setattr(type(READERS[format]), "waiting", but_of_bad(waiting))
    for _ in range(2):
        advance_store(LocalRunner(), meta)
        assert rows(meta, "of_fine") == [(1,)]
        assert list(held_sources(meta.read_latest().catalog)) == ["bad"]
    assert meta.open_barrier() is None


SPARK_TRACE = """\
An error occurred while calling o74.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, \
most recent failure: \
Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.2 executor driver): {0}

Driver stacktrace:
{1}"""


@pytest.mark.parametrize(
    ("inner", "causes", "said"),
    [
        (
            "java.io.IOException: gzip stream CRC failure",
            "Caused by: java.io.IOException: gzip stream CRC failure",
            "gzip stream CRC failure",
        ),
        ("java.io.IOException: gzip stream CRC failure\n\tat java.base/x", "", "gzip stream CRC failure"),
        (
            "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error.  SQLSTATE: KD001",
            "Caused by: org.apache.orc.protobuf.InvalidProtocolBufferException$InvalidWireTypeException: "
            "invalid wire type.\n\t... 24 more",
            "InvalidWireTypeException: invalid wire type",
        ),
        ("java.io.EOFException", "Caused by: java.io.EOFException", "EOFException"),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). …",
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly\nCaused by: "
            "java.io.IOException: bad header",
            "bad header",
        ),
    ],
)
def test_the_cause_of_an_error_of_sparks_is_its_innermost_message(inner: str, causes: str, said: str) -> None:
    assert java_cause(SPARK_TRACE.format(inner, causes)).rstrip(".") == said


def test_the_cause_of_an_error_is_one_line_that_is_never_empty() -> None:
    for error in OF_LIBRARIES:
        said = cause_of(error)
        assert said
        assert "\n" not in said
        said.encode()
