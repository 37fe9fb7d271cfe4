"""Relations of one name in several schemas are stored, read, published and dropped apart. No JVM."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.jobs.driver.embedded import append, epoch, insert, new_store
from tests.support.jobs.driver.embedded import rows as stored_rows
from tests.support.jobs.sinks.delta_readers import package_rows
from tussock.jobs import cli
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.catalog.definition import UnknownRelationError
from tussock.jobs.catalog.schemas import (
    DefaultSchemaError,
    SchemaExistsError,
    SchemaNotEmptyError,
    UnknownSchemaError,
    schemas_of,
)
from tussock.jobs.logical.nodes import AggCall, AggFunction, Aggregate, Column, Field, Scan
from tussock.jobs.logical.relation_names import flat_name
from tussock.jobs.logical.statements import CreateSchema, CreateTable, CreateView, Drop, DropSchema, Statement
from tussock.jobs.operations.files import created_in_files
from tussock.jobs.reading.duck_query import duck_rows
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.publishing import DeltaSettings, IcebergSettings, ParquetSettings, PublishSettings
from tussock.jobs.sinks.publication import publish_tables
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Catalog, RelationKind
from tussock.statestore.meta.store import MetaStore

FIELDS = (Field("k", "int"), Field("g", "int"), Field("a", "int"))
TABLES = ("orders", "a.orders", "b.orders")
ROWS = {
    "orders": [(1, 1, 10), (2, 1, 20)],
    "a.orders": [(1, 2, 5), (3, 2, 7), (4, 3, 9)],
    "b.orders": [(9, 9, 90)],
}


def view_over(table: str, name: str) -> CreateView:
    calls = (AggCall(AggFunction.SUM, "bigint", (Column(1, "int"),), "ANSI"),)
    plan = Aggregate(Scan(table, (1, 2), FIELDS[1:]), (Column(0, "int"),), calls, (FIELDS[1], Field("total", "bigint")))
    return CreateView(name, f"SELECT g, sum(a) AS total FROM {table} GROUP BY g", plan)


def statements() -> list[Statement]:
    return [
        CreateSchema("a"),
        CreateSchema("b"),
        *(CreateTable(name, FIELDS, (0,)) for name in TABLES),
        view_over("a.orders", "a.daily"),
        view_over("b.orders", "daily"),
    ]


def totals(table: str) -> list[dict[str, int]]:
    groups: dict[int, int] = {}
    for _, g, a in ROWS[table]:
        groups[g] = groups.get(g, 0) + a
    return [{"g": g, "total": total} for g, total in sorted(groups.items())]


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> MetaStore:
    store = new_store(tmp_path_factory.mktemp("schemas") / "store")
    append(store, *statements())
    for table, rows in ROWS.items():
        insert(store, table, *rows)
    store.publish(epoch(store).epoch)
    return store


def catalog_after(*further: Statement) -> Catalog:
    catalog = Catalog()
    for statement in (*statements(), *further):
        catalog = apply_statement(catalog, statement, 1)
    return catalog


def sorted_rows(table: pa.Table) -> list[dict[str, int]]:
    return sorted(table.to_pylist(), key=repr)


def test_relations_of_one_name_are_read_by_their_schemas(meta: MetaStore) -> None:
    with Session(meta.objects.uri, create=False) as session:
        for name in ("orders", "DEFAULT.orders", "a.Orders", "b.orders"):
            expected = ROWS[name.lower().removeprefix("default.")]
            assert sorted(tuple(row.values()) for row in session.read(name).to_pylist()) == expected, name
        assert sorted_rows(session.read("a.daily")) == totals("a.orders")
        assert sorted_rows(session.read("daily")) == totals("b.orders")
        with pytest.raises(UnknownRelationError, match=r"those that exist: a\.daily, a\.orders"):
            session.read("c.orders")


def test_duckdb_reads_relations_by_their_schemas(meta: MetaStore) -> None:
    sql = """SELECT x.k, a.orders.a AS p, b.orders.a AS q FROM a.orders JOIN orders x ON a.orders.k = x.k
        LEFT JOIN b.orders ON true LEFT JOIN "default".orders y ON x.k = y.k"""
    with duck_rows(meta.objects, StoredRows(meta), sql, "UTC") as rows:
        assert rows.read_all().to_pylist() == [{"k": 1, "p": 5, "q": 90}]


@pytest.mark.parametrize("kind", [DeltaSettings, ParquetSettings, IcebergSettings])
def test_each_sink_has_the_tables_of_all_schemas(meta: MetaStore, tmp_path: Path, kind: type[PublishSettings]) -> None:
    settings = kind(to=str(tmp_path), relations=("a.orders", "default.daily", "B.orders", "orders"))
    tables = {t.relation: t.state for t in publish_tables(meta, settings)}
    assert set(tables) == {"orders", "a.orders", "b.orders", "daily"}
    assert not any(t.changed for t in publish_tables(meta, settings))
    for name in TABLES:
        if kind is DeltaSettings:
            copy = package_rows(DeltaTable(str(tmp_path / name)))
        elif kind is ParquetSettings:
            (file,) = (tmp_path / name).glob("*.parquet")
            copy = pq.read_table(file)
        else:
            copy = iceberg_rows(tmp_path, name)
        assert sorted(tuple(row.values()) for row in copy.to_pylist()) == ROWS[name], name


def iceberg_rows(folder: Path, relation: str) -> pa.Table:
    """The rows of a table, as another program finds it in the catalog."""
    from pyiceberg.catalog import load_catalog

    schema, _, name = relation.rpartition(".")
    (file,) = folder.glob("*.db")
    catalog = load_catalog("tussock", type="sql", uri=f"sqlite:///{file}", warehouse=str(folder))
    return catalog.load_table((f"tussock_{schema}" if schema else "tussock", name)).scan().to_arrow()


WRONG: list[tuple[type[InputError], Statement, str]] = [
    (UnknownSchemaError, CreateTable("c.orders", FIELDS, ()), "CREATE SCHEMA c"),
    (SchemaExistsError, CreateSchema("a"), "IF NOT EXISTS"),
    (SchemaExistsError, CreateSchema("default"), "IF NOT EXISTS"),
    (SchemaNotEmptyError, DropSchema("a"), r"DROP MATERIALIZED VIEW a\.daily; DROP TABLE a\.orders"),
    (UnknownSchemaError, DropSchema("c"), "schemas that exist: a, b, default"),
    (DefaultSchemaError, DropSchema("default", cascade=True), "Drop its relations instead"),
]


@pytest.mark.parametrize(("error", "statement", "remedy"), WRONG)
def test_a_wrong_statement_on_schemas_has_a_remedy(error: type[InputError], statement: Statement, remedy: str) -> None:
    with pytest.raises(error, match=remedy):
        catalog_after(statement)


def test_a_schema_is_dropped_when_it_is_empty_or_with_everything_that_reads_it() -> None:
    dropped = (Drop(RelationKind.VIEW, "a.daily"), Drop(RelationKind.TABLE, "a.orders"), DropSchema("a"))
    assert schemas_of(catalog_after(*dropped, DropSchema("a", if_exists=True))) == ("b", "default")
    left = catalog_after(DropSchema("b", cascade=True))
    assert [relation.name for relation in left.live_relations()] == ["orders", "a.orders", "a.daily"]
    assert schemas_of(catalog_after(CreateSchema("a", if_not_exists=True))) == ("a", "b", "default")


def test_the_assets_of_a_pipeline_have_the_schemas_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "shop"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(
        'name = "shop"\nstore = "s"\nsql = ["all.sql"]\n[catalogs]\nmain = "{schema}"'
    )
    (folder / "all.sql").write_text(
        """CREATE SOURCE raw.`orders` USING csv; USE staging; CREATE OR REPLACE MATERIALIZED VIEW Orders AS SELECT 1;
        CREATE MATERIALIZED VIEW main.marts.orders AS SELECT 1; CREATE FLOW f AS AUTO CDC INTO customers FROM x;
        USE default; CREATE MATERIALIZED VIEW orders AS SELECT 1"""
    )
    views = created_in_files(load_pipeline(folder), RelationKind.VIEW)
    assert views == ("staging.orders", "marts.orders", "staging.customers", "orders")
    assert created_in_files(load_pipeline(folder), RelationKind.SOURCE) == ("raw.orders",)


@pytest.mark.parametrize("dialect", [(), ("--duckdb",)])
def test_a_query_names_the_catalogs_of_its_pipeline(
    meta: MetaStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dialect: tuple[str, ...],
) -> None:
    folder = tmp_path / "pipelines" / "shop"
    folder.mkdir(parents=True)
    settings = f'name = "shop"\nstore = "{meta.objects.uri}"\nsql = ["a.sql"]\n[catalogs]\nmain = "{{schema}}"\n'
    (folder / "pipeline.toml").write_text(settings)
    monkeypatch.setenv("TUSSOCK_PIPELINES", str(tmp_path / "pipelines"))
    assert cli.main(["query", "SELECT k, a FROM main.a.orders", "--pipeline", "shop", "--csv", *dialect]) == 0
    assert sorted(capsys.readouterr().out.split()[1:]) == ["1,5", "3,7", "4,9"]


def test_the_metrics_of_all_schemas_have_equally_many_parts() -> None:
    assert [flat_name(name).count(".") for name in TABLES] == [0, 0, 0]
    assert len({flat_name(name) for name in (*TABLES, "a_orders")}) == len(TABLES) + 1


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.deep) for n in range(2, 50))])
def test_relations_of_one_name_follow_a_model_and_their_copies_follow_them(seed: int, tmp_path: Path) -> None:
    random, store = Random(seed), new_store(tmp_path / "store")
    append(store, CreateSchema("a"), CreateSchema("b"), *(CreateTable(name, FIELDS, (0,)) for name in TABLES))
    append(store, *(view_over(name, f"{name.removesuffix('orders')}daily") for name in TABLES))
    model: dict[str, dict[int, tuple[int, int, int]]] = {name: {} for name in TABLES}
    copies = DeltaSettings(to=str(tmp_path / "tables"))
    for _ in range(4):
        for name in random.sample(TABLES, k=2):
            rows = [(random.randrange(6), random.randrange(3), random.randrange(100)) for _ in range(4)]
            insert(store, name, *rows)
            model[name].update({row[0]: row for row in rows})
        store.publish(epoch(store).epoch)
        publish_tables(store, copies)
        for name, by_key in model.items():
            assert stored_rows(store, name) == sorted(by_key.values())
            view = f"{name.removesuffix('orders')}daily"
            expected = [
                (g, sum(a for _, h, a in by_key.values() if h == g)) for g in {g for _, g, _ in by_key.values()}
            ]
            assert sorted(stored_rows(store, view)) == sorted(expected), view
            copy = package_rows(DeltaTable(str(tmp_path / "tables" / view))).to_pylist()
            assert sorted(tuple(row.values()) for row in copy) == expected, view
