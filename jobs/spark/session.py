"""The Spark session: the settings that an epoch needs, in one place."""

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Any, cast
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tussock.jobs.settings.debugging import wants_debugging
from tussock.jobs.settings.object_ticket import REDACTED
from tussock.jobs.settings.tables import is_local_master
from tussock.jobs.spark.class_archive import forget_archive, submit_options, writes_archive
from tussock.jobs.spark.executor_watch import watch_executors
from tussock.jobs.spark.zones import ruled_by_jvm
from tussock.statestore.errors import InputError
from tussock.statestore.forks import new_rlock, renew_in_child
from tussock.statestore.zones import name_of

log = logging.getLogger(__name__)

LOGGING = Path(__file__).with_name("log4j2.properties")

LOCAL_MASTER = "local[2,4]"  # 4 attempts per task; plain local[N] never retries

_TIME_ZONE = "spark.sql.session.timeZone"
_JAVA_OPTIONS, _FIRST_JAVA_OPTIONS = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"

#: Settings of every session that parses, reads or computes SQL.
SQL: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timeType.enabled": "true",  # without it, reading a table with a TIME column fails
    # Rows from the driver are an RDD. The optimizer would compute expressions over a local relation that the query
    # does not need, and raise their errors.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}

#: Settings that an epoch needs to be correct, on any master.
REQUIRED: Mapping[str, str] = {
    # fail when attempts of a task produce different rows, instead of mixing them
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    _TIME_ZONE: "UTC",
    **SQL,
}

#: Settings for the jobs of an epoch only, not for other queries of the application.
EPOCH: Mapping[str, str] = {
    # Cells are large, so the byte limit bounds a batch of cells; the row limit bounds batches of rows that Spark
    # computes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # Otherwise a part that two expressions share is computed before the CASE that guards it in each.
    "spark.sql.subexpressionElimination.enabled": "false",
    # The plan sizes exchanges at one partition per unit, so adaptive planning would change nothing.
    "spark.sql.adaptive.enabled": "false",
}

#: Keeps an application closed to the network by default, and tickets out of the plans in its page and its event log.
CLOSED: Mapping[str, str] = {"spark.ui.enabled": "false", "spark.redaction.string.regex": REDACTED}

#: Defaults that make small epochs fast.
DEFAULTS: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.worker.reuse": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.codegen.wholeStage": "true",
}

#: A local application needs no network and no host name. On a cluster, workers could not connect to this address.
#: The ports are on the loopback interface and accept only Spark's own processes, which share a secret that Spark
#: generates.
LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
}
_LOCAL = re.compile(r"local(\[.*\])?")

#: A harmless line that a JVM prints before Spark's logging starts: Spark loads one of Java's incubator modules.
NOISE = re.compile(rb"WARNING: Using incubator modules: ")


def _leave_to_parent() -> None:
    """Forget the JVM in a forked child, which cannot share the parent's connections and may start another one."""
    if (gateway := SparkContext._gateway) is None:
        return
    _users.context, _users.count = None, 0
    _of_parent.append(gateway)
    if (started := getattr(gateway, "proc", None)) is not None and started.stdin is not None:
        with suppress(OSError):
            started.stdin.close()  # the parent's JVM ends with the last copy
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


renew_in_child(_leave_to_parent)
_of_parent: list[JavaGateway] = []  # its finalizers would speak to the parent's JVM

_application_lock = new_rlock()  # held while an application starts or stops, and while its users are counted


class _Users:
    """Counts the sessions that use the application that this process started."""

    context: SparkContext | None = None
    count = 0


_users = _Users()


class ConnectSessionError(InputError):
    """The given Spark session belongs to Spark Connect, which cannot run epochs."""

    def __str__(self) -> str:
        return (
            "the Spark session is one of Spark Connect, which has no barrier stages, and epochs need them. Leave out "
            "the argument `spark`, and unset SPARK_REMOTE: then a local Spark session starts if a statement needs one. "
            "To use a cluster, pass a classic session, such as "
            'SparkSession.builder.master("spark://host:7077").getOrCreate(). '
            "`Session.read` needs no Spark session."
        )


def require_classic(spark: SparkSession) -> SparkSession:
    """Return a classic session. Raises ConnectSessionError."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConnectSessionError
    return spark


def driver_address(context: SparkContext) -> tuple[str, str]:
    """The address on which the driver listens for tasks, and the name under which they reach it."""
    if is_local_master(str(context.master)):
        return "127.0.0.1", "127.0.0.1"
    host = str(context.getConf().get("spark.driver.host"))
    return str(context.getConf().get("spark.driver.bindAddress", host)), host


def join_spark(session: SparkSession | None = None) -> tuple[SparkSession, bool]:
    """Use this process's Spark application: the one of `given`, the running one, or a new one.

    Returns: the Spark session, and whether to call `leave_spark` later. Applications that the caller started are not
        counted.

    Raises ConnectSessionError.
    """
    with _application_lock:
        is_new = session is None and SparkContext._active_spark_context is None
        spark = build_spark() if session is None else require_classic(session)
        if is_new:
            _users.context, _users.count = spark.sparkContext, 0
        if spark.sparkContext is not _users.context:
            return spark, False
        _users.count += 1
        return spark, True


def leave_spark(spark: SparkSession) -> None:
    """End a use that `join_spark` counted. The last user stops the application."""
    with _application_lock:
        if spark.sparkContext is not _users.context:
            return  # the counted application was stopped meanwhile, and another one runs
        _users.count -= 1
        if not _users.count:
            _users.context = None
            spark.stop()


@contextmanager
def joined_spark() -> Iterator[SparkSession]:
    """Yield a session of this process's application, which is started if necessary and ends with its last user."""
    spark, leaves = join_spark()
    try:
        yield spark
    finally:
        if leaves:
            leave_spark(spark)


@contextmanager
def spark_session(
    app_name: str = "tussock", settings: Mapping[str, str] | None = None, *, brief: bool = False
) -> Iterator[SparkSession]:
    """The session of `build_spark`, stopped at the end. An application that was already running is left running."""
    running_context = SparkContext._active_spark_context
    spark = build_spark(app_name, settings=settings, brief=brief)
    try:
        yield spark
    finally:
        if running_context is None:
            spark.stop()


def build_spark(
    app_name: str = "tussock",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    brief: bool = False,
) -> SparkSession:
    """The active session unchanged, or a new one with the settings that an epoch needs.

    Local workers run this Python. Cluster workers run the Python that PYSPARK_PYTHON or `spark.pyspark.python` names,
    else `python3` of their PATH. They get this code from spark-submit's --py-files or from `sparkContext.addPyFile`.

    Args:
        master: for a new session. None: the one of spark-submit, else `spark.master` in `settings`, else LOCAL_MASTER.
        settings: for a new session. They override DEFAULTS, never REQUIRED.
        brief: a new JVM works for seconds only, such as one that binds statements: do not optimise its code.
    """
    with _application_lock:
        if SparkContext._active_spark_context is not None:
            return (
                SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
            )  # a builder with settings would change the user's session
        chosen = _settings_of_a_new_application(master, dict(settings or {}))
        with _with_environment(_locale_of_names()):
            writes = _start_jvm({"spark.app.name": app_name, **chosen}, brief)
            builder = SparkSession.builder.appName(app_name)
            for name, value in {**chosen, **REQUIRED}.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
        watch_executors(spark.sparkContext)
        if writes:
            _load_classes(spark)
        return spark


def _settings_of_a_new_application(master: str | None, chosen: dict[str, str]) -> dict[str, str]:
    if master is None and ("SPARK_SUBMIT_MODE" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ):
        # spark-submit has set the master and the memory and started the JVM, which holds the given settings.
        chosen.pop("spark.master", None)
        SparkContext._ensure_initialized()
        user_settings = SparkConf()
        closed = {**CLOSED, **_local_defaults(user_settings.get("spark.master") or "")}
        return {**{name: value for name, value in closed.items() if not user_settings.contains(name)}, **chosen}
    master = master or chosen.get("spark.master", LOCAL_MASTER)
    if local := _local_defaults(master):
        # Local workers need this Python, with its packages and code. The variable may be set for a cluster.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        if _is_installed():
            local = {**local, "spark.python.daemon.module": "tussock.jobs.task.python_daemon"}
    return {**DEFAULTS, **CLOSED, **local, **chosen, **_quiet_options(chosen), "spark.master": master}


def _is_installed() -> bool:
    """Whether another process of this Python can import this code."""
    try:
        distribution("tussock")
    except PackageNotFoundError:
        return False
    return True


def _local_defaults(master: str) -> Mapping[str, str]:
    return LOCAL_DEFAULTS if _LOCAL.fullmatch(master) else {}


def _load_classes(spark: SparkSession) -> None:
    """Fill the archive that the JVM will write. An error of any kind only leaves it smaller."""
    from tussock.jobs.spark.class_loading import load_classes

    try:
        load_classes(sql_session(spark, "UTC"))
    except Exception:  # the session works without it
        log.debug("the archive of classes lacks the classes of queries", exc_info=True)


def _start_jvm(settings: Mapping[str, str], brief: bool) -> bool:
    """Start the JVM of this process unless one runs, and filter its output. Return whether it writes an archive.

    With TUSSOCK_DEBUG, pyspark starts it unfiltered.
    """
    if wants_debugging() or SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return False
    gateway, writes = _start_gateway(settings, brief)
    SparkContext._ensure_initialized(gateway=gateway, conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
    return writes


def _start_gateway(settings: Mapping[str, str], brief: bool) -> tuple[JavaGateway, bool]:
    """Start a JVM: from the archive of classes, or one that writes it. Return also whether it writes."""
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    more = " ".join(settings.get(name, "") for name in (_FIRST_JAVA_OPTIONS, _JAVA_OPTIONS))
    options = submit_options(writes=_CLASS_PATH not in settings, brief=brief, more=more)
    try:
        return _launch_jvm(conf, options), writes_archive(options)
    except PySparkRuntimeError:
        if not options:
            raise
        gateway = _launch_jvm(conf, {})  # this Java does not accept the options, or the archive is damaged
        forget_archive()
        return gateway, False


def _launch_jvm(conf: SparkConf, options: Mapping[str, str]) -> JavaGateway:
    """Start a JVM whose output is filtered. `options`: environment variables for it."""
    reader, writer = os.pipe()
    relay = threading.Thread(target=_relay_lines, args=(os.fdopen(reader, "rb"),), name="jvm-stderr", daemon=True)
    relay.start()
    try:
        with _with_environment(options):
            gateway = launch_gateway(conf, popen_kwargs={"stderr": writer})  # type: ignore[no-untyped-call]
    except BaseException:
        _kill_processes_that_write_to(writer)
        os.close(writer)
        relay.join(timeout=1.0)  # print the JVM's last lines, which contain the reason
        raise
    os.close(writer)
    return cast("JavaGateway", gateway)


def _kill_processes_that_write_to(writer: int) -> None:
    """Kill the JVM that writes its errors to this pipe, if any.

    An interrupted `launch_gateway` leaves its JVM and deletes the folder in which the JVM would write its port. The JVM
    then fails, but a thread of it runs forever. Only systems with /proc tell which process this is.
    """
    ours = os.fstat(writer)
    for pipe in Path("/proc").glob("[0-9]*/fd/2"):
        with suppress(OSError):  # the process of another user, or one that has ended
            if os.path.samestat(pipe.stat(), ours):
                os.kill(int(pipe.parts[2]), signal.SIGKILL)


@contextmanager
def _with_environment(more: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the block. A JVM that pyspark starts inherits only the environment."""
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


def _locale_of_names() -> Mapping[str, str]:
    """The variable with which Java reads and writes file names in UTF-8, as Python does. Empty if it already does.

    Python uses UTF-8 in the locale C too. Java would not find files with other names than ASCII, and does not start in
    a folder with such a name.
    """
    locale = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "C")
    if sys.getfilesystemencoding() != "utf-8" or re.search("utf-?8", locale, re.IGNORECASE):
        return {}
    return {"LC_ALL": "C.UTF-8"}


def _relay_lines(lines: IO[bytes]) -> None:
    """Copy the JVM's output to standard error until it ends, without NOISE."""
    with lines:
        for line in lines:
            if not NOISE.match(line):
                os.write(2, line)


def _quiet_options(chosen: Mapping[str, str]) -> Mapping[str, str]:
    """The option that limits Spark's log to errors from the JVM's first line on.

    The user's JVM options come later and win.

    Empty with TUSSOCK_DEBUG, or if the package is inside an archive.
    """
    if wants_debugging() or not LOGGING.is_file():
        return {}
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {chosen.get(_JAVA_OPTIONS, '')}".rstrip()}


def sql_session(spark: SparkSession, time_zone: str, settings: Mapping[str, str] = SQL) -> SparkSession:
    """A new session on the user's Spark application, in which SQL has the same meaning as in views.

    The user's session does not change. Every session that reads or computes rows is created here, so that none has
    another time zone by accident.

    Args:
        time_zone: of the store, by its recorded rules; UTC if neither texts nor calendar functions are involved.

    Raises: ZoneRulesDifferError if the JVM has other rules; UnknownZoneError.
    """
    session = spark.newSession()
    for name, value in {**settings, _TIME_ZONE: name_of(ruled_by_jvm(spark, time_zone))}.items():
        session.conf.set(name, value)
    return session


def zone_of(session: SparkSession) -> str:
    """The session's time zone."""
    return str(session.conf.get(_TIME_ZONE))


@contextmanager
def activated_session(session: SparkSession) -> Iterator[None]:
    """Make this the active session of the JVM's thread inside the block, then restore the previous one.

    Spark's parser takes its settings (ANSI mode, the time zone of literals) from the active session.
    """
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
    """A second session on the user's Spark application, with the settings of an epoch and the store's time zone.

    The user's session does not change. Each time zone has one such session.
    """
    sessions = _beside.setdefault(spark, {})
    if (session := sessions.get(time_zone)) is None:
        session = sessions[time_zone] = sql_session(spark, time_zone, {**REQUIRED, **EPOCH})
    return session


def tasks_done(spark: SparkSession, tasks: int) -> tuple[int, int] | None:
    """The finished and the total tasks of the application's running jobs. None if no job runs.

    Args:
        tasks: the assumed number of tasks of a stage that has not begun.
    """
    tracker, done, known = spark.sparkContext.statusTracker(), 0, 0
    try:
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds:
                stage_info = tracker.getStageInfo(stage)
                done += 0 if stage_info is None else stage_info.numCompletedTasks
                known += tasks if stage_info is None else max(stage_info.numTasks, 1)
    except (Py4JError, ConnectionError):  # the JVM is stopping
        return None
    return (done, known) if known else None
