"""Tables of databases: statements that would give other rows than the table's, and when a run stores a dump.

Needs no database, and no Spark.
"""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.jobs.driver.embedded import append, insert, new_store, open_store
from tests.support.jobs.plan.catalogs import table as create_table
from tussock.jobs.barriers.moment import InputRequest
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, KeyedBy
from tussock.jobs.operations.epochs import inject_barrier
from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError
from tussock.jobs.sources.keyed import JDBC
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.errors import InputError

FIELDS = (Field("id", "int"), Field("at", "timestamp"), Field("code", "varchar(9)"))


def table(keyed: bool, **options: str) -> CreateSource:
    given = {"path": "/dumps", "url": "jdbc:postgresql://h/shop", "dbtable": "t", **options}
    source = CreateSource("t", JDBC, FIELDS, given, keyed=KeyedBy((0,)) if keyed else None)
    own = reader_of(source).default_options(given)
    return CreateSource("t", JDBC, FIELDS, own | given, keyed=source.keyed)


@pytest.mark.parametrize(
    ("keyed", "options", "error", "reason"),
    [
        (False, {}, MissingOptionError, "(each dump is the whole table)"),
        (True, {"changes": "snapshot", "watermark_column": "at"}, BadOptionError, "would count as deleted"),
        (True, {"changes": "upsert", "watermark_column": "Code"}, BadOptionError, "by its own collation"),
        *(
            (True, {"changes": "upsert", "path": path}, BadOptionError, "expected a folder of a file system")
            for path in ("s3://bucket/dumps", "gs://bucket/dumps", "/dumps/*", "/dumps/{day}")
        ),
    ],
)
def test_a_statement_whose_dumps_would_mean_other_rows_is_refused(
    keyed: bool, options: dict[str, str], error: type[InputError], reason: str
) -> None:
    source = table(keyed, **options)
    with pytest.raises(error, match=re.escape(reason)):
        reader_of(source).check(source)


@pytest.mark.parametrize("options", [{"changes": "upsert", "watermark_column": "at"}, {"changes": "snapshot"}])
def test_dumps_of_all_rows_and_of_changed_rows_are_accepted(options: dict[str, str]) -> None:
    source = table(True, **options)
    reader_of(source).check(source)


def test_each_run_stores_one_dump_also_if_it_first_finishes_the_barrier_of_a_killed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps: list[str] = []
    monkeypatch.setattr("tussock.jobs.sources.jdbc.store_dump", lambda source, spark: dumps.append(source.name))
    monkeypatch.setattr("tussock.jobs.operations.epochs.spark_of", lambda pipeline, name: nullcontext())
    meta = new_store(tmp_path / "store")
    database = table(True, changes="snapshot", path=str(tmp_path / "dumps"), may_be_missing="true")
    append(meta, create_table("other"), database)
    pipeline = Pipeline("shop", tmp_path, str(tmp_path / "store"), ())
    inject_barrier(PipelineStore(pipeline, meta), InputRequest())
    assert dumps == ["t"]
    advance_store(LocalRunner(), meta)
    insert(meta, "other", (1, 1, 1))
    killed, later = (open_store(tmp_path / "store", name) for name in ("killed", "later"))
    barrier = inject_barrier(PipelineStore(pipeline, killed), InputRequest())
    assert dumps == ["t"] * 2
    assert inject_barrier(PipelineStore(pipeline, later), InputRequest()) == barrier
    assert dumps == ["t"] * 3
