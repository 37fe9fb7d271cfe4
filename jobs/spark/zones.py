"""The rules of time zones in the running JVM, which must be those that the store has recorded."""

from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tussock.jobs.settings.java_zones import rules_in, serialized_rules
from tussock.jobs.settings.zone_errors import UnknownZoneError, ZoneRulesDifferError
from tussock.statestore.forks import new_rlock
from tussock.statestore.zones import RuledZone, ZoneRules, digest_of, is_utc, name_of, rules_of

_lock = new_rlock()
_read: WeakKeyDictionary[JavaGateway, dict[str, ZoneRules]] = WeakKeyDictionary()  # by the zone's name


def rules_of_jvm(spark: SparkSession, name: str) -> ZoneRules:
    """The rules of a zone in the JVM of a session. Raises UnknownZoneError. Cost: once, about ten calls of the JVM."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a classic Spark session always has its JVM"
    with _lock:
        known = _read.setdefault(gateway, {})
        if name not in known:
            known[name] = _rules_of_zone(gateway.jvm, name)
        return known[name]


def ruled_by_jvm(spark: SparkSession, zone: str) -> RuledZone:
    """A zone with the JVM's rules, if it has none yet. Otherwise the zone, whose rules the JVM must share.

    Raises: UnknownZoneError, ZoneRulesDifferError.
    """
    if is_utc(zone):
        return RuledZone(zone)
    rules = rules_of_jvm(spark, name_of(zone))
    if not digest_of(zone):
        return rules.ruled_zone
    if rules.digest != digest_of(zone):
        raise ZoneRulesDifferError.of_rules(rules_of(zone), rules)
    return RuledZone(zone)


def zone_in_jvm(jvm: Any, name: str) -> Any:
    """Java's ZoneId of a name, as Spark's functions read it. Raises UnknownZoneError."""
    try:
        return getattr(jvm, "org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(name)
    except (Py4JJavaError, PySparkException) as err:  # the latter for a SparkThrowable of Spark 4.1 and later
        raise UnknownZoneError(name, f"Java {jvm.java.lang.System.getProperty('java.version')}") from err


def _rules_of_zone(jvm: Any, name: str) -> ZoneRules:
    version = jvm.java.lang.System.getProperty("java.version")
    rules = zone_in_jvm(jvm, name).getRules()
    bytes_of = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(bytes_of)
    stream.writeObject(rules)
    stream.close()
    origin = f"Java {version}, tz database {_database_version(jvm)}"
    return rules_in(serialized_rules(bytes(bytes_of.toByteArray())), name, origin)


def _database_version(jvm: Any) -> str:
    """The version of the JVM's tz database, such as 2026a."""
    return str(getattr(jvm, "java.time.zone.ZoneRulesProvider").getVersions("UTC").lastKey())
