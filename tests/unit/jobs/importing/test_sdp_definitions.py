"""Python files of a declarative pipeline, run against the recorder, without Spark."""

from pathlib import Path

import pytest

from tussock.jobs.importing.sdp_recorder import PythonFileError, Recorder, recording
from tussock.jobs.importing.sdp_words import NO_ONCE, NOTE_ON_RIGHTS

LOOP = """
from MODULE import pipelines as dp
for town in ("oslo", "bergen"):
    @dp.table(name=f"sales_{town}")
    def sales():
        return town, late
def define(town):
    for part in (1, 2):
        @dp.append_flow(target=f"sales_{town}")
        def more():
            return town, part
define("oslo")
late = "defined later"
"""


def record(folder: Path, text: str) -> Recorder:
    (folder / "a.py").write_text(text, encoding="utf-8")
    recorder = Recorder(folder, str)
    with recording(recorder, [folder], lambda name: pytest.fail(name)):
        recorder.run_file(folder / "a.py", {})
    return recorder


def test_a_function_of_open_spark_reads_the_variables_of_its_definition(tmp_path: Path) -> None:
    recorder = record(tmp_path, LOOP.replace("MODULE", "pyspark"))
    answers = [one.query.function() for one in recorder.datasets if one.query is not None]
    assert answers == [("oslo", "defined later"), ("bergen", "defined later")]
    assert [one.query.function() for one in recorder.appends] == [("oslo", 1), ("oslo", 2)]


def test_a_function_of_databricks_reads_the_variables_of_the_end(tmp_path: Path) -> None:
    recorder = record(tmp_path, LOOP.replace("from MODULE import pipelines as dp", "import dlt as dp"))
    answers = [one.query.function() for one in recorder.datasets if one.query is not None]
    assert answers == [("bergen", "defined later")] * 2
    assert [one.query.function() for one in recorder.appends] == [("oslo", 2), ("oslo", 2)]


def test_a_file_that_ends_the_process_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PythonFileError, match="SystemExit: 1"):
        record(tmp_path, "import sys\nsys.exit(1)\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [("x = 1\n\nimport nothing_here\n", 3), ("x = 1\ndef f(:\n", 2), ("def f():\n    1 / 0\nf()\n", 2)],
)
def test_an_error_of_a_file_has_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(PythonFileError) as raised:
        record(tmp_path, text)
    assert raised.value.line == line


def test_arguments_without_a_counterpart_are_recorded(tmp_path: Path) -> None:
    text = """
import dlt
dlt.create_streaming_table("a", schema="id INT, day DATE GENERATED ALWAYS AS (CAST(at AS DATE))")
dlt.create_auto_cdc_flow("a", "b", ["id"], "at", once=True)
dlt.create_auto_cdc_flow("a", "b", ["id"], "at", name="f", ignore_nulls_of=["id"])
@dlt.table(row_filter="ROW FILTER mine ON (id)", spark_conf={"spark.sql.ansi.enabled": "false"})
def b():
    return 1
"""
    recorder = record(tmp_path, text)
    assert [one.words.generated for one in recorder.datasets] == ["day", ""]
    assert recorder.datasets[1].words.notes == (NOTE_ON_RIGHTS,)
    assert [(key, value) for key, value, _ in recorder.settings] == [("spark.sql.ansi.enabled", "false")]
    assert [one.words.refusal for one in recorder.changes] == [
        NO_ONCE,
        "its argument ignore_nulls_of is unknown, so its rows are too. Remove it, or write AUTO CDC in SQL",
    ]
    assert not recorder.left_out


def test_a_query_function_is_any_object_that_can_be_called(tmp_path: Path) -> None:
    text = """
from functools import partial
from pyspark import pipelines as dp
class Rows:
    def __call__(self):
        return "rows"
def of(town):
    return town
dp.materialized_view(partial(of, "oslo"), name="oslo")
dp.materialized_view(Rows(), name="rows")
"""
    recorder = record(tmp_path, text)
    assert [one.query.function() for one in recorder.datasets if one.query is not None] == ["oslo", "rows"]
    assert [str(one.file) for one in recorder.datasets] == ["a.py:7", "a.py:10"]
