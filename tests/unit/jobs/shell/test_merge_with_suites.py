"""`tussock branch merge` in a pipeline with quality suites and published tables. Needs no Spark."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from tests.support.jobs.driver.embedded import append, insert
from tests.support.jobs.plan.catalogs import counted, scan, view
from tests.support.jobs.quality.hidden_views import hidden_views
from tests.unit.jobs.driver.test_builds import replacing
from tests.unit.jobs.shell.test_quality_commands import AT_MOST_ONE, Shop, shop
from tussock.jobs.catalog.definition import find_relation
from tussock.jobs.quality.measures import find_measures
from tussock.jobs.quality.suite import read_suites
from tussock.jobs.settings.pipeline import load_pipeline

__all__ = ["shop"]  # the fixture


def groups_read(shop: Shop) -> list[int]:
    """The groups of per_g that readers see."""
    code, printed = shop.run("read", "--pipeline", "shop", "per_g", "--csv")
    assert code == 0, printed
    return sorted(int(line.split(",")[0]) for line in printed.split()[1:])


def groups_published(shop: Shop) -> list[int]:
    """The groups in the newest published copy of per_g."""
    newest = max((shop.folder / "tables/per_g").rglob("*.parquet"), key=lambda path: path.name)
    return sorted(pq.read_table(newest)[0].to_pylist())


def change_on_branch(shop: Shop, name: str, column: int) -> None:
    """Let per_g on a new branch count the rows per value of another column."""
    assert shop.run("branch", "create", "shop", name)[0] == 0
    branch = shop.meta.branch(name)
    changed = msgspec.structs.replace(view("per_g", counted(scan("t"), column)), sql=f"by column {column}")
    (suite,) = read_suites(load_pipeline(shop.folder / "pipelines/shop").quality)
    relation = find_relation(branch.read_latest().catalog, "per_g")
    append(branch, replacing(changed, *hidden_views(relation, find_measures(suite, relation).parts[""])))
    _, printed = shop.run("epoch", "--pipeline", "shop", "--branch", name)
    assert "replaces per_g" in printed, printed


def test_a_merge_is_judged_before_readers_and_published_tables_see_it(shop: Shop, tmp_path: Path) -> None:
    shop.configure(f'[publish]\nkind = "parquet"\nto = "{tmp_path}/tables"\nrelations = ["per_g"]\n')
    shop.suite("per_g", AT_MOST_ONE)
    shop.apply()
    insert(shop.meta, "t", (1, 7, 0), (2, 8, 0))
    code, printed = shop.run("epoch", "--pipeline", "shop")
    assert code == 0, printed
    before = shop.published
    change_on_branch(shop, "bad", 2)
    code, printed = shop.run("branch", "merge", "shop", "bad")
    assert code == 1, printed
    assert "did not pass the quality check" in printed
    assert shop.published == before
    assert groups_read(shop) == groups_published(shop) == [7, 8]
    code, printed = shop.run("undo", "shop", "--to", str(before))
    assert code == 0, printed
    assert groups_read(shop) == groups_published(shop) == [7, 8]
    change_on_branch(shop, "good", 0)
    code, printed = shop.run("branch", "merge", "shop", "good")
    assert code == 0, printed
    assert groups_read(shop) == groups_published(shop) == [1, 2]
