"""Redaction against the lists and the texts of other programs: Airflow, Hadoop, Spark, and the documentation."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
from airflow.sdk._shared.secrets_masker.secrets_masker import DEFAULT_SENSITIVE_FIELDS

from tussock.jobs.settings.redaction import is_secret_name, without_secrets

DOCS = Path(__file__).parents[4] / "docs"
JARS = Path(pyspark.__file__).parent / "jars"
SECRET = "q7Zt0pSECRETx9Lk"
# Of these, a value is a credential by its own shape: an address, a private key, or one that looks random.
BY_VALUE = {"service_account", "dsn", "webhook_url", "proxy", "proxies", "keyfile_dict", "connection_string", "bearer"}


def test_the_names_that_airflow_and_hadoop_hide_are_those_of_credentials() -> None:
    for name in sorted(DEFAULT_SENSITIVE_FIELDS - BY_VALUE):
        assert SECRET not in without_secrets(f"{name}={SECRET}"), name
    for name in _hadoop_names():
        assert SECRET not in without_secrets(f"{name}={SECRET}"), name
        assert name.endswith("credential") or "oauth" in name or is_secret_name(name), name


def _hadoop_names() -> Iterator[str]:
    """The settings that Hadoop hides, by its own list: patterns, each with a name that it matches."""
    with zipfile.ZipFile(next(JARS.glob("hadoop-client-api-*.jar"))) as jar:
        text = jar.read("core-default.xml").decode()
    found = re.search(r"<name>hadoop.security.sensitive-config-keys</name>\s*<value>(.*?)</value>", text, re.DOTALL)
    assert found is not None
    for pattern in found[1].split():
        # A pattern that ends with a star also means names of accounts and addresses.
        if not pattern.endswith(("*", "algorithm", "context", "provider.type")) and "sensitive-config" not in pattern:
            yield pattern.replace(".*", ".x").replace("*", "x").rstrip("$").lstrip("^")


def test_no_page_of_the_documentation_and_no_error_of_spark_changes() -> None:
    with zipfile.ZipFile(next(JARS.glob("spark-common-utils_*.jar"))) as jar:
        conditions = jar.read("error/error-conditions.json").decode()
    pages = [page.read_text() for page in sorted(DOCS.rglob("*.md"))]
    lines = [line for text in (conditions, *pages) for line in text.splitlines()]
    assert len(lines) > 10_000
    assert [line for line in lines if without_secrets(line) != line] == []
