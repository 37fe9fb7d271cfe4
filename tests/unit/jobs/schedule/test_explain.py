"""EXPLAIN of the flights pipeline, bound by Spark from the files its user wrote.

`pytest tests/unit/jobs/schedule/test_explain.py --update-cases` rewrites the case file; read the difference as code.
"""

import re

from tests.support.jobs.plan.catalogs import catalog_of, counted, scan, source, table, view
from tussock.jobs.schedule.explain import explain_relation, explain_relations


def test_a_view_is_explained_with_its_inputs_only() -> None:
    catalog = catalog_of(
        source("s"), table("other"), view("v", counted(scan("s"), 1)), view("w", counted(scan("other"), 1))
    )
    text = explain_relation(catalog, catalog.live_relations()[2])
    assert "source s" in text
    assert "other" not in text
    assert "view w" not in text


def test_views_together_show_each_fragment_once_and_as_in_their_own_plans() -> None:
    """The two views read one source and the same view. Each block must come from the view's own plan."""
    catalog = catalog_of(
        source("s"),
        view("v", counted(scan("s"), 1)),
        view("w", counted(scan("v", 1), 0)),
        view("x", counted(scan("v", 1), 0)),
    )
    alone = [explain_relation(catalog, r) for r in catalog.live_relations() if r.name in "wx"]
    together = explain_relations(catalog, [r for r in catalog.live_relations() if r.name in "wx"])
    blocks = [re.findall(r"  fragment .*(?:\n    .*)*", text) for text in (*alone, together)]
    assert len(set(blocks[0]) & set(blocks[1])) >= 2, "the source and v"
    assert sorted(blocks[2]) == sorted({*blocks[0], *blocks[1]})
    assert together.splitlines()[:2] == [text.splitlines()[0] for text in alone]


def test_equal_catalogs_explain_equally() -> None:
    texts = {
        explain_relation(catalog, catalog.live_relations()[-1])
        for catalog in (catalog_of(source("s"), view("v", counted(scan("s"), 1))) for _ in range(2))
    }
    assert len(texts) == 1


def test_a_table_and_a_source_are_explained_too() -> None:
    catalog = catalog_of(source("s"), table("t"))
    texts = [explain_relation(catalog, r) for r in catalog.live_relations()]
    assert "SourceScan parquet" in texts[0]
    assert "state rows#2 key=[c0]" in texts[1]
