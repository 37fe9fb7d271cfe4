"""Kinds of Postgres tables as sources: odd names and types, partitions, renames, and changes that a log does not show.

Each source either has the rows of its table, or is held, and its rows are right again after the printed remedy.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import psycopg
import pytest

from tests.support.jobs.driver.embedded import append, rows
from tests.support.jobs.sources.postgres_shop import Shop, commands_in, held_reason, reload
from tests.support.postgres import PostgresServer, password_set
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, SetSourceOptions
from tussock.jobs.sources.postgres_errors import (
    NoIdentityError,
    OtherColumnsError,
    UndeclaredTableError,
    UnreadableTableError,
)
from tussock.jobs.sources.registry import reader_of

ID, V = Field("id", "bigint"), Field("v", "string")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer("wal_level=logical\nmax_replication_slots=60\nmax_wal_senders=30\n") as server, password_set():
        yield server


@pytest.fixture
def shop(server: PostgresServer, tmp_path: Path) -> Shop:
    return Shop(server, tmp_path)


def describe(source: CreateSource) -> None:
    reader = reader_of(source)
    reader.check(source)
    reader.describe(source, lambda: pytest.fail("no Spark"))


def declaration_of(source: CreateSource) -> str:
    """The columns and the key that the message of a source without columns prints."""
    with pytest.raises(UndeclaredTableError) as raised:
        describe(msgspec.structs.replace(source, fields=(), keyed=None))
    return re.findall(r"CREATE SOURCE \S+ \((.*)\) USING", str(raised.value))[0]


def assert_rows(shop: Shop, source: str, query: str) -> None:
    """The rows of a source are those of a query, and it is not held."""
    shop.advance()
    assert shop.holds() == {}
    read, there = (
        sorted(tuple(map(comparable, row)) for row in own)
        for own in (rows(shop.meta, source), shop.server.read(shop.name, query))
    )
    assert read == there


def comparable(value: object) -> str:
    """A text that equal values share: NaN is equal to itself, and decimals may have any scale."""
    if isinstance(value, list):
        return f"[{', '.join(map(comparable, value))}]"
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) and value.tzinfo else repr(value)


def read_source(shop: Shop, fields: tuple[Field, ...], *key: int, **options: str) -> CreateSource:
    """A source `t` that has been read once."""
    source = shop.source("t", fields, *key, **options)
    describe(source)
    append(shop.meta, source)
    shop.advance()
    return source


def set_options(shop: Shop, source: CreateSource, **options: str) -> None:
    append(shop.meta, SetSourceOptions(source.name, source.options, source.options | options))


# --- names ------------------------------------------------------------------------------------------------------------

ODD_NAMES = [
    ('"order"."select"', "order.select"),
    ('"Größen"."a b"', "Größen.a b"),
    ('public."dots.in.it"', 'public."dots.in.it"'),
    ('"s.1"."say ""hi"""', '"s.1"."say ""hi"""'),
    ('public."it\'s `a` \\ %s {} name"', 'public."it\'s `a` \\ %s {} name"'),
]


@pytest.mark.parametrize(("table", "option"), ODD_NAMES)
def test_any_name_of_a_table_and_its_columns_can_be_read(shop: Shop, table: str, option: str) -> None:
    names = ("id", 'say "hi"', "sel.ect", "Größe", "%s {}", "a`b")
    columns = ", ".join('"' + name.replace('"', '""') + '" text' for name in names)
    schema = re.findall(r'"(?:[^"]|"")+"|\w+', table)[0]
    shop.run(
        f"CREATE SCHEMA IF NOT EXISTS {schema}",
        f"CREATE TABLE {table} ({columns}, PRIMARY KEY (id))",
        f"INSERT INTO {table} VALUES ('1', '2', '3', '4', '5', '6')",
    )
    fields = tuple(Field(name, "string") for name in names)
    declared = ", ".join(f"`{name.replace('`', '``')}` string" if name != "id" else "id string" for name in names)
    source = shop.source("t", fields, 0, table=option)
    assert declaration_of(source) == f"{declared}, PRIMARY KEY (id)"
    read_source(shop, fields, 0, table=option)
    assert_rows(shop, "t", f"SELECT * FROM {table}")
    shop.run(f"INSERT INTO {table} SELECT '2', '3', '4', '5', '6', '7'", f"DELETE FROM {table} WHERE id = '1'")
    assert_rows(shop, "t", f"SELECT * FROM {table}")
    shop.run(f"ALTER TABLE {table} DROP CONSTRAINT {constraint_of(shop, table)}")
    with pytest.raises(NoIdentityError) as raised:
        describe(source)
    shop.run(*commands_in_quotes(str(raised.value)))
    describe(source)


def constraint_of(shop: Shop, table: str) -> str:
    quoted = table.replace("'", "''")
    query = f"SELECT quote_ident(conname) FROM pg_constraint WHERE conrelid = '{quoted}'::regclass AND contype = 'p'"
    return str(shop.server.read(shop.name, query)[0][0])


def commands_in_quotes(text: str) -> list[str]:
    """The commands that a message prints, of which one may contain backticks."""
    return re.findall(r"`(ALTER TABLE .*? REPLICA IDENTITY FULL)`", text)


@pytest.mark.parametrize("name", ["before", "z_after"])  # the old one, in the order of names
def test_a_table_keeps_its_changes_while_it_has_another_name(shop: Shop, name: str) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    source = read_source(shop, (ID, V), 0)
    shop.run("ALTER TABLE t RENAME TO other", "UPDATE other SET v = 'c' WHERE id = 1", "ALTER TABLE other RENAME TO t")
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.run(f"ALTER TABLE t RENAME TO {name}", f"DELETE FROM {name} WHERE id = 2")
    assert "has no table public.t" in held_reason(shop, "t")
    set_options(shop, source, table=f"public.{name}")
    assert_rows(shop, "t", f"SELECT * FROM {name}")


# --- types ------------------------------------------------------------------------------------------------------------

TYPES = {
    "smallint": ("smallint", ["-32768", "7"]),
    "integer": ("int", ["2147483647"]),
    "bigint": ("bigint", ["-9223372036854775808"]),
    "real": ("float", ["'NaN'", "'-Infinity'", "1e-40", "'-0'", "0.1"]),
    "double precision": ("double", ["'NaN'", "'Infinity'", "1e-300", "0.1"]),
    "numeric(12,3)": ("decimal(12,3)", ["123456789.123", "-0.001"]),
    "numeric(38,0)": ("decimal(38,0)", ["99999999999999999999999999999999999999"]),
    "numeric": ("decimal(38,9)", ["1.5", "12345678901234567890123456789.000000001"]),
    "numeric(3,-2)": ("string", ["12300"]),
    "numeric(3,5)": ("string", ["0.00123"]),
    "numeric(50,2)": ("string", ["123456789012345678901234567890123456789012345678.12"]),
    "boolean": ("boolean", ["true", "false"]),
    "date": ("date", ["'0001-01-01'", "'9999-12-31'", "'2024-02-29'"]),
    "timestamp": ("timestamp_ntz", ["'0001-01-01'", "'9999-12-31 23:59:59.999999'"]),
    "timestamptz": ("timestamp", ["'1900-01-01 00:00:00+00'", "'2024-10-27 02:30:00.000001+02'"]),
    "bytea": ("binary", ["''", r"'\x00ff7f5c'"]),
    "text": ("string", ["''", r"'\N'", "E'a\\nb,\"c\"\\t\\\\'", "'NULL'"]),
    "varchar(5)": ("string", ["'ab'"]),
    "char(4)": ("string", ["'ab'"]),
    "name": ("string", ["'n'"]),
    "uuid": ("string", ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"]),
    "json": ("string", ["""'{"a": [1, "ä"],  "b": null}'"""]),
    "jsonb": ("string", ["""'{"b": 1.50, "a": {}}'"""]),
    "integer[]": ("array<int>", ["'{1,NULL,3}'", "'{}'", "'[0:1]={5,-6}'"]),
    "text[]": ("array<string>", ["ARRAY['a,b', '\"', NULL, '', 'NULL', E'\\\\ {\\n}']", "'{}'"]),
    "numeric(10,2)[]": ("array<decimal(10,2)>", ["'{1.5,NULL}'"]),
    "double precision[]": ("array<double>", ["'{Infinity,1e-300}'"]),
    "boolean[]": ("array<boolean>", ["'{t,f,NULL}'"]),
    "bytea[]": ("array<binary>", [r"ARRAY['\x00ff'::bytea, '']"]),
    "timestamptz[]": ("array<timestamp>", ["ARRAY['2024-10-27 02:30:00+02'::timestamptz]"]),
    "uuid[]": ("array<string>", ["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"]),
    "numbers": ("array<int>", ["'{1,2}'"]),
    "int2vector": ("string", ["'1 2'"]),
    "box[]": ("string", ["'{(1,1),(0,0);(3,3),(2,2)}'"]),
    "inet": ("string", ["'10.0.0.0/8'", "'::1'"]),
    "cidr": ("string", ["'10.0.0.0/8'"]),
    "macaddr": ("string", ["'08:00:2b:01:02:03'"]),
    "interval": ("string", ["'1 year 2 days 03:04:05.6'"]),
    "time": ("string", ["'24:00:00'", "'01:02:03.4'"]),
    "timetz": ("string", ["'01:02:03+05:30'"]),
    "int4range": ("string", ["'[1,5)'", "'empty'"]),
    "tstzrange": ("string", ["'[2024-01-01 00:00+00, infinity]'"]),
    "point": ("string", ["'(1,2.5)'"]),
    "bit varying": ("string", ["B'101'"]),
    "xml": ("string", ["'<a/>'"]),
    "tsvector": ("string", ["'a fat cat'"]),
    "mood": ("string", ["'so so'"]),
    "pair": ("string", ["ROW(1, 'x,y')"]),
    "positive": ("bigint", ["5"]),
    "cents": ("decimal(10,2)", ["1.25"]),
    "nested_domain": ("bigint", ["6"]),
    "oid": ("bigint", ["4294967295"]),
}
SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'so so')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN positive AS bigint CHECK (VALUE > 0)",
    "CREATE DOMAIN numbers AS integer[]",
    "CREATE DOMAIN cents AS numeric(10,2)",
    "CREATE DOMAIN nested_domain AS positive CHECK (VALUE > 5)",
)


def test_every_type_has_the_values_of_the_server(shop: Shop) -> None:
    """The printed declaration is the one of this table; values are those that psycopg reads, or the server's texts."""
    shop.run(*SETUP)
    columns = [f"c{place}" for place in range(len(TYPES))]
    kinds = ", ".join(f"{name} {kind}" for name, kind in zip(columns, TYPES, strict=True))
    shop.run(f"CREATE TABLE t (id bigint PRIMARY KEY, {kinds})")
    expected = ", ".join(f"{name} {declared}" for name, (declared, _) in zip(columns, TYPES.values(), strict=True))
    declared = declaration_of(shop.source("t", (ID,), 0))
    assert declared == f"id bigint, {expected}, PRIMARY KEY (id)"

    def insert(first: int) -> None:
        count = max(len(values) for _, values in TYPES.values())
        for number in range(count + 1):
            own = [values[number] if number < len(values) else "NULL" for _, values in TYPES.values()]
            shop.run(f"INSERT INTO t VALUES ({first + number}, {', '.join(own)})".replace("%", "%%"))

    insert(1)
    fields = (ID, *(Field(n, declared) for n, (declared, _) in zip(columns, TYPES.values(), strict=True)))
    read_source(shop, fields, 0)
    shown = {
        "string": "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END",
        "array<string>": "{0}::text[]",
        "float": "{0}::float8",
    }
    as_texts = [
        shown.get(declared, "{0}").format(name) for name, (declared, _) in zip(columns, TYPES.values(), strict=True)
    ]
    query = f"SELECT id, {', '.join(as_texts)} FROM t"
    set_like_the_reader = "SET intervalstyle = 'iso_8601'"
    shop.server.execute("postgres", f"ALTER DATABASE {shop.name} {set_like_the_reader}")
    assert_rows(shop, "t", query)
    insert(100)  # the same values by the log
    shop.run("UPDATE t SET c0 = 1")
    assert_rows(shop, "t", query)


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        ("numeric", "decimal(38,9)", "'NaN'"),
        ("numeric", "decimal(38,9)", "0.1234567891"),
        ("numeric", "decimal(10,2)", "1.005"),
        ("numeric", "decimal(10,2)", "1234567890"),
        ("date", "date", "'infinity'"),
        ("date", "date", "'0044-03-15 BC'"),
        ("timestamp", "timestamp_ntz", "'-infinity'"),
        ("timestamptz", "timestamp", "'infinity'"),
        ("integer[]", "array<int>", "'{{1,2},{3,4}}'"),
        ("date[]", "array<date>", "'{2024-01-01,infinity}'"),
    ],
)
@pytest.mark.parametrize("at_first", [True, False])
def test_a_value_without_a_form_in_spark_is_never_another_value(
    shop: Shop, kind: str, declared: str, value: str, at_first: bool
) -> None:
    shop.run(f"CREATE TABLE t (id bigint PRIMARY KEY, v {kind})")
    row = f"INSERT INTO t VALUES (1, {value})"
    if at_first:
        shop.run(row)
    read_source(shop, (ID, Field("v", declared)), 0)
    if not at_first:
        shop.run(row)
    reason = held_reason(shop, "t")
    assert "column 'v'" in reason
    shop.run("UPDATE t SET v = NULL")
    reload(shop, commands_in(reason)[0])
    assert_rows(shop, "t", "SELECT * FROM t")


# --- kinds of tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "finding"),
    [
        (["CREATE VIEW t AS SELECT 1::bigint AS id"], "is a view"),
        (["CREATE MATERIALIZED VIEW t AS SELECT 1::bigint AS id"], "is a materialized view"),
        (["CREATE UNLOGGED TABLE t (id bigint PRIMARY KEY)"], "is unlogged"),
        (["CREATE TABLE t (id bigint PRIMARY KEY)", "CREATE TABLE child (more int) INHERITS (t)"], "INHERITS"),
        (["CREATE SEQUENCE t"], "is a sequence"),
    ],
)
def test_a_relation_without_a_whole_log_is_refused(shop: Shop, statements: list[str], finding: str) -> None:
    shop.run(*statements)
    with pytest.raises(UnreadableTableError, match=finding):
        describe(shop.source("t", (ID,), 0))


def test_a_child_table_that_comes_later_holds_its_parent(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY)")
    read_source(shop, (ID,), 0)
    shop.run("CREATE TABLE child () INHERITS (t)", "INSERT INTO child VALUES (5)")
    assert "INHERITS" in held_reason(shop, "t")
    shop.run("DROP TABLE child")
    assert_rows(shop, "t", "SELECT * FROM t")


def test_a_generated_column_is_named_as_such(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, v text, double text GENERATED ALWAYS AS (v || v) STORED)")
    assert declaration_of(shop.source("t", (ID,), 0)) == "id bigint, v string, PRIMARY KEY (id)"
    with pytest.raises(OtherColumnsError, match="column 'double' is generated"):
        describe(shop.source("t", (ID, Field("double", "string")), 0))


def test_a_key_with_included_columns_is_the_key(shop: Shop) -> None:
    shop.run("CREATE TABLE t (v text, id bigint, PRIMARY KEY (id) INCLUDE (v))", "INSERT INTO t VALUES ('a', 1)")
    assert declaration_of(shop.source("t", (ID,), 0)).endswith("PRIMARY KEY (id)")
    read_source(shop, (ID, V), 0)
    shop.run("UPDATE t SET v = 'b'", "UPDATE t SET id = 2")
    assert_rows(shop, "t", "SELECT id, v FROM t")


def test_rows_that_a_policy_hides_are_not_left_out_silently(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY a_few ON t USING (id = 1)",
        "DROP ROLE IF EXISTS limited",
        "CREATE ROLE limited LOGIN REPLICATION PASSWORD 'secret'",
        "GRANT SELECT ON t TO limited",
        f"CREATE PUBLICATION {shop.slot} FOR TABLE t",
    )
    read_source(shop, (ID, V), 0, user="limited")
    reason = held_reason(shop, "t")
    (command,) = [one for one in commands_in(reason) if "BYPASSRLS" in one]
    shop.run(command)
    assert_rows(shop, "t", "SELECT * FROM t")


# --- the identity of changed rows -------------------------------------------------------------------------------------


def test_another_replica_identity_holds_the_source(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text NOT NULL)",
        "CREATE UNIQUE INDEX by_v ON t (v)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    read_source(shop, (ID, V), 0)
    shop.run("ALTER TABLE t REPLICA IDENTITY USING INDEX by_v", "DELETE FROM t WHERE id = 1")
    reason = held_reason(shop, "t")
    assert "changes name v" in reason
    *identity, again = commands_in(reason)
    shop.run(*identity)
    reload(shop, again)
    assert_rows(shop, "t", "SELECT * FROM t")


def test_a_replica_identity_that_was_another_one_for_a_time_holds_the_source(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text NOT NULL)",
        "CREATE UNIQUE INDEX by_v ON t (v)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    read_source(shop, (ID, V), 0)
    shop.run(
        "ALTER TABLE t REPLICA IDENTITY USING INDEX by_v",
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t REPLICA IDENTITY DEFAULT",
    )
    reload(shop, commands_in(held_reason(shop, "t"))[-1])
    assert_rows(shop, "t", "SELECT * FROM t")


def test_another_primary_key_with_all_old_values_is_no_trouble(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, v text NOT NULL)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    read_source(shop, (ID, V), 0)
    shop.run(
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)",
        "UPDATE t SET v = 'c' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    assert_rows(shop, "t", "SELECT * FROM t")


# --- the publication --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        ["ALTER PUBLICATION {slot} DROP TABLE t", "DELETE FROM t WHERE id = 1", "ALTER PUBLICATION {slot} ADD TABLE t"],
        ["DROP PUBLICATION {slot}", "DELETE FROM t WHERE id = 1", "CREATE PUBLICATION {slot} FOR TABLE t"],
        [
            "ALTER PUBLICATION {slot} SET (publish = 'insert')",
            "DELETE FROM t WHERE id = 1",
            "ALTER PUBLICATION {slot} SET (publish = 'insert, update, delete, truncate')",
        ],
        [
            "ALTER PUBLICATION {slot} SET TABLE t WHERE (id > 1)",
            "DELETE FROM t WHERE id = 1",
            "ALTER PUBLICATION {slot} SET TABLE t",
        ],
    ],
)
def test_a_publication_that_omitted_changes_for_a_time_holds_the_source(shop: Shop, change: list[str]) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    read_source(shop, (ID, V), 0)
    for statement in change:
        shop.run(statement.format(slot=shop.slot))
    reload(shop, commands_in(held_reason(shop, "t"))[0])
    assert_rows(shop, "t", "SELECT * FROM t")


def test_a_publication_of_some_columns_is_refused_before_the_first_snapshot(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)", f"CREATE PUBLICATION {shop.slot} FOR TABLE t (id)")
    read_source(shop, (ID, V), 0)
    reason = held_reason(shop, "t")
    assert "omits column 'v'" in reason
    shop.run(*commands_in(reason))
    shop.run("INSERT INTO t VALUES (1, 'a')")
    assert_rows(shop, "t", "SELECT * FROM t")


@pytest.mark.parametrize("scope", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA public", "FOR TABLE t, orders"])
def test_every_scope_of_a_publication_is_read(shop: Shop, scope: str) -> None:
    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)", f"CREATE PUBLICATION p {scope}")
    read_source(shop, (ID, V), 0, publication="p")
    shop.run("INSERT INTO t VALUES (1, 'a')", "CREATE TABLE another (id bigint PRIMARY KEY)")
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.run("TRUNCATE t, another", "INSERT INTO t VALUES (2, 'a')")
    assert_rows(shop, "t", "SELECT * FROM t")


# --- partitions -------------------------------------------------------------------------------------------------------

PARTITIONED = (
    "CREATE TABLE t (id bigint, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
    "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
    "INSERT INTO t VALUES (1, 'a'), (11, 'b')",
)


@pytest.fixture
def partitioned(shop: Shop) -> Shop:
    shop.run(*PARTITIONED)
    read_source(shop, (ID, V), 0)
    assert_rows(shop, "t", "SELECT * FROM t")
    return shop


def test_a_partitioned_table_is_one_table(partitioned: Shop) -> None:
    shop = partitioned
    shop.run("UPDATE t SET id = 12 WHERE id = 1", "DELETE FROM t2 WHERE id = 11", "INSERT INTO t1 VALUES (2, 'c')")
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.run("CREATE TABLE t3 PARTITION OF t FOR VALUES FROM (20) TO (30)", "INSERT INTO t VALUES (21, 'd')")
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.run("TRUNCATE t", "INSERT INTO t VALUES (22, 'd')")
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.run("INSERT INTO t VALUES (3, 'e')")
    assert_rows(shop, "t", "SELECT * FROM t")


@pytest.mark.parametrize(
    "change",
    [
        ["DROP TABLE t1"],
        ["ALTER TABLE t DETACH PARTITION t2"],
        ["TRUNCATE t2"],
        [
            "CREATE TABLE t3 (id bigint PRIMARY KEY, v text)",
            "INSERT INTO t3 VALUES (25, 'x')",
            "ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM (20) TO (30)",
        ],
    ],
)
def test_partitions_that_come_or_go_with_rows_hold_the_source(partitioned: Shop, change: list[str]) -> None:
    shop = partitioned
    for statement in change:
        shop.run(statement)
    reload(shop, commands_in(held_reason(shop, "t"))[0])
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.run("DELETE FROM t")
    assert_rows(shop, "t", "SELECT * FROM t")


def test_each_partition_must_name_the_key(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE t (id bigint, v text, PRIMARY KEY (v)) PARTITION BY LIST (v)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN ('a')",
        "CREATE TABLE t2 PARTITION OF t DEFAULT",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "ALTER TABLE t1 REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    with pytest.raises(NoIdentityError, match=r"public\.t2") as raised:
        describe(shop.source("t", (ID, V), 0))
    shop.run(*commands_in(str(raised.value)))
    read_source(shop, (ID, V), 0)
    shop.run("DELETE FROM t WHERE id = 2", "UPDATE t SET id = 5 WHERE id = 1")
    assert_rows(shop, "t", "SELECT * FROM t")


def test_a_publication_that_lists_partitions_one_by_one_is_named(shop: Shop) -> None:
    shop.run(*PARTITIONED, "CREATE PUBLICATION p FOR ALL TABLES")
    read_source(shop, (ID, V), 0, publication="p")
    (command,) = commands_in(held_reason(shop, "t"))
    shop.run(command)
    assert_rows(shop, "t", "SELECT * FROM t")


# --- several pipelines ------------------------------------------------------------------------------------------------


def test_a_second_pipeline_with_the_same_slot_is_named_and_may_take_another(
    server: PostgresServer, tmp_path: Path, shop: Shop
) -> None:
    from tests.support.jobs.driver.embedded import new_store

    shop.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    source = read_source(shop, (ID, V), 0)
    first, second = shop.meta, new_store(tmp_path / "second")
    append(second, source)
    shop.meta = second
    shop.run("INSERT INTO t VALUES (2, 'a')")
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.meta = first
    reason = held_reason(shop, "t")
    assert "another" in reason
    set_options(shop, source, slot="own")
    reload(shop, commands_in(held_reason(shop, "t"))[0])
    shop.run("INSERT INTO t VALUES (3, 'a')")
    assert_rows(shop, "t", "SELECT * FROM t")
    shop.meta = second
    assert_rows(shop, "t", "SELECT * FROM t")
    with psycopg.connect(server.address(shop.name), password="secret") as connection:
        connection.execute("SELECT pg_drop_replication_slot('own')")
