"""A change of views on a branch, from the files to the merge. Rows are compared with Spark's, over the same table."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.jobs.driver.embedded import append
from tests.support.runners import here
from tests.unit.jobs.driver.test_builds import replacing
from tests.unit.jobs.driver.test_following import (
    CHANGED,
    VIEWS,
    Pair,
    changed_statements,
    follow,
    require_equal_while_following,
    stored,
)
from tussock.jobs import cli
from tussock.jobs.driver.spark_runner import SparkRunner
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE sales (id int, shop string, n int, PRIMARY KEY (id));\n"
PER_SHOP = "SELECT shop, sum(n) AS n FROM sales GROUP BY shop"
LARGE = "SELECT shop, sum(n) AS n FROM sales WHERE n > 10 GROUP BY shop"
OVER = "SELECT count(*) AS shops, max(n) AS most FROM per_shop"


def files(per_shop: str) -> str:
    views = {"per_shop": per_shop, "over": OVER, "unchanged": "SELECT id, upper(shop) AS shop FROM sales"}
    return TABLE + "".join(f"CREATE MATERIALIZED VIEW {name} AS {sql};\n" for name, sql in views.items())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Path:
    folder = tmp_path / "pipelines" / "shop"
    folder.mkdir(parents=True)
    toml = 'name = "shop"\nstore = "store"\nsql = ["views.sql"]\n[epoch]\nrunner = "auto"\n'
    (folder / "pipeline.toml").write_text(toml)
    (folder / "views.sql").write_text(files(PER_SHOP))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    done = cli.main(arguments)
    said = capsys.readouterr()
    assert done == code, said.err
    return said.out + said.err


def add_sales(home: Path, spark: SparkSession, first: int) -> None:
    ids = range(first, first + 20)
    rows = {"id": pa.array(ids, pa.int32()), "shop": [f"s{i % 3}" for i in ids], "n": pa.array(ids, pa.int32())}
    with Session(str(home / "store"), spark, create=False) as session:
        session.insert("sales", pa.table(rows))


def require_equal_to_spark(session: Session, per_shop: str) -> None:
    sales = "(SELECT * FROM sales)"
    for view, sql in (("per_shop", per_shop), ("over", OVER.replace("per_shop", f"({per_shop})"))):
        ours = session.read(view)
        expected = session.query(sql.replace("FROM sales", f"FROM {sales}"))
        key = [(name, "ascending") for name in expected.column_names]
        assert ours.sort_by(key).to_pylist() == expected.sort_by(key).to_pylist(), view


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_branch_without_changes_has_the_ssts_of_its_parent_at_fifty_epochs_on_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    require_equal_while_following(Pair(tmp_path, seed=2, runner=SparkRunner(spark)), epochs=50)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_changed_view_of_a_branch_equals_a_store_with_it_while_spark_runs_both(
    tmp_path: Path, spark: SparkSession
) -> None:
    pair = Pair(tmp_path, seed=3, runner=SparkRunner(spark))
    branch = pair.parent.open_branch("b")
    append(branch, replacing(*changed_statements()))
    for _ in range(5):
        pair.take_input()
        follow(branch, pair.runner)
        assert stored(branch) == pair.answers(CHANGED)
    assert stored(pair.parent) == pair.answers(VIEWS)


def test_a_change_is_tried_on_a_branch_that_follows_and_is_merged_without_computing(
    home: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    run(capsys, "apply", "shop")
    run(capsys, "epoch", "--pipeline", "shop")
    add_sales(home, spark, 1)
    run(capsys, "epoch", "--pipeline", "shop")

    run(capsys, "branch", "create", "shop", "pr-1")
    (home / "pipelines" / "shop" / "views.sql").write_text(files(LARGE))
    # FilesDifferError, whose commands run next
    assert "differ from branch 'pr-1'" in run(capsys, "branch", "merge", "shop", "pr-1", code=1)
    assert "per_shop" in run(capsys, "plan", "shop", "--branch", "pr-1", code=2)
    run(capsys, "apply", "shop", "--branch", "pr-1")
    add_sales(home, spark, 15)
    run(capsys, "epoch", "--pipeline", "shop")
    run(capsys, "epoch", "--pipeline", "shop", "--branch", "pr-1")
    where = str(home / "store")
    with Session(where, spark, create=False, runner=here(spark)) as session:
        require_equal_to_spark(session, PER_SHOP)
        with session.branch("pr-1") as branch:
            require_equal_to_spark(branch, LARGE)

    assert "0 rows to compute" in run(capsys, "branch", "merge", "shop", "pr-1")
    add_sales(home, spark, 40)
    run(capsys, "epoch", "--pipeline", "shop")
    assert "nothing to do" in run(capsys, "plan", "shop")
    with Session(where, spark, create=False, runner=here(spark)) as session:
        require_equal_to_spark(session, LARGE)
