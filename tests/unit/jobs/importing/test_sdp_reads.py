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
    options = (("header", "true"), ("recursiveFileLookup", "true"), ("sep", ";"))
    assert read == SourceRead("csv", "s3://b/o", "id INT, n STRING", options, True)
    assert read.to_sql("o_files", read.path, read.columns) == (
        "CREATE SOURCE o_files (id INT, n STRING) USING csv OPTIONS "
        "(path 's3://b/o', header 'true', recursiveFileLookup 'true', sep ';', may_be_missing 'true')"
    )


def test_cloud_files_has_a_map_of_options() -> None:
    read = read_call("cloud_files('/o', 'json', map('cloudFiles.inferColumnTypes', 'true', 'multiLine', 'true'))")
    assert read == SourceRead("json", "/o", None, (("multiLine", "true"), ("recursiveFileLookup", "true")), True)


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
    assert read == SourceRead("csv", "/o/**/*.csv", None, (("header", "true"),), False, "id INT")


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
    def header_of(format: str, columns: str | None, **options: str) -> str | None:
        auto = {"cloudFiles.format": "csv", **options}
        return dict(read_of_options(format, "/a", auto, columns, infers=False).options).get("header")

    assert header_of("cloudFiles", None) == "true"
    assert header_of("cloudFiles", "id INT") is None
    assert header_of("cloudFiles", None, header="false") == "false"
    assert read_of_options("csv", "/a", {}, None, infers=False).options == ()


def test_read_files_may_leave_the_format_to_the_files() -> None:
    assert read_call("read_files('/o')").format == ""


@pytest.mark.parametrize(
    ("text", "path", "is_nested"),
    [
        ("read_files('/o', format => 'json')", "/o", True),
        ("read_files('/o', format => 'json', recursiveFileLookup => false)", "/o", False),
        ("read_files('/o/*/x', format => 'json')", "/o/*/x", False),
        ("read_files('/o', format => 'json', fileNamePattern => '*.json')", "/o/**/*.json", False),
        ("cloud_files('/o', 'delta')", "/o", False),
    ],
)
def test_a_folder_of_databricks_means_all_files_below_it(text: str, path: str, is_nested: bool) -> None:
    read = read_call(text)
    options = {key.lower(): value for key, value in read.options}
    assert (read.path, options.get("recursivefilelookup") == "true") == (path, is_nested)


def test_a_folder_of_spark_means_the_files_in_it() -> None:
    read = read_of_options("csv", "/o", {"pathGlobFilter": "*.csv"}, "a INT", infers=False)
    assert (read.path, read.options) == ("/o/*.csv", ())
