"""Reads of files as sources."""

import pytest

from tussock.jobs.importing.sdp_reads import SourceRead, UnsupportedReadError, read_of_call, read_of_options
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of


def read_call(text: str) -> SourceRead:
    function, *arguments = tokens_of(SourceText(text))
    return read_of_call(function.text, arguments[1:-1])


def test_read_files_has_named_arguments() -> None:
    read = read_call(
        "read_files('s3a://b/o', format => 'csv', header => true, sep => ';', schema => 'id INT, n STRING')"
    )
    assert read == SourceRead("csv", "s3://b/o", "id INT, n STRING", (("header", "true"), ("sep", ";")), True)
    assert read.to_sql("o_files", read.path, read.columns) == (
        "CREATE SOURCE o_files (id INT, n STRING) USING csv OPTIONS "
        "(path 's3://b/o', header 'true', sep ';', may_be_missing 'true')"
    )


def test_cloud_files_has_a_map_of_options() -> None:
    read = read_call("cloud_files('/o', 'json', map('cloudFiles.inferColumnTypes', 'true', 'multiLine', 'true'))")
    assert read == SourceRead("json", "/o", None, (("multiLine", "true"),), True)


def test_the_options_of_a_stream_do_not_reach_the_source() -> None:
    options = {
        "cloudFiles.format": "csv",
        "cloudFiles.schemaLocation": "/s",
        "cloudFiles.schemaHints": "id INT",
        "cloudFiles.maxFilesPerTrigger": "1",
        "pathGlobFilter": "*.csv",
        "header": "true",
    }
    read = read_of_options("cloudFiles", "/o/", options, None, infers=False)
    assert read == SourceRead("csv", "/o/*.csv", None, (("header", "true"),), False, "id INT")


def test_a_topic_keeps_the_options_of_its_client() -> None:
    read = read_of_options(
        "kafka",
        "",
        {"kafka.bootstrap.servers": "h:9092", "subscribe": "t", "failOnDataLoss": "false"},
        None,
        infers=False,
    )
    assert read.to_sql("t", "", None) == (
        "CREATE SOURCE t USING kafka OPTIONS (kafka.bootstrap.servers 'h:9092', subscribe 't')"
    )


def test_a_place_in_azure_names_its_account() -> None:
    read = read_of_options("parquet", "abfss://c@acct.dfs.core.windows.net/p/q", {}, None, infers=False)
    assert (read.path, dict(read.options)) == ("az://c/p/q", {"account": "acct"})


def test_a_mode_that_drops_records_quarantines_them() -> None:
    read = read_of_options("csv", "/o", {"mode": "DROPMALFORMED"}, "a INT", infers=False)
    assert dict(read.options) == {"on_error": "quarantine"}
    assert read.notes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cloud_files('/o', '')", "its format is not named"),
        ("read_files('/o', format => 'rate')", "no source reads it"),
        ("read_files(concat('/a', x), format => 'csv')", "expected a constant"),
        ("cloud_files('/o')", "expected cloud_files(path, format"),
        ("read_files('/o', format => 'delta', readChangeFeed => true)", "Read the table itself"),
        ("read_files('/o', format => 'delta', startingVersion => 3)", "no fixed start"),
    ],
)
def test_other_reads_have_a_reason(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedReadError, match=reason.replace("(", r"\(")):
        read_call(text)


def test_auto_loader_assumes_that_csv_files_have_headers() -> None:
    auto = {"cloudFiles.format": "csv"}
    assert dict(read_of_options("cloudFiles", "/a", auto, None, infers=False).options) == {"header": "true"}
    assert dict(read_of_options("cloudFiles", "/a", auto, "id INT", infers=False).options) == {}
    without = {**auto, "header": "false"}
    assert dict(read_of_options("cloudFiles", "/a", without, None, infers=False).options) == {"header": "false"}
    assert dict(read_of_options("csv", "/a", {}, None, infers=False).options) == {}


def test_read_files_may_leave_the_format_to_the_files() -> None:
    assert read_call("read_files('/o')").format == ""
