"""The Spark session: the settings that an epoch needs, in one place."""

import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tussock.jobs.settings.debugging import debugging
from tussock.jobs.spark.class_archive import submit_options
from tussock.jobs.spark.executor_watch import watch_executors

LOGGING = Path(__file__).with_name("log4j2.properties")

LOCAL_MASTER = "local[2,4]"  # the second number lets tasks be retried; plain local[N] retries nothing

_TIME_ZONE = "spark.sql.session.timeZone"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

#: What SQL means, in each session that reads or computes it.
SQL: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timeType.enabled": "true",  # else a column of times of day stops whatever reads its table
}

#: What an epoch's correctness needs, whatever the master.
REQUIRED: Mapping[str, str] = {
    # attempts of a task that disagree are caught instead of mixed
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    _TIME_ZONE: "UTC",
    **SQL,
}

#: What an epoch's own jobs want, and no other query of the application should get.
EPOCH: Mapping[str, str] = {
    # Of cells, which are large, few make a batch: what bounds it is its bytes. Rows that Spark computes on come by thousands.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # else a part shared by two expressions is computed ahead of the CASE that guards it in either
    "spark.sql.subexpressionElimination.enabled": "false",
    # Exchanges are sized by the plan, one partition a unit: planning again after each would find nothing to change.
    "spark.sql.adaptive.enabled": "false",
}

#: What keeps an application closed to the network, where nobody asked for more.
CLOSED: Mapping[str, str] = {"spark.ui.enabled": "false"}

#: What makes small epochs quick.
DEFAULTS: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.codegen.wholeStage": "true",
}

#: Where the driver is the whole cluster it needs no network, and none of the machine's names; workers elsewhere could not call it back.
#: Its ports are on the loopback interface, and answer nobody but Spark's own processes, which share a secret that Spark makes up.
LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
}
_LOCAL = re.compile(r"local(\[.*\])?")

#: Lines that a JVM prints before Spark's logging is there, and that mean nothing to anybody: Spark asks for a module that Java calls young.
NOISE = re.compile(rb"WARNING: Using incubator modules: ")


_application_lock = threading.RLock()  # held while an application starts or stops, and while its users are counted


class _Users:
    """The sessions that use the application that this process started for the first of them."""

    context: SparkContext | None = None
    count = 0


_users = _Users()


def join_spark(given: SparkSession | None = None) -> tuple[SparkSession, bool]:
    """Use this process's Spark application: `given`'s, the one that runs already, or a new one.

    Returns: the Spark session, and whether to call `leave_spark` later. An application that the caller's code started is not counted.
    """
    with _application_lock:
        is_new = given is None and SparkContext._active_spark_context is None
        spark = build_spark() if given is None else given
        if is_new:
            _users.context, _users.count = spark.sparkContext, 0
        if spark.sparkContext is not _users.context:
            return spark, False
        _users.count += 1
        return spark, True


def leave_spark(spark: SparkSession) -> None:
    """End a use that `join_spark` counted. The last one stops the application."""
    with _application_lock:
        if spark.sparkContext is not _users.context:
            return  # somebody stopped the application meanwhile, and a new one runs
        _users.count -= 1
        if not _users.count:
            _users.context = None
            spark.stop()


@contextmanager
def spark_session(app_name: str = "tussock", settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """`build_spark`'s session, stopped at the end; but one that was there before is used and left running."""
    found = SparkSession.getActiveSession()
    spark = build_spark(app_name, settings=settings)
    try:
        yield spark
    finally:
        if found is None:
            spark.stop()


def build_spark(
    app_name: str = "tussock", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The active session as it is, or a new one with everything an epoch needs.

    Local workers start this Python. On a cluster, they start the one that PYSPARK_PYTHON or `spark.pyspark.python` names, `python3` of
    their PATH if none does, and get this code by spark-submit's --py-files, or from a session's `sparkContext.addPyFile`.

    Args:
        master: of a new session. Where None, spark-submit's; else the one in `settings` (`spark.master`), else LOCAL_MASTER.
        settings: of a new session. They override DEFAULTS, never REQUIRED.
    """
    with _application_lock:
        if SparkContext._active_spark_context is not None:
            return (
                SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
            )  # a builder with settings would change the user's
        chosen = _settings_of_a_new_application(master, dict(settings or {}))
        _start_jvm({"spark.app.name": app_name, **chosen})
        builder = SparkSession.builder.appName(app_name)
        for name, value in {**chosen, **REQUIRED}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        watch_executors(spark.sparkContext)
        return spark


def _settings_of_a_new_application(master: str | None, chosen: dict[str, str]) -> dict[str, str]:
    if master is None and ("SPARK_SUBMIT_MODE" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ):
        # spark-submit has settled master and memory, and started the JVM, which knows what it was given.
        chosen.pop("spark.master", None)
        SparkContext._ensure_initialized()
        given = SparkConf()
        closed = {**CLOSED, **_local_defaults(given.get("spark.master") or "")}
        return {**{name: value for name, value in closed.items() if not given.contains(name)}, **chosen}
    master = master or chosen.get("spark.master", LOCAL_MASTER)
    if local := _local_defaults(master):
        # Local workers are this Python, which has the packages and the code; what is set may be meant for a cluster's.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    return {**DEFAULTS, **CLOSED, **local, **chosen, **_quiet(chosen), "spark.master": master}


def _local_defaults(master: str) -> Mapping[str, str]:
    return LOCAL_DEFAULTS if _LOCAL.fullmatch(master) else {}


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, if there is none, with an ear on what it prints. A person who debugs gets all of it, as it comes."""
    if debugging() or SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    reader, writer = os.pipe()
    relay = threading.Thread(target=_relay, args=(os.fdopen(reader, "rb"),), name="jvm-stderr", daemon=True)
    relay.start()
    try:
        with _environment(submit_options()):
            gateway = launch_gateway(conf, popen_kwargs={"stderr": writer})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(writer)
        relay.join(timeout=1.0)  # its last words say why
        raise
    os.close(writer)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """This process's variables, with others for a moment: a JVM that pyspark starts gets no others."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _relay(lines: IO[bytes]) -> None:
    """Pass a JVM's lines on to standard error, until it ends."""
    with lines:
        for line in lines:
            if not NOISE.match(line):
                os.write(2, line)


def _quiet(chosen: Mapping[str, str]) -> Mapping[str, str]:
    """Log Spark's errors only, from the JVM's first line on, before the user's own options for the JVM, which win. Nothing if a person
    debugs, or if the file is within an archive."""
    if debugging() or not LOGGING.is_file():
        return {}
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {chosen.get(_JAVA_OPTIONS, '')}".rstrip()}


def sql_session(spark: SparkSession, time_zone: str, settings: Mapping[str, str] = SQL) -> SparkSession:
    """A new session on the user's Spark application, in which SQL means what it means in views. The user's session does not change. Every
    session that reads or computes rows is made here, so none has the time zone of another by chance.

    Args:
        time_zone: the store's; UTC if no text and no calendar is involved.
    """
    session = spark.newSession()
    for name, value in {**settings, _TIME_ZONE: time_zone}.items():
        session.conf.set(name, value)
    return session


def zone_of(session: SparkSession) -> str:
    """The session's time zone."""
    return str(session.conf.get(_TIME_ZONE))


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make this the active session of the JVM's thread inside the block: Spark's parser takes its settings from there (ANSI mode, the time
    zone of literals). The session that was active before is active again afterwards."""
    sessions: Any = getattr(session._jvm, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


_beside: WeakKeyDictionary[SparkSession, dict[str, SparkSession]] = WeakKeyDictionary()


def epoch_session(spark: SparkSession, time_zone: str) -> SparkSession:
    """A second session on the user's Spark application, with the settings that an epoch needs and the store's time zone. The user's session
    does not change. Made once per time zone."""
    sessions = _beside.setdefault(spark, {})
    if (session := sessions.get(time_zone)) is None:
        session = sessions[time_zone] = sql_session(spark, time_zone, {**REQUIRED, **EPOCH})
    return session


def tasks_done(spark: SparkSession, tasks: int) -> tuple[int, int] | None:
    """How many tasks of the application's running jobs are done, and of how many; None where none runs.

    Args:
        tasks: of a stage that has not begun, about.
    """
    tracker, done, known = spark.sparkContext.statusTracker(), 0, 0
    try:
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds:
                found = tracker.getStageInfo(stage)
                done += 0 if found is None else found.numCompletedTasks
                known += tasks if found is None else max(found.numTasks, 1)
    except (Py4JError, ConnectionError):  # the JVM is going
        return None
    return (done, known) if known else None
