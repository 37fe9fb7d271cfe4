"""The settings with which Spark encrypts, read as Spark reads them."""

import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest
from pyspark import SparkConf

from tests.support.jobs.spark.encryption import BLANKS, TEXTS
from tussock.jobs.spark.encryption import FILES, TRAFFIC, encrypts_files, is_on, why_encrypted

#: Settings that encrypt nothing themselves: how to encrypt, for settings that are on.
DETAILS = re.compile(
    r"""spark\.(
        io\.(crypto\.cipher\.transformation | encryption\.(commons\.config\. | keySizeBits | keygen\.algorithm))
        | network\.crypto\.(authEngineVersion | cipher | config\. | saslFallback)
        | network\.(sasl | ssl)\.maxEncryptedBlockSize
        | shuffle\.sasl\.enableRetries
        | ssl(\. | \.rpc)?
        | ssl\.rpc\.(certChain | enabledAlgorithms | (key | trust)Store(Password)? | (privateK | k)ey(Password)?
            | openSslEnabled | protocol | trustStoreReload(IntervalMs | ingEnabled))
    )""",
    re.VERBOSE,
)
CLASSES = re.compile(r"/config/|SSLOptions|TransportConf|SecurityManager|CryptoStreamUtils|AuthEngine")
NAMED = re.compile(rb"spark\.[\w.]*(?:crypt|ssl|sasl|tls)[\w.]*", re.IGNORECASE)


def named_by_spark() -> Iterator[str]:
    """The settings about encryption in the constants of Spark's classes."""
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"):
        with ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and CLASSES.search(name):
                    yield from (found.decode() for found in NAMED.findall(archive.read(name)))


def test_every_setting_about_encryption_of_the_installed_spark_is_known() -> None:
    found = set(named_by_spark())
    assert len(found) > 20, "the classes are not where they were"
    unknown = {name for name in found if name not in (*TRAFFIC, *FILES) and not DETAILS.fullmatch(name)}
    assert not unknown, "decide whether these settings encrypt, in jobs/spark/encryption.py or here"
    inherited = {"spark.ssl.enabled"}  # made of a prefix and `.enabled`
    assert {*TRAFFIC, *FILES} - inherited <= found, "Spark does not have these settings any more"


@pytest.mark.parametrize("name", [*TRAFFIC, *FILES])
@pytest.mark.parametrize("text", [*TEXTS, *BLANKS])
def test_a_setting_is_on_in_any_case(name: str, text: str) -> None:
    conf = SparkConf(loadDefaults=False, _jvm=None).set(name, text)
    expected = text.strip().lower() == "true"
    assert is_on(conf, name) is expected
    assert why_encrypted(conf) == (name if expected else None)
    assert encrypts_files(conf) is (expected and name in FILES)


def test_nothing_is_on_by_default() -> None:
    conf = SparkConf(loadDefaults=False, _jvm=None)
    assert why_encrypted(conf) is None
    assert not encrypts_files(conf)
