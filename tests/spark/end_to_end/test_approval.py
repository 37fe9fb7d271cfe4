"""An apply executes exactly the approved plan.

An edit after the plan refuses the apply, and the message names it. An epoch in between does not.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.spark_types import SparkSession
from tussock.jobs.operations.deploy import PlanOutdatedError, apply, plan
from tussock.jobs.session import Session
from tussock.jobs.settings.pipeline import load_pipeline
from tussock.jobs.settings.process import open_meta
from tussock.jobs.statements.approval import Approval
from tussock.jobs.statements.deployment import Deployment, DeployOptions
from tussock.jobs.texts.deployment import deployment_text

SETTINGS = 'name = "shop"\nstore = "${SHOP_STORE:-store}"\nsql = ["tables.sql", "views.sql"]\n[quality]\n'
TABLES = """CREATE TABLE shops (id int, name string, PRIMARY KEY (id));
CREATE TABLE log (id int, what string, PRIMARY KEY (id));
CREATE SOURCE clicks (shop int, page string) USING csv OPTIONS (path 'clicks', may_be_missing 'true', header 'false');
CREATE FUNCTION twice (x int) RETURNS int LANGUAGE PYTHON AS 'doubling:twice';
INSERT INTO shops VALUES (1, 'north'), (2, 'south');
INSERT INTO log VALUES (1, 'first');
"""
VIEWS = """CREATE MATERIALIZED VIEW names AS SELECT name, count(*) AS n FROM shops GROUP BY name;
CREATE MATERIALIZED VIEW all_shops AS SELECT * FROM shops;
CREATE MATERIALIZED VIEW doubled AS SELECT twice(id) AS d FROM shops WHERE id > ${LEAST:-0};
"""
NEW = (
    "CREATE MATERIALIZED VIEW fresh AS SELECT max(id) AS last FROM shops;\nUPDATE shops SET name = 'x' WHERE id = 2;\n"
)
CODE = "def twice(x):\n    return x * 2\n"
SUITE = {
    "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "name"}}],
    "meta": {"maintain": True},
}


@dataclass
class Shop:
    """A pipeline's folder, a store with an earlier state of it, and a plan of the difference."""

    folder: Path
    approved: Deployment

    def apply(self, approved: "str | Approval | None" = None, options: DeployOptions | None = None) -> Deployment:
        return apply(load_pipeline(self.folder), options, approved or self.approved.approval.to_json())

    def change(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def stored(self) -> tuple[int, int]:
        """The log's end, and the number of files in the store."""
        store = self.folder.parents[1] / "store"
        return open_meta(str(store)).log_end(), sum(path.is_file() for path in store.rglob("*"))


def written(home: Path) -> Path:
    folder = home / "pipelines" / "shop"
    (folder / "functions").mkdir(parents=True)
    (folder / "quality").mkdir()
    (folder / "pipeline.toml").write_text(SETTINGS)
    (folder / "tables.sql").write_text(TABLES)
    (folder / "views.sql").write_text(VIEWS)
    (folder / "functions" / "doubling.py").write_text(CODE)
    (folder / "quality" / "names.json").write_text(json.dumps(SUITE))
    return folder


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Shop:
    folder = written(tmp_path_factory.mktemp("shop"))
    apply(load_pipeline(folder))
    with Session(load_pipeline(folder).store, spark, create=False) as session:
        session.flush()
    (folder / "views.sql").write_text(VIEWS + NEW)
    return Shop(folder, plan(load_pipeline(folder)))


@pytest.fixture
def shop(applied: Shop) -> Iterator[Shop]:
    """The shop, with its files restored to the planned state."""
    files = {path: path.read_text() for path in applied.folder.rglob("*") if path.is_file()}
    yield applied
    for path in set(applied.folder.rglob("*.*")) - set(files):
        path.unlink()
    for path, text in files.items():
        path.write_text(text)


Edit = Callable[[Shop, pytest.MonkeyPatch], object]
EDITS: dict[str, tuple[Edit, str]] = {
    "the SELECT of a new view": (
        lambda s, _: s.change("views.sql", "max(id)", "max(id) - 999"),
        "create materialized view fresh",
    ),
    "the SELECT of an existing view": (
        lambda s, _: s.change("views.sql", "count(*)", "max(id)"),
        "create materialized view names",
    ),
    "a new view": (
        lambda s, _: s.change("views.sql", "UPDATE", "CREATE VIEW more AS SELECT 1 AS one;\nUPDATE"),
        "create view more: is new",
    ),
    "a view that is gone": (
        lambda s, _: s.change("views.sql", NEW.split(";")[0] + ";", ""),
        "create materialized view fresh: is gone",
    ),
    "a statement on rows": (lambda s, _: s.change("views.sql", "'x'", "'y'"), "update shops"),
    "an INSERT that has run": (lambda s, _: s.change("tables.sql", "(2, 'south')", "(2, 'east')"), "insert into shops"),
    "one more equal statement": (
        lambda s, _: s.change("tables.sql", TABLES[-37:], TABLES[-37:] * 2),
        "insert into log (2): is new",
    ),
    "a function's signature": (
        lambda s, _: s.change("tables.sql", "RETURNS int", "RETURNS bigint"),
        "create function twice",
    ),
    "a source's option": (
        lambda s, _: s.change("tables.sql", "header 'false'", "header 'true'"),
        "create source clicks",
    ),
    "a table's column": (
        lambda s, _: s.change("tables.sql", "what string", "what string, more int"),
        "create table log",
    ),
    "a suite": (lambda s, _: s.change("quality/names.json", '"name"', '"n"'), "suite names.json"),
    "a new suite": (
        lambda s, _: (s.folder / "quality" / "fresh.json").write_text(json.dumps({"expectations": []})),
        "suite fresh.json: is new",
    ),
    "the order of files": (
        lambda s, _: s.change("pipeline.toml", '"tables.sql", "views.sql"', '"views.sql", "tables.sql"'),
        "setting sql: tables.sql, views.sql approved, views.sql, tables.sql now",
    ),
    "the order of statements": (
        lambda s, _: (s.folder / "views.sql").write_text(VIEWS + "\n".join(reversed(NEW.splitlines()))),
        "the order of the statements",
    ),
    "a variable of the SQL": (lambda _, m: m.setenv("LEAST", "1"), "variable LEAST: 0 approved, 1 now"),
    "a variable of pipeline.toml": (
        lambda _, m: m.setenv("SHOP_STORE", "elsewhere"),
        "variable SHOP_STORE: store approved, elsewhere now",
    ),
    "the store": (lambda s, _: s.change("pipeline.toml", ":-store", ":-other"), "setting store"),
    "the data": (
        lambda s, _: s.change("pipeline.toml", "[quality]", 'data = "elsewhere"\n[quality]'),
        "setting data: nothing approved",
    ),
    "the time zone": (
        lambda s, _: s.change("pipeline.toml", "[quality]", 'time_zone = "Asia/Kolkata"\n[quality]'),
        "setting time_zone",
    ),
    "a setting of Spark's SQL": (
        lambda s, _: s.change("pipeline.toml", "[quality]", '[spark]\n"spark.sql.caseSensitive" = "true"\n[quality]'),
        "setting spark.spark.sql.caseSensitive",
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_after_the_approval_refuses_the_apply_and_is_named(
    name: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit, named = EDITS[name]
    before = shop.stored()
    edit(shop, monkeypatch)
    with pytest.raises(PlanOutdatedError) as found:
        shop.apply()
    assert named in str(found.value)
    assert shop.stored() == before
    assert not (shop.folder.parents[1] / "elsewhere").exists(), "not even an empty store was made"
    if name == "the SELECT of a new view":
        with pytest.raises(PlanOutdatedError, match=f"{shop.approved.digest} approved"):
            shop.apply(shop.approved.digest)  # bound, but not logged
        assert shop.stored()[0] == before[0]


@pytest.mark.spark
def test_the_code_of_a_function_and_the_choices_of_a_run_are_approved_too(shop: Shop) -> None:
    before = shop.stored()[0]
    for options, named in (
        (DeployOptions(prune=True), "setting --prune: no approved, yes now"),
        (DeployOptions(resume=["names"]), "setting --resume"),
    ):
        with pytest.raises(PlanOutdatedError, match=named):
            shop.apply(options=options)
    shop.change("functions/doubling.py", "x * 2", "x * 3")
    with pytest.raises(PlanOutdatedError) as found:
        shop.apply()
    assert "function functions/doubling.py: has changed" in str(found.value)
    assert "+     return x * 3" in str(found.value)
    assert shop.stored()[0] == before


@pytest.mark.spark
def test_an_epoch_blanks_and_comments_do_not_outdate_an_approval_and_another_apply_does(
    tmp_path: Path, spark: SparkSession
) -> None:
    folder = written(tmp_path)
    approved = plan(load_pipeline(folder))
    text = deployment_text(approved, "shop", full=True)
    assert "SELECT twice(id) AS d FROM shops WHERE id > 0" in text, "who approves has read it"
    assert "return x * 2" in text
    shop = Shop(folder, approved)
    shop.change("tables.sql", "CREATE TABLE log", "-- what happened\nCREATE  TABLE log")
    shop.change("pipeline.toml", "[quality]", "[epoch]\nvnodes = 64\n[quality]")
    with pytest.raises(PlanOutdatedError, match="new store: 256 vnodes, 2 units approved, 64 vnodes, 2 units now"):
        shop.apply()
    assert not (tmp_path / "store").exists()
    shop.change("pipeline.toml", "vnodes = 64", "vnodes = 256")
    assert shop.apply(text).position == 0, "the printed plan contains the digest"
    assert shop.apply().position is None, "the same plan again, as a retried task applies it: no step is left"
    with Session(str(tmp_path / "store"), spark, create=False) as session:
        (folder / "views.sql").write_text(VIEWS + NEW)
        shop.approved = plan(load_pipeline(folder))
        text = deployment_text(shop.approved, "shop")
        session.flush()  # now there are rows to read
        assert deployment_text(plan(load_pipeline(folder)), "shop") != text, "estimates differ"
        assert shop.apply().position == 1
        shop.change("views.sql", "max(id) AS last", "min(id) AS last")
        shop.approved = plan(load_pipeline(folder))
        session.execute("CREATE OR REPLACE MATERIALIZED VIEW fresh AS SELECT count(*) AS last FROM shops")
        with pytest.raises(PlanOutdatedError, match="action view fresh"):
            shop.apply()
        (folder / "views.sql").write_text(VIEWS + NEW + "CREATE MATERIALIZED VIEW wide AS SELECT * FROM shops;")
        shop.approved = plan(load_pipeline(folder))
        session.execute("ALTER TABLE shops ADD COLUMN more int")
        with pytest.raises(PlanOutdatedError, match="action view wide"):
            shop.apply()  # the same text over another table is another view
