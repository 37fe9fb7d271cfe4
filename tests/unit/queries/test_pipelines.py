"""The example pipelines in use: files arrive in parts, and after each part every view equals Spark over all files."""

from collections import Counter

from tests.support.queries.data import tables_of
from tests.support.queries.texts import ROOT, queries, views_of


def test_the_views_of_tpch_answer_as_the_queries_of_sparks_own_tests() -> None:
    database, theirs = tables_of("tpch"), queries("tpch")
    ours = views_of(ROOT / "pipelines" / "tpch" / "views.sql")
    assert ours.keys() == theirs.keys()
    for name, sql in ours.items():
        found, expected = (Counter(database.execute(text).fetchall()) for text in (sql, theirs[name]))
        assert found == expected, name
