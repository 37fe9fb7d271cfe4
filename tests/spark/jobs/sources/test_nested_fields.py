"""Fields of structs that a file lacks or has in another place, compared with Spark's read under the declared schema."""

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.support.jobs.sources.delta_by_hand import add, commit, features, table_of
from tests.support.jobs.sources.nested_fields import NULL, delta_rows, pinned_table
from tests.support.jobs.sources.pinned import pinned
from tests.support.jobs.sources.plain_texts import as_decided
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.session import Session
from tussock.jobs.sources.delta import DeltaTables
from tussock.jobs.sources.errors import SchemaMismatchError
from tussock.jobs.sources.parquet import ParquetFiles, Split, read_split
from tussock.statestore.types import arrow_type, type_name

#: Declared type: narrower types in a file.
LEAVES = {
    "int": (pa.int8(), pa.uint16()),
    "bigint": (pa.int32(), pa.uint32()),
    "double": (pa.float32(), pa.int32()),
    "string": (pa.large_string(), pa.binary()),
    "date": (),
    "boolean": (),
    "timestamp_ntz": (pa.timestamp("ms"), pa.date32()),
    "decimal(12,3)": (pa.decimal128(9, 1), pa.decimal128(12, 3)),
}
#: Types in a file that Spark cannot read as the declared one either.
OTHERS = {
    "int": pa.int64(),
    "bigint": pa.string(),
    "double": pa.string(),
    "string": pa.int32(),
    "date": pa.int64(),
    "boolean": pa.int32(),
}
WORDS = ("a", "Bc", "d e", "é", "f.g", "value", "metadata", "key", "element", "x`y", "array")


class Edits:
    """Draws declared types, and a file's types for them.

    `broken`: whether the last column has a type that cannot be read as another.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.broken = random.Random(seed), False

    def declared(self, depth: int) -> pa.DataType:
        draw = self.random.random()
        if depth == 0 or draw < 0.25:
            return arrow_type(self.random.choice(list(LEAVES)))
        if draw < 0.7:
            names = self.random.sample(WORDS, self.random.randint(1, 4))
            return pa.struct([pa.field(name, self.declared(depth - 1)) for name in names])
        if draw < 0.88:
            return pa.list_(self.declared(depth - 1))
        return pa.map_(arrow_type(self.random.choice(["int", "string"])), self.declared(depth - 1))

    def in_file(self, kind: pa.DataType, may_break: bool) -> pa.DataType:
        chance, inner = self.random.random, self.in_file
        if pa.types.is_struct(kind):
            kept = [f for f in kind if chance() > 0.2]
            fields = [pa.field(f.name.swapcase() if chance() < 0.2 else f.name, inner(f.type, may_break)) for f in kept]
            more = [f"n{i}" for i in range(self.random.choice((0, 0, 1, 2)) or not fields)]
            fields += [pa.field(name, self.declared(self.random.randint(0, 1))) for name in more]
            if chance() < 0.5:
                self.random.shuffle(fields)
            if may_break and chance() < 0.03 and fields[0].name.swapcase() != fields[0].name and fields[0] in kept:
                fields.append(pa.field(fields[0].name.swapcase(), pa.int32()))
                self.broken = True
            return pa.struct(fields)
        if pa.types.is_map(kind):
            return pa.map_(kind.key_type, inner(kind.item_type, may_break))
        if pa.types.is_list(kind):
            element = pa.field(
                self.random.choice(("item", "element", "array", "bag")), inner(kind.value_type, may_break)
            )
            return self.random.choice((pa.list_, pa.large_list))(element)
        name = type_name(kind)
        if may_break and chance() < 0.04 and name in OTHERS:
            self.broken = True
            return OTHERS[name]
        if name in ("int", "bigint", "double") and chance() < 0.08:
            return pa.null()  # for other types, only one of Spark's two readers reads such a column
        return self.random.choice((kind, *LEAVES[name])) if chance() < 0.4 else kind

    def value(self, kind: pa.DataType) -> Any:
        draw, types = self.random, pa.types
        if types.is_null(kind) or draw.random() < 0.15:
            return None
        if types.is_struct(kind):
            return {field.name: self.value(field.type) for field in kind}
        if types.is_map(kind):
            keys = draw.sample(range(9), draw.randint(0, 2))
            return [(k if types.is_integer(kind.key_type) else str(k), self.value(kind.item_type)) for k in keys]
        if types.is_list(kind) or types.is_large_list(kind):
            return [self.value(kind.value_type) for _ in range(draw.randint(0, 3))]
        made = {
            types.is_integer: lambda: draw.randint(0, 100),
            types.is_floating: lambda: draw.randint(-9, 9) / 4,
            types.is_boolean: lambda: draw.random() < 0.5,
            types.is_date: lambda: dt.date(2020, 1, draw.randint(1, 28)),
            types.is_timestamp: lambda: dt.datetime(2020, 1, 1, 2, 3, draw.randint(0, 59)),
            types.is_decimal: lambda: Decimal(draw.randint(-99, 99)) / 10,
            types.is_string: lambda: draw.choice(("", "x", "ß")),
            types.is_large_string: lambda: draw.choice(("", "x", "ß")),
            types.is_binary: lambda: draw.choice((b"", b"x", "ß".encode())),
        }
        return next(make for test, make in made.items() if test(kind))()


def sparks_own(spark: SparkSession, paths: Sequence[Path], fields: Sequence[Field]) -> pa.Table:
    declared = ", ".join(f"`{f.name}` {f.type}" for f in fields)
    return spark.read.schema(declared).parquet(*map(str, paths)).coalesce(1).toArrow()


def as_text(rows: pa.Table) -> list[str]:
    """The rows in a comparable form: field by field, with names."""
    return [repr(row) for row in rows.to_pylist()]


def drawn(seed: int, columns: int, rows: int, may_break: bool) -> tuple[list[Field], dict[str, tuple[pa.Array, bool]]]:
    """Declared columns; for each the column of a file, and whether Spark refuses it."""
    edits, fields, found = Edits(seed), list[Field](), dict[str, tuple[pa.Array, bool]]()
    for n in range(columns):
        declared = edits.declared(3)
        edits.broken = False
        kind = edits.in_file(declared, may_break)
        fields.append(Field(f"c{n}", type_name(declared)))
        found[f"c{n}"] = pa.array([edits.value(kind) for _ in range(rows)], kind), edits.broken
    return fields, found


def require_equal(spark: SparkSession, folder: Path, seed: int, columns: int) -> int:
    """Compare one file with Spark, column by column. Returns how many columns Spark refuses."""
    fields, found = drawn(seed, columns, 12, True)
    path, compliant = folder / f"{seed}.parquet", bool(seed % 2)
    pq.write_table(
        pa.table({name: array for name, (array, _) in found.items()}), path, use_compliant_nested_type=compliant
    )
    refused = []
    for n, field in enumerate(fields):
        try:
            read_split(Split(pinned(path)), (n,), fields, NULL)
        except SchemaMismatchError:
            refused.append(field)
    assert {f.name for f in refused} <= {name for name, (_, broken) in found.items() if broken}, f"seed {seed}"
    read = [n for n, field in enumerate(fields) if field not in refused]
    ours = read_split(Split(pinned(path)), read, fields, NULL).rows.drop_columns("_row_id")
    ours.validate(full=True)
    assert ours.schema.types == [arrow_type(fields[n].type) for n in read]
    assert as_text(ours) == as_text(sparks_own(spark, [path], [fields[n] for n in read])), f"seed {seed}"
    for field in refused:
        with pytest.raises(Py4JJavaError):
            sparks_own(spark, [path], [field])
    return len(refused)


@pytest.mark.spark
def test_random_edits_of_nested_columns_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    assert sum(require_equal(spark, tmp_path, seed, 24) for seed in (1, 2)) > 0


@pytest.mark.spark
@pytest.mark.deep
def test_many_random_edits_of_nested_columns(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(100, 140):
        require_equal(spark, tmp_path, seed, 40)
        require_delta_equal(spark, tmp_path, seed, 12)


def require_delta_equal(spark: SparkSession, folder: Path, seed: int, columns: int) -> None:
    """Compare a Delta table with Spark's read of its files, written before and after edits of the columns."""
    fields, before = drawn(seed, columns, 6, False)
    now = {
        field.name: pa.array([Edits(seed).value(arrow_type(field.type))] * 2, arrow_type(field.type))
        for field in fields
    }
    place = folder / f"delta {seed}"
    files = {
        "old.parquet": pa.table({name: array for name, (array, _) in before.items()}),
        "new.parquet": pa.table(now),
    }
    commit(
        place, 0, table_of([(field.name, field.type) for field in fields], features("timestampNtz")), *add(place, files)
    )
    ours = delta_rows(CreateSource("s", "delta", tuple(fields), {"path": str(place)}))
    theirs = sparks_own(spark, [place / name for name in files], fields)
    assert sorted(as_text(ours)) == sorted(as_text(theirs)), f"seed {seed}"
    by_spark = (
        DeltaTables()
        .by_spark(spark, *pinned_table(CreateSource("s", "delta", tuple(fields), {"path": str(place)})))
        .toArrow()
    )
    assert sorted(as_text(by_spark)) == sorted(as_text(theirs)), f"seed {seed}"


@pytest.mark.spark
def test_random_edits_of_a_delta_table_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    require_delta_equal(spark, tmp_path, 5, 16)


@pytest.mark.spark
def test_a_source_continues_if_its_table_gets_a_field_and_is_held_if_it_loses_one(tmp_path: Path) -> None:
    place = tmp_path / "t"

    def rows(**fields: Any) -> pa.Table:
        return pa.table({"id": [1], "st": pa.array([fields])})

    commit(place, 0, table_of([("id", "bigint"), ("st", "struct<x:bigint>")]), *add(place, {"0": rows(x=1)}))
    with Session(str(tmp_path / "store"), runner="local") as session:
        session.execute(
            f"CREATE SOURCE early USING delta OPTIONS (path '{place}'); "
            f"CREATE MATERIALIZED VIEW v AS SELECT * FROM early"
        )
        session.flush()
        commit(
            place,
            1,
            table_of([("id", "bigint"), ("st", "struct<y:string,x:bigint>")]),
            *add(place, {"1": rows(y="b", x=2)}),
        )
        session.execute(
            f"CREATE SOURCE late USING delta OPTIONS (path '{place}'); CREATE MATERIALIZED VIEW w AS SELECT * FROM late"
        )
        assert not session.flush().held
        assert sorted(session.read("v")["st"].to_pylist(), key=str) == [{"x": 1}, {"x": 2}]
        assert sorted(session.read("w")["st"].to_pylist(), key=str) == [{"y": "b", "x": 2}, {"y": None, "x": 1}]
        commit(place, 2, {"remove": {"path": "0", "dataChange": True, "partitionValues": {}, "size": 1}})
        assert not session.flush().held
        assert session.read("w")["st"].to_pylist() == [{"y": "b", "x": 2}]
        commit(place, 3, table_of([("id", "bigint"), ("st", "struct<x:bigint>")]))
        held = session.flush().held
        assert list(held) == ["late"]
        assert "version 3" in held["late"][0].reason
        assert "column 'st.y': found no such field (the struct has x), expected string" in held["late"][0].reason


@pytest.mark.spark
def test_column_mapping_reaches_the_fields_of_structs(tmp_path: Path) -> None:
    """A RENAME keeps the name in the files, which may be the name of another field."""

    def schema(*names: str) -> dict[str, Any]:
        stored = [
            {"name": n, "type": "long", "nullable": True, "metadata": _mapped(i, f"col-{i}")}
            for i, n in enumerate(names)
        ]
        inner = {"type": "array", "elementType": {"type": "struct", "fields": stored}, "containsNull": True}
        return {
            "type": "struct",
            "fields": [{"name": "s", "type": inner, "nullable": True, "metadata": _mapped(9, "col-s")}],
        }

    def rows(*values: int) -> pa.Table:
        return pa.table({"col-s": pa.array([[{f"col-{i}": value for i, value in enumerate(values)}]])})

    place, mapping = tmp_path / "t", {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    commit(place, 0, *table_of(schema("x"), protocol, mapping), *add(place, {"0": rows(1)}))
    commit(place, 1, *table_of(schema("y", "x"), None, mapping), *add(place, {"1": rows(2, 3)}))
    with Session(str(tmp_path / "store"), runner="local") as session:
        session.execute(
            f"CREATE SOURCE s USING delta OPTIONS (path '{place}'); CREATE MATERIALIZED VIEW v AS SELECT s[0] x FROM s"
        )
        assert not session.flush().held
        assert sorted(session.read("v")["x"].to_pylist(), key=str) == [{"y": 1, "x": None}, {"y": 2, "x": 3}]
        commit(place, 2, *table_of(schema("x", "y"), None, mapping))
        reason = session.flush().held["s"][0].reason
        assert "the column under another name in files" in reason


def _mapped(number: int, stored: str) -> dict[str, Any]:
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}


@pytest.mark.spark
def test_void_columns_of_a_delta_table_are_omitted_and_reported(tmp_path: Path) -> None:
    place = tmp_path / "t"
    schema = {"type": "struct", "fields": [_field("id", "long"), _field("v", "void")]}
    schema["fields"] += [_field("s", {"type": "struct", "fields": [_field("x", "long"), _field("w", "void")]})]
    commit(place, 0, *table_of(schema), *add(place, {"0": pa.table({"id": [1], "s": pa.array([{"x": 1}])})}))
    with Session(str(tmp_path / "store"), runner="local") as session:
        with pytest.warns(
            UserWarning, match=r"source 's' leaves out column '(v|s\.w)': its type void is not supported"
        ) as said:
            session.execute(
                f"CREATE SOURCE s USING delta OPTIONS (path '{place}'); CREATE MATERIALIZED VIEW v AS SELECT * FROM s"
            )
        assert len(said) == 2
        assert not session.flush().held
        assert session.read("v").to_pylist() == [{"id": 1, "s": {"x": 1}}]


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


#: Shapes of lists and maps that pyarrow does not write, made with Parquet's own library: the schema, and rows of
#: (field, value or fields).
SHAPES: dict[str, tuple[str, list[list[tuple[str, Any]]]]] = {
    "a map with optional keys": (
        "optional group m (MAP) { repeated group key_value { optional binary key (STRING); optional int32 value; } }",
        [[("m", [("key_value", [("key", "a"), ("value", 1)]), ("key_value", [("key", "b")])])], [], [("m", [])]],
    ),
    "such a map by its old annotation": (
        "optional group m (MAP_KEY_VALUE) { repeated group map { optional int32 key; required int32 value; } }",
        [[("m", [("map", [("key", 7), ("value", 1)])])], [], [("m", [])]],
    ),
    "such maps in a list in a struct": (
        "optional group s { optional group l (LIST) { repeated group list { optional group element "
        "(MAP) { repeated group key_value "
        "{ optional int32 key; optional group value { optional int32 x; } } } } } } required int32 n; "
        "optional group m (MAP) { repeated group key_value { required int32 key; "
        "optional group value (MAP) { repeated group key_value "
        "{ optional int32 key; optional int32 value; } } } }",
        [
            [
                (
                    "s",
                    [
                        (
                            "l",
                            [
                                ("list", [("element", [("key_value", [("key", 1), ("value", [("x", 2)])])])]),
                                ("list", []),
                            ],
                        )
                    ],
                ),
                ("n", 5),
                ("m", [("key_value", [("key", 3), ("value", [("key_value", [("key", 4), ("value", 6)])])])]),
            ],
            [("n", 6)],
        ],
    ),
    "a list of Hive": (
        "optional group l (LIST) { repeated group bag { optional int32 array_element; } }",
        [[("l", [("bag", [])])], []],
    ),
    "a list of two levels": (
        "optional group l (LIST) { repeated int32 element; }",
        [[("l", [("element", 1), ("element", 2)])], []],
    ),
    "a list of structs": (
        "optional group l (LIST) { repeated group array { required int32 x; } }",
        [[("l", [("array", [("x", 1)])])], []],
    ),
    "an element called element": (
        "optional group l (LIST) { repeated group element { required int32 element; } }",
        [[("l", [("element", [("element", 1)])])], []],
    ),
    "a repeated field": (
        "repeated int32 l; optional group s { repeated int32 k; }",
        [[("l", 1), ("l", 2), ("s", [("k", 3)])], []],
    ),
    "columns of NULL": ("optional int32 n (UNKNOWN); optional binary b (UNKNOWN);", [[], []]),
}


def write_shape(spark: SparkSession, path: Path, schema: str, rows: list[list[tuple[str, Any]]]) -> None:
    jvm = spark._jvm
    parsed = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(f"message m {{ {schema} }}")
    place = jvm.org.apache.hadoop.fs.Path(f"file://{path}")
    writer = jvm.org.apache.parquet.hadoop.example.ExampleParquetWriter.builder(place).withType(parsed).build()
    factory = jvm.org.apache.parquet.example.data.simple.SimpleGroupFactory(parsed)

    def fill(group: Any, fields: list[tuple[str, Any]]) -> None:
        for name, value in fields:
            if isinstance(value, list):
                fill(group.addGroup(name), value)
            else:
                group.append(name, value)

    for row in rows:
        fill(group := factory.newGroup(), row)
        writer.write(group)
    writer.close()


@pytest.mark.spark
def test_lists_and_maps_of_every_shape_are_found_and_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    for n, (name, (schema, rows)) in enumerate(SHAPES.items()):
        path = tmp_path / f"{n}.parquet"
        write_shape(spark, path, schema, rows)
        theirs = spark.read.parquet(str(path))
        source = CreateSource("s", "parquet", (), {"path": str(path)})
        fields = ParquetFiles().describe(source, lambda: spark)
        assert [(f.name, f.type) for f in fields] == theirs.dtypes, name
        source = msgspec.structs.replace(source, fields=fields)
        reason, ours = as_decided(spark, source, pinned(path))
        assert (reason == "the keys of a map are optional") == ("map" in name), name
        assert isinstance(ours, pa.Table), ours
        ours = ours.select(range(len(fields))).rename_columns([f.name for f in fields])
        ours.validate(full=True)
        assert as_text(ours) == as_text(theirs.toArrow()), name


@pytest.mark.spark
def test_a_key_that_is_null_is_an_error_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    schema, _ = SHAPES["a map with optional keys"]
    write_shape(spark, path := tmp_path / "x.parquet", schema, [[("m", [("key_value", [("value", 1)])])]])
    source = CreateSource("s", "parquet", (Field("m", "map<string,int>"),), {"path": str(path)})
    with pytest.raises(Py4JJavaError):
        as_decided(spark, source, pinned(path))
    with pytest.raises(Py4JJavaError):
        spark.read.parquet(str(path)).toArrow()
