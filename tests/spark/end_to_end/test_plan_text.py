"""The output of `tussock plan` for one change of each kind, in tests/spark/end_to_end/cases/plan.txt.

`--update-cases` rewrites the file.
"""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tussock.jobs import cli
from tussock.jobs.session import Session

pytestmark = pytest.mark.spark
CASE = Path(__file__).parent / "cases" / "plan.txt"

BEFORE = """CREATE SOURCE clicks (shop int, page string) USING csv OPTIONS (path 'clicks', may_be_missing 'true');
CREATE TABLE shops (id int, name string, city string, PRIMARY KEY (id));
CREATE FUNCTION twice (x int) RETURNS int LANGUAGE PYTHON AS 'doubling:twice';
INSERT INTO shops VALUES (1, 'north', 'Bonn'), (2, 'south', 'Ulm'), (3, 'east', 'Ulm');
CREATE VIEW in_ulm AS SELECT id, name FROM shops WHERE city = 'Ulm';
CREATE MATERIALIZED VIEW open_shops AS SELECT id, name, city FROM shops WHERE id > 0;
CREATE MATERIALIZED VIEW by_city AS SELECT city, count(*) AS n FROM open_shops GROUP BY city;
CREATE MATERIALIZED VIEW names AS SELECT name, max(id) AS last FROM shops GROUP BY name;
CREATE MATERIALIZED VIEW long_names AS SELECT name FROM names WHERE last > 0;
CREATE MATERIALIZED VIEW ulm AS SELECT count(*) AS n FROM in_ulm;
CREATE MATERIALIZED VIEW doubled AS SELECT twice(id) AS d FROM shops;
CREATE MATERIALIZED VIEW paused AS SELECT id FROM shops;
CREATE MATERIALIZED VIEW as_it_was AS SELECT count(*) AS n FROM shops;
CREATE MATERIALIZED VIEW gone AS SELECT id FROM shops WHERE id = 3;
UPDATE shops SET name = upper(name) WHERE id = 2;
"""
CHANGES = (
    ("WHERE city = 'Ulm'", "WHERE city = 'Bonn'"),  # a plain view, and the view bound through it
    ("WHERE id > 0", "WHERE id > 1"),  # a view whose reader receives the difference
    (
        "max(id) AS last FROM shops GROUP BY name",
        "min(id) AS last, count(*) AS n FROM shops GROUP BY name",
    ),  # a relation with other columns
    ("upper(name) WHERE id = 2", "lower(name) WHERE id = 2"),  # a changed statement runs again
    ("CREATE MATERIALIZED VIEW gone AS SELECT id FROM shops WHERE id = 3;\n", ""),
)
NEW = """CREATE TABLE cities (name string, PRIMARY KEY (name));
CREATE MATERIALIZED VIEW fresh AS SELECT city, max(name) AS last FROM shops GROUP BY city;
CREATE MATERIALIZED VIEW costly AS SELECT s.city, collect_list(s.name) AS names
  FROM shops s JOIN open_shops o ON s.city = o.city GROUP BY s.city;
"""


def test_a_plan_lists_new_changed_dependent_removed_and_continued_relations(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    home = tmp_path / "pipelines" / "town"
    (home / "functions").mkdir(parents=True)
    (home / "pipeline.toml").write_text('name = "town"\nstore = "store"\nsql = ["town.sql"]\n')
    (home / "functions" / "doubling.py").write_text("def twice(x):\n    return x * 2\n")
    (home / "town.sql").write_text(BEFORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUSSOCK_PIPELINES", raising=False)
    assert cli.main(["apply", "town"]) == 0
    with Session(str(tmp_path / "store"), spark, create=False) as session:
        session.flush()
        assert cli.main(["barrier", "abandon", "--store", "store", "--pause", "paused"]) == 0
        session.flush()
    after = BEFORE
    for old, new in CHANGES:
        assert old in after
        after = after.replace(old, new)
    (home / "town.sql").write_text(after + NEW)
    (home / "functions" / "doubling.py").write_text("def twice(x):\n    return x + x\n")
    found = []
    for options in ([], ["--prune", "--resume", "paused"]):
        capsys.readouterr()
        assert cli.main(["plan", "town", *options]) == 2
        said = capsys.readouterr().out.replace(str(tmp_path), "")
        said = re.sub(r"about [0-9,]+ \w+", "about N bytes", re.sub(r"epoch \d+", "epoch E", said))
        said = re.sub(r"digest [0-9a-f]{64}", "digest D", said)
        said = re.sub(r"about [0-9.]+ s", "about T s", said)
        found.append(f"$ tussock plan {' '.join(['town', *options])}\n{said}")
    text = "\n".join(found)
    if request.config.getoption("--update-cases"):
        CASE.write_text(text)
    assert text == CASE.read_text()
