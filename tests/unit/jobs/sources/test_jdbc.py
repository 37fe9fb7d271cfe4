"""Statements about tables of databases that would give other rows than the table's. Needs no database, and no Spark."""

import re

import pytest

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource, KeyedBy
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
