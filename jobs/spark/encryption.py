"""Whether a Spark application encrypts: the settings, read as Spark reads them.

The settings come from the page "Security" of Spark's documentation, releases 4.0 to 4.3, which list the same ones.
`tests/unit/jobs/spark/test_encryption.py` compares them with all that the installed Spark's classes name.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkConf

#: Spark's processes encrypt what they send to each other. `spark.ssl.enabled` covers pages only, and is not inherited
#: by `spark.ssl.rpc.enabled`; it shows that the application's traffic should be private.
TRAFFIC = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.network.sasl.serverAlwaysEncrypt",
    "spark.ssl.enabled",
)

#: Spark encrypts its files on the local disks, and sends them as they are.
FILES = ("spark.io.encryption.enabled",)

_BLANK = "".join(map(chr, range(33)))  # the characters that Java's `trim` removes


def is_on(conf: "SparkConf", name: str) -> bool:
    """Whether a Boolean setting, off by default, is on. Spark accepts any case, and blanks around the word."""
    return (conf.get(name) or "").strip(_BLANK).lower() == "true"


def why_encrypted(conf: "SparkConf") -> str | None:
    """The setting with which an application encrypts its traffic or its files; None if it encrypts neither."""
    return next((name for name in (*TRAFFIC, *FILES) if is_on(conf, name)), None)


def encrypts_files(conf: "SparkConf") -> bool:
    """Whether an application encrypts its files on the local disks."""
    return any(is_on(conf, name) for name in FILES)
