"""The page of versions: made from the record of `make matrix`, and the counts come from the reports."""

import json
from pathlib import Path

from scripts.matrix import CELLS, PAGE, RECORD, SUITES, counted, new_functions, page

REPORT = """<testsuites><testsuite>
<testcase name="a"/>
<testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><error message="x"/></testcase>
<testcase name="d"><skipped message="needs Spark 4.1"/></testcase>
<testcase name="e"><skipped message="not on this machine"/></testcase>
</testsuite></testsuites>"""


def test_the_page_is_made_from_the_record() -> None:
    assert PAGE.read_text() == page(json.loads(RECORD.read_text()), new_functions()), (
        "run `python -m scripts.matrix page`"
    )


def test_no_recorded_suite_failed() -> None:
    record = json.loads(RECORD.read_text())
    suites = [(cell, name, one) for cell, found in record.items() for name, one in found["suites"].items()]
    assert [(cell, name) for cell, name, one in suites if one["failed"] or not one["passed"]] == []
    assert {cell for cell, _, _ in suites} <= {cell.name for cell in CELLS}
    assert {name for _, name, _ in suites} <= SUITES.keys()


def test_every_suite_names_tests_that_exist() -> None:
    root = Path(__file__).parents[3]
    assert [path for paths in SUITES.values() for path in paths if not (root / path.split()[0]).exists()] == []


def test_a_report_is_counted_by_outcome(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert counted(tmp_path / "report.xml") == {"passed": 1, "failed": 2, "lacks": 1}
