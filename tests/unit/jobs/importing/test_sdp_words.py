"""Statements of a declarative pipeline's SQL files."""

import pytest

from tussock.jobs.importing.sdp_words import (
    NOTE_ON_RIGHTS,
    ZONE_SETTING,
    AppendWords,
    ChangesWords,
    DatasetKind,
    DatasetWords,
    Expectation,
    SettingWords,
    UnreadableWords,
    UseWords,
    Violation,
    read_file_words,
)


def only_dataset(text: str) -> DatasetWords:
    (words,) = read_file_words(text)
    assert isinstance(words, DatasetWords), words
    return words


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("CREATE MATERIALIZED VIEW", DatasetKind.MATERIALIZED_VIEW),
        ("CREATE OR REFRESH MATERIALIZED VIEW", DatasetKind.MATERIALIZED_VIEW),
        ("CREATE OR REFRESH PRIVATE MATERIALIZED VIEW", DatasetKind.MATERIALIZED_VIEW),
        ("CREATE OR REFRESH LIVE TABLE", DatasetKind.MATERIALIZED_VIEW),
        ("CREATE STREAMING TABLE IF NOT EXISTS", DatasetKind.STREAMING_TABLE),
        ("CREATE OR REFRESH STREAMING TABLE", DatasetKind.STREAMING_TABLE),
        ("CREATE OR REFRESH STREAMING LIVE TABLE", DatasetKind.STREAMING_TABLE),
        ("CREATE TEMPORARY VIEW", DatasetKind.TEMPORARY_VIEW),
        ("CREATE TEMPORARY LIVE VIEW", DatasetKind.TEMPORARY_VIEW),
        ("CREATE TEMPORARY STREAMING LIVE VIEW", DatasetKind.TEMPORARY_VIEW),
        ("CREATE VIEW", DatasetKind.TEMPORARY_VIEW),
    ],
)
def test_each_head_names_a_kind(head: str, kind: DatasetKind) -> None:
    words = only_dataset(f"{head} sales.orders AS SELECT 1")
    assert (words.kind, words.name) == (kind, ("sales", "orders"))
    assert words.query is not None
    assert words.query.text == "SELECT 1"


def test_expectations_keep_their_condition_and_their_reaction() -> None:
    words = only_dataset(
        "CREATE STREAMING TABLE o (CONSTRAINT a EXPECT (x > (1 + 2)) ON VIOLATION DROP ROW,"
        " CONSTRAINT b EXPECT (y IS NOT NULL) ON VIOLATION FAIL UPDATE, CONSTRAINT c EXPECT (z = ')')) AS SELECT 1"
    )
    assert words.expectations == (
        Expectation("a", "x > (1 + 2)", Violation.DROP),
        Expectation("b", "y IS NOT NULL", Violation.FAIL),
        Expectation("c", "z = ')'", Violation.WARN),
    )
    assert words.columns is None


def test_only_a_list_of_names_renames_columns() -> None:
    assert only_dataset("CREATE VIEW v (a COMMENT 'first', b) AS SELECT 1, 2").columns == ("a", "b")
    typed = (
        "CREATE MATERIALIZED VIEW v (a MAP<STRING, DECIMAL(3, 1)> NOT NULL, CONSTRAINT k PRIMARY KEY (a)) AS SELECT 1"
    )
    assert only_dataset(typed).columns is None


def test_clauses_of_storage_are_skipped_and_the_comment_is_kept() -> None:
    words = only_dataset(
        "CREATE MATERIALIZED VIEW v USING delta PARTITIONED BY (a, b) COMMENT 'what' TBLPROPERTIES ('as' = 'x') "
        "CLUSTER BY AUTO AS WITH t AS (SELECT 1) SELECT * FROM t"
    )
    assert words.comment == "what"
    assert words.query is not None
    assert words.query.text.startswith("WITH t")


def test_the_place_of_a_query_is_the_one_in_the_file() -> None:
    words = only_dataset("-- a comment\n\nCREATE VIEW v AS\n  SELECT 1")
    assert words.place.line == 3
    assert words.query is not None
    assert (words.query.place.line, words.query.place.column) == (4, 3)


@pytest.mark.parametrize(
    ("text", "once", "by_name"),
    [
        ("CREATE FLOW f AS INSERT INTO t BY NAME SELECT 1 AS a", False, True),
        ("CREATE FLOW f AS INSERT INTO ONCE t BY NAME SELECT 1 AS a", True, True),
        ("CREATE FLOW f AS INSERT INTO t SELECT 1 AS a", False, False),
    ],
)
def test_flows_of_rows(text: str, once: bool, by_name: bool) -> None:
    (words,) = read_file_words(text)
    assert isinstance(words, AppendWords)
    assert (words.target, words.once, words.by_name, words.query.text) == (("t",), once, by_name, "SELECT 1 AS a")


@pytest.mark.parametrize(
    "head", ["CREATE FLOW f AS AUTO CDC INTO t", "APPLY CHANGES INTO t", "AUTO CDC INTO t", "APPLY CHANGES INTO LIVE.t"]
)
@pytest.mark.parametrize("source", ["STREAM(LIVE.s)", "STREAM s", "s", "STREAM read_files('/x', format => 'json')"])
def test_flows_of_changes(head: str, source: str) -> None:
    (words,) = read_file_words(f"{head} FROM {source} KEYS (id) SEQUENCE BY at STORED AS SCD TYPE 2")
    assert isinstance(words, ChangesWords)
    assert (words.target[-1], words.source.text, words.snapshots) == ("t", source, False)
    assert words.clauses == "KEYS (id) SEQUENCE BY at STORED AS SCD TYPE 2"


def test_a_streaming_table_with_its_flow_is_both() -> None:
    table, flow = read_file_words("CREATE STREAMING TABLE t FLOW AUTO CDC FROM SNAPSHOT s KEYS (id) SEQUENCE BY v")
    assert isinstance(table, DatasetWords)
    assert isinstance(flow, ChangesWords)
    assert (table.query, flow.target, flow.snapshots) == (None, ("t",), True)


def test_settings_and_defaults_of_names() -> None:
    assert read_file_words("SET a.b = 'c'; USE CATALOG x; USE SCHEMA y; USE x.y") == [
        SettingWords("a.b", "c"),
        UseWords("x", None),
        UseWords(None, "y"),
        UseWords("x", "y"),
    ]


def test_cells_of_a_notebook_end_statements() -> None:
    text = (
        "-- Databricks notebook source\n-- MAGIC %md text\n\n-- COMMAND ----------\n\nCREATE VIEW a AS SELECT 1\n\n"
        "-- COMMAND ----------\n\nCREATE VIEW b AS SELECT 2\n"
    )
    assert [words.name for words in read_file_words(text) if isinstance(words, DatasetWords)] == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("DROP TABLE x", "expected CREATE"),
        ("CREATE TABLE x (a INT)", "expected MATERIALIZED VIEW, STREAMING TABLE"),
        ("CREATE MATERIALIZED VIEW v", "expected AS and a query"),
        ("CREATE FLOW f AS INSERT INTO t REPLACE WHERE a = 1 SELECT 1", "expected a query"),
        ("APPLY CHANGES INTO t FROM s SEQUENCE BY x", "expected KEYS"),
    ],
)
def test_other_statements_have_a_reason(text: str, reason: str) -> None:
    first, second = read_file_words(f"{text}; CREATE VIEW v AS SELECT 1")
    assert isinstance(first, UnreadableWords)
    assert reason in first.reason
    assert isinstance(second, DatasetWords)


def test_a_flow_of_changes_reads_a_query() -> None:
    text = "APPLY CHANGES INTO t FROM (SELECT id, at FROM STREAM(o) WHERE id > 0) AS c KEYS (id) SEQUENCE BY at"
    (words,) = read_file_words(text)
    assert isinstance(words, ChangesWords)
    assert words.is_query
    assert words.source.text == "SELECT id, at FROM STREAM(o) WHERE id > 0"
    assert words.clauses.startswith("KEYS")


@pytest.mark.parametrize(
    ("head", "generated", "notes"),
    [
        ("t (id INT, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), CONSTRAINT a EXPECT (x > 1))", "day", ()),
        ("t (id DECIMAL(10, 2), n BIGINT GENERATED BY DEFAULT AS IDENTITY)", "n", ()),
        ("t (id INT, generated STRING)", "", ()),
        ("t (id INT MASK hide USING COLUMNS (a)) COMMENT 'mask'", "", (NOTE_ON_RIGHTS,)),
        ("t COMMENT 'x' WITH ROW FILTER mine ON (id)", "", (NOTE_ON_RIGHTS,)),
        ("row_filter", "", ()),
    ],
)
def test_clauses_that_change_what_readers_see_are_found(head: str, generated: str, notes: tuple[str, ...]) -> None:
    words = only_dataset(f"CREATE STREAMING TABLE {head} AS SELECT 1")
    assert (words.generated, words.notes) == (generated, notes)


def test_the_time_zone_is_a_setting() -> None:
    words = read_file_words("SET TIME ZONE 'Europe/Oslo'; SET x = 1")
    assert words == [SettingWords(ZONE_SETTING, "Europe/Oslo"), SettingWords("x", "1")]
