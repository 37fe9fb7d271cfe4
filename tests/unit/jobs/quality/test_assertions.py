"""Assertions in SQL: their headers, their hidden views, and what a failure holds back. Needs no Spark."""

import msgspec
import pytest

from tests.support.jobs.driver.embedded import append, insert
from tests.support.jobs.plan.catalogs import counted, scan, view
from tests.unit.jobs.driver.test_pauses import BAD, GOOD, sums
from tests.unit.jobs.shell.test_quality_commands import Shop, shop
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.quality.assertions import assertion_statements, read_assertions
from tussock.jobs.quality.record import read_record
from tussock.jobs.quality.suite import QualitySuiteError
from tussock.jobs.settings.pipeline import Pipeline, load_pipeline
from tussock.statestore.meta.catalog import shown_name

__all__ = ["shop"]


def asserting(shop: Shop, text: str, name: str = "no_rows.sql") -> Pipeline:
    (shop.folder / "pipelines/shop/quality" / name).write_text(text)
    return load_pipeline(shop.folder / "pipelines/shop")


def applied(shop: Shop, pipeline: Pipeline) -> None:
    """Log the hidden view of the pipeline's assertion, over the rows of per_w, whose plan stands for its SELECT."""
    (one,) = read_assertions(pipeline)
    append(
        shop.meta,
        msgspec.structs.replace(
            view(one.view, counted(Scan("per_w", (0, 1), (Field("c2", "int"), Field("n", "bigint"))), 0)),
            sql=one.select,
        ),
    )


@pytest.fixture
def two_views(shop: Shop) -> Shop:
    """A view per_w (rows per w), whose rows are wrong by the assertion: it returns all of them."""
    append(shop.meta, view("per_w", counted(scan("t"), 2)))
    return shop


def test_wrong_rows_keep_an_epoch_from_readers_and_are_printed(two_views: Shop) -> None:
    pipeline = asserting(two_views, "-- orders without a shop\nSELECT c0, c1 FROM per_w;\n")
    applied(two_views, pipeline)
    insert(two_views.meta, "t", (1, 7, 5), (2, 7, 5))
    code, printed = two_views.run("epoch", "--pipeline", "shop")
    assert code == 1, printed
    assert "no_rows.sql: 1 wrong row" in printed
    assert "  assertion no_rows.sql: 1 wrong row\n    failing rows: c2=5, n=1" in printed
    assert two_views.published == 0
    code, printed = two_views.run("check", "shop", "no_rows.sql")
    assert (code, "assertion no_rows.sql: 1 wrong row" in printed) == (1, True)
    code, printed = two_views.run("status", "--pipeline", "shop")
    assert "no_rows.sql: 1 wrong row" in printed, printed
    asserting(two_views, "-- severity: warning\nSELECT c0, c1 FROM per_w")
    code, printed = two_views.run("epoch", "--pipeline", "shop")
    assert (code, two_views.published) == (0, two_views.meta.read_latest().epoch), printed
    assert "assertion no_rows.sql: 1 wrong row" in printed


def test_in_view_scope_only_the_views_that_it_reads_are_held_back(two_views: Shop) -> None:
    two_views.configure('scope = "view"\n')
    applied(two_views, asserting(two_views, "SELECT c0, c1 FROM per_w"))
    insert(two_views.meta, "t", (1, 7, 5))
    code, printed = two_views.run("epoch", "--pipeline", "shop")
    assert code == 1
    held = "assertion no_rows.sql failed. Readers keep seeing the previous rows of per_w and of the views that read"
    assert held in " ".join(printed.split())
    assert two_views.published == two_views.meta.read_latest().epoch
    assert two_views.run("read", "--pipeline", "shop", "per_g")[0] == 0
    assert two_views.run("read", "--pipeline", "shop", "per_w")[0] == 1


def test_a_failing_assertion_names_the_views_that_it_holds_back_in_the_status(two_views: Shop) -> None:
    two_views.configure('scope = "view"\n')
    applied(two_views, asserting(two_views, "SELECT c0, c1 FROM per_w"))
    assert two_views.run("epoch", "--pipeline", "shop")[0] == 0
    insert(two_views.meta, "t", (2, 7, 6))
    assert two_views.run("epoch", "--pipeline", "shop")[0] == 1
    printed = " ".join(two_views.run("status", "--pipeline", "shop")[1].split())
    assert "did not hold: 1 wrong row; readers keep seeing earlier rows of per_w" in printed


def test_a_warning_prints_its_rows_when_they_change(two_views: Shop) -> None:
    applied(two_views, asserting(two_views, "-- severity: warning\nSELECT c0, c1 FROM per_w"))
    told, seen = [], []
    for w in (5, 5, 5, 6):
        insert(two_views.meta, "t", (w, 7, w))
        code, printed = two_views.run("epoch", "--pipeline", "shop")
        assert code == 0
        told.append(next(line.strip() for line in printed.splitlines() if "failing rows" in line))
        seen.append(two_views.published)
    assert told[0] == "failing rows: c2=5, n=1"
    assert told[1:3] == [f"failing rows: those of epoch {epoch}" for epoch in seen[:2]]
    assert "c2=5, n=1" in told[3]
    assert "c2=6, n=1" in told[3]
    assert "c2=5, n=1" in two_views.run("check", "shop")[1], "the command always shows them"


def test_an_assertion_that_is_not_applied_is_reported_and_lists_hide_the_one_that_is(two_views: Shop) -> None:
    pipeline = asserting(two_views, "SELECT c0 FROM per_g")
    insert(two_views.meta, "t", (1, 7, 5))
    code, printed = two_views.run("epoch", "--pipeline", "shop")
    assert (code, "assertion no_rows.sql: The store does not maintain it in this form. `tussock apply`" in printed) == (
        0,
        True,
    ), printed
    applied(two_views, pipeline)
    assert two_views.run("epoch", "--pipeline", "shop")[0] == 1
    assert [r.name for r in two_views.meta.read_latest().catalog.live_relations() if not r.is_internal] == [
        "t",
        "per_g",
        "per_w",
    ]


@pytest.mark.parametrize("scope", ["pipeline", "view"])
def test_an_assertion_whose_select_raised_keeps_failing_until_it_is_resumed(two_views: Shop, scope: str) -> None:
    """With `on_error` "pause", the run pauses its hidden view, as it does a view of the user."""
    shop = two_views
    toml = shop.folder / "pipelines/shop/pipeline.toml"
    toml.write_text(toml.read_text().replace('"auto"\n', '"auto"\non_error = "pause"\n') + f'scope = "{scope}"\n')
    (one,) = read_assertions(asserting(shop, "SELECT c0, c1 FROM t"))
    append(shop.meta, msgspec.structs.replace(sums(name=one.view), sql=one.select))
    assert shop.run("epoch", "--pipeline", "shop")[0] == 0, "t has no row yet"
    good = shop.published
    for row in (BAD, *GOOD[:1]):
        insert(shop.meta, "t", row)
        code, printed = shop.run("epoch", "--pipeline", "shop")
        assert code == 1, printed
        assert f"`tussock apply shop --resume {one.view}`" in printed or row != BAD, printed
        assert printed.count("Overflow in addition") == 1, (
            "the quality check's error has the reason, and a note would repeat it"
        )
        record = read_record(shop.meta.objects, shop.meta.read_latest().epoch)
        assert record is not None
        assert (record.failed, set(record.refused), record.paused) == (("no_rows.sql",), {"t"}, ())
        assert shop.published == (good if scope == "pipeline" else shop.meta.read_latest().epoch)
        assert shop.run("status", "--pipeline", "shop")[0] == 4
    text = " ".join(shop.run("check", "shop")[1].split())
    assert "assertion no_rows.sql: cannot be evaluated: " in text
    assert "Overflow in addition" in text
    asserting(shop, "-- severity: warning\nSELECT c0, c1 FROM t")
    code, printed = shop.run("epoch", "--pipeline", "shop")
    assert (code, shop.published) == (0, shop.meta.read_latest().epoch), printed


def test_headers_and_statements(shop: Shop) -> None:
    pipeline = asserting(shop, "-- note: anything\n-- severity: info\n\nSELECT 1 AS x -- severity: error\n;")
    (one,) = read_assertions(pipeline)
    assert (one.severity, shown_name(one.view)) == ("info", "assertion no_rows")
    ((file, statement),) = assertion_statements([one])
    assert file.name == "no_rows.sql"
    assert statement.startswith("CREATE MATERIALIZED VIEW default.`__quality__no_rows_assertion_")
    assert statement.endswith("AS\n-- note: anything\n-- severity: info\n\nSELECT 1 AS x -- severity: error")
    for wrong, message in (("severity: fatal", "severity 'fatal'"), ("severty: error", "the header 'severty'")):
        with pytest.raises(QualitySuiteError, match=message):
            read_assertions(asserting(shop, f"-- {wrong}\nSELECT 1 AS x"))
