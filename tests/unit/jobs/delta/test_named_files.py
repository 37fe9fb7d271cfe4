"""A table may name files in its folder, and in the folders of other tables that its user names."""

import pytest

from tussock.jobs.delta.delta_errors import OutsideFileError
from tussock.jobs.delta.named_files import require_inside

LOCAL, BUCKET, GOOGLE, HDFS = (
    "/data/the table",
    "s3://lake/the table",
    "gs://lake/the table",
    "hdfs://name:8020/the table",
)
INSIDE = {
    LOCAL: (
        "part-0.parquet",
        "ts=2026-01-01 00:00:00/part-0.parquet",
        "ts=2026-01-01%2000%3A00%3A00/part-0.parquet",
        "a..b/..c/d..parquet",
        "_change_data/cdc-0.parquet",
        "./p=1/../p=2/part-0.parquet",
        "p=%2Fetc%2Fpasswd/part-0.parquet",
        "c:d.parquet",
        "/data/the table/part-0.parquet",
        "file:/data/the table/part-0.parquet",
        "file:///data/the%20table/part-0.parquet",
        "p=50%/part-0.parquet",
    ),
    BUCKET: (
        "part-0.parquet",
        "p=a%2Fb/part-0.parquet",
        "s3://lake/the table/part-0.parquet",
        "s3a://lake/the%20table/part-0.parquet",
    ),
    GOOGLE: ("part-0.parquet", "gs://lake/the table/part-0.parquet", "gs://lake/the%20table/p=1/part-0.parquet"),
    HDFS: ("part-0.parquet", "hdfs://name:8020/the table/part-0.parquet"),
}
OUTSIDE = {
    LOCAL: (
        "../secret/x.parquet",
        "%2E%2E/secret/x.parquet",
        "%252E%252E/secret/x.parquet",
        "%25252E./secret/x.parquet",
        "%25252525252525252E./x.parquet",
        "a/../../secret/x.parquet",
        "p=1/%2e%2e%2f%2e%2e%2fsecret/x.parquet",
        "..\\secret\\x.parquet",
        "..%5Csecret/x.parquet",
        ".\t./secret/x.parquet",
        ".%0A./secret/x.parquet",
        "/data/secret/x.parquet",
        "//data/secret/x.parquet",
        "/data/the table/../secret/x.parquet",
        "/data/the table2/x.parquet",
        "/data/the table",
        "file:/etc/passwd",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file://localhost/etc/passwd",
        "file:../secret/x.parquet",
        "har:/data/secret.har/x.parquet",
        "viewfs:/secret/x.parquet",
        "webhdfs:/secret/x.parquet",
        "jar:file:/data/secret.jar",
        "s3://lake/the table/part-0.parquet",
        "http://localhost/part-0.parquet",
        "gs://lake/part-0.parquet",
        "abfss://c@a.dfs.core.windows.net/x.parquet",
        " ../secret/x.parquet",
        "",
        "..",
    ),
    BUCKET: (
        "../secret/x.parquet",
        "/etc/passwd",
        "file:///etc/passwd",
        "s3://other/the table/part-0.parquet",
        "s3://lake/secret/x.parquet",
        "s3://lake/the table/../secret/x.parquet",
        "s3://lake/the%20table/%2e%2e/secret/x.parquet",
        "s3://lake",
        "s3://",
        "s3:lake/the table/x.parquet",
        "S3://lake/../other/x.parquet",
        "gs://lake/the table/part-0.parquet",
    ),
    GOOGLE: (
        "../secret/x.parquet",
        "/etc/passwd",
        "file:///etc/passwd",
        "gs://other/the table/part-0.parquet",
        "gs://lake/the table/%2e%2e/secret/x.parquet",
        "gs:lake/the table/x.parquet",
        "s3://lake/the table/part-0.parquet",
        "az://lake/the table/part-0.parquet",
    ),
    HDFS: (
        "../secret/x.parquet",
        "hdfs://name:8020/secret/x.parquet",
        "hdfs://other:8020/the table/part-0.parquet",
        "hdfs:/the table/part-0.parquet",
        "file:///etc/passwd",
    ),
}


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, names in INSIDE.items() for name in names])
def test_a_file_in_the_tables_folder_is_accepted(table: str, name: str) -> None:
    require_inside(name, table, (), "clone_of")


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, names in OUTSIDE.items() for name in names])
def test_a_file_elsewhere_is_refused_in_every_spelling(table: str, name: str) -> None:
    with pytest.raises(OutsideFileError, match="outside of the table's folder"):
        require_inside(name, table, (), "clone_of")


def test_the_folders_of_other_tables_are_accepted_if_the_user_names_them() -> None:
    others = ("/data/secret/", "s3://other/base")
    for name in ("../secret/x.parquet", "file:///data/secret/a/x.parquet", "s3a://other/base/x.parquet"):
        require_inside(name, LOCAL, others, "clone_of")
        require_inside(name.replace("../", "/data/"), BUCKET, others, "clone_of")
    for name in (
        "/data/secrets/x.parquet",
        "s3://other/base2/x.parquet",
        "s3://other/x.parquet",
        "file:///other/base/x",
    ):
        with pytest.raises(OutsideFileError):
            require_inside(name, LOCAL, others, "clone_of")


def test_a_table_in_the_root_folder_has_every_file_of_its_bucket() -> None:
    require_inside("s3://lake/x.parquet", "s3://lake/", (), "clone_of")
    with pytest.raises(OutsideFileError):
        require_inside("s3://other/x.parquet", "s3://lake/", (), "clone_of")
